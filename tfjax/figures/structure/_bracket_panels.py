"""The figure of brackets: what they sort, what methods keep, and rounding."""

from typing import Any, NamedTuple

import numpy as np

from .._base import GREY, INK, PALETTE, Figure, new_figure, style
from ._commutators import ROUNDING
from ._flows import EIGENVALUES, D


_METHODS = (
    "Isospectral", "LieEuler", "LieMidpoint", "RKMK4", "Heun", "RK4", "ImplicitMidpoint"
)  # fmt: skip


class Drawn(NamedTuple):
    """What the figure shows.

    - `times`, `sorting`: of the sorting flows, of shape (t, flow, d, d).
    - `iterates`: diagonals of the QR algorithm, one for each unit of time.
    - `rate`: of Brockett's slowest entry, by theory.
    - `singular`: singular values from 0 to 1, by name.
    - `errors`: steps and errors at t = 1, by method.
    - `drifts`: of eigenvalues, in blocks of fifty steps, by method.
    - `commutators`: conditions, and errors by precision.
    """

    times: np.ndarray
    sorting: np.ndarray
    iterates: np.ndarray
    rate: float
    singular: dict[str, np.ndarray]
    errors: dict[str, np.ndarray]
    drifts: dict[str, np.ndarray]
    commutators: dict[str, np.ndarray]


def draw(found: Drawn) -> Figure:
    """Above what flows do, below how exactly it is computed."""
    figure = new_figure(13, 7.6)
    axes: Any = figure.subplots(2, 3)
    panels = (_toda, _brockett, _singular, _errors, _drifts, _commutators)
    for panel, place in zip(panels, axes.flat, strict=True):
        panel(style(place), found)
        place.title.set_fontsize(10)
    return figure


def _toda(axes, found):
    shown = found.times <= len(found.iterates) - 0.7
    diagonal = np.diagonal(found.sorting[shown, 0], axis1=1, axis2=2)
    for k in range(D):
        axes.axhline(EIGENVALUES[k], color=GREY, linewidth=0.7, linestyle=":")
        axes.plot(found.times[shown], diagonal[:, k], color=PALETTE[k], linewidth=1.4)
        whole = np.arange(len(found.iterates))
        dots = found.iterates[:, k]
        axes.plot(whole, dots, "o", color=PALETTE[k], markersize=5, mec="white")
    axes.set(xlabel="time t", ylabel="diagonal of L")
    axes.set_title("Toda (lines) is the QR algorithm (dots)", color=INK)


def _brockett(axes, found):
    entries = np.abs(found.sorting[:, 2])
    for c, (i, j) in enumerate(zip(*np.triu_indices(D, 1), strict=True)):
        axes.semilogy(found.times, entries[:, i, j], color=PALETTE[c], linewidth=1.0)
    largest = entries[:, *np.triu_indices(D, 1)].max(axis=1)
    half = len(found.times) // 2
    line = largest[half] * np.exp(-found.rate * (found.times - found.times[half]))
    label = f"rate min|λᵢ - λⱼ||nᵢ - nⱼ| = {found.rate:.2f}"
    axes.semilogy(found.times, line, "--", color=INK, linewidth=1.2, label=label)
    axes.set(xlabel="time t", ylabel="|entries off the diagonal|", ylim=(1e-16, 10))
    axes.set_title("Brockett's flow sorts, at a known rate", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _singular(axes, found):
    looks = {"skew A, B": (PALETTE[0], "-"), "attention": (PALETTE[3], "--")}
    for name, (color, line) in looks.items():
        values = found.singular[name]
        times = np.linspace(0, 1, len(values) + 1)[1:]
        axes.semilogy(times, values[:, 0], line, color=color, label=name)
        axes.semilogy(times, values[:, 1:], line, color=color)
    axes.set(xlabel="time t", ylabel="singular values of H")
    axes.set_title("H' = HB - AH", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _errors(axes, found):
    for name, (steps, errors) in found.errors.items():
        axes.loglog(steps, errors, markersize=4, **_look(name))
    axes.set(xlabel="step h", ylabel="largest error at t = 1")
    axes.set_title("L' = [B(L), L] by constant steps", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _drifts(axes, found):
    for name, drift in found.drifts.items():
        steps = 50 * np.arange(1, len(drift) + 1)
        axes.loglog(steps, np.maximum(drift, 1e-17), **_look(name) | {"marker": ""})
    axes.set(xlabel="steps of 0.05", ylabel="drift of the eigenvalues")
    axes.set_title("who keeps the eigenvalues", color=INK)


def _look(name: str) -> dict[str, Any]:
    """Broken lines for methods of Runge and Kutta's kind."""
    place = _METHODS.index(name)
    line = "-" if place < _METHODS.index("Heun") else (0, (4, 1.5))
    return {"color": PALETTE[place], "linestyle": line, "marker": "o", "label": name}


def _commutators(axes, found):
    conditions = found.commutators["condition"]
    for c, (name, unit) in enumerate(ROUNDING.items()):
        errors = found.commutators[f"error, {name}"]
        color = PALETTE[c]
        axes.loglog(conditions, errors, "o", color=color, label=name, markersize=4)
        axes.loglog(conditions, unit * conditions, "--", color=color, linewidth=0.9)
    axes.set(xlabel="condition |H||W| / |[H, W]|", ylabel="relative error of [H, W]")
    axes.set_title("a rounding times the condition (dashed)", color=INK)
    axes.legend(frameon=False, fontsize=8)
