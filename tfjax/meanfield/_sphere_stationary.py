"""Stationary states on S^2 with noise, and their branches as it varies."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, is_concrete, log1p_over, matmul, require, widen
from ._fixed_point import branch, check_diffusivities, noisy, settle
from ._harmonics import check_degree, degree_of, zonal
from ._params import MeanFieldParams, mean_field_args
from ._sphere import kernel_ratios


def sphere_stationary(
    guess: Float[ArrayLike, " h"], args: MeanFieldParams
) -> Float[Array, " h"]:
    r"""A stationary density on S^2 with noise, symmetric about the third axis.

    It is the density that it makes for itself,

    $$\mu \propto e^{Z[\mu] / (\beta D)} \ \text{(USA)}, \qquad
      \mu \propto Z[\mu]^{1 / (\beta D)} \ \text{(SA)}, \qquad
      Z[\mu](x) = \int e^{\beta \langle x, y \rangle} d\mu(y),$$

    found in its coefficients of order 0, as [`stationary_density`][] does on the
    circle: iterated from the guess, so that it is stable in this iteration, and
    completed by Newton's method. Its rotations are stationary as well.

    Whether the degree carries the result, [`sphere_resolution`][] tells. It is
    differentiable in `args` by the implicit function theorem, not in the guess.

    **Arguments:**

    - `guess`: where to begin, of shape ((L + 1)^2,), as for [`sphere_continuity`][] and
      of positive mass; its part that is symmetric about the third axis is taken.
    - `args`: a [`MeanFieldParams`][] with positive `diffusivity`.

    **Returns:** the coefficients of the density, of mass 1, of shape ((L + 1)^2,).

    **Raises:** ValueError where the shape does not fit or a parameter lies outside; a
    run-time error where Newton's method does not converge, as where two states meet.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import MeanFieldParams, sphere_stationary
        >>> guess = jnp.zeros(289).at[0].set(1.0).at[2].set(1.0)
        >>> args = MeanFieldParams(beta=0.0, diffusivity=0.2)
        >>> c = sphere_stationary(guess, args)
        >>> round(float(c[2]) / 3**0.5, 4)  # the mean height: coth(r/D) - D/r
        0.7259

    Source: arXiv 2412.14813; R. Fisher, Proc. R. Soc. A 217 (1953) 295 at beta = 0.
    """
    (guess,), dtype = widen(_check_guess(guess))
    params = noisy(args, guess.dtype)
    state = jax.lax.stop_gradient(_zonal_part(guess))
    return _coefficients(settle(_image, state, params)).astype(dtype)


def sphere_noise_branch(
    diffusivities: Float[ArrayLike, " m"],
    guess: Float[ArrayLike, " h"],
    args: MeanFieldParams,
) -> Float[Array, "m h"]:
    r"""Stationary densities on S^2 as the noise is varied slowly.

    Each state is sought from the one before, mixed with a thousandth of a point at the
    pole, as [`noise_branch`][] does on the circle. There is hysteresis above
    [`tricritical_beta`][] of d = 3.

    **Arguments:**

    - `diffusivities`: in the order in which they are visited, of shape (m,).
    - `guess`: where the first is sought from, as for [`sphere_stationary`][].
    - `args`: a [`MeanFieldParams`][], whose `diffusivity` is not used.

    **Returns:** the coefficients of the densities, of shape (m, (L + 1)^2).

    **Raises:** as [`sphere_stationary`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import MeanFieldParams, sphere_noise_branch
        >>> uniform, args = jnp.zeros(81).at[0].set(1.0), MeanFieldParams(beta=0.0)
        >>> states = sphere_noise_branch(jnp.array([0.4, 0.3]), uniform, args)
        >>> [round(abs(float(c[2])) / 3**0.5, 3) for c in states]
        [0.0, 0.397]

    Source: own; stationary states are those of arXiv 2412.14813.
    """
    (guess,), dtype = widen(_check_guess(guess))
    diffusivities = check_diffusivities(diffusivities, guess.dtype)
    params = mean_field_args(args, guess.dtype)
    state = _zonal_part(guess)
    # All the mass at the pole: values of the harmonics there.
    point = jnp.asarray(np.sqrt(2 * np.arange(1, state.size + 1) + 1), state.dtype)
    states = branch(_image, point, state, diffusivities, params)
    return jax.vmap(_coefficients)(states).astype(dtype)


def _check_guess(guess: Any) -> Float[Array, " h"]:
    guess = as_float("guess", guess)
    check_degree(degree_of("guess", guess))
    if is_concrete(guess):
        fits = jnp.all(jnp.isfinite(guess)) & (guess[0] > 0)
        require(guess, fits, "guess", "be finite, its first entry (the mass) positive")
    return guess


def _zonal_indices(degree):
    """Where order 0 of the degrees 1, ..., L is found."""
    k = np.arange(1, degree + 1)
    return k * k + k


def _zonal_part(c):
    """Order 0 of the degrees 1, ..., L, for a mass of 1."""
    return c[_zonal_indices(degree_of("guess", c))] / c[0]


def _coefficients(state):
    """All the coefficients of a density of mass 1 that is symmetric about the axis."""
    c = jnp.zeros((state.size + 1) ** 2, state.dtype).at[0].set(1.0)
    return c.at[_zonal_indices(state.size)].set(state)


def _image(state, params):
    """The coefficients of the density that the state makes."""
    degree = state.size
    weights, values = (jnp.asarray(a, state.dtype) for a in zonal(degree))
    ratios, mean = kernel_ratios(params, degree)
    # (Z - its mean) / beta, which beta = 0 leaves as it is.
    potential = matmul(values, ratios[1:] * state)
    if params.normalized:
        u = potential / mean
        potential = u * log1p_over(params.beta * u)
    exponent = potential / params.diffusivity
    mass = weights * jnp.exp(exponent - jax.lax.stop_gradient(jnp.max(exponent)))
    return matmul(mass / jnp.sum(mass), values)
