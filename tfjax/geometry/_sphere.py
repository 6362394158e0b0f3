"""The unit sphere of R^d, accurate near coincidence and near the antipode."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core import (
    cos_sqrt,
    normalize,
    normalize_exactly,
    safe_norm,
    sinc_sqrt,
)
from ._base import AbstractManifold, check_dimension, checked


# Taylor coefficients of arcsin(sqrt(c) / 2)^2 * 4 / c in c: 2 / (k^2 binom(2k, k)).
_ARC = [1.0]
for _k in range(1, 15):
    _ARC.append(_ARC[-1] * _k**2 / ((2 * _k + 1) * (2 * _k + 2)))


class Sphere(AbstractManifold):
    """The unit sphere S^{d-1} = {x in R^d : |x| = 1} with the round metric.

    `exp_x(v) = cos|v| x + sin|v| v/|v|` and the distance is the angle between the
    points. At exact antipodes, where many shortest geodesics exist, `log` and
    `transport` take one that is fixed by `x` alone, so `exp(x, log(x, y)) = y` holds
    there too. The origin has no closest point: `project` leaves it at 0.

    **Arguments:**

    - `d`: the dimension of the space around the sphere, at least 2. Points have shape
      (..., d).

    **Raises:** ValueError where `d` is not an integer of at least 2, or where the
    last axis of a point is not of length `d`.

    !!! example

        >>> import jax
        >>> from tfjax.geometry import Sphere
        >>> x, y = Sphere(3).random(jax.random.key(0), (2,))
        >>> bool(abs(Sphere(3).exp(x, Sphere(3).log(x, y)) - y).max() < 1e-6)
        True
    """

    d: int = eqx.field(static=True)

    def __check_init__(self):
        check_dimension("d", self.d, 2)

    def random(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...] = (),
        *,
        dtype: DTypeLike | None = None,
    ) -> Float[Array, "*shape d"]:
        """Uniform points, of shape `shape + (d,)`: normalised Gaussian vectors."""
        return self.project(jax.random.normal(key, (*shape, self.d), dtype))

    @checked
    def project(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """`x / |x|`; the origin stays where it is, with zero gradient."""
        return normalize_exactly(x)

    @checked
    def projectable(self, x: Float[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        """False at the origin and at non-finite points."""
        return jnp.all(jnp.isfinite(x), axis=-1) & jnp.any(x != 0, axis=-1)

    @checked
    def tangent(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`v - <x, v> x`."""
        return v - jnp.sum(x * v, axis=-1, keepdims=True) * x

    @checked
    def exp(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`cos|v| x + sin|v| v/|v|`, for the part of `v` that is tangent at `x`."""
        v = self.tangent(x, v)
        square = jnp.sum(v * v, axis=-1, keepdims=True)
        return normalize_exactly(cos_sqrt(square) * x + sinc_sqrt(square) * v)

    @checked
    def log(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`theta u`, with theta the angle from `x` to `y` and u the unit direction."""
        square = self.squared_distance(x, y)[..., None]
        near = jnp.sum(x * y, axis=-1, keepdims=True) >= 0
        # theta / sin(theta) is smooth on the near half; beyond it use the direction.
        safe = jnp.where(near, square, jnp.zeros_like(square))
        short = self.tangent(x, y - x) / sinc_sqrt(safe)
        long = self.distance(x, y)[..., None] * _direction(x, y)
        return jnp.where(near, short, long)

    @checked
    def distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The angle `2 atan2(|x - y|, |x + y|)` in [0, pi]; gradient 0 at 0 and pi."""
        return 2 * jnp.arctan2(safe_norm(x - y), safe_norm(x + y))

    @checked
    def squared_distance(
        self, x: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch"]:
        """The squared angle, a power series in |x - y|^2 where the points are near."""
        chord = jnp.sum((x - y) ** 2, axis=-1)
        near = chord < 0.25
        c = jnp.where(near, chord, jnp.zeros_like(chord))
        series = jnp.full_like(c, _ARC[-1])
        for coefficient in _ARC[-2::-1]:
            series = series * c + jnp.asarray(coefficient, c.dtype)
        far = jnp.where(near[..., None], -x, y)  # any point away from coincidence
        return jnp.where(near, series * c, self.distance(x, far) ** 2)

    @checked
    def transport(
        self,
        x: Float[Array, "*batch d"],
        y: Float[Array, "*batch d"],
        v: Float[Array, "*batch d"],
    ) -> Float[Array, "*batch d"]:
        """`v - <y, v> / (1 + <x, y>) (x + y)`, and its limit at the antipode."""
        middle = x + y
        square = jnp.sum(middle * middle, axis=-1, keepdims=True)
        near = square > 1
        safe = jnp.where(near, square, jnp.ones_like(square))
        component = jnp.sum((y - x) * v, axis=-1, keepdims=True)  # v is tangent at x
        short = v - 2 * component / safe * middle
        u = _direction(x, y)
        theta = self.distance(x, y)[..., None]
        turned = (jnp.cos(theta) - 1) * u - jnp.sin(theta) * x
        long = v + jnp.sum(u * v, axis=-1, keepdims=True) * turned
        return jnp.where(near, short, long)

    @checked
    def retract(
        self, x: Float[Array, "*batch d"], v: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """`(x + v) / |x + v|`."""
        return normalize_exactly(x + v)

    @checked
    def embed(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch m"]:
        """`x` itself."""
        return x


def _direction(x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "..."]:
    """The unit tangent at x of the way to y; at the antipode a fixed one, 0 at x."""
    inner = jnp.sum(x * y, axis=-1, keepdims=True)
    # P_x y = P_x(y - x) = P_x(y + x): the smaller of the two loses no digits.
    gap = jnp.where(inner >= 0, y - x, y + x)
    u = gap - jnp.sum(x * gap, axis=-1, keepdims=True) * x
    axis = jax.nn.one_hot(jnp.argmin(jnp.abs(x), axis=-1), x.shape[-1], dtype=x.dtype)
    other = axis - jnp.sum(x * axis, axis=-1, keepdims=True) * x
    opposite = (inner < 0) & jnp.all(gap == 0, axis=-1, keepdims=True)
    return normalize(jnp.where(opposite, other, u))
