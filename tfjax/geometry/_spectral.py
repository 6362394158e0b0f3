"""Exponential and logarithm of symmetric matrices, differentiable to any order.

The derivative of eigenvectors does not exist where eigenvalues coincide; that of the
functions does (Daleckii and Krein): in the eigenbasis it multiplies by the divided
differences of the function at the eigenvalues.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import matmul, symmetric, transpose


def exp_of_symmetric(a: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The exponential of a symmetric matrix: positive definite, and symmetric."""
    return symmetric(jax.scipy.linalg.expm(symmetric(a)))


@jax.custom_jvp
def log_of_positive(
    w: Float[Array, "*batch d d"], gap: Float[Array, "*batch d d"]
) -> Float[Array, "*batch d d"]:
    """The logarithm of `w = 1 + gap`; no digit is lost where either is small."""
    near = jnp.sum(gap * gap, axis=(-2, -1), keepdims=True) < 0.25
    small, p = jnp.linalg.eigh(jnp.where(near, gap, jnp.zeros_like(gap)))
    large, q = jnp.linalg.eigh(w)
    return jnp.where(near, _compose(p, jnp.log1p(small)), _compose(q, jnp.log(large)))


@log_of_positive.defjvp
def _log_of_positive_jvp(primals, tangents):
    log = log_of_positive(*primals)

    def derivative_of_exp(a):
        return jax.jvp(exp_of_symmetric, (log,), (a,))[1]

    def solve(_, a):
        values, q = jnp.linalg.eigh(log)
        middle = 0.5 * (values[..., :, None] + values[..., None, :])
        half = 0.5 * (values[..., :, None] - values[..., None, :])
        # (e^x - e^y) / (x - y) = e^{(x + y) / 2} sinh(h) / h with h = (x - y) / 2.
        same = half == 0
        ratio = jnp.where(same, 1.0, jnp.sinh(half) / jnp.where(same, 1.0, half))
        inner = matmul(matmul(transpose(q), a), q) / (jnp.exp(middle) * ratio)
        return matmul(matmul(q, inner), transpose(q))

    # A linear solve, so that the eigenvectors are never differentiated.
    tangent = jax.lax.custom_linear_solve(
        derivative_of_exp, symmetric(tangents[1]), solve, symmetric=True
    )
    return log, tangent


def _compose(q, values):
    """The symmetric matrix of these eigenvectors and eigenvalues."""
    return symmetric(matmul(q * values[..., None, :], transpose(q)))
