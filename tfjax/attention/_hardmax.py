"""Attention at infinite inverse temperature."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, matmul, must, require, safe_norm
from ._base import MaskLike
from ._dense import logits_of, taint
from ._door import prepare


def attend_hardmax(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    v: Float[ArrayLike, "n_k d_v"],
    *,
    mask: MaskLike = None,
    tolerance: Float[ArrayLike, ""] | float | None = None,
) -> Float[Array, "n_q d_v"]:
    r"""Hardmax attention: the mean of the values of the keys of maximal score.

    $$y_i = \frac{1}{|C_i|} \sum_{j \in C_i} v_j, \qquad
      C_i = \{ j : \langle q_i, k_j \rangle \ge
      \max_l \langle q_i, k_l \rangle - \tau |q_i| \max_l |k_l| \}$$

    It is the limit of [`attend`][] as beta grows. Scores that are equal in exact
    arithmetic differ by rounding, so those within a tolerance of the maximum count as
    ties. The weights are locally constant: gradients pass through the values only.

    **Arguments:**

    - `q`, `k`, `v`, `mask`: as for [`attend`][].
    - `tolerance`: tau, relative to the largest score that the norms of the query and
      the permitted keys allow. Where None, max(d_k, 4) units of rounding of the dtype,
      which bounds the rounding of a score; 0 takes scores as they come.

    **Returns:** the means, of shape (n_q, d_v), in the dtype of the arguments. A query
    without a permitted key gets 0, with zero gradient.

    **Raises:** ValueError where shapes do not fit, a mask is not boolean, or the
    tolerance is negative.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import attend_hardmax
        >>> x = jnp.array([[1.0, 0.0], [0.6, 0.8], [0.6, 0.8]])
        >>> attend_hardmax(x, x, jnp.array([[1.0], [2.0], [4.0]])).ravel().tolist()
        [1.0, 3.0, 3.0]

    Source: arXiv 2312.10794, section 9.3.
    """
    given, dtype = prepare(q, k, v, 1.0, None, mask)
    tolerance = _tolerance(tolerance, given.q)
    logits, tainted = logits_of(given)
    seen = logits != -jnp.inf
    lengths = safe_norm(given.k)[None, :]
    longest = jnp.max(jnp.where(seen, lengths, 0.0), axis=1, keepdims=True)
    scale = safe_norm(given.q)[:, None] * longest
    top = jnp.max(logits, axis=1, keepdims=True)
    # Booleans have no derivative: the weights that they make are constants.
    ties = (seen & (logits >= top - tolerance * scale)).astype(given.q.dtype)
    number = jnp.sum(ties, axis=1, keepdims=True)
    out = matmul(ties, given.v) / jnp.maximum(number, 1.0)
    sick = jnp.isnan(top) if tainted is None else tainted | jnp.isnan(top)
    return taint(out, sick).astype(dtype)


def _tolerance(value: Any, like: Array) -> Array:
    if value is None:
        value = max(like.shape[1], 4) * float(jnp.finfo(like.dtype).eps)
    tolerance = as_float("tolerance", value).astype(like.dtype)
    if tolerance.ndim:
        raise must("tolerance", "be a scalar", f"of shape {tolerance.shape}")
    return require(tolerance, tolerance >= 0, "tolerance", "be at least 0")
