"""The uniform state breaks up: which waves grow, and how fast."""

import jax.numpy as jnp
import numpy as np
import scipy.special

from ...fields import (
    AttentionParams,
    circle_attention,
    unnormalized_circle_attention,
)
from ...integrate import solve
from ...meanfield import MeanFieldParams, circle_continuity, circle_modes
from ...theory import circle_growth_rate
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, Row, below, near, quiet


_FASTEST = {1.0: 1, 4.0: 3, 5.0: 3, 7.0: 4, 9.0: 4}
# Beta, wave: the rate of 256 particles.
_PARTICLES = {(5.0, 3): 18.59600, (7.0, 4): 116.5769}


def growth(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Waves on the uniform measure of the circle grow at sigma_k = k^2 I_k / beta.

    **Arguments:**

    - `seed`: not used: nothing is random.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the rates against Bessel functions, against the equation for
    the density, and against particles.

    Source: arXiv 2410.23228.
    """
    waves = np.arange(1, 11)
    figure = new_figure(8.6, 3.6)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows: list[Row] = []
    data: dict[str, np.ndarray] = {"k": waves}
    worst = 0.0
    for c, (beta, fastest) in enumerate(_FASTEST.items()):
        rates = np.array([float(circle_growth_rate(int(k), beta)) for k in waves])
        exact = waves**2 * scipy.special.iv(waves, beta) / beta
        worst = max(worst, float(np.abs(rates / exact - 1).max()))
        found = int(waves[rates.argmax()])
        rows.append(near(f"beta = {beta:g}: fastest wave", found, float(fastest), 0.0))
        measured = _of_a_density(beta, waves, rates.max())
        claim = f"beta = {beta:g}, density: fastest wave"
        rows.append(near(claim, waves[measured.argmax()], float(fastest), 0.0))
        quick_ones = rates > 0.01 * rates.max()
        error = np.abs(measured / rates - 1)[quick_ones].max()
        claim = f"beta = {beta:g}, density: rates, relative, off by at most"
        rows.append(below(claim, error, 1e-3))
        colour = PALETTE[c]
        left.plot(waves, rates / rates.max(), color=colour, label=f"β = {beta:g}")
        left.plot(waves, measured / rates.max(), "o", color=colour, markersize=4)
        data[f"rate, beta = {beta:g}"] = rates
        data[f"rate of the density, beta = {beta:g}"] = measured
    rows.append(below("rates from Bessel functions, relative, at most", worst, 1e-10))
    left.set(xlabel="wave k", ylabel="rate over the largest")
    left.set_title("formula, and waves of a density (dots)", fontsize=9)
    left.legend(frameon=False, fontsize=8)
    progress(0.3)
    for c, ((beta, k), value) in enumerate(_PARTICLES.items()):
        exact = float(circle_growth_rate(k, beta))
        ts, size = _run(unnormalized_circle_attention, beta, k, exact)
        rate = np.polyfit(ts, np.log(size), 1)[0]
        claim = f"beta = {beta:g}, k = {k}: rate of 256 particles"
        rows.append(near(claim, rate, value, 1e-3 * value))
        rows.append(near(f"{claim} and theory", rate, exact, 1e-3 * exact))
        right.semilogy(
            ts * exact, size, color=PALETTE[c], label=f"β = {beta:g}, k = {k}"
        )
        data[f"size, beta = {beta:g}"] = size
        progress(0.6 + 0.2 * c)
    exact = float(circle_growth_rate(3, 5.0, normalized=True))
    ts, size = _run(circle_attention, 5.0, 3, exact)
    rate = np.polyfit(ts, np.log(size), 1)[0]
    rows.append(
        near("SA, beta = 5, k = 3: rate of particles", rate, exact, 1e-3 * exact)
    )
    right.semilogy(ts * exact, size, ":", color=PALETTE[2], label="SA, β = 5, k = 3")
    right.set(xlabel="time times σ_k", ylabel="size of the wave")
    right.set_title("256 particles with a small wave: one line", fontsize=9)
    right.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _of_a_density(beta, waves, fastest) -> np.ndarray:
    """The rates of small waves on the uniform density, along its equation (USA)."""
    angles = 2 * np.pi * np.arange(128) / 128
    bumps = 1e-6 * np.cos(np.outer(waves, angles)).sum(axis=0)
    sol = solve(
        circle_continuity,
        jnp.asarray((1 + bumps) / (2 * np.pi)),
        MeanFieldParams(beta),
        t1=1.0 / fastest,
        rtol=1e-10,
        atol=1e-14,
    )
    grown = np.real(circle_modes(jnp.asarray(sol.ys)[-1]))[waves]
    return np.log(grown / 0.5e-6) * fastest


def _run(field, beta, k, rate) -> tuple[np.ndarray, np.ndarray]:
    """A wave of size 1e-6 until it is a hundred times as large."""
    uniform = 2 * np.pi * np.arange(256) / 256
    ts = np.linspace(0.0, np.log(100.0) / rate, 41)
    sol = solve(
        field,
        jnp.asarray(uniform + 1e-6 * np.sin(k * uniform)),
        AttentionParams(beta=beta),
        t1=ts[-1],
        ts=ts,
        rtol=1e-10,
        atol=1e-14,
    )
    gaps = np.asarray(sol.ys) - uniform
    return ts, 2 * np.mean(gaps * np.sin(k * uniform), axis=1)
