"""Two limits: small inverse temperature, and many dimensions."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import inner_products
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import reduce_to_span, solve_ensemble
from ...theory import equiangular
from .._base import BLUE, GREY, PALETTE, RED, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet, reported, within


_PRECISE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11, "throw": True}
# Dimension: the median of 40 draws.
_MEDIANS = {64: 0.3090, 256: 0.1521, 1024: 0.0761, 4096: 0.0360}


def small_beta(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Theorem 4.2: the flow at small beta stays near that at beta = 0, linearly.

    **Arguments:**

    - `seed`: of the uniform start.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the distance of the flows by beta, and its bound.

    Source: arXiv 2312.10794, theorem 4.2 and its proof.
    """
    betas = np.array([0.0, 1e-4, 1e-3, 1e-2, 1e-1])
    ts = np.linspace(0.0, 2.0, 41)
    x0 = Sphere(3).random(jax.random.key(seed), (16,))
    sol = solve_ensemble(
        self_attention,
        jnp.tile(x0, (betas.size, 1, 1)),
        AttentionParams(beta=jnp.asarray(betas)),
        in_axes=(0, {"beta": 0}),
        t1=2.0,
        ts=ts,
        manifold=Sphere(3),
        **_PRECISE,
    )
    xs = np.asarray(sol.ys)
    gap = np.linalg.norm(xs[1:] - xs[0], axis=-1).max(axis=-1)
    rows: list[Row] = []
    for k in range(3):
        claim = f"beta = {betas[k + 1]:g} to {betas[k + 2]:g}: deviations, ratio"
        ratio = gap[k + 1, -1] / gap[k, -1]
        if k < 2:
            rows.append(near(claim, ratio, 10.0, 0.5))
        else:
            rows.append(reported(claim, ratio, "10, and the second order"))
    bound = 2 * np.e**2 * betas[1:, None] * np.exp(3 * ts)
    rows.append(below("deviation over its bound, at most", (gap / bound).max(), 1.0))
    figure = new_figure(6.0, 3.6)
    axes = style(figure.subplots())
    for k, beta in enumerate(betas[1:]):
        axes.semilogy(ts[1:], gap[k, 1:], color=PALETTE[k], label=f"β = {beta:g}")
    axes.set(xlabel="time t", ylabel="largest distance from the flow at β = 0")
    axes.set_title("n = 16, d = 3, one uniform start", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    progress(1.0)
    return Report(rows, figure, {"t": ts, "beta": betas[1:], "deviation": gap})


def concentration(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Theorem 6.9: in d dimensions random tokens follow gamma(t) to order 1/sqrt(d).

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: 40 draws in place of 200, and fewer dimensions.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the largest deviation from the curve by dimension.

    Source: arXiv 2312.10794, theorem 6.9.
    """
    draws, n, ts = 40 if quick else 200, 8, np.linspace(0.0, 10.0, 101)
    gamma = np.asarray(equiangular(ts, n, 1.0))
    off = ~np.eye(n, dtype=bool)
    dimensions = (3, 64, 256, 1024) if quick else (3, 16, *_MEDIANS)
    medians, data = {}, {"t": ts, "gamma": gamma}
    example = np.zeros(0)
    for k, d in enumerate(dimensions):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), d), draws)
        start = lambda key, d=d: reduce_to_span(Sphere(d).random(key, (n,)))[0]
        sol = solve_ensemble(
            self_attention,
            jax.vmap(start)(keys),
            AttentionParams(beta=1.0),
            t1=ts[-1],
            saveat=dfx.SaveAt(ts=jnp.asarray(ts), fn=_products),
            manifold=Sphere(min(n, d)),
            **_PRECISE,
        )
        products = np.asarray(sol.ys)[:, :, off]
        worst = np.abs(products - gamma[:, None]).max(axis=(1, 2))
        medians[d] = float(np.median(worst))
        data[f"deviation, d = {d}"] = worst
        if d == 256:
            example = products[0]
        progress((k + 1) / len(dimensions))
    rows = [above("d = 3, fewer than n: median deviation", medians[3], 0.6)]
    for d in dimensions[1 if quick else 2 :]:
        value = _MEDIANS[d]
        # Medians of 40 draws elsewhere, of about as many here.
        rows.append(near(f"d = {d}: median deviation", medians[d], value, 0.15 * value))
    for d in (64, 256) if quick else (64, 256, 1024):
        claim = f"d = {d} to {4 * d}: ratio of medians"
        rows.append(within(claim, medians[d] / medians[4 * d], 1.7, 2.4))
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    left.plot(ts, example, color=GREY, linewidth=0.6)
    left.plot(ts, gamma, color=RED, linewidth=2, label="γ(t)")
    left.set(xlabel="time t", ylabel="inner products")
    left.set_title("8 uniform tokens in d = 256, β = 1", fontsize=9)
    left.legend(frameon=False, fontsize=8)
    right.loglog(list(medians), list(medians.values()), "o-", color=BLUE)
    line = 2.43 / np.sqrt(np.array(dimensions[1:]))
    right.loglog(dimensions[1:], line, ":", color=RED, label="2.43 / √d")
    right.set(xlabel="dimension d", ylabel="median of the largest deviation")
    right.set_title(f"{draws} draws for each d", fontsize=9)
    right.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data, "Tokens are run in the span of the eight.")


def _products(t, x, args):
    return inner_products(x)
