"""Few tokens in many dimensions: the same dynamics in their span."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, is_concrete, require, widen


def reduce_to_span(
    x: Float[ArrayLike, "n d"],
) -> tuple[Float[Array, "n r"], Float[Array, "r d"]]:
    r"""Coordinates of tokens in an orthonormal basis of their span.

    `x = coordinates @ basis` with r = min(n, d). Attention with Q = K = V = I, or
    multiples of it, and any mask, moves every token within the span and sees only inner
    products. So the coordinates obey the same equation in r dimensions, and
    `solution.ys @ basis` is the solution in d dimensions: to rounding with constant
    steps, to the tolerances with adaptive ones, whose error norm is a mean over
    entries. It is **not** so for other matrices Q, K, V, nor for a feed-forward part.

    **Arguments:**

    - `x`: tokens, of shape (n, d).

    **Returns:** the coordinates, of shape (n, r), and the basis, of shape (r, d), whose
    rows are orthonormal; `x` itself and the identity where n >= d. If the tokens span
    less than n dimensions, further directions complete the basis.

    **Raises:** ValueError where `x` is not of shape (n, d) or not finite. It is an
    error at run time to differentiate at linearly dependent tokens with n < d: the
    basis has no derivative there.

    !!! example

        >>> import jax, tfjax
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> from tfjax.geometry import Sphere
        >>> from tfjax.integrate import reduce_to_span
        >>> x0 = Sphere(1024).random(jax.random.key(0), (4,))
        >>> small, basis = reduce_to_span(x0)
        >>> args, kwargs = AttentionParams(beta=1.0), {"t1": 5.0, "manifold": Sphere(4)}
        >>> sol = tfjax.solve(self_attention, small, args, **kwargs)
        >>> (sol.ys[-1] @ basis).shape
        (4, 1024)

    Source: own; in arXiv 2312.10794, equation (2.3) with V = I, every velocity is a
    combination of tokens.
    """
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    if is_concrete(x):
        x = require(x, jnp.all(jnp.isfinite(x)), "x", "be finite")
    (wide,), dtype = widen(x)
    n, d = x.shape
    if n >= d:
        return x, jnp.eye(d, dtype=dtype)
    q, r = _qr(wide.T)
    return r.T.astype(dtype), q.T.astype(dtype)


@jax.custom_jvp
def _qr(a):
    q, r = jnp.linalg.qr(a)
    return q, r


@_qr.defjvp
def _qr_jvp(primals, tangents):
    (a,) = primals
    pivots = jnp.abs(jnp.diagonal(jnp.linalg.qr(a)[1]))
    rounding = a.shape[0] * jnp.finfo(a.dtype).eps * jnp.max(pivots)
    text = "`x` must be linearly independent tokens to differentiate reduce_to_span."
    a = eqx.error_if(a, jnp.min(pivots) <= rounding, text)
    (q, r), tangent_out = jax.jvp(jnp.linalg.qr, (a,), tangents)
    return (q, r), tuple(tangent_out)
