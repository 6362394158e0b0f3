"""Attention as a vector field on the sphere."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import (
    as_float,
    check_shape,
    is_concrete,
    matmul,
    must,
    normalize,
    require,
    widen,
)
from ..attention import attend, kernel_sum, resolve_mask
from ._params import AttentionParams


def self_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | None = None,
) -> Float[Array, "n d"]:
    r"""Self-attention on the sphere (SA): a Transformer's layers in continuous time.

    $$\dot x_i = P_{x_i} \sum_h \frac{1}{Z_{i,h}} \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h x_j, \qquad
      P_x y = y - \langle x, y \rangle x$$

    Off the sphere the field is that of the normalised tokens, so repulsive values
    such as V = -I do not blow up the norms.

    **Arguments:**

    - `t`: time; unused.
    - `x`: tokens, of shape (n, d).
    - `args`: an [`AttentionParams`][]; its defaults where None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`: tangent to the
    sphere, and 0 for tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> v = self_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0))
        >>> v.tolist()
        [[0.0, 0.5], [0.5, 0.0]]

    Source: arXiv 2312.10794, equations (2.3) and (2.5); with Q = K = V = I, SA.
    """
    x, params, dtype, (exists, pairs) = _prepare(x, args)
    mask = exists if pairs is None else pairs
    chunk = params.chunk_size

    def head(q, k, v):
        return attend(q, k, v, beta=params.beta, mask=mask, chunk_size=chunk)

    return _on_sphere(x, _sum_over_heads(head, x, params), exists).astype(dtype)


def unnormalized_self_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | None = None,
) -> Float[Array, "n d"]:
    r"""Unnormalised self-attention on the sphere (USA): a gradient flow when V = QᵀK.

    $$\dot x_i = P_{x_i} \frac1n \sum_h \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h x_j$$

    **Arguments:**

    - `t`: time; unused.
    - `x`: tokens, of shape (n, d).
    - `args`: an [`AttentionParams`][]; its defaults where None. `chunk_size` must be
      None; n counts the tokens that exist.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`: tangent to the
    sphere, and 0 for tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together, or where the exponentials
    leave the dtype (outside jit; inside a solve the solver reports it).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, unnormalized_self_attention
        >>> v = unnormalized_self_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0))
        >>> v.tolist()
        [[0.0, 0.5], [0.5, 0.0]]

    Source: arXiv 2312.10794, section 3.3.
    """
    x, params, dtype, (exists, pairs) = _prepare(x, args)
    mask = exists if pairs is None else pairs
    if params.chunk_size is not None:
        raise must("chunk_size", "be None for this field", repr(params.chunk_size))
    n = float(x.shape[0]) if exists is None else jnp.sum(exists, dtype=x.dtype)

    def head(q, k, v):
        return kernel_sum(q, k, v, beta=params.beta, mask=mask)

    drift = _sum_over_heads(head, x, params) / jnp.maximum(n, 1.0)
    velocity = _on_sphere(x, drift, exists).astype(dtype)
    if is_concrete(velocity, params, x) and bool(jnp.all(jnp.isfinite(x))):
        rule = "be so small that exp(beta <Q x_i, K x_j>) lies within its dtype"
        require(params.beta, jnp.all(jnp.isfinite(velocity)), "beta", rule)
    return velocity


def _prepare(x: Any, args: AttentionParams | None):
    """Normalised tokens (absent ones 0), parameters in their dtype, and the masks."""
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    params = AttentionParams() if args is None else args
    if not isinstance(params, AttentionParams):
        got = "an array" if isinstance(args, jax.Array) else f"a {type(args).__name__}"
        raise must("args", "be an AttentionParams or None", got)
    (x,), dtype = widen(x)
    exists, pairs = resolve_mask(params.mask, x.shape[0])
    if exists is not None:
        x = jnp.where(exists[:, None], x, 0.0)
    return normalize(x), _cast(params, x), dtype, (exists, pairs)


def _cast(params: AttentionParams, x: Float[Array, "n d"]) -> AttentionParams:
    """The parameters in the dtype of x, their shapes checked against each other."""
    d = x.shape[1]
    if params.beta.ndim:
        raise must("beta", "be a scalar", f"of shape {params.beta.shape}")
    heads = {}
    for name in ("query", "key", "value"):
        matrix = getattr(params, name)
        if matrix is None:
            continue
        rows = "d" if name == "value" else "d_k"
        wide = matrix.ndim in (2, 3) and matrix.shape[-1] == d and matrix.size
        if not wide or (name == "value" and matrix.shape[-2] != d):
            rule = f"have shape ({rows}, d) or (h, {rows}, d) with d = {d}"
            raise must(name, rule, f"of shape {matrix.shape}")
        if matrix.ndim == 3:
            heads[name] = matrix.shape[0]
    if len(set(heads.values())) > 1:
        raise must("args", "have as many heads in query, key and value", str(heads))
    d_q = d if params.query is None else params.query.shape[-2]
    d_k = d if params.key is None else params.key.shape[-2]
    if d_q != d_k:
        rule = f"map to the same d_k as key ({d_k})"
        raise must("query", rule, f"a map to {d_q} dimensions")
    floats = ("beta", "query", "key", "value")
    to = {n: getattr(params, n) for n in floats}
    to = {n: a if a is None else a.astype(x.dtype) for n, a in to.items()}
    return AttentionParams(**to, mask=params.mask, chunk_size=params.chunk_size)


def _sum_over_heads(head, x, params):
    """Sums `head(Q x, K x, V x)` over the heads, if the matrices have that axis."""
    weights = (params.query, params.key, params.value)

    def one(weights):
        return head(*(x if w is None else matmul(x, w.T) for w in weights))

    axes = tuple(0 if w is not None and w.ndim == 3 else None for w in weights)
    if axes == (None, None, None):
        return one(weights)
    return jnp.sum(jax.vmap(one, in_axes=(axes,))(weights), axis=0)


def _on_sphere(x, drift, exists):
    velocity = drift - jnp.sum(x * drift, axis=1, keepdims=True) * x
    return velocity if exists is None else jnp.where(exists[:, None], velocity, 0.0)
