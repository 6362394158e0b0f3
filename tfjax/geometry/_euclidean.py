"""Flat space."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import safe_norm
from ._base import AbstractManifold, check_dimension, checked


class Euclidean(AbstractManifold):
    """R^d with the flat metric: geodesics are straight lines, `exp_x(v) = x + v`.

    **Arguments:**

    - `d`: the dimension. Points have shape (..., d); all of R^d is on the manifold.

    **Raises:** ValueError where `d` is not a positive integer, or where the last axis
    of a point is not of length `d`.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import Euclidean
        >>> plane = Euclidean(2)
        >>> float(plane.distance(jnp.array([0.0, 0.0]), jnp.array([3.0, 4.0])))
        5.0
    """

    d: int = eqx.field(static=True)

    def __check_init__(self):
        check_dimension("d", self.d, 1)

    def random(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...] = (),
        *,
        dtype: DTypeLike | None = None,
    ) -> Float[Array, "*shape d"]:
        """Standard normal points, of shape `shape + (d,)`."""
        return jax.random.normal(key, (*shape, self.d), dtype)

    @checked
    def project(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """`x` itself."""
        return x

    @checked
    def projectable(self, x: Float[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        """True wherever `x` is finite."""
        return jnp.all(jnp.isfinite(x), axis=-1)

    @checked
    def tangent(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`v` itself: every vector is tangent."""
        return v

    @checked
    def exp(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`x + v`."""
        return x + v

    @checked
    def log(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`y - x`."""
        return y - x

    @checked
    def distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """`|x - y|`, with gradient 0 at coincidence."""
        return safe_norm(x - y)

    @checked
    def squared_distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """`|x - y|^2`."""
        return jnp.sum((x - y) ** 2, axis=-1)

    @checked
    def transport(
        self,
        x: Float[Array, "*batch d"],
        y: Float[Array, "*batch d"],
        v: Float[Array, "*batch d"],
    ) -> Float[Array, "*batch d"]:
        """`v` itself: parallel transport is trivial."""
        return v

    @checked
    def retract(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`x + v`."""
        return x + v

    @checked
    def embed(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch m"]:
        """`x` itself."""
        return x
