"""Random weights redrawn from time to time: who meets, and what the tokens span."""

from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import inner_products
from ...fields import PiecewiseConstant, self_attention
from ...geometry import Sphere
from ...integrate import solve_ensemble
from .._base import new_figure, style
from .._report import Progress, Report, Row, above, below, quiet, reported
from ._families import FAMILIES, Family, draw_weights
from ._measures import close_share


_N, _END, _PERIOD = 32, 30.0, 1.0
_NAMES = (
    "Q, K Ginibre, V = I",
    "Q, K Ginibre, V Wishart",
    "B GOE, V = B / √d",
    "B GOE, V = -B / √d",
)
_LABELS = ("share, redrawn", "dimension, redrawn", "dimension, fixed")


def redrawn_weights(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Q, K and V drawn anew in each unit of time: layers of independent weights.

    **Arguments:**

    - `seed`: of matrices and starts, which are drawn anew for each run.
    - `quick`: one family in d = 16 in place of four in d = 128.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: for each family the share of pairs that have met and the
    number of dimensions that the tokens span, with weights redrawn and with fixed ones.

    Source: arXiv 2312.10794, figure 5 and problem 2 (weights that vary in time).
    """
    d, draws = (16, 4) if quick else (128, 8)
    betas = np.linspace(0.1, 9.0, 3 if quick else 12)
    names = _NAMES[:1] if quick else _NAMES
    ts = np.linspace(0.0, _END, 61)
    figure = new_figure(2.5 * len(names) + 1.2, 7.2)
    panels = figure.subplots(3, len(names), sharex=True, sharey=True, squeeze=False)
    rows: list[Row] = []
    data = {"t": ts, "beta": betas}
    for k, name in enumerate(names):
        key = jax.random.fold_in(jax.random.key(seed), k)
        redrawn, fixed = (
            _along(key, FAMILIES[name], d, betas, draws, ts, anew)
            for anew in (True, False)
        )
        for what, found in (("redrawn", redrawn), ("fixed", fixed)):
            data[f"share, {name}, {what}"] = found.share
            data[f"dimension, {name}, {what}"] = found.dimension
        rows += _rows(name, ts, redrawn, fixed)
        _draw(panels[:, k], ts, betas, redrawn, fixed, min(_N, d))
        for axes, title in zip(panels[:, k], (name, *_LABELS[1:]), strict=True):
            axes.set_title(title, fontsize=9)
        progress((k + 1) / len(names))
    for axes in panels[-1]:
        axes.set_xlabel("time t")
    for axes in panels[:, 0]:
        axes.set_ylabel("inverse temperature β")
    for line, label in zip(panels, _LABELS, strict=True):
        figure.colorbar(line[0].collections[0], ax=line, label=label)
    note = (
        f"n = {_N}, d = {d}, {draws} draws for each beta, weights redrawn every "
        f"{_PERIOD:g} of time. The dimension is the number of eigenvalues of the Gram "
        "matrix above 1e-3. Entries of B have variance 1, Wishart matrices mean I: the "
        "published ones are larger by the root of d. With V = -B tokens soon are one: "
        "all at the lowest eigenvector of B is where the energy E_B is least. With "
        "V = B they rest in several directions. Float32, tolerance 1e-4."
    )
    return Report(rows, figure, data, note)


class _Found(NamedTuple):
    """Means over the draws, of shape (beta, t)."""

    share: np.ndarray
    dimension: np.ndarray


def _state(t, x, args):
    values = jnp.linalg.eigvalsh(inner_products(x))
    return close_share(t, x, args), jnp.sum(values > 1e-3, dtype=x.dtype)


def _along(key, family: Family, d, betas, draws, ts, anew: bool) -> _Found:
    count, layers = betas.size * draws, round(_END / _PERIOD)
    start, weights = jax.random.split(key)
    keys = jax.random.split(weights, (count, layers))
    if not anew:  # every layer the first one
        keys = jnp.repeat(keys[:, :1], layers, axis=1)
    draw = jax.vmap(jax.vmap(lambda key: draw_weights(key, family, d)))
    params = jax.jit(draw)(keys)
    beta = jnp.asarray(np.repeat(betas, draws), jnp.float32)
    params = eqx.tree_at(lambda p: p.beta, params, beta)
    starts = jnp.tile(_PERIOD * jnp.arange(layers, dtype=jnp.float32), (count, 1))
    sol: Any = solve_ensemble(
        self_attention,
        Sphere(d).random(start, (count, _N), dtype=jnp.float32),
        PiecewiseConstant(starts, params),
        in_axes=(0, 0),
        t1=ts[-1],
        saveat=dfx.SaveAt(ts=jnp.asarray(ts), fn=_state),
        manifold=Sphere(d),
        rtol=1e-4,
        atol=1e-4,
        max_steps=20_000,
        throw=True,
    )
    parts = (np.asarray(part, float).reshape(betas.size, draws, -1) for part in sol.ys)
    return _Found(*(part.mean(axis=1) for part in parts))


def _rows(name, ts, redrawn: _Found, fixed: _Found) -> list[Row]:
    rows = []
    for what, found in (("redrawn", redrawn), ("fixed", fixed)):
        size = found.dimension[:, -1].mean()
        claim = f"{name}, {what}: dimension at t = {_END:g}, mean over beta"
        if name.endswith("V = -B / √d") or name.endswith("V Wishart"):
            rows.append(below(claim, size, 1.5))
        elif what == "fixed":
            rows.append(above(claim, size, 1.5))
        else:
            rows.append(reported(claim, size, "less than with fixed weights"))
    if name.endswith("V = I"):
        # What rests in clusters under fixed weights gathers when they are redrawn.
        claim = f"{name}, redrawn: least share at t = {_END:g}, over beta"
        rows.append(above(claim, redrawn.share[:, -1].min(), 0.99))
        claim = f"{name}, fixed: share at t = {_END:g}, beta = 9"
        rows.append(below(claim, fixed.share[-1, -1], 0.9))
        passes = lambda level: ts[np.argmax(redrawn.share > level, axis=1)]
        claim = f"{name}, redrawn: longest time from share 0.1 to 0.9, over beta"
        rows.append(below(claim, (passes(0.9) - passes(0.1)).max(), 4.0))
    return rows


def _draw(panels, ts, betas, redrawn: _Found, fixed: _Found, full) -> None:
    shares = {"cmap": "viridis", "vmin": 0, "vmax": 1}
    sizes = {"cmap": "cividis", "vmin": 1, "vmax": full}
    shown = (
        (redrawn.share, shares),
        (redrawn.dimension, sizes),
        (fixed.dimension, sizes),
    )
    for axes, (values, options) in zip(panels, shown, strict=True):
        style(axes).pcolormesh(ts, betas, values, shading="nearest", **options)
        axes.set(xlim=(ts[0], ts[-1]), ylim=(betas[0], betas[-1]))
