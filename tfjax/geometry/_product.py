"""Products of manifolds."""

import math

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import must, safe_norm
from ._base import AbstractManifold, checked


class Product(AbstractManifold):
    """The product M_1 x M_2 x ... with the sum of the metrics.

    A point is a point of each factor, one after the other along the last axis, so that
    d is the sum of the factors' dimensions; matrices are written row by row. Every
    operation acts on each block alone, and squared distances add.

    **Arguments:**

    - `factors`: manifolds, at least one; products of products are fine.

    **Raises:** ValueError where a factor is no manifold, or where the last axis of a
    point is not of length `d`.

    !!! example

        >>> import jax
        >>> from tfjax.geometry import Product, Sphere, Torus
        >>> space = Product(Sphere(3), Torus(2))
        >>> x, y = space.random(jax.random.key(0), (2,))
        >>> bool(abs(space.exp(x, space.log(x, y)) - y).max() < 1e-5)
        True
    """

    factors: tuple[AbstractManifold, ...]

    def __init__(self, *factors: AbstractManifold):
        if not factors:
            raise must("factors", "be at least one manifold", "none")
        for factor in factors:
            if not isinstance(factor, AbstractManifold):
                raise must("factors", "be manifolds of tfjax.geometry", repr(factor))
        self.factors = factors

    @property
    def d(self) -> int:  # type: ignore[override]
        """The sum of the factors' dimensions: how many numbers a point has."""
        return sum(math.prod(factor.point_shape) for factor in self.factors)

    def _blocks(self, *arrays):
        """Each factor with its part of each of the arrays, in the factor's shape."""
        start = 0
        for factor in self.factors:
            end = start + math.prod(factor.point_shape)
            parts = [array[..., start:end] for array in arrays]
            shape = factor.point_shape
            yield factor, *(part.reshape(part.shape[:-1] + shape) for part in parts)
            start = end

    def _joined(self, parts) -> Array:
        """The factors' points or vectors, written one after the other."""
        flat = []
        for factor, part in zip(self.factors, parts, strict=True):
            batch = part.shape[: part.ndim - len(factor.point_shape)]
            flat.append(part.reshape(*batch, math.prod(factor.point_shape)))
        return jnp.concatenate(flat, axis=-1)

    def random(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...] = (),
        *,
        dtype: DTypeLike | None = None,
    ) -> Float[Array, "*shape d"]:
        """Independent random points of the factors, of shape `shape + (d,)`."""
        keys = jax.random.split(key, len(self.factors))
        pairs = zip(self.factors, keys, strict=True)
        return self._joined(factor.random(k, shape, dtype=dtype) for factor, k in pairs)

    @checked
    def project(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The closest point of each factor."""
        return self._joined(m.project(x) for m, x in self._blocks(x))

    @checked
    def projectable(self, x: Float[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        """Whether every factor's part has one closest point."""
        fits = [m.projectable(x) for m, x in self._blocks(x)]
        return jnp.all(jnp.stack(fits), axis=0)

    @checked
    def tangent(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """The tangential part in each factor."""
        return self._joined(m.tangent(x, v) for m, x, v in self._blocks(x, v))

    @checked
    def exp(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """The geodesic of each factor."""
        return self._joined(m.exp(x, v) for m, x, v in self._blocks(x, v))

    @checked
    def log(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """The velocity of the shortest geodesic of each factor."""
        return self._joined(m.log(x, y) for m, x, y in self._blocks(x, y))

    @checked
    def distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The root of the sum of squared distances, with gradient 0 at coincidence."""
        each = [m.distance(x, y) for m, x, y in self._blocks(x, y)]
        return safe_norm(jnp.stack(each, axis=-1))

    @checked
    def squared_distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The sum of the factors' squared distances."""
        each = [m.squared_distance(x, y) for m, x, y in self._blocks(x, y)]
        return jnp.sum(jnp.stack(each), axis=0)

    @checked
    def transport(
        self,
        x: Float[Array, "*batch d"],
        y: Float[Array, "*batch d"],
        v: Float[Array, "*batch d"],
    ) -> Float[Array, "*batch d"]:
        """The transport of each factor."""
        return self._joined(
            m.transport(x, y, v) for m, x, y, v in self._blocks(x, y, v)
        )

    @checked
    def retract(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """The retraction of each factor."""
        return self._joined(m.retract(x, v) for m, x, v in self._blocks(x, v))

    @checked
    def embed(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch m"]:
        """The factors' embeddings, one after the other: inner products add."""
        return jnp.concatenate([m.embed(x) for m, x in self._blocks(x)], axis=-1)
