"""The figure of the energy's errors: against the step, against time, and orbits."""

from typing import Any, NamedTuple

import numpy as np

from .._base import GREY, INK, PALETTE, Figure, new_figure, style
from ._steps import Run
from ._systems import ECCENTRICITY, PERIOD


SHOWN = ("attention", "Kepler", "pendulum", "Hénon-Heiles")
_ORDER = (
    "Leapfrog", "Yoshida4", "Yoshida6", "ImplicitMidpoint", "TaoLeapfrog",
    "Euler", "Heun", "RK4", "Tsit5",
)  # fmt: skip


class Found(NamedTuple):
    """What was found of a method; errors of the energy are relative.

    - `symplectic`: whether it is.
    - `steps`: of the runs over two of Kepler's turns.
    - `errors`: the largest over each of them, by system.
    - `returns`: where Kepler's body is after the two turns, from its start.
    - `length`: of a block of the long run, in time.
    - `long`: that run.
    - `short`: 200 steps of 0.1.
    - `turns`: 800 steps of 0.2, of which every fourth is kept.
    - `defect`: what a step does to the symplectic form.
    """

    symplectic: bool
    steps: np.ndarray
    errors: dict[str, np.ndarray]
    returns: np.ndarray
    length: float
    long: Run
    short: Run
    turns: Run
    defect: float


def draw(found: dict[str, Found], section: np.ndarray) -> Figure:
    """Four systems in columns: step, time; below them orbits and the form."""
    figure = new_figure(13, 9.4)
    axes: Any = figure.subplots(3, 4)
    for column, system in enumerate(SHOWN):
        top, middle = style(axes[0, column]), style(axes[1, column])
        for name, one in found.items():
            look = _look(name, one)
            top.loglog(one.steps, one.errors[system], "o", markersize=3, **look)
            largest = one.long.largest[system]
            times = one.length * np.arange(1, len(largest) + 1)
            middle.loglog(times, largest, **look)
        top.set(xlabel="step h", ylim=(1e-12, 1))
        middle.set(xlabel="time t", ylim=(1e-12, 1))
        top.set_title(system, fontsize=10, color=INK)
    axes[0, 0].set_ylabel("largest |E/E₀ - 1| up to t = 50")
    axes[1, 0].set_ylabel("|E/E₀ - 1|, largest of a block")
    _legend(figure, axes[0, 0])
    _turns(style(axes[2, 0]), found)
    _section(style(axes[2, 1]), section)
    _layers(style(axes[2, 2]), found)
    _defects(style(axes[2, 3]), found)
    return figure


def _look(name: str, one: Found) -> dict[str, Any]:
    """Solid lines for what is symplectic, broken ones for what is not."""
    line = "-" if one.symplectic else (0, (4, 1.5))
    color = PALETTE[_ORDER.index(name)]
    return {"color": color, "linestyle": line, "linewidth": 1.3, "label": name}


def _legend(figure, axes):
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), frameon=False
    )


def _turns(axes, found):
    """Kepler's body by Heun's method, and by leapfrog, about the exact orbit."""
    semi = 1 / (1 - ECCENTRICITY)
    angle = np.linspace(0, 2 * np.pi, 400)
    x = semi * (np.cos(angle) - ECCENTRICITY)
    y = semi * np.sqrt(1 - ECCENTRICITY**2) * np.sin(angle)
    axes.plot(x, y, color=GREY, linewidth=0.8)
    for name in ("Heun", "Leapfrog"):
        q = found[name].turns.states[0]["Kepler"]
        axes.plot(*q.T, ".", markersize=2.5, color=_look(name, found[name])["color"])
    axes.plot(0, 0, "+", color=INK)
    axes.set(xlabel="x", ylabel="y", aspect="equal")
    axes.set_title(f"Kepler, h = 0.2, {160 / PERIOD:.1f} turns", fontsize=9)


def _section(axes, section):
    """Where orbits of one energy cross the line x = 0, a colour for each."""
    for orbit in np.unique(section[:, 0]).astype(int):
        y, v = section[section[:, 0] == orbit, 1:].T
        color = PALETTE[orbit % len(PALETTE)]
        axes.plot(y, v, ".", markersize=1.2, color=color, markeredgewidth=0)
    axes.set(xlabel="y", ylabel="dy/dt")
    axes.set_title("Hénon-Heiles, E = 1/8: section x = 0", fontsize=9)


def _layers(axes, found):
    """The tokens' energy from layer to layer."""
    label = {"Euler": "residual", "Leapfrog": "coupling"}
    for name in ("Euler", "Leapfrog"):
        error = found[name].short.mean["attention"]
        color = _look(name, found[name])["color"]
        layers = np.arange(1, len(error) + 1)
        axes.semilogy(layers, 1 + error, color=color, label=label[name])
    axes.set(xlabel="layer, h = 0.1", ylabel="E / E₀")
    axes.set_title("tokens, x + h f(x) and its coupling", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _defects(axes, found):
    names = list(found)
    colors = [_look(name, found[name])["color"] for name in names]
    # A defect of exactly 0 has a bar as well.
    defects = [max(found[name].defect, 1e-17) for name in names]
    axes.barh(names, defects, color=colors, left=1e-18)
    axes.set_xscale("log")
    axes.tick_params(axis="y", labelsize=7)
    axes.set(xlim=(1e-18, 1), xlabel="largest entry of JᵀΩJ - Ω")
    axes.set_title("one step of 0.1, Hénon-Heiles", fontsize=9)
    axes.invert_yaxis()
