"""Noise on the circle: when the uniform state gives way to order."""

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, require
from ._gegenbauer import exponential_mean, scaled_funk_hecke


def critical_noise(
    k: int, beta: Float[ArrayLike, "..."] | float, normalized: bool = False
) -> Float[Array, "..."]:
    r"""The diffusivity below which waves of k periods grow on the circle.

    $$D_k = I_k(\beta) / \beta \quad \text{for} \quad
      d\theta = \text{drift}\, dt + \sqrt{2D}\, dW$$

    with USA as drift, divided by $I_0(\beta)$ for SA.

    **Arguments:**

    - `k`: the number of periods, a positive integer.
    - `beta`: inverse temperatures, not negative.
    - `normalized`: SA if true, USA otherwise.

    **Returns:** the diffusivities, in the shape of `beta`.

    **Raises:** ValueError where k or `beta` lies outside.

    !!! example

        >>> from tfjax.theory import critical_noise
        >>> round(float(critical_noise(1, 1.0)), 6)
        0.565159

    Source: arXiv 2510.20094.
    """
    k = count("k", k)
    beta = as_float("beta", beta)
    if is_concrete(beta):
        require(beta, jnp.all(beta >= 0), "beta", "not be negative")
    noise = 0.5 * (beta / 2) ** (k - 1) * scaled_funk_hecke(k, 2, beta)
    if normalized:
        return noise / exponential_mean(0, beta)
    return noise * jnp.exp(beta)


def tricritical_beta() -> float:
    r"""The beta above which order sets in by a jump: $I_2(\beta) = I_1(\beta) / 2$.

    **Returns:** the inverse temperature, about 2.447.

    !!! example

        >>> from tfjax.theory import tricritical_beta
        >>> round(tricritical_beta(), 4)
        2.4469

    Source: arXiv 2510.20094; the constant is computed here.
    """

    def gap(beta, _):
        # I_2 / I_1 = (beta/4) M_2 / M_1 in the means M of the exponential.
        ratio = exponential_mean(2, beta) / exponential_mean(1, beta)
        return beta / 4 * ratio - 0.5

    eps = float(jnp.finfo(jnp.zeros(()).dtype).eps)
    solver = optx.Bisection(rtol=4 * eps, atol=4 * eps)
    options = {"lower": 1.0, "upper": 5.0}
    root = optx.root_find(gap, solver, jnp.asarray(2.5), options=options)
    return float(root.value)


def noisy_kuramoto_order(
    diffusivity: Float[ArrayLike, "..."] | float,
) -> Float[Array, "..."]:
    r"""The order parameter of the noisy Kuramoto model with coupling 1.

    $$r = I_1(r/D) / I_0(r/D)$$

    The positive solution where there is one, for D < 1/2; 0 otherwise.

    **Arguments:**

    - `diffusivity`: D, positive, of $d\theta = \text{drift}\, dt + \sqrt{2D}\, dW$.

    **Returns:** r between 0 and 1, in the shape of D.

    **Raises:** ValueError where D is not positive.

    !!! example

        >>> from tfjax.theory import noisy_kuramoto_order
        >>> round(float(noisy_kuramoto_order(0.3)), 4)
        0.7731

    Source: Y. Kuramoto (1984); H. Sakaguchi, Prog. Theor. Phys. 79 (1988) 39.
    """
    diffusivity = as_float("diffusivity", diffusivity)
    if is_concrete(diffusivity):
        fits = jnp.all(diffusivity > 0)
        require(diffusivity, fits, "diffusivity", "be positive")

    def one(noise):
        eps = float(jnp.finfo(noise.dtype).eps)

        def excess(r, noise):
            # (I_1/I_0)(z) / r - 1 has no root at r = 0.
            z = r / noise
            return 0.5 / noise * exponential_mean(1, z) / exponential_mean(0, z) - 1

        solver = optx.Bisection(rtol=8 * eps, atol=8 * eps)
        options = {"lower": jnp.full_like(noise, eps), "upper": jnp.ones_like(noise)}
        ordered = noise < 0.5 * (1 - 8 * eps)
        safe = jnp.where(ordered, noise, 0.25)
        start = 0.5 * jnp.ones_like(noise)
        root = optx.root_find(excess, solver, start, safe, options=options)
        return jnp.where(ordered, root.value, 0.0)

    flat = jnp.reshape(diffusivity, (-1,))
    return jax.vmap(one)(flat).reshape(diffusivity.shape)
