"""The continuity equation on the circle, pseudo-spectral on evenly spaced angles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Complex, Float

from .._core import as_float, check_shape, expm1_over, must, widen
from ._params import MeanFieldParams, mean_field_args


def circle_continuity(
    t: Float[ArrayLike, ""] | float,
    density: Float[ArrayLike, " n"],
    args: MeanFieldParams | None = None,
) -> Float[Array, " n"]:
    r"""The mean-field limit of attention on the circle: a field of densities.

    $$\partial_t \mu = -\partial_\theta (\mu\, \mathcal X[\mu])
      + D\, \partial_\theta^2 \mu$$

    with the velocity of [`circle_velocity`][]. Derivatives and convolutions are exact
    for the Fourier modes that the angles carry; the product is formed of the modes
    below n/3 of both factors, so that none of its modes is aliased (the 2/3 rule).
    So the mass is conserved to rounding, and the energy obeys the identities of the
    equation itself: without noise, $dE/dt = \int |\mathcal X|^2 d\mu$ for USA.

    Integrate it by [`solve`][]. Diffusion is stiff: an explicit solver needs steps of
    about $10 / (D n^2)$, so with noise on many angles take an implicit one,
    `diffrax.Kvaerno5()`. Without noise densities concentrate until n angles no longer
    resolve them: [`resolution`][] tells, and [`resolution_lost`][] ends the solve.

    **Arguments:**

    - `t`: time; unused.
    - `density`: the density per radian at the angles $2\pi j / n$, of shape (n,), with
      n even and at least 8; some $16 + 8 \sqrt\beta$ of them resolve the kernel.
    - `args`: a [`MeanFieldParams`][]; its defaults where None.

    **Returns:** the rate of change of the density, of shape (n,), in its dtype.

    **Raises:** ValueError where the shape does not fit or a parameter lies outside.

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.meanfield import MeanFieldParams, circle_continuity, circle_modes
        >>> theta = jnp.arange(32.0) * 2 * jnp.pi / 32
        >>> density = (1 + 0.1 * jnp.cos(theta)) / (2 * jnp.pi)
        >>> args = MeanFieldParams(beta=1.0)
        >>> end = tfjax.solve(circle_continuity, density, args, t1=1.0).ys[-1]
        >>> [round(abs(complex(mode)), 3) for mode in circle_modes(end)[:2]]
        [1.0, 0.088]

    Source: arXiv 2312.10794, equations (3.1) and (3.2).
    """
    density, params, dtype = _prepare(density, args)
    n = density.size
    modes = circle_modes_of(density)
    kept = _keep(modes, n)
    velocity = _values(_keep(circle_modes_of(_velocity(density, params)), n), n)
    flux = circle_modes_of(_values(kept, n) * velocity)
    wave = jnp.arange(n // 2 + 1, dtype=density.dtype)
    flow = jax.lax.complex(wave * flux.imag, -wave * flux.real)  # -i k flux
    decay = params.diffusivity * wave**2
    rate = _keep(flow, n) - modes * decay.astype(modes.dtype)
    return _values(rate, n).astype(dtype)


def circle_velocity(
    density: Float[ArrayLike, " n"], args: MeanFieldParams | None = None
) -> Float[Array, " n"]:
    r"""The velocity that a density of tokens gives to a token at each angle.

    $$\mathcal X[\mu](\theta) = \int e^{\beta \cos(\varphi - \theta)}
      \sin(\varphi - \theta)\, d\mu(\varphi)$$

    for USA, and for SA divided by
    $Z(\theta) = \int e^{\beta \cos(\varphi - \theta)} d\mu(\varphi)$.

    **Arguments:**

    - `density`: as for [`circle_continuity`][], of shape (n,).
    - `args`: a [`MeanFieldParams`][]; its defaults where None.

    **Returns:** the angular velocities, of shape (n,), in the dtype of `density`.

    **Raises:** as [`circle_continuity`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import MeanFieldParams, circle_velocity
        >>> density = (1 + jnp.cos(jnp.arange(8.0) * jnp.pi / 4)) / (2 * jnp.pi)
        >>> round(float(circle_velocity(density, MeanFieldParams(beta=0.0))[2]), 4)
        -0.5

    Source: arXiv 2312.10794, equation (3.1), at d = 2.
    """
    density, params, dtype = _prepare(density, args)
    return _velocity(density, params).astype(dtype)


def circle_energy(
    density: Float[ArrayLike, " n"], args: MeanFieldParams | None = None
) -> Float[Array, ""]:
    r"""The centred interaction energy of a density on the circle.

    $$E_\beta[\mu] - \frac{1}{2 \beta} = \frac{1}{2\beta} \iint \bigl(
      e^{\beta \cos(\theta - \varphi)} - 1 \bigr)\, d\mu(\theta)\, d\mu(\varphi)$$

    of a density of mass 1: half the square of its mean at beta = 0, as the centred
    [`interaction_energy`][] of tokens.

    **Arguments:**

    - `density`, `args`: as for [`circle_velocity`][]; only `beta` is used.

    **Returns:** a scalar, in the dtype of `density`.

    **Raises:** as [`circle_continuity`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import MeanFieldParams, circle_energy
        >>> density = (1 + jnp.cos(jnp.arange(8.0) * jnp.pi / 4)) / (2 * jnp.pi)
        >>> round(float(circle_energy(density, MeanFieldParams(beta=0.0))), 4)
        0.125

    Source: arXiv 2312.10794, equation (3.4).
    """
    density, params, dtype = _prepare(density, args)
    n = density.size
    cosine = jnp.cos(circle_angles(n, density.dtype))
    kernel = cosine * expm1_over(params.beta * cosine)
    potential = _convolve(kernel, density)
    return (np.pi / n * jnp.sum(density * potential)).astype(dtype)


def circle_modes(density: Float[ArrayLike, " n"]) -> Complex[Array, " m"]:
    r"""The Fourier modes of a density, $\int e^{-i k \theta} d\mu(\theta)$.

    The zeroth is the mass, the length of the first is Kuramoto's order parameter.

    **Arguments:**

    - `density`: as for [`circle_continuity`][], of shape (n,).

    **Returns:** the modes k = 0, ..., n/2, of shape (n/2 + 1,).

    **Raises:** ValueError where the shape does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import circle_modes
        >>> density = (1 + jnp.cos(jnp.arange(8.0) * jnp.pi / 4)) / (2 * jnp.pi)
        >>> [round(abs(complex(mode)), 3) for mode in circle_modes(density)]
        [1.0, 0.5, 0.0, 0.0, 0.0]

    Source: own.
    """
    (density,), _ = widen(check_density(density))
    return 2 * np.pi * circle_modes_of(density)


def check_density(density: Any) -> Float[Array, " n"]:
    """A density on an even number of angles."""
    density = as_float("density", density)
    check_shape("density", density, 1, "(n,)")
    if density.size % 2 or density.size < 8:
        rule = "have shape (n,) with n even and at least 8"
        raise must("density", rule, f"of shape {density.shape}")
    return density


def circle_angles(n: int, dtype: Any) -> Float[Array, " n"]:
    """The angles at which a density is known."""
    return jnp.asarray(2 * np.pi * np.arange(n) / n, dtype)


def circle_modes_of(values: Float[Array, " n"]) -> Complex[Array, " m"]:
    """The coefficients of e^(i k theta), for k = 0, ..., n/2."""
    return jnp.fft.rfft(values) / values.size


def _prepare(density, args):
    (density,), dtype = widen(check_density(density))
    return density, mean_field_args(args, density.dtype), dtype


def _values(modes, n):
    return jnp.fft.irfft(modes * n, n)


def cutoff(n: int) -> int:
    """The highest mode whose products with others are not aliased onto it."""
    return (n - 1) // 3


def _keep(modes, n):
    return jnp.where(np.arange(n // 2 + 1) <= cutoff(n), modes, jnp.zeros_like(modes))


def _convolve(kernel, density):
    """The integral of kernel(theta - phi) over d mu(phi)."""
    modes = circle_modes_of(kernel) * circle_modes_of(density)
    return 2 * np.pi * _values(modes, density.size)


def _velocity(density, params):
    theta = circle_angles(density.size, density.dtype)
    # SA is the same for any multiple of the kernel: this one does not overflow.
    top = 1.0 if params.normalized else 0.0
    kernel = jnp.exp(params.beta * (jnp.cos(theta) - top))
    pull = -_convolve(kernel * jnp.sin(theta), density)
    return pull / _convolve(kernel, density) if params.normalized else pull


def kernel_modes(
    params: MeanFieldParams, n: int, count: int
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """I_k(beta) / beta for k = 1, ..., count, and I_0(beta).

    By parts, from e^(beta cos) sin; both are scaled by e^-beta for SA.
    """
    theta = circle_angles(n, params.beta.dtype)
    top = 1.0 if params.normalized else 0.0
    kernel = jnp.exp(params.beta * (jnp.cos(theta) - top))
    waves = jnp.asarray(np.arange(1, count + 1), theta.dtype)
    sines = -circle_modes_of(kernel * jnp.sin(theta)).imag[1 : count + 1]
    return sines / waves, jnp.mean(kernel)
