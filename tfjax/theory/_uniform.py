"""The uniform measure on the sphere: its energy, and how fast it breaks up."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, require
from ._gegenbauer import (
    check_beta,
    check_dimension,
    log_exponential_mean,
    log_funk_hecke,
)


def uniform_energy(
    d: int, beta: Float[ArrayLike, "..."] | float
) -> Float[Array, "..."]:
    r"""The interaction energy of the uniform measure: the least energy there is.

    $$E_\beta(\sigma_d) = \frac{1}{2\beta} \Gamma(d/2) (2/\beta)^{d/2 - 1}
      I_{d/2-1}(\beta)$$

    computed by quadrature, since the closed form overflows from about d = 345.

    **Arguments:**

    - `d`: the dimension of the space around the sphere, at least 2.
    - `beta`: inverse temperatures, positive.

    **Returns:** the energies, in the shape of `beta`.

    **Raises:** ValueError where d or `beta` lies outside, or where $e^\beta$ leaves the
    dtype.

    !!! example

        >>> from tfjax.theory import uniform_energy
        >>> round(float(uniform_energy(3, 1.0)), 6)
        0.587601

    Source: arXiv 2312.10794, proposition 3.4.
    """
    check_dimension(d)
    beta = _positive(beta)
    return jnp.exp(beta + log_exponential_mean(d / 2 - 1, beta)) / (2 * beta)


def dirac_energy(beta: Float[ArrayLike, "..."] | float) -> Float[Array, "..."]:
    r"""The interaction energy of tokens that all agree, $e^\beta / (2\beta)$.

    It is the greatest energy there is.

    **Arguments:**

    - `beta`: inverse temperatures, positive.

    **Returns:** the energies, in the shape of `beta`.

    **Raises:** ValueError where `beta` is not positive, or $e^\beta$ leaves the dtype.

    !!! example

        >>> from tfjax.theory import dirac_energy
        >>> round(float(dirac_energy(1.0)), 6)
        1.359141

    Source: arXiv 2312.10794, proposition 3.4.
    """
    beta = _positive(beta)
    return jnp.exp(beta) / (2 * beta)


def circle_growth_rate(
    k: int, beta: Float[ArrayLike, "..."] | float, normalized: bool = False
) -> Float[Array, "..."]:
    r"""How fast a wave of k periods grows on the uniform measure of the circle.

    $$\sigma_k = \frac{k^2 I_k(\beta)}{\beta} \ \text{(USA)}, \qquad
      \sigma_k = \frac{k^2 I_k(\beta)}{\beta I_0(\beta)} \ \text{(SA)}$$

    **Arguments:**

    - `k`: the number of periods, a positive integer.
    - `beta`: inverse temperatures, not negative.
    - `normalized`: SA if true, USA otherwise.

    **Returns:** the rates, in the shape of `beta`.

    **Raises:** ValueError where k or `beta` lies outside.

    !!! example

        >>> from tfjax.theory import circle_growth_rate
        >>> round(float(circle_growth_rate(3, 5.0)), 3)
        18.596

    Source: arXiv 2410.23228.
    """
    return sphere_growth_rate(k, 2, beta, normalized)


def sphere_growth_rate(
    k: int, d: int, beta: Float[ArrayLike, "..."] | float, normalized: bool = False
) -> Float[Array, "..."]:
    r"""How fast a spherical harmonic of degree k grows on the uniform measure.

    $$\sigma_k = \frac{k (k + d - 2) \lambda_k}{\beta} \ \text{(USA)}, \qquad
      \lambda_k = \Gamma(d/2) (2/\beta)^{d/2-1} I_{k+d/2-1}(\beta),$$

    divided by $\lambda_0$ for SA.

    **Arguments:**

    - `k`: the degree, a positive integer.
    - `d`: the dimension of the space around the sphere, at least 2.
    - `beta`: inverse temperatures, not negative.
    - `normalized`: SA if true, USA otherwise.

    **Returns:** the rates, in the shape of `beta`.

    **Raises:** ValueError where k, d or `beta` lies outside.

    !!! example

        >>> from tfjax.theory import sphere_growth_rate
        >>> round(float(sphere_growth_rate(1, 3, 1.0, normalized=True)), 4)
        0.6261

    Source: arXiv 2410.23228 for d = 2; for d > 2 by the Funk-Hecke formula.
    """
    k = count("k", k)
    check_dimension(d)
    beta = as_float("beta", beta)
    check_beta(beta, scaled=normalized)
    # (beta/2)^k / beta, finite at beta = 0.
    scale = 0.5 * (beta / 2) ** (k - 1)
    rest = -log_exponential_mean(d / 2 - 1, beta) if normalized else beta
    return k * (k + d - 2) * scale * jnp.exp(log_funk_hecke(k, d, beta) + rest)


def _positive(beta):
    beta = as_float("beta", beta)
    if is_concrete(beta):
        limit = jnp.log(jnp.finfo(beta.dtype).max)
        require(beta, jnp.all(beta > 0), "beta", "be positive")
        fits = jnp.all(beta < limit)
        require(
            beta, fits, "beta", f"be below {float(limit):.4g}, or exp(beta) overflows"
        )
    return beta
