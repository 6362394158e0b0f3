"""Whether a grid still carries a density: its sign, and the tail of its spectrum."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._core import as_float, is_concrete, must, require, widen
from ._circle import check_density, circle_modes_of, cutoff
from ._harmonics import degree_of
from ._sphere import sphere_density


class Resolution(NamedTuple):
    """How well a grid carries a density.

    `minimum`: the least value of the density, as a multiple of its mean. Below 0 it is
    no density any more.
    `tail`: the largest of the Fourier modes, or degrees, in the upper third of those
    that the equation uses, as a multiple of the mass; 1 for all the mass at one point.
    Where it is not small, modes are missing.
    """

    minimum: Float[Array, ""]
    tail: Float[Array, ""]


def resolution(density: Float[ArrayLike, " n"]) -> Resolution:
    r"""How well n angles carry a density on the circle.

    **Arguments:**

    - `density`: as for [`circle_continuity`][], of shape (n,).

    **Returns:** a [`Resolution`][].

    **Raises:** ValueError where the shape does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import resolution
        >>> theta = jnp.arange(64.0) * 2 * jnp.pi / 64
        >>> wide, narrow = jnp.exp(jnp.cos(theta)), jnp.exp(200 * jnp.cos(theta) - 200)
        >>> bool(resolution(wide).tail < 1e-6), bool(resolution(narrow).tail > 0.1)
        (True, True)

    Source: own; J. Boyd, Chebyshev and Fourier Spectral Methods, chapter 2, on reading
    the tail of a spectrum.
    """
    (density,), dtype = widen(check_density(density))
    top = cutoff(density.size)
    size = jnp.abs(circle_modes_of(density))
    tail = jnp.max(size[1 + 2 * top // 3 : top + 1]) / size[0]
    minimum = jnp.min(density) / size[0]
    return Resolution(minimum.astype(dtype), tail.astype(dtype))


def sphere_resolution(coefficients: Float[ArrayLike, " h"]) -> Resolution:
    r"""How well harmonics up to a degree carry a density on S^2.

    The size of degree l is
    $\bigl( \frac{1}{2l + 1} \sum_m (\int Y_{lm} d\mu)^2 \bigr)^{1/2}$.

    **Arguments:**

    - `coefficients`: as for [`sphere_continuity`][], of shape ((L + 1)^2,).

    **Returns:** a [`Resolution`][].

    **Raises:** ValueError where the shape does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import sphere_resolution
        >>> minimum, tail = sphere_resolution(jnp.zeros(49).at[0].set(1.0))
        >>> round(float(minimum), 6), float(tail)
        (1.0, 0.0)

    Source: as of [`resolution`][].
    """
    c = as_float("coefficients", coefficients)
    degree = degree_of("coefficients", c)
    (c,), dtype = widen(c)
    minimum = jnp.min(sphere_density(c)) / c[0]
    first = 1 + 2 * degree // 3
    k = np.arange(first, degree + 1)
    squares = jnp.cumsum(c[first**2 :] ** 2)[(k + 1) ** 2 - first**2 - 1]
    totals = jnp.diff(squares, prepend=0.0)
    tail = jnp.sqrt(jnp.max(totals / jnp.asarray(2 * k + 1, c.dtype))) / c[0]
    return Resolution(minimum.astype(dtype), tail.astype(dtype))


def resolution_lost(
    limit: Float[ArrayLike, ""] | float = 1e-3,
    measure: Callable[[Any], Resolution] = resolution,
) -> dfx.Event:
    r"""Ends a solve when the angles, or degrees, no longer carry the density.

    The event occurs after the first step where the tail exceeds `limit`, or the density
    is below `-limit` times its mean.

    **Arguments:**

    - `limit`: a scalar between 0 and 1.
    - `measure`: [`resolution`][] on the circle, [`sphere_resolution`][] on S^2.

    **Returns:** a `diffrax.Event`, for `solve(event=)`. The solution tells by
    `diffrax.is_event(solution.result)` whether it occurred.

    **Raises:** ValueError where `limit` lies outside.

    !!! example

        >>> import diffrax, jax.numpy as jnp, tfjax
        >>> from tfjax.meanfield import circle_continuity, resolution_lost
        >>> theta = jnp.arange(32.0) * 2 * jnp.pi / 32
        >>> density = (1 + 0.5 * jnp.cos(theta)) / (2 * jnp.pi)
        >>> kwargs = {"t1": 50.0, "event": resolution_lost()}
        >>> sol = tfjax.solve(circle_continuity, density, **kwargs)
        >>> bool(diffrax.is_event(sol.result)), bool(sol.ts[-1] < 10)
        (True, True)

    Source: own.
    """
    limit = as_float("limit", limit)
    if limit.ndim:
        raise must("limit", "be a scalar", f"of shape {limit.shape}")
    if is_concrete(limit):
        require(limit, (limit > 0) & (limit < 1), "limit", "lie between 0 and 1")
    return dfx.Event(_Lost(limit, measure))


class _Lost(eqx.Module):
    limit: Float[Array, ""]
    measure: Callable[[Any], Resolution] = eqx.field(static=True)

    def __call__(self, t: Any, y: Any, args: Any, **kwargs: Any) -> Bool[Array, ""]:
        minimum, tail = self.measure(y)
        limit = self.limit.astype(np.result_type(tail))
        return (tail > limit) | (minimum < -limit)
