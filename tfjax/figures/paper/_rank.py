"""Rank collapse: what LayerNorm with a value matrix, and a window, change."""

import jax
import jax.numpy as jnp
import numpy as np

from ...attention import Causal, Window
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve_ensemble
from .._base import GREY, PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet
from ._measures import decay_rate


_N, _DRAWS = 16, 16


def rank(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Tokens become one with V = I, slowly in a window, and keep any rank by another V.

    **Arguments:**

    - `seed`: of the starts in a half space.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: singular values of the tokens along time, and the rates at
    which they gather under full and windowed masks.

    Source: arXiv 2405.18781 (there with discrete layers; these matrices are our own).
    """
    key = jax.random.key(seed)
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows, data = _values(key, left)
    progress(0.5)
    more, rates = _windows(_half_space(key, 4), right)
    note = "V keeps r: V = -1 on r of the dimensions, -16 on the others, beta = 8."
    return Report(rows + more, figure, data | rates, note)


def _half_space(key, d):
    """Starts that V = I gathers: uniform tokens with a positive first coordinate."""
    x = Sphere(d).random(key, (_DRAWS, _N))
    return x * jnp.sign(x[..., :1])


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


def _values(key, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """In six dimensions V = -1 on r of them keeps rank r, and -16 ends the others."""
    ts, d, eye = np.linspace(0.0, 30.0, 121), 6, np.ones(6)
    # More tokens would crowd each other out of the circle that V keeps.
    x0 = _half_space(key, d)[:, :10]
    rows: list[Row] = []
    data = {"t": ts}
    kept = {
        f"V keeps {r}": (8.0, -np.where(np.arange(d) < r, 1.0, 16.0)) for r in (2, 3)
    }
    for k, (name, (beta, value)) in enumerate({"V = I": (1.0, eye), **kept}.items()):
        args = AttentionParams(beta=beta, value=np.diag(value))
        values = np.linalg.svd(_flow(x0, args, ts), compute_uv=False)
        ratios = values[..., 1:] / values[..., :1]
        data[f"s over s1, {name}"] = ratios
        r = int((value == -1.0).sum()) or 1
        claim = f"{name}: s{r + 1} / s1 at t = 30, of 16 draws the greatest"
        rows.append(below(claim, ratios[:, -1, r - 1].max(), 1e-6))
        if r > 1:
            claim = f"{name}: s{r} / s1 at t = 30, of 16 draws the least"
            rows.append(above(claim, ratios[:, -1, r - 2].min(), 0.1))
        shown = np.maximum(np.median(ratios, axis=0), 1e-17)
        axes.semilogy(ts, shown[:, r - 1], color=PALETTE[k], label=f"{name}: s{r + 1}")
        if r > 1:
            style_of = {"linestyle": "--", "label": f"{name}: s{r}"}
            axes.semilogy(ts, shown[:, r - 2], color=PALETTE[k], **style_of)
    axes.set(xlabel="time t", ylabel="singular value over the largest")
    axes.set_ylim(1e-12, 3.0)
    axes.set_title("10 tokens, d = 6; medians", fontsize=9)
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
    found = {}
    for k, (name, mask) in enumerate(masks.items()):
        xs = _flow(x0, AttentionParams(beta=1.0, mask=mask), ts)
        gaps = np.linalg.norm(xs[:, :, :, None] - xs[:, :, None], axis=-1)
        diameter = gaps.max(axis=(2, 3))
        rates = np.array([decay_rate(ts, line) for line in diameter])
        found[name] = rates
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
        # The starts are the same: an interval of the differences.
        gap = found[wide] - found[narrow]
        lower = gap.mean() - 1.96 * gap.std(ddof=1) / np.sqrt(_DRAWS)
        claim = f"{narrow} is slower than {wide}: rates, lower end of 95 %"
        rows.append(above(claim, lower, 0.0))
    axes.axhline(1e-3, color=GREY, linewidth=0.6)
    axes.axhline(1e-6, color=GREY, linewidth=0.6)
    axes.set(xlabel="time t", ylabel="greatest distance of two tokens")
    axes.set(xlim=(0, 100), ylim=(1e-8, 3))
    axes.set_title("16 tokens, d = 4, β = 1, V = I; medians", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows, data
