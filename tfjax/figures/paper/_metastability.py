"""Metastable states: how long clusters stay apart."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import scipy.optimize

from ...diagnostics import energy_along, energy_staircase
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve
from ...theory import dirac_energy, equiangular_time, metastability as bounds
from .._base import BLUE, GREY, PALETTE, RED, log_time, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet, reported
from ._measures import FIVE_ANGLES, circle_points


_MERGES = {(0, 1): 1.30, (3, 4): 2.45, (2, 3): 5.20}
_PRECISE: dict[str, Any] = {"solver": dfx.Dopri8(), "rtol": 1e-10, "atol": 1e-12}


def metastability(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Clusters rest for an exponentially long time, and the energy climbs by steps.

    **Arguments:**

    - `seed`: of the tokens in two caps.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the exit of five tokens and their energies, and the bounds of
    the theorem along a run.

    Source: arXiv 2410.06833, theorem 2.3 and its illustration; arXiv 2312.10794,
    problem 1.
    """
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    x0 = circle_points(jnp.asarray(FIVE_ANGLES))
    rows = [near("five tokens: exit at t =", _exit(x0), 328.364063, 0.01)]
    progress(0.2)
    ts, energies, more = _staircase(x0, left)
    rows += more
    progress(0.4)
    times, lowest, more = _theorem(seed, right)
    rows += more
    data = {"t": ts, "energy": energies, "t of the caps": times, "lowest": lowest}
    return Report(rows, figure, data)


def _apart(t, y, args, **kwargs):
    return jnp.sum(y[0] * y[3]) - 0.999


def _exit(x0) -> float:
    sol = solve(
        self_attention,
        x0,
        AttentionParams(beta=4.0),
        t1=400.0,
        manifold=Sphere(2),
        event=dfx.Event(_apart, optx.Newton(rtol=1e-10, atol=1e-10)),
        **_PRECISE,
    )
    return float(sol.ts[-1])  # type: ignore[index]


def _staircase(x0, axes) -> tuple[np.ndarray, np.ndarray, list[Row]]:
    ts = [np.linspace(0.0, 6.0, 121), np.geomspace(6.0, 1000.0, 200), [20.0, 100.0]]
    ts = np.unique(np.concatenate(ts))
    args = AttentionParams(beta=4.0)
    sol = solve(
        self_attention, x0, args, t1=ts[-1], ts=ts, manifold=Sphere(2), **_PRECISE
    )
    xs = np.asarray(sol.ys)
    energies = np.asarray(energy_along(xs, 4.0) / dirac_energy(4.0))
    dense = dfx.SaveAt(dense=True)
    early = solve(
        self_attention, x0, args, t1=6.0, saveat=dense, manifold=Sphere(2), **_PRECISE
    )
    path = jax.jit(lambda t: early.evaluate(t))
    rows = []
    for time, value in ((5.0, 0.51931), (20.0, 0.52033), (100.0, 0.52040)):
        found = energies[np.argmin(np.abs(ts - time))]
        rows.append(
            near(f"five tokens: scaled energy at t = {time:g}", found, value, 1e-5)
        )
    joined = np.einsum("tid,tjd->tij", xs, xs) > 0.999
    for (i, j), time in _MERGES.items():
        found = ts[np.argmax(joined[:, i, j])]
        claim = (
            f"tokens {i} and {j}: first time on a grid of 0.05 at which they have met"
        )
        rows.append(near(claim, found, time, 1e-9))
        product = lambda t, i=i, j=j: float(path(t)[i] @ path(t)[j]) - 0.999
        exact = scipy.optimize.brentq(product, 0.0, 6.0, xtol=1e-10)
        text = f"{time:g}, elsewhere, of that grid"
        rows.append(reported(f"tokens {i} and {j} meet at t =", exact, text))
    # From t = 1 on: in log time the start, too, is a step.
    plateaus = energy_staircase(ts[ts >= 1], energies[ts >= 1])
    levels = [plateau.level for plateau in plateaus]
    rows.append(near("energy staircase: steps from t = 1 on", len(levels), 2.0, 0.0))
    # Two clusters of 2 and 3 tokens that do not see each other: (4 + 9) / 25.
    rows.append(near("energy staircase: first step", levels[0], 13 / 25, 1e-3))
    rows.append(near("energy staircase: last step", levels[-1], 1.0, 1e-6))
    axes.plot(ts[1:], energies[1:], color=BLUE)
    for plateau in plateaus:
        ends = [plateau.start, plateau.end]
        axes.plot(ends, 2 * [plateau.level], color=RED, linewidth=4, alpha=0.35)
    log_time(axes, ts)
    axes.set(ylabel="energy over that of one cluster")
    axes.set_title("five tokens, β = 4; plateaus in red", fontsize=9)
    return ts, energies, rows


