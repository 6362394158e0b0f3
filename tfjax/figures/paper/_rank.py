"""Rank collapse: what LayerNorm with a value matrix, and a window, change."""

import jax
import jax.numpy as jnp
import numpy as np

from ...attention import Causal, Window
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve_ensemble
from .._base import GREY, PALETTE, new_figure, style
from ._base import Progress, Report, Row, above, below, near, quiet
from ._measures import decay_rate


_N, _D, _DRAWS = 16, 4, 16


def rank(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Tokens become one with V = I, slowly in a window, and keep any rank with V = -I.

    **Arguments:**

    - `seed`: of the starts in a half space.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: singular values of the tokens along time, and the rates at
    which they gather under full and windowed masks.

    Source: arXiv 2405.18781 (there with discrete layers; these matrices are our own).
    """
    x0 = Sphere(_D).random(jax.random.key(seed), (_DRAWS, _N))
    x0 = x0 * jnp.sign(x0[..., :1])  # of a half space: V = I gathers them
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows, data = _values(x0, left)
    progress(0.5)
    more, rates = _windows(x0, right)
    return Report(rows + more, figure, data | rates)


def _flow(x0, args, ts) -> np.ndarray:
    sol = solve_ensemble(
        self_attention,
        x0,
        args,
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(x0.shape[2]),
        rtol=1e-9,
        atol=1e-12,
        max_steps=20_000,
        throw=True,
    )
    return np.asarray(sol.ys)


def _values(x0, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    ts = np.linspace(0.0, 60.0, 121)
    rows: list[Row] = []
    data = {"t": ts}
    cases = [("V = I", 1.0, 2), *((f"V = -I, d = {r}", -1.0, r) for r in (2, 3, 4))]
    for k, (name, sign, r) in enumerate(cases):
        # In r dimensions the rank is at most r: the first coordinates, normalised.
        x = x0 if sign > 0 else Sphere(r).project(x0[..., :r])
        args = AttentionParams(beta=4.0, value=sign * jnp.eye(x.shape[2]))
        values = np.linalg.svd(_flow(x, args, ts), compute_uv=False)
        ratio = values[..., r - 1] / values[..., 0]
        data[f"s{r} / s1, {name}"] = ratio
        claim = f"{name}: s{r} / s1 at t = 60, of 16 draws"
        if sign > 0:
            rows.append(below(f"{claim} the greatest", ratio[:, -1].max(), 1e-6))
        else:
            rows.append(above(f"{claim} the least", ratio[:, -1].min(), 0.1))
        shown = np.maximum(np.median(ratio, axis=0), 1e-17)
        label = f"{name}: s{r} / s1"
        axes.semilogy(ts, shown, color=PALETTE[k], label=label)
    axes.set(xlabel="time t", ylabel="singular value over the largest")
    axes.set_ylim(1e-12, 3.0)
    axes.set_title("16 tokens, d = 4 or less, β = 4; medians", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows, data


def _windows(x0, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    full = jnp.ones((_N, _N), bool)
    masks = {
        "full": full,
        "window 4": Window(4)(_N, _N),
        "causal": Causal()(_N, _N),
        "causal, window 4": Causal()(_N, _N) & Window(4)(_N, _N),
    }
    ts = np.linspace(0.0, 150.0, 601)
    rows: list[Row] = []
    data: dict[str, np.ndarray] = {"t of the masks": ts}
    intervals = {}
    for k, (name, mask) in enumerate(masks.items()):
        xs = _flow(x0, AttentionParams(beta=1.0, mask=mask), ts)
        gaps = np.linalg.norm(xs[:, :, :, None] - xs[:, :, None], axis=-1)
        diameter = gaps.max(axis=(2, 3))
        rates = np.array([decay_rate(ts, line) for line in diameter])
        margin = 1.96 * rates.std(ddof=1) / np.sqrt(_DRAWS)
        intervals[name] = rates.mean() - margin, rates.mean() + margin
        data[f"diameter, {name}"] = diameter
        if "causal" not in name:
            # Near consensus the weights are those of the mask: 1 - second eigenvalue.
            weights = np.asarray(mask) / np.asarray(mask).sum(axis=1, keepdims=True)
            second = np.sort(np.linalg.eigvals(weights).real)[-2]
            claim = f"{name}: rate at which tokens gather"
            rows.append(near(claim, rates.mean(), 1 - second, 0.01))
        shown = np.maximum(np.median(diameter, axis=0), 1e-17)
        axes.semilogy(ts, shown, color=PALETTE[k], label=name)
    for wide, narrow in (("full", "window 4"), ("causal", "causal, window 4")):
        claim = f"{narrow} against {wide}: upper end of 95 % over lower"
        rows.append(below(claim, intervals[narrow][1] / intervals[wide][0], 1.0))
    axes.axhline(1e-3, color=GREY, linewidth=0.6)
    axes.axhline(1e-6, color=GREY, linewidth=0.6)
    axes.set(xlabel="time t", ylabel="greatest distance of two tokens")
    axes.set(xlim=(0, 100), ylim=(1e-8, 3))
    axes.set_title("16 tokens, d = 4, β = 1, V = I; medians", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows, data
