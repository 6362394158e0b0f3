"""What the fields of tokens share: checked input, heads, the tangential part."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import as_float, check_shape, matmul, must, normalize, widen
from ..attention import attend, existing_tokens
from ._params import AttentionParams


class Tokens(NamedTuple):
    """Tokens and parameters in the dtype to compute in."""

    x: Float[Array, "n d"]  # absent rows are 0
    params: AttentionParams
    exists: Bool[Array, " n"] | None
    dtype: jnp.dtype  # of the velocity to return

    def velocity(self, drift: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """A velocity in the dtype of the state, 0 for absent tokens."""
        if self.exists is not None:
            drift = jnp.where(self.exists[:, None], drift, 0.0)
        return drift.astype(self.dtype)

    def tangential(self, drift: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The part of a drift that is tangent to the sphere, as a velocity."""
        inner = jnp.sum(self.x * drift, axis=1, keepdims=True)
        return self.velocity(drift - inner * self.x)


def prepare(x: Any, params: AttentionParams, *, normalized: bool) -> Tokens:
    """Checks tokens and parameters against each other, and puts them in one dtype."""
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    (x,), dtype = widen(x)
    exists = existing_tokens(params.mask, x.shape[0])
    if exists is not None:
        x = jnp.where(exists[:, None], x, 0.0)
    if normalized:
        x = normalize(x)
    return Tokens(x, _cast(params, x), exists, dtype)


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


def sum_over_heads(
    head: Callable[..., Float[Array, "n d"]],
    x: Float[Array, "n d"],
    params: AttentionParams,
) -> Float[Array, "n d"]:
    """Sums `head(Q x, K x, V)` over the heads, if the matrices have that axis.

    The head gets the matrix V itself, None for the identity.
    """
    weights = (params.query, params.key, params.value)

    def one(weights):
        query, key, value = weights
        return head(apply(query, x), apply(key, x), value)

    axes = tuple(0 if w is not None and w.ndim == 3 else None for w in weights)
    if axes == (None, None, None):
        return one(weights)
    return jnp.sum(jax.vmap(one, in_axes=(axes,))(weights), axis=0)


def apply(
    matrix: Float[Array, "m d"] | None, x: Float[Array, "n d"]
) -> Float[Array, "n m"]:
    """Every row of x after a linear map, the identity where it is None."""
    return x if matrix is None else matmul(x, matrix.T)


def mean_values(tokens: Tokens) -> Float[Array, "n d"]:
    """Softmax attention of the tokens: `sum_h sum_j A_ij V_h x_j`, not projected."""
    x, params = tokens.x, tokens.params

    def head(q, k, value):
        return attend(q, k, apply(value, x), **kernel_options(params))

    return sum_over_heads(head, x, params)


def kernel_options(params: AttentionParams) -> dict[str, Any]:
    """What the kernels take from the parameters."""
    names = ("beta", "mask", "chunk_size")
    return {name: getattr(params, name) for name in names}