def _theorem(seed, axes) -> tuple[np.ndarray, np.ndarray, list[Row]]:
    """Four tokens in two caps around orthogonal centres, to the end of the promise."""
    epsilon, beta, rate = 0.01, 25.0, 0.2
    centres = jnp.repeat(jnp.eye(3)[:2], 2, axis=0)
    # The nearest points of caps of size 2 epsilon around them.
    alpha = np.cos(np.pi / 2 - 2 * np.arccos(1 - 2 * epsilon))
    promise = bounds(4, alpha, epsilon, beta, rate=rate)
    key = jax.random.key(seed)
    direction = Sphere(3).tangent(centres, jax.random.normal(key, (4, 3)))
    direction /= jnp.linalg.norm(direction, axis=1, keepdims=True)
    angle = np.arccos(1 - epsilon)
    x0 = np.cos(angle) * centres + np.sin(angle) * direction
    gathered, escape = float(promise.gathered), float(promise.escape)
    ts = np.unique(np.concatenate([[0.0], np.geomspace(0.1, escape, 200), [gathered]]))
    rows = [
        near("caps: largest product between them, alpha", alpha, 0.39004, 1e-5),
        above("caps: margin of the theorem", promise.margin, 0.0),
        near("caps: T1", gathered, 115.74, 0.01),
        near("caps: T2", escape, 10484.6, 0.1),
    ]
    kept = np.zeros(0)
    for k, (name, value) in enumerate({"beta = 25": beta, "beta = 4": 4.0}.items()):
        args = AttentionParams(beta=value)
        sol = solve(
            self_attention, x0, args, t1=escape, ts=ts, manifold=Sphere(3), **_PRECISE
        )
        xs = np.asarray(sol.ys)
        lowest = np.einsum("tid,id->ti", xs, centres).min(axis=1)
        axes.plot(ts[1:], lowest[1:], color=PALETTE[k], label=name)
        claim = f"{name}: least <x, centre> on [0, T2]"
        if value == beta:
            rows.append(above(claim, lowest.min(), 1 - 2 * epsilon))
            late = xs[ts >= gathered]
            gap = 1 - np.sum(late[:, ::2] * late[:, 1::2], axis=-1)
            claim = "beta = 25: largest gap in a cap from T1 on"
            rows.append(below(claim, gap.max(), np.exp(-rate * beta)))
            kept = lowest
        else:
            # Without the margin the conclusion fails.
            margin = bounds(4, alpha, epsilon, value, rate=rate).margin
            rows.append(below("beta = 4: margin of the theorem", margin, 0.0))
            rows.append(below(claim, lowest.min(), 1 - 2 * epsilon))
    merge = equiangular_time(0.9, 2, beta)
    claim = "beta = 25: two orthogonal clusters meet (0.9) at t ="
    rows.append(near(claim, merge, 1444799478.87, 1e-6 * 1.4e9))
    axes.axhline(1 - 2 * epsilon, color=GREY, linestyle=":", label="1 - 2ε")
    axes.axvline(gathered, color=GREY, linewidth=0.6)
    axes.text(gathered, 0.72, " T₁", color=GREY)
    log_time(axes, ts)
    axes.set(ylabel="least <x, centre of its cap>")
    axes.set_title("two caps of two tokens, until T₂", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return ts, kept, rows
