"""The flat torus: angles, with the shortest way round."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import safe_norm
from ._base import AbstractManifold, check_dimension, checked


class Torus(AbstractManifold):
    """The flat torus (R / 2 pi Z)^d: d angles in radians, each in (-pi, pi].

    Geodesics are straight lines that are wrapped, and the distance is the norm of the
    shortest differences of the angles. Where two angles differ by exactly pi, `log`
    takes the positive way.

    **Arguments:**

    - `d`: the number of angles. Points have shape (..., d); `project` wraps any real
      angles.

    **Raises:** ValueError where `d` is not a positive integer, or where the last axis
    of a point is not of length `d`.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import Torus
        >>> circle = Torus(1)
        >>> x, y = jnp.array([3.0]), jnp.array([-3.0])
        >>> round(float(circle.distance(x, y)), 6)  # 2 pi - 6, across the cut
        0.283185
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
        """Uniform angles, of shape `shape + (d,)`."""
        shape = (*shape, self.d)
        # The interval of `uniform` holds its lower end, ours its upper one.
        return -jax.random.uniform(key, shape, dtype, minval=-np.pi, maxval=np.pi)

    @checked
    def project(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The angles modulo 2 pi, in (-pi, pi]; those already there are unchanged."""
        return _wrap(x)

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
        """`x + v`, wrapped."""
        return _wrap(x + v)

    @checked
    def log(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`y - x`, wrapped: the shortest difference of each angle."""
        return _wrap(y - x)

    @checked
    def distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The norm of the shortest differences, with gradient 0 at coincidence."""
        return safe_norm(_wrap(y - x))

    @checked
    def squared_distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The sum of the squared shortest differences."""
        return jnp.sum(_wrap(y - x) ** 2, axis=-1)

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
        """`x + v`, wrapped."""
        return _wrap(x + v)

    @checked
    def embed(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch m"]:
        """`(cos x, sin x)` in R^{2d}: inner products are `sum_k cos(x_k - y_k)`."""
        return jnp.concatenate([jnp.cos(x), jnp.sin(x)], axis=-1)


def _wrap(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Angles in (-pi, pi], with derivative 1; unchanged where they are there."""
    pi = jnp.asarray(np.pi, x.dtype)
    inside = (x > -pi) & (x <= pi)
    # Sine and cosine know 2 pi to more digits than one number of the dtype holds.
    turned = jnp.arctan2(jnp.sin(x), jnp.cos(x))
    turned = jnp.where(turned <= -pi, -turned, turned)
    return jnp.where(inside, x, turned)
