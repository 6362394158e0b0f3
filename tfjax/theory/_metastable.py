"""How long tokens in separate caps stay there: bounds on metastable states."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, require


class Metastability(NamedTuple):
    """What the theorem promises: a margin, and two times that bound the plateau."""

    margin: Float[Array, ""]
    gathered: Float[Array, ""]
    escape: Float[Array, ""]


def metastability(
    n: int,
    alpha: Float[ArrayLike, ""] | float,
    epsilon: Float[ArrayLike, ""] | float,
    beta: Float[ArrayLike, ""] | float,
    *,
    rate: Float[ArrayLike, ""] | float = 0.2,
) -> Metastability:
    r"""Bounds on the life of a metastable state of n tokens in separate caps.

    $$\text{margin} = 1 - \alpha - 8\varepsilon - \tfrac1\beta \log(2n^2/\varepsilon),
      \qquad T_1 = 2 n e^{8\varepsilon\beta} + \frac{e n \lambda \beta^2}{\beta - 1},
      \qquad T_2 = \frac{\varepsilon}{n} e^{(1 - \alpha)\beta}$$

    Where the margin is positive, tokens that start in caps of size ε stay in caps of
    size 2ε until $T_2$, and those of a cap are within $e^{-\lambda\beta}$ of each other
    from $T_1$ on.

    **Arguments:**

    - `n`: the number of tokens.
    - `alpha`: the largest inner product between points of different caps of size 2ε,
      from -1 to below 1.
    - `epsilon`: the size of the caps, `<x, centre> >= 1 - epsilon`, between 0 and 1.
    - `beta`: inverse temperature, above 1.
    - `rate`: λ, how tightly a cap is to have gathered, positive.

    **Returns:** `Metastability(margin, gathered, escape)`: the margin, $T_1$ and $T_2$.

    **Raises:** ValueError where an argument lies outside.

    !!! example

        >>> from tfjax.theory import metastability
        >>> bounds = metastability(4, 0.39004, 0.01, 25.0)
        >>> round(float(bounds.gathered), 2), round(float(bounds.margin), 4)
        (115.74, 0.2071)

    Source: arXiv 2410.06833, theorem 2.3.
    """
    n = count("n", n)
    alpha, epsilon = as_float("alpha", alpha), as_float("epsilon", epsilon)
    beta, rate = as_float("beta", beta), as_float("rate", rate)
    if is_concrete(alpha, epsilon, beta, rate):
        require(alpha, (alpha >= -1) & (alpha < 1), "alpha", "lie in [-1, 1)")
        fits = (epsilon > 0) & (epsilon < 1)
        require(epsilon, fits, "epsilon", "lie between 0 and 1")
        fits = (beta > 1) & jnp.isfinite(beta)
        require(beta, fits, "beta", "be finite, and above 1")
        fits = (rate > 0) & jnp.isfinite(rate)
        require(rate, fits, "rate", "be finite and positive")
    margin = 1 - alpha - 8 * epsilon - jnp.log(2 * n**2 / epsilon) / beta
    gathered = 2 * n * jnp.exp(8 * epsilon * beta)
    gathered = gathered + jnp.e * n * rate * beta**2 / (beta - 1)
    return Metastability(margin, gathered, epsilon / n * jnp.exp((1 - alpha) * beta))


def merging_angle(beta: Float[ArrayLike, "..."] | float) -> Float[Array, "..."]:
    r"""The angle at which one token pulls most on another, on the circle.

    $$h(\theta) = e^{\beta (\cos\theta - 1)} \sin\theta \ \text{ peaks where } \
      \cos\theta = \frac{\sqrt{4\beta^2 + 1} - 1}{2\beta}$$

    Clusters further apart than this hold each other off.

    **Arguments:**

    - `beta`: inverse temperatures, positive.

    **Returns:** angles in radians, between $(\beta + 1/2)^{-1/2}$ and $\beta^{-1/2}$
    for beta >= 1.

    **Raises:** ValueError where `beta` is not positive.

    !!! example

        >>> from tfjax.theory import merging_angle
        >>> round(float(merging_angle(9.0)), 4)
        0.3302

    Source: arXiv 2411.04990.
    """
    beta = as_float("beta", beta)
    if is_concrete(beta):
        require(beta, jnp.all(beta > 0), "beta", "be positive")
    # 1 - cos(theta) = 2 sin(theta/2)^2, without cancellation.
    gap = 2 / (2 * beta + 1 + jnp.sqrt(4 * beta**2 + 1))
    return 2 * jnp.arcsin(jnp.sqrt(gap / 2))
