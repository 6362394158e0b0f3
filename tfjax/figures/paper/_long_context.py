"""One layer of attention over a long context: when it tells tokens apart."""

import jax.numpy as jnp
import numpy as np

from ...fields import AttentionParams, euclidean_attention
from ...theory import long_context_cosine, long_context_limit
from .._base import GREY, PALETTE, RED, new_figure, style
from .._report import Progress, Report, Row, below, near, quiet


_RHO = 0.5
_COSINES = {1.0: 0.999904, 2.0: 0.800028, 3.0: 0.504975}


def long_context(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """With beta = s log n one layer makes all tokens one, or does nothing.

    **Arguments:**

    - `seed`: not used: nothing is random.
    - `quick`: 200 tokens in place of 1000.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the cosine after a layer, in closed form and by the layer,
    and its limit, which jumps at s = 1 / (1 - rho).

    Source: arXiv 2510.05554.
    """
    rows: list[Row] = []
    for scale, value in _COSINES.items():
        found = long_context_cosine(1e4, _RHO, scale)
        rows.append(near(f"n = 10000, s = {scale:g}: cosine", found, value, 1e-6))
    n = 200 if quick else 1000
    worst = 0.0
    for scale in _COSINES:
        exact = float(long_context_cosine(float(n), _RHO, scale))
        worst = max(worst, abs(_layer(n, scale) - exact))
    rows.append(below(f"a layer over {n} tokens from the closed form", worst, 1e-10))
    progress(0.5)
    # Far from s = 2 the limit is near; at s = 2 it is approached like 1/n.
    for scale in (1.0, 2.0, 3.0):
        found, limit = (
            float(long_context_cosine(1e12, _RHO, scale)),
            float(long_context_limit(_RHO, scale)),
        )
        rows.append(near(f"n = 1e12, s = {scale:g}: its limit", found, limit, 1e-4))
    figure = new_figure(6.4, 3.8)
    axes = style(figure.subplots())
    scales = np.linspace(0.0, 4.0, 401)
    data = {"s": scales}
    for k, size in enumerate((1e2, 1e4, 1e8, 1e16)):
        cosine = np.asarray(long_context_cosine(size, _RHO, scales))
        data[f"cosine, n = {size:g}"] = cosine
        label = f"n = {size:g}".replace("1e+0", "1e").replace("1e+", "1e")
        axes.plot(scales, cosine, color=PALETTE[k], label=label)
    limit = np.asarray(long_context_limit(_RHO, scales))
    axes.plot(scales, limit, ":", color=RED, linewidth=2, label="limit")
    axes.axhline(_RHO, color=GREY, linewidth=0.6)
    axes.set(xlabel="s, where β = s log n", ylabel="cosine after a layer")
    axes.set_title("tokens with inner products ρ = 0.5", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _layer(n: int, scale: float) -> float:
    """The cosine of two tokens after attention over tokens that are equally close."""
    own = np.sqrt(1 - _RHO)
    shared = (np.sqrt(1 + (n - 1) * _RHO) - own) / n
    x = own * np.eye(n) + shared  # rows of length 1, with products rho
    args = AttentionParams(beta=scale * np.log(n))
    y = np.asarray(euclidean_attention(0.0, jnp.asarray(x), args))
    return float(y[0] @ y[1] / np.linalg.norm(y[0]) / np.linalg.norm(y[1]))
