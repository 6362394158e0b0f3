"""Attention on any manifold: tokens move along geodesics towards each other."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, matmul, must, widen
from ..attention import log_weights, resolve_mask
from ..geometry import AbstractManifold
from ._args import attention_args
from ._base import VectorField


def intrinsic_attention(
    manifold: AbstractManifold, value: Callable[..., Any] | None = None
) -> VectorField:
    r"""Self-attention in the geometry of a manifold: means of logarithms.

    $$\dot x_i = \sum_j a_{ij} \log_{x_i}(x_j), \qquad
      a_{ij} \propto e^{\beta \langle Q \iota(x_i), K \iota(x_j) \rangle}$$

    with iota the embedding of the manifold, `manifold.embed`. Where a field of tangent
    vectors v is given, tokens receive it by parallel transport instead:

    $$\dot x_i = \sum_j a_{ij} \, \Gamma_{x_j \to x_i} v(x_j)$$

    On the sphere this differs from [`self_attention`][] pair by pair: a token at angle
    theta pulls with theta instead of sin(theta), in the same direction and with the
    same weight. In flat space it is `sum_j a_ij (x_j - x_i)`.

    **Arguments:**

    - `manifold`: a manifold of `tfjax.geometry`, of dimension d.
    - `value`: the field v, a function of one point, of shape (d,), whose tangential
      part is taken; it may be an `eqx.Module` with leaves. Logarithms where None.

    **Returns:** a field `(t, x, args=None) -> dx/dt`, an `eqx.Module`: `x` are tokens
    of shape (n, d), taken at their projections; `args` an [`AttentionParams`][] without
    `value` and `chunk_size`, `query` and `key` of shape (d_k, m) or (h, d_k, m) where
    the manifold is embedded in R^m. Several heads are summed. The velocities, of shape
    (n, d), are 0 for tokens that are absent or may attend to none. Memory is O(n^2 d).

    **Raises:** ValueError where an argument is of another kind, or, by the field, where
    shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, intrinsic_attention
        >>> from tfjax.geometry import Sphere
        >>> field = intrinsic_attention(Sphere(2))
        >>> velocity = field(0.0, jnp.eye(2), AttentionParams(beta=0.0))
        >>> round(float(velocity[0, 1]), 6)  # half of the angle pi / 2
        0.785398

    Source: own; arXiv 2312.10794, equation (2.3), for the weights, and X. Pennec,
    *J. Math. Imaging Vis.* 25 (2006), for means by logarithms.
    """
    if not isinstance(manifold, AbstractManifold):
        raise must("manifold", "be a manifold of tfjax.geometry", repr(manifold))
    if value is not None and not callable(value):
        raise must("value", "be a function of a point or None", repr(value))
    return _IntrinsicAttention(manifold, value)


class _IntrinsicAttention(eqx.Module):
    manifold: AbstractManifold
    value: Callable[..., Any] | None

    def __call__(
        self, t: Any, x: Float[ArrayLike, "n d"], args: Any = None
    ) -> Float[Array, "n d"]:
        tokens = as_float("x", x)
        check_shape("x", tokens, 2, "(n, d)")
        (tokens,), dtype = widen(tokens)
        params = attention_args(t, args, ("value", "chunk_size"))
        n = tokens.shape[0]
        exists, allowed = resolve_mask(params.mask, n)
        tainted = jnp.zeros((n, 1), bool)
        if exists is not None or allowed is not None:
            # Under a mask, some point of the manifold stands in for absent rows and
            # for those that are not finite; rows that see one of the latter are NaN.
            finite = jnp.all(jnp.isfinite(tokens), axis=1)
            exists = jnp.ones(n, bool) if exists is None else exists
            allowed = exists[:, None] & exists[None, :] if allowed is None else allowed
            seen = allowed & ~(finite[:, None] & finite[None, :])
            tainted = jnp.any(seen, axis=1, keepdims=True)
            anywhere = self.manifold.random(jax.random.key(0), dtype=tokens.dtype)
            sound = (exists & finite)[:, None]
            tokens = jnp.where(sound, tokens, anywhere[None])
        points = self.manifold.project(tokens)
        weights = _weights(self.manifold.embed(points), params, allowed)
        pairs = jnp.ones((n, n), bool) if allowed is None else allowed
        pulls = self._pulls(points, pairs)
        velocity = jnp.sum(weights[:, :, None] * pulls, axis=1)
        return jnp.where(tainted, jnp.nan, velocity).astype(dtype)

    def _pulls(self, points, pairs):
        """What token i receives from token j, of shape (n, n, d), 0 where forbidden."""
        shape = (len(points), *points.shape)
        here = jnp.broadcast_to(points[:, None], shape)
        there = jnp.broadcast_to(points[None], shape)
        if self.value is None:
            pulls = self.manifold.log(here, there)
            pairs = pairs & ~jnp.eye(len(points), dtype=bool)  # none pulls itself
        else:
            vectors = self.manifold.tangent(points, _vectors(self.value, points))
            vectors = jnp.broadcast_to(vectors[None], shape)
            pulls = self.manifold.transport(there, here, vectors)
        return jnp.where(pairs[:, :, None], pulls, 0.0)


def _vectors(value, points):
    """What `value` says of every point, in the dtype of the points."""
    vectors = as_float("value", jax.vmap(value)(points))
    if vectors.shape != points.shape:
        rule = f"return a vector of shape {points.shape[1:]}"
        raise must("value", rule, f"one of shape {vectors.shape[1:]}")
    return vectors.astype(points.dtype)


def _weights(embedded, params, allowed):
    """The attention weights of all pairs, summed over the heads."""
    beta = params.beta.astype(embedded.dtype)
    matrices = [_matrix(n, getattr(params, n), embedded) for n in ("query", "key")]
    heads = [len(m) for m in matrices if m is not None and m.ndim == 3]
    if len(set(heads)) > 1:
        raise must("args", "have as many heads in query and key", f"{heads}")
    query, key = matrices
    width = embedded.shape[1]
    d_q = width if query is None else query.shape[-2]
    d_k = width if key is None else key.shape[-2]
    if d_q != d_k:
        rule = f"map to the same d_k as key ({d_k})"
        raise must("query", rule, f"a map to {d_q} dimensions")

    def head(query, key):
        q, k = (embedded if w is None else matmul(embedded, w.T) for w in (query, key))
        return jnp.exp(log_weights(q, k, beta=beta, mask=allowed))

    if not heads:
        return head(query, key)
    axes = tuple(0 if m is not None and m.ndim == 3 else None for m in matrices)
    return jnp.sum(jax.vmap(head, in_axes=axes)(query, key), axis=0)


def _matrix(name, matrix, embedded):
    if matrix is None:
        return None
    width = embedded.shape[1]
    if matrix.ndim not in (2, 3) or matrix.shape[-1] != width or 0 in matrix.shape:
        rule = f"have shape (d_k, m) or (h, d_k, m) with m = {width}"
        raise must(name, rule, f"of shape {matrix.shape}")
    return matrix.astype(embedded.dtype)
