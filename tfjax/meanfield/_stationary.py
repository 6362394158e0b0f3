"""Stationary states on the circle with noise, and their branches as it varies."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import log1p_over, matmul, widen
from ._circle import (
    check_density,
    circle_angles,
    circle_modes_of,
    cutoff,
    kernel_modes,
)
from ._fixed_point import branch, check_diffusivities, noisy, settle, with_noise
from ._params import MeanFieldParams, mean_field_args


def stationary_density(
    guess: Float[ArrayLike, " n"], args: MeanFieldParams
) -> Float[Array, " n"]:
    r"""A stationary density on the circle with noise, even about the angle 0.

    It is the density that it makes for itself,

    $$\mu \propto e^{Z[\mu] / (\beta D)} \ \text{(USA)}, \qquad
      \mu \propto Z[\mu]^{1 / (\beta D)} \ \text{(SA)}, \qquad
      Z[\mu](\theta) = \int e^{\beta \cos(\theta - \varphi)} d\mu(\varphi),$$

    found in its cosine modes below n/3. The map of $\mu$ to the right-hand side is
    iterated from the guess, which tends to a state that is stable in this iteration;
    for USA that is one where the free energy $E_\beta[\mu] - D \int \mu \log \mu$ has a
    maximum, as for the flow. Newton's method then completes the digits. So an unstable
    state is found only from a guess next to it, such as the uniform density itself.

    Whether the angles carry the result, [`resolution`][] tells: for little noise it is
    narrow, and takes many. It is differentiable in `args` by the implicit function
    theorem, not in the guess.

    **Arguments:**

    - `guess`: where to begin, of shape (n,); its part that is even about 0 is taken.
    - `args`: a [`MeanFieldParams`][] with positive `diffusivity`.

    **Returns:** the density per radian, of shape (n,).

    **Raises:** ValueError where the shape does not fit or a parameter lies outside; a
    run-time error where Newton's method does not converge, as where two states meet.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax import meanfield as mf
        >>> guess = jnp.exp(jnp.cos(jnp.arange(32.0) * 2 * jnp.pi / 32))
        >>> kuramoto = mf.MeanFieldParams(beta=0.0, diffusivity=0.3)
        >>> modes = mf.circle_modes(mf.stationary_density(guess, kuramoto))
        >>> round(abs(complex(modes[1])), 4)
        0.7731

    Source: arXiv 2510.20094; Y. Kuramoto (1984) at beta = 0.
    """
    (guess,), dtype = widen(check_density(guess))
    params = noisy(args, guess.dtype)
    modes = settle(_image(guess.size), jax.lax.stop_gradient(_modes(guess)), params)
    return _density(modes, params, guess.size).astype(dtype)


def noise_branch(
    diffusivities: Float[ArrayLike, " m"],
    guess: Float[ArrayLike, " n"],
    args: MeanFieldParams,
) -> Float[Array, "m n"]:
    r"""Stationary densities as the noise is varied slowly.

    Each state is sought from the one before, mixed with a thousandth of a point at the
    angle 0, so that a state which has become unstable is left. Where the order of the
    diffusivities matters there is hysteresis: on the circle above
    [`tricritical_beta`][], where order sets in by a jump.

    **Arguments:**

    - `diffusivities`: in the order in which they are visited, of shape (m,).
    - `guess`: where the first is sought from, of shape (n,).
    - `args`: a [`MeanFieldParams`][], whose `diffusivity` is not used.

    **Returns:** the densities, of shape (m, n).

    **Raises:** as [`stationary_density`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import MeanFieldParams, circle_modes, noise_branch
        >>> uniform, args = jnp.ones(32), MeanFieldParams(beta=0.0)
        >>> states = noise_branch(jnp.array([0.6, 0.3]), uniform, args)
        >>> [round(abs(complex(circle_modes(s)[1])), 3) for s in states]
        [0.0, 0.773]

    Source: own; the jump is that of arXiv 2510.20094.
    """
    (guess,), dtype = widen(check_density(guess))
    diffusivities = check_diffusivities(diffusivities, guess.dtype)
    params, modes = mean_field_args(args, guess.dtype), _modes(guess)
    point = jnp.ones_like(modes)  # all the mass at the angle 0
    states = branch(_image(guess.size), point, modes, diffusivities, params)
    density = lambda modes, noise: _density(
        modes, with_noise(params, noise), guess.size
    )
    return jax.vmap(density)(states, diffusivities).astype(dtype)


def _modes(guess):
    """The cosine modes 1, ..., below n/3, for a mass of 1."""
    modes = circle_modes_of(guess).real
    return modes[1 : 1 + cutoff(guess.size)] / modes[0]


def _density(modes, params, n):
    """The density that the modes make: normalised, of mass 1."""
    theta = circle_angles(n, modes.dtype)
    waves = jnp.asarray(np.arange(1, modes.size + 1), modes.dtype)
    cosines = jnp.cos(theta[:, None] * waves[None, :])
    strength, mean = kernel_modes(params, n, modes.size)
    # (Z - its mean) / beta, which beta = 0 leaves as it is.
    potential = 2 * matmul(cosines, strength * modes)
    if params.normalized:
        u = potential / mean
        potential = u * log1p_over(params.beta * u)
    exponent = potential / params.diffusivity
    weight = jnp.exp(exponent - jax.lax.stop_gradient(jnp.max(exponent)))
    return weight / (jnp.sum(weight) * (2 * np.pi / n))


def _image(n):
    """The map to the modes of the density that the modes make, on n angles."""

    def image(modes, params):
        density = _density(modes, params, n)
        return 2 * np.pi * circle_modes_of(density).real[1 : modes.size + 1]

    return image
