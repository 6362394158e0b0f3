"""Equiangular starts: the whole flow is one curve."""

from typing import Any

import diffrax as dfx
import jax
import numpy as np

from ...fields import AttentionParams, self_attention, unnormalized_self_attention
from ...geometry import Sphere
from ...integrate import solve
from ...theory import equiangular as curve, equiangular_time
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, Row, below, near, quiet, within


_TABLE = {
    (32, 0.1, 0.5): 1.7530,
    (32, 0.1, 0.999): 5.1921,
    (32, 1.0, 0.9): 2.91556,
    (32, 1.0, 0.999): 5.27028,
    (32, 4.0, 0.5): 3.43172,
    (32, 4.0, 0.999): 6.9535,
    (32, 6.0, 0.999): 15.9953,
    (467, 1.0, 0.9): 4.18221,
    (128, 4.0, 0.999): 6.5696,
    (467, 9.0, 0.5): 34.106,
}
# gamma at t = 1, 2 and 5 for 32 tokens, by beta.
_VALUES = {
    0.1: (0.1654, 0.6237, 0.9985),
    1.0: (0.15185, 0.58977, 0.99828),
    4.0: (0.03544, 0.11807, 0.95277),
}
_BETAS = (0.0, 1.0, 2.0, 4.0, 9.0, 16.0)
_MERGES = {
    "SA": (4.3495073, 5.5260522, 9.0098373, 61.321651, 48744.790, 1.0320761e9),
    "USA": (4.3495073, 2.4657477, 1.8500560, 2.1666264, 12.030633, 232.28973),
}
_PRECISE: dict[str, Any] = {"solver": dfx.Dopri8(), "rtol": 1e-11, "atol": 1e-12}
_FIELDS = {"SA": self_attention, "USA": unnormalized_self_attention}


def equiangular(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Theorem 6.8: tokens that start orthogonal keep one inner product, gamma(t).

    **Arguments:**

    - `seed`: of the directions of the tokens.
    - `quick`: two inverse temperatures in place of five, 8 tokens only.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: particles against the curve, the curve against the paper's
    table and its closed form, the merge times of two tokens.

    Source: arXiv 2312.10794, theorem 6.8 and section 6.2.
    """
    figure = new_figure(9.0, 3.6)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows, data = _particles(seed, quick, left, progress)
    rows += _curve()
    for (n, beta, gamma), time in _TABLE.items():
        found = equiangular_time(gamma, n, beta)
        claim = f"SA, n = {n}, beta = {beta:g}: gamma reaches {gamma:g} at t ="
        rows.append(near(claim, found, time, 1e-4))
    rows += _two_tokens(right)
    return Report(rows, figure, data)


def _particles(seed, quick, axes, progress):
    """All inner products of orthogonal tokens beside the curve, to t = 30."""
    betas = (1.0, 4.0) if quick else (0.0, 0.5, 1.0, 4.0, 9.0)
    sizes = ((8, 8),) if quick else ((8, 8), (8, 20), (32, 32))
    rows, ts = [], np.linspace(0.0, 30.0, 121)
    data: dict[str, np.ndarray] = {"t": ts}
    for k, (n, d) in enumerate(sizes):
        x0, off = _orthonormal(seed, n, d), ~np.eye(n, dtype=bool)
        for name, field in _FIELDS.items():
            worst = 0.0
            for j, beta in enumerate(betas):
                times = ts if name == "SA" else ts * 8 * np.exp(-beta)
                xs = _run(field, x0, beta, times)
                inner = np.einsum("tid,tjd->tij", xs, xs)[:, off]
                gamma = np.asarray(curve(times, n, beta, normalized=name == "SA"))
                worst = max(worst, float(np.abs(inner - gamma[:, None]).max()))
                data[f"gamma, {name}, n = {n}, beta = {beta:g}"] = gamma
                if name == "SA" and (n, d) == (8, 8):
                    colour = PALETTE[j]
                    axes.plot(ts, gamma, color=colour, label=f"β = {beta:g}")
                    axes.plot(ts, inner[:, 0], ".", color=colour, markersize=4)
            claim = f"{name}, n = {n}, d = {d}: particles from the curve, at most"
            rows.append(below(claim, worst, 1e-6))
        progress((k + 1) / (len(sizes) + 1))
    axes.set(xlabel="time t", ylabel="inner product γ(t)", xlim=(0, 12))
    axes.set_title("8 orthogonal tokens: curve and particles (dots)", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows, data


def _orthonormal(seed, n, d) -> np.ndarray:
    normal = np.random.default_rng(seed).standard_normal((d, n))
    return np.linalg.qr(normal)[0].T


def _run(field, x0, beta, ts) -> np.ndarray:
    sol = solve(
        field,
        x0,
        AttentionParams(beta=beta),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(x0.shape[1]),
        **_PRECISE,
    )
    return np.asarray(sol.ys)


def _curve() -> list[Row]:
    """Its table, its closed form at beta = 0, and how it changes with beta."""
    table = [curve(np.array([1.0, 2.0, 5.0]), 32, beta) for beta in _VALUES]
    error = np.abs(np.asarray(table) - np.array(list(_VALUES.values()))).max()
    ts = np.linspace(0.0, 5.0, 38)[1:]
    growth = np.exp(2 * ts)
    closed = (growth - 1) / (growth + 31)
    rows = [
        below("SA, n = 32: gamma(1), gamma(2), gamma(5) from the table", error, 1e-4),
        below(
            "beta = 0: from the closed form",
            np.abs(np.asarray(curve(ts, 32, 0.0)) - closed).max(),
            1e-9,
        ),
    ]
    # By the time at which gamma is reached: its slope in beta has the other sign.
    gammas, betas = np.linspace(0.01, 0.99, 37), np.linspace(0.0, 9.0, 101)
    for claim, sign in (("SA: gamma rises with beta at", 1), ("USA: it falls at", -1)):
        time = lambda gamma, beta, sign=sign: equiangular_time(
            gamma, 32, beta, normalized=sign > 0
        )
        slope = jax.vmap(jax.vmap(jax.grad(time, 1), (None, 0)), (0, None))
        wrong = int((sign * np.asarray(slope(gammas, betas)) < 0).sum())
        rows.append(within(f"{claim} so many of 3,737 points", wrong, 0, 0))
    return rows


def _two_tokens(axes) -> list[Row]:
    """Their merge times by quadrature, and by the flow where it takes not too long."""
    rows = []
    grid = np.linspace(0.0, 16.0, 65)
    x0 = np.array([[1.0, 0.0], [-0.5, np.sqrt(0.75)]])
    for k, (name, times) in enumerate(_MERGES.items()):
        line = [_merge(name, beta) for beta in grid]
        axes.semilogy(grid, line, color=PALETTE[k], label=name)
        for beta, time in zip(_BETAS, times, strict=True):
            claim = f"{name}, beta = {beta:g}: two tokens from -0.5 to 0.999 take t ="
            rows.append(near(claim, _merge(name, beta), time, 1e-6 * time))
        end = _run(_FIELDS[name], x0, 4.0, np.array([times[_BETAS.index(4.0)]]))[-1]
        claim = f"{name}, beta = 4: product of two particles at that time"
        rows.append(near(claim, end[0] @ end[1], 0.999, 1e-6))
    axes.set(xlabel="inverse temperature β", ylabel="time to merge")
    axes.set_title("two tokens, from inner product -0.5 to 0.999", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows


def _merge(name: str, beta: float | int) -> float:
    time = equiangular_time(0.999, 2, beta, gamma0=-0.5, normalized=name == "SA")
    return float(time)
