"""Symmetric positive definite matrices with the affine-invariant metric."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import (
    identity_like,
    matmul,
    safe_norm,
    symmetric,
    transpose,
    widen,
)
from ._base import AbstractManifold, check_dimension, checked
from ._spectral import exp_of_symmetric, log_of_positive


class SymmetricPositiveDefinite(AbstractManifold):
    """The covariance matrices of R^d with `<u, v>_x = tr(x^-1 u x^-1 v)`.

    All matrices `x -> a x a^T`, and the inverse, are isometries; the distance is the
    root of the sum of squares of the logarithms of the eigenvalues of `x^-1 y`. There
    is one geodesic between any two points, and singular matrices are infinitely far.
    Tangent vectors are the symmetric matrices. With x = l l^T (Cholesky),

    `exp_x(v) = l exp(l^-1 v l^-T) l^T` and `log_x(y) = l log(l^-1 y l^-T) l^T`.

    The metric is not that of the space of matrices: where a rule takes `tangent` of a
    gradient, it follows the gradient of the entries. What is not positive definite is
    no point, see `projectable`; distances and logarithms of it are NaN.

    **Arguments:**

    - `d`: the number of rows, at least 1. Points have shape (..., d, d);
      `Product(SymmetricPositiveDefinite(d))` has them as vectors (..., d^2).

    **Raises:** ValueError where `d` is not a positive integer, or where the last axes
    of a point are not (d, d).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import SymmetricPositiveDefinite
        >>> space = SymmetricPositiveDefinite(2)
        >>> one, x = jnp.eye(2), jnp.diag(jnp.exp(jnp.array([3.0, 4.0])))
        >>> round(float(space.distance(one, x)), 4)
        5.0

    Source: X. Pennec, P. Fillard, N. Ayache, *A Riemannian framework for tensor
    computing*, International Journal of Computer Vision 66 (2006), section 3.
    """

    d: int = eqx.field(static=True)

    def __check_init__(self):
        check_dimension("d", self.d, 1)

    @property
    def point_shape(self) -> tuple[int, ...]:
        """(d, d)."""
        return (self.d, self.d)

    def random(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...] = (),
        *,
        dtype: DTypeLike | None = None,
    ) -> Float[Array, "*shape d d"]:
        """Covariances of 2 d standard normal vectors (Wishart), with mean 1."""
        a = jax.random.normal(key, (*shape, self.d, 2 * self.d), dtype)
        (a,), dtype = widen(a)
        return symmetric(matmul(a, transpose(a)) / (2 * self.d)).astype(dtype)

    @checked
    def project(self, x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
        """`(x + x^T) / 2`, which is a point where `projectable` says so."""
        return symmetric(x)

    @checked
    def projectable(self, x: Float[Array, "*batch d d"]) -> Bool[Array, "*batch"]:
        """Whether the symmetric part of `x` is positive definite."""
        factor = jnp.linalg.cholesky(symmetric(x))
        return jnp.all(jnp.isfinite(factor), axis=(-2, -1))

    @checked
    def tangent(
        self, x: Float[Array, "*batch d d"], v: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """`(v + v^T) / 2`."""
        return symmetric(v)

    @checked
    def exp(
        self, x: Float[Array, "*batch d d"], v: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """The congruence by `l` of `exp(l^-1 v l^-T)`, v its symmetric part."""
        factor = jnp.linalg.cholesky(x)
        return _colour(factor, exp_of_symmetric(_whiten(factor, v)))

    @checked
    def log(
        self, x: Float[Array, "*batch d d"], y: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """The congruence by `l` of `log(l^-1 y l^-T)`."""
        factor = jnp.linalg.cholesky(x)
        return _colour(factor, _between(factor, x, y))

    @checked
    def distance(
        self, x: Float[Array, "*batch d d"], y: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch"]:
        """`|log(l^-1 y l^-T)|`, with gradient 0 at coincidence."""
        a = _between(jnp.linalg.cholesky(x), x, y)
        return safe_norm(a.reshape(*a.shape[:-2], -1))

    @checked
    def squared_distance(
        self, x: Float[Array, "*batch d d"], y: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch"]:
        """`|log(l^-1 y l^-T)|^2`."""
        return jnp.sum(_between(jnp.linalg.cholesky(x), x, y) ** 2, axis=(-2, -1))

    @checked
    def transport(
        self,
        x: Float[Array, "*batch d d"],
        y: Float[Array, "*batch d d"],
        v: Float[Array, "*batch d d"],
    ) -> Float[Array, "*batch d d"]:
        """`e v e^T` with `e = (y x^-1)^{1/2}`."""
        factor = jnp.linalg.cholesky(x)
        half = exp_of_symmetric(0.5 * _between(factor, x, y))
        inner = _whiten(factor, v)
        return _colour(factor, matmul(matmul(half, inner), half))

    @checked
    def retract(
        self, x: Float[Array, "*batch d d"], v: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """`x + v + v x^-1 v / 2`, positive definite for any v, unlike `x + v`."""
        factor = jnp.linalg.cholesky(x)
        inner = _whiten(factor, v)
        one = identity_like(x)
        return _colour(factor, one + inner + 0.5 * matmul(inner, inner))

    @checked
    def embed(self, x: Float[Array, "*batch d d"]) -> Float[Array, "*batch m"]:
        """The entries of `log x`, in R^{d^2}.

        Isometric on matrices that commute, and on geodesics through 1; no distance gets
        longer. No embedding that keeps all of them has a closed form.
        """
        log = log_of_positive(symmetric(x), symmetric(x) - identity_like(x))
        return log.reshape(*x.shape[:-2], -1)


def _whiten(factor, v):
    """`l^-1 v l^-T`, of the symmetric part of v."""
    left = solve_triangular(factor, symmetric(v), lower=True)
    return symmetric(solve_triangular(factor, transpose(left), lower=True))


def _colour(factor, a):
    """`l a l^T`, the inverse of `_whiten`."""
    return symmetric(matmul(matmul(factor, a), transpose(factor)))


def _between(factor, x, y):
    """`log(l^-1 y l^-T)`: for near points their difference has all digits."""
    return log_of_positive(_whiten(factor, y), _whiten(factor, y - x))
