"""Histograms of the pairwise inner products over time, and when all pairs are close."""

from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import inner_products
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve_ensemble
from ...theory import equiangular, equiangular_time
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, Row, near, quiet, reported
from ._measures import CLOSE
from ._shares import uniform_starts


_N, _BINS = 32, 80
# The times that are drawn, by beta; all runs go on to the last time.
_ENDS, _LAST = {1.0: 12.0, 4.0: 30.0}, 100.0


def pair_histograms(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Inner products of random tokens: a narrow band about gamma(t) in many dimensions.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: 32 draws, two dimensions and one inverse temperature, in place of 256,
      three and two.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the histograms over time, when all pairs are close, and the
    least inner product in the runs of the published animations.

    Source: arXiv 2312.10794, theorems 6.1, 6.8 and 6.9; its animations on the sphere.
    """
    draws, ends = (32, {1.0: _ENDS[1.0]}) if quick else (256, _ENDS)
    dimensions = (3, 128) if quick else (3, 32, 128)
    figure = new_figure(10.4, 2.8 * len(ends) + 0.4)
    panels = figure.subplots(len(ends), len(dimensions) + 1, squeeze=False)
    rows: list[Row] = []
    data: dict[str, np.ndarray] = {}
    key = jax.random.key(seed)
    for k, (beta, end) in enumerate(ends.items()):
        ts = np.append(np.linspace(0.0, end, 241), _LAST)
        data[f"t, beta = {beta:g}"] = ts
        for j, d in enumerate(dimensions):
            x0 = uniform_starts(jax.random.fold_in(key, d), _N, d, draws)
            found = _products_along(x0, beta, ts)
            case = f"d = {d}, beta = {beta:g}"
            data[f"share of pairs, {case}"] = found.histogram
            data[f"time of closeness, {case}"] = times = _close_times(ts, found.least)
            _draw_histogram(panels[k, j], ts[:-1], found.histogram[:-1], beta, d)
            _draw_times(panels[k, -1], times, end, PALETTE[j], f"d = {d}")
            rows += _rows(case, beta, d, times)
            progress(0.8 * (k + (j + 1) / len(dimensions)) / len(ends))
        style(panels[k, -1]).set_title(f"all pairs close, β = {beta:g}", fontsize=9)
        panels[k, -1].set(ylabel="share of draws", ylim=(0, 1.02))
        panels[k, -1].legend(frameon=False, fontsize=8, loc="center right")
        panels[k, 0].set(ylabel="inner product of a pair")
    for axes in panels[-1]:
        axes.set_xlabel("time t")
    mesh = panels[0, 0].collections[0]
    label = f"share of pairs, of {_BINS} bins"
    figure.colorbar(mesh, ax=panels[:, :-1], label=label)
    rows += _animations(jax.random.fold_in(key, 64), 16 if quick else 64)
    note = (
        f"{_N} tokens, SA, {draws} draws; the line is γ(t) of orthogonal tokens. All "
        "pairs are close where the least of their products is above 0.999."
    )
    return Report(rows, figure, data, note)


class _Products(NamedTuple):
    """The histogram over all draws (t, bins), and the least product (b, t)."""

    histogram: np.ndarray
    least: np.ndarray


def _summary(t, x, args):
    """How many pairs lie in each bin, and their least product."""
    products = inner_products(x)[jnp.triu_indices(x.shape[0], 1)]
    place = jnp.floor((products + 1) * (_BINS / 2)).astype(jnp.int32)
    counts = jnp.zeros(_BINS, x.dtype)
    return counts.at[jnp.clip(place, 0, _BINS - 1)].add(1), jnp.min(products)


def _products_along(x0, beta, ts) -> _Products:
    sol: Any = solve_ensemble(
        self_attention,
        x0,
        AttentionParams(beta=jnp.float32(beta)),
        t1=ts[-1],
        saveat=dfx.SaveAt(ts=jnp.asarray(ts), fn=_summary),
        manifold=Sphere(x0.shape[2]),
        rtol=1e-5,
        atol=1e-5,
        throw=True,
    )
    counts, least = (np.asarray(part, float) for part in sol.ys)
    counts = counts.sum(axis=0)
    return _Products(counts / counts.sum(axis=1, keepdims=True), least)


def _close_times(ts, least) -> np.ndarray:
    """When the least product passes 0.999, between saved times; inf where it does not.

    In the logarithm of the gap, which is nearly linear in time.
    """
    gap = np.log(np.maximum(1 - least, 1e-12))
    after = np.argmax(gap < np.log(1 - CLOSE), axis=1)
    line = np.arange(len(least))
    high, low = gap[line, after - 1], gap[line, after]
    part = (high - np.log(1 - CLOSE)) / (high - low)
    met = least.max(axis=1) > CLOSE
    return np.where(met, ts[after - 1] + part * (ts[after] - ts[after - 1]), np.inf)


def _rows(case, beta, d, times) -> list[Row]:
    share, median = np.mean(np.isfinite(times)), np.median(times)
    claim = f"{case}: share of draws with all pairs close by t = {_LAST:g}"
    if d == 3 and beta == 4:
        return [reported(claim, share, "clusters rest long")]
    rows = [near(claim, share, 1.0, 0.0)]
    claim = f"{case}: median time at which all pairs are close"
    if d < 128:
        return [*rows, reported(claim, median, "later than in more dimensions")]
    curve = float(equiangular_time(CLOSE, _N, beta))
    # The last of 496 pairs is somewhat later than a typical one.
    return [*rows, near(claim, median, curve, 0.1 * curve)]


def _draw_histogram(axes, ts, histogram, beta, d) -> None:
    from matplotlib.colors import PowerNorm

    edges = np.linspace(-1.0, 1.0, _BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    options = {"cmap": "magma_r", "shading": "nearest", "norm": PowerNorm(0.4, 0, 1)}
    style(axes).pcolormesh(ts, middle, histogram.T, **options)
    if d > 3:
        gamma = np.asarray(equiangular(ts, _N, beta))
        axes.plot(ts, gamma, color=PALETTE[5], linewidth=1.2, label="γ(t)")
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_title(f"d = {d}, β = {beta:g}", fontsize=9)
    axes.set(ylim=(-1, 1))


def _draw_times(axes, times, end, colour, label) -> None:
    order = np.sort(times[np.isfinite(times)])
    share = np.arange(order.size + 1) / times.size
    line = [0.0, *order, _LAST], [*share, share[-1]]
    axes.step(*line, where="post", color=colour, label=label)
    axes.set_xlim(0, end)


def _animations(key, draws) -> list[Row]:
    """64 tokens on the sphere, beta = 1, until t = 15: from all of it, from a half."""
    x0 = Sphere(3).random(key, (draws, 64))
    rows = []
    for name, start in (("sphere", x0), ("half sphere", x0 * jnp.sign(x0[..., 2:]))):
        sol: Any = solve_ensemble(
            self_attention,
            start,
            AttentionParams(beta=1.0),
            t1=15.0,
            manifold=Sphere(3),
            rtol=1e-8,
            atol=1e-10,
            throw=True,
        )
        products = np.asarray(jax.vmap(inner_products)(sol.ys[:, 0]))
        least = products.min(axis=(1, 2))
        claim = f"{name}, n = 64, d = 3, beta = 1, t = 15: least inner product"
        rows += [
            near(f"{claim}, median of the draws", np.median(least), 1.0, 5e-7),
            reported(f"{claim}, least of the draws", least.min(), "measured"),
        ]
    return rows
