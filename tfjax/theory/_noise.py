"""Noise on the circle and spheres: when the uniform state gives way to order."""

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, require
from ._gegenbauer import (
    LARGEST_BETA,
    check_beta,
    check_dimension,
    log_exponential_mean,
    log_funk_hecke,
)


def critical_noise(
    k: int,
    beta: Float[ArrayLike, "..."] | float,
    normalized: bool = False,
    *,
    d: int = 2,
) -> Float[Array, "..."]:
    r"""The diffusivity below which harmonics of degree k grow on the uniform measure.

    $$D_k = \lambda_k(\beta) / \beta \quad \text{for} \quad
      dx = \text{drift}\, dt + \sqrt{2D}\, dW$$

    with USA as drift, divided by $\lambda_0(\beta)$ for SA; see
    [`sphere_growth_rate`][]. On the circle $\lambda_k$ is the Bessel function $I_k$ and
    the harmonics are waves of k periods.

    **Arguments:**

    - `k`: the degree, a positive integer.
    - `beta`: inverse temperatures, not negative.
    - `normalized`: SA if true, USA otherwise.
    - `d`: the dimension of the space around the sphere, at least 2: the circle.

    **Returns:** the diffusivities, in the shape of `beta`.

    **Raises:** ValueError where k, d or `beta` lies outside.

    !!! example

        >>> from tfjax.theory import critical_noise
        >>> round(float(critical_noise(1, 1.0)), 6)
        0.565159

    Source: arXiv 2510.20094 for d = 2; for d > 2 by the Funk-Hecke formula.
    """
    k = count("k", k)
    check_dimension(d)
    beta = as_float("beta", beta)
    check_beta(beta, scaled=normalized)
    rest = -log_exponential_mean(d / 2 - 1, beta) if normalized else beta
    return 0.5 * (beta / 2) ** (k - 1) * jnp.exp(log_funk_hecke(k, d, beta) + rest)


def tricritical_beta(d: int = 2) -> float:
    r"""The beta above which order sets in by a jump as the noise of USA falls.

    $$\lambda_2(\beta) = \lambda_1(\beta) / d,$$

    which is $I_2(\beta) = I_1(\beta) / 2$ on the circle. Next to the uniform state, at
    $D = D_1 (1 + c r^2)$ with the order r, the sign of c changes there.

    **Arguments:**

    - `d`: the dimension of the space around the sphere, at least 2: the circle.

    **Returns:** the inverse temperature, about 2.447 on the circle.

    **Raises:** ValueError where d lies outside.

    !!! example

        >>> from tfjax.theory import tricritical_beta
        >>> round(tricritical_beta(), 4)
        2.4469

    Source: arXiv 2510.20094 for d = 2, the constant computed here; for d > 2 own, by
    expanding the equation of stationary states in the first two degrees.
    """
    check_dimension(d)

    def gap(beta, _):
        # lambda_k = (beta/2)^k times what the function returns, and e^beta.
        ratio = jnp.exp(log_funk_hecke(2, d, beta) - log_funk_hecke(1, d, beta))
        return beta / 2 * ratio * d - 1

    eps = float(jnp.finfo(jnp.zeros(()).dtype).eps)
    solver = optx.Bisection(rtol=4 * eps, atol=4 * eps)
    # The ratio rises through 1/d at a beta above (d + 2)/d, which is at most 2.
    options = {"lower": 0.5, "upper": 5.0}
    root = optx.root_find(gap, solver, jnp.asarray(2.5), options=options)
    return float(root.value)


def noisy_kuramoto_order(
    diffusivity: Float[ArrayLike, "..."] | float,
    *,
    d: int = 2,
) -> Float[Array, "..."]:
    r"""The order parameter of the noisy Kuramoto model with coupling 1.

    $$r = I_{d/2}(r/D) / I_{d/2-1}(r/D)$$

    on the sphere in $\mathbb R^d$: the length of the mean of tokens at beta = 0. It is
    $I_1 / I_0$ on the circle and $\coth(r/D) - D/r$ on S^2. The positive solution where
    there is one, for D < 1/d; 0 otherwise.

    **Arguments:**

    - `diffusivity`: D, of $dx = \text{drift}\, dt + \sqrt{2D}\, dW$, at least 0.0002.
    - `d`: the dimension of the space around the sphere, at least 2: the circle.

    **Returns:** r between 0 and 1, in the shape of D.

    **Raises:** ValueError where D or d lies outside.

    !!! example

        >>> from tfjax.theory import noisy_kuramoto_order
        >>> round(float(noisy_kuramoto_order(0.3)), 4)
        0.7731

    Source: Y. Kuramoto (1984); H. Sakaguchi, Prog. Theor. Phys. 79 (1988) 39; for d > 2
    the mean of the von Mises-Fisher distribution.
    """
    check_dimension(d)
    diffusivity = as_float("diffusivity", diffusivity)
    if is_concrete(diffusivity):
        least = 1 / LARGEST_BETA
        fits = jnp.all((diffusivity >= least) & jnp.isfinite(diffusivity))
        rule = f"be finite, and at least {least:g}"
        require(diffusivity, fits, "diffusivity", rule)

    def one(noise):
        eps = float(jnp.finfo(noise.dtype).eps)

        def excess(r, noise):
            # The ratio of Bessel functions over r, less 1, has no root at r = 0.
            z = r / noise
            orders = (d / 2, d / 2 - 1)
            upper, lower = (log_exponential_mean(order, z) for order in orders)
            return jnp.exp(upper - lower) / (d * noise) - 1

        solver = optx.Bisection(rtol=8 * eps, atol=8 * eps)
        options = {"lower": jnp.full_like(noise, eps), "upper": jnp.ones_like(noise)}
        ordered = noise < (1 - 8 * eps) / d
        safe = jnp.where(ordered, noise, 0.5 / d)
        start = 0.5 * jnp.ones_like(noise)
        root = optx.root_find(excess, solver, start, safe, options=options)
        return jnp.where(ordered, root.value, 0.0)

    flat = jnp.reshape(diffusivity, (-1,))
    return jax.vmap(one)(flat).reshape(diffusivity.shape)
