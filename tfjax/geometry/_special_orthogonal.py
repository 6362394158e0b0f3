"""The rotations of R^d, as matrices."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import matmul, safe_norm, skew, transpose
from ._base import AbstractManifold, check_dimension, checked
from ._rotations import (
    exp_of_skew,
    log_of_rotation,
    nearest_rotation,
    polish,
    singular_gap,
)


class SpecialOrthogonal(AbstractManifold):
    """The rotations SO(d) = {x in R^{d x d} : x^T x = 1, det x = 1}.

    The metric is that of the entries, `<v, w> = tr(v^T w)`, so that the distance of two
    rotations is sqrt(2) times the root of the sum of squares of the angles between
    them, and products from the left and the right are isometries. Tangent vectors at x
    are `x a` with a skew; `exp_x(x a) = x e^a`. `log` is that of the smallest angles,
    below pi; where one is exactly pi, one of the shortest ways is taken.

    **Arguments:**

    - `d`: the dimension of the space that is rotated, at least 2. Points have shape
      (..., d, d); `Product(SpecialOrthogonal(d))` has them as vectors (..., d^2).

    **Raises:** ValueError where `d` is not an integer of at least 2, or where the last
    axes of a point are not (d, d).

    !!! example

        >>> import jax
        >>> from tfjax.geometry import SpecialOrthogonal
        >>> space = SpecialOrthogonal(3)
        >>> x, y = space.random(jax.random.key(0), (2,))
        >>> bool(abs(space.exp(x, space.log(x, y)) - y).max() < 1e-5)
        True
    """

    d: int = eqx.field(static=True)

    def __check_init__(self):
        check_dimension("d", self.d, 2)

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
        """Uniform rotations (Haar's measure), of shape `shape + (d, d)`."""
        # The nearest rotation to a Gaussian matrix turns with it, from either side.
        return self.project(jax.random.normal(key, (*shape, self.d, self.d), dtype))

    @checked
    def project(self, x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
        """The polar factor of `x`; with the least singular value reversed, if det < 0.

        Its derivatives of any order are finite at rotations too.
        """
        return nearest_rotation(x)

    @checked
    def projectable(self, x: Float[Array, "*batch d d"]) -> Bool[Array, "*batch"]:
        """False where two singular values add up to 0, the last one with det's sign."""
        least = 8 * self.d * jnp.finfo(x.dtype).eps
        return jnp.all(jnp.isfinite(x), axis=(-2, -1)) & (singular_gap(x) > least)

    @checked
    def tangent(
        self, x: Float[Array, "*batch d d"], v: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """`x (x^T v - v^T x) / 2`."""
        return matmul(x, skew(matmul(transpose(x), v)))

    @checked
    def exp(
        self, x: Float[Array, "*batch d d"], v: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """`x e^a` with `a` the skew part of `x^T v`."""
        return polish(matmul(x, exp_of_skew(skew(matmul(transpose(x), v)))))

    @checked
    def log(
        self, x: Float[Array, "*batch d d"], y: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """`x a` with `a` the logarithm of `x^T y`."""
        return matmul(x, _between(x, y))

    @checked
    def distance(
        self, x: Float[Array, "*batch d d"], y: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch"]:
        """`|log(x^T y)|`, with gradient 0 at coincidence."""
        a = _between(x, y)
        return safe_norm(a.reshape(*a.shape[:-2], -1))

    @checked
    def squared_distance(
        self, x: Float[Array, "*batch d d"], y: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch"]:
        """`|log(x^T y)|^2`."""
        return jnp.sum(_between(x, y) ** 2, axis=(-2, -1))

    @checked
    def transport(
        self,
        x: Float[Array, "*batch d d"],
        y: Float[Array, "*batch d d"],
        v: Float[Array, "*batch d d"],
    ) -> Float[Array, "*batch d d"]:
        """`x q (x^T v) q` with `q` half the way, `q^2 = x^T y`."""
        q = exp_of_skew(0.5 * _between(x, y))
        return matmul(matmul(matmul(x, q), matmul(transpose(x), v)), q)

    @checked
    def retract(
        self, x: Float[Array, "*batch d d"], v: Float[Array, "*batch d d"]
    ) -> Float[Array, "*batch d d"]:
        """The polar factor of `x + v`."""
        return nearest_rotation(x + v)

    @checked
    def embed(self, x: Float[Array, "*batch d d"]) -> Float[Array, "*batch m"]:
        """The entries, in R^{d^2}: inner products are `tr(x^T y)`."""
        return x.reshape(*x.shape[:-2], -1)


def _between(x, y):
    """The logarithm of `x^T y`: for near points their difference has all digits."""
    return log_of_rotation(matmul(transpose(x), y - x))
