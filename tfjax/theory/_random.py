"""Random starts: whether they lie in a hemisphere, and how close to equiangular."""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, must


def wendel(n: int, d: int) -> float:
    r"""The probability that n uniform points lie in a common open hemisphere.

    $$P = 2^{-(n-1)} \sum_{k < d} \binom{n - 1}{k}$$

    which is 1 for $n \le d$. Tokens in a hemisphere cluster exponentially fast.

    **Arguments:**

    - `n`: the number of points.
    - `d`: the dimension of the space around the sphere.

    **Returns:** the probability, exact to rounding.

    **Raises:** ValueError where n or d is not a positive integer.

    !!! example

        >>> from tfjax.theory import wendel
        >>> wendel(8, 3)
        0.2265625

    Source: J. G. Wendel (1962); arXiv 2312.10794, theorem 6.7.
    """
    n, d = count("n", n), count("d", d)
    return sum(math.comb(n - 1, k) for k in range(min(d, n))) / 2 ** (n - 1)


def log_concentration_bound(
    t: Float[ArrayLike, "..."],
    n: int,
    d: int,
    beta: Float[ArrayLike, ""] | float,
) -> Float[Array, "..."]:
    r"""The logarithm of a bound on how far random tokens stray from equiangular ones.

    $$|\langle x_i(t), x_j(t) \rangle - \gamma_\beta(t)| \le
      2 c(\beta)^{nt} \sqrt{\log d / d}, \qquad c(\beta) = e^{10 \max(1, \beta)}$$

    for all pairs, with probability at least $1 - 2 n^2 d^{-1/64}$. It is very loose:
    what holds in practice is its dependence on d, the factor $\sqrt{1/d}$.

    **Arguments:**

    - `t`: times.
    - `n`: the number of tokens.
    - `d`: the dimension, at least 2.
    - `beta`: inverse temperature, a scalar.

    **Returns:** the logarithm of the bound, in the shape of `t`.

    **Raises:** ValueError where n or d lies outside.

    !!! example

        >>> from tfjax.theory import log_concentration_bound
        >>> round(float(log_concentration_bound(0.0, 8, 4096, 1.0)), 3)
        -2.407

    Source: arXiv 2312.10794, theorem 6.9.
    """
    n = count("n", n)
    if count("d", d) < 2:
        raise must("d", "be at least 2", d)
    t, beta = as_float("t", t), as_float("beta", beta)
    growth = 10 * jnp.maximum(1.0, beta) * n * t
    return growth + math.log(2) + 0.5 * (math.log(math.log(d)) - math.log(d))
