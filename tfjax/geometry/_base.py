"""What every manifold offers, and the shape contract that they share."""

import abc
import functools
import inspect
from collections.abc import Callable
from typing import TypeVar, cast

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import as_float, must, widen


_F = TypeVar("_F", bound=Callable)


class AbstractManifold(eqx.Module):
    """A Riemannian manifold embedded in R^d, as a value without array leaves.

    Points and tangent vectors are arrays whose last axes are `point_shape`: the one
    axis (d,), or (d, d) on manifolds of matrices; any leading axes are a batch of
    independent points. float16 and bfloat16 are computed in float32 and rounded once,
    integers take the default dtype.

    Whoever needs rows, as attention of tokens (n, d) does, takes `Product(M)`: it is M
    with its points written as vectors.
    """

    d: eqx.AbstractVar[int]

    @property
    def point_shape(self) -> tuple[int, ...]:
        """The shape of one point."""
        return (self.d,)

    @abc.abstractmethod
    def random(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...] = (),
        *,
        dtype: DTypeLike | None = None,
    ) -> Float[Array, "*shape d"]:
        """Draws points from the manifold's uniform (or standard) distribution."""

    @abc.abstractmethod
    def project(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The point of the manifold that is closest to `x`."""

    @abc.abstractmethod
    def projectable(self, x: Float[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        """Whether `x` has one closest point, so that `project` is defined there."""

    @abc.abstractmethod
    def tangent(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """The orthogonal projection of `v` on the tangent space at `x`."""

    @abc.abstractmethod
    def exp(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """Where the geodesic from `x` with velocity `v` is at time 1."""

    @abc.abstractmethod
    def log(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """The velocity at `x` of the shortest geodesic that is at `y` at time 1."""

    @abc.abstractmethod
    def distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The length of the shortest geodesic from `x` to `y`."""

    @abc.abstractmethod
    def squared_distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """`distance(x, y)**2`, smooth where the points coincide."""

    @abc.abstractmethod
    def transport(
        self,
        x: Float[Array, "*batch d"],
        y: Float[Array, "*batch d"],
        v: Float[Array, "*batch d"],
    ) -> Float[Array, "*batch d"]:
        """Carries the tangent vector `v` at `x` to `y` along the shortest geodesic."""

    @abc.abstractmethod
    def retract(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """A cheap map that agrees with `exp` to second order in v.

        It is `project(x + v)`, unless that may have left the manifold.
        """

    @abc.abstractmethod
    def embed(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch m"]:
        """The point in a Euclidean space R^m into which the manifold is isometric.

        Attention on the manifold compares tokens by the inner product of R^m. Where no
        such space is known, the manifold says what its own embedding keeps.
        """


def check_dimension(name: str, d: int, least: int) -> int:
    """Raises unless `d` is an integer of at least `least`."""
    if isinstance(d, bool) or not isinstance(d, int) or d < least:
        raise must(name, f"be an integer of at least {least}", repr(d))
    return d


def has_points(array: Array, manifold: AbstractManifold) -> bool:
    """Whether the last axes of an array are those of points of the manifold."""
    shape = manifold.point_shape
    return array.ndim >= len(shape) and array.shape[-len(shape) :] == shape


def shape_of_points(manifold: AbstractManifold) -> str:
    """How errors say which shape an array of points has."""
    axes = ", ".join(str(length) for length in manifold.point_shape)
    return f"shape (..., {axes}), as points of {manifold}"


def checked(method: _F) -> _F:
    """Makes float arrays of the arguments, checks their shapes, restores the dtype."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        given.pop("self")
        arrays = {name: as_float(name, value) for name, value in given.items()}
        for name, array in arrays.items():
            if not has_points(array, self):
                rule = f"have {shape_of_points(self)}"
                raise must(name, rule, f"of shape {array.shape}")
        wide, dtype = widen(*arrays.values())
        wide = jnp.broadcast_arrays(*wide)
        out = method(self, **dict(zip(arrays, wide, strict=True)))
        return out if out.dtype == bool else out.astype(dtype)

    return cast(_F, wrapper)
