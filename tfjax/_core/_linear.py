"""Linear algebra of square matrices, over the last two axes."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ._checks import as_float, must
from ._numerics import matmul, widen


def square(name: str, value: Any) -> Float[Array, "*batch d d"]:
    """Square matrices of floats, or an error that names the argument."""
    array = as_float(name, value)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or 0 in array.shape[-2:]:
        raise must(name, "have shape (..., d, d)", f"of shape {array.shape}")
    return array


def identity_like(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The identity matrix, in the shape and dtype of `x`."""
    return jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape)


def transpose(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch n m"]:
    """The transposed matrices."""
    return jnp.swapaxes(x, -1, -2)


def skew(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The skew part `(x - x^T) / 2`."""
    return 0.5 * (x - transpose(x))


def symmetric(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The symmetric part `(x + x^T) / 2`."""
    return 0.5 * (x + transpose(x))


def commutator(
    a: Float[ArrayLike, "*#batch d d"], b: Float[ArrayLike, "*#batch d d"]
) -> Float[Array, "*batch d d"]:
    """`[a, b] = a b - b a`, as the one product of `[a | -b]` and `[b ; a]`.

    Multiples of the identity commute with everything, and their products would only
    cancel: the traces are removed first. Half precision is computed in float32.
    """
    (a, b), dtype = widen(square("a", a), square("b", b))
    a, b = jnp.broadcast_arrays(_traceless(a), _traceless(b))
    left = jnp.concatenate([a, -b], axis=-1)
    right = jnp.concatenate([b, a], axis=-2)
    return matmul(left, right).astype(dtype)


def _traceless(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    mean = jnp.trace(x, axis1=-2, axis2=-1)[..., None, None] / x.shape[-1]
    return x - mean * identity_like(x)
