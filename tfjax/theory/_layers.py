"""What one layer does to a long context, and what LayerNorm does over many layers."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, is_concrete, require
from ..fields import AbstractNormalization
from ..integrate import solve


def long_context_cosine(
    n: Float[ArrayLike, "..."] | float,
    rho: Float[ArrayLike, "..."] | float,
    scale: Float[ArrayLike, "..."] | float,
) -> Float[Array, "..."]:
    r"""The cosine between two tokens after one layer of attention over n of them.

    The tokens have pairwise inner product ρ, and $\beta = s \log n$ grows with the
    length of the context.

    **Arguments:**

    - `n`: the number of tokens, at least 2.
    - `rho`: ρ, from 0 to below 1.
    - `scale`: s.

    **Returns:** the cosine, in the shape of the arguments.

    **Raises:** ValueError where n or ρ lies outside.

    !!! example

        >>> from tfjax.theory import long_context_cosine
        >>> round(float(long_context_cosine(1e4, 0.5, 2.0)), 6)
        0.800028

    Source: arXiv 2510.05554.
    """
    n, rho, scale = (
        as_float(name, value)
        for name, value in (("n", n), ("rho", rho), ("scale", scale))
    )
    if is_concrete(n, rho):
        require(n, jnp.all(n >= 2), "n", "be at least 2")
        require(rho, jnp.all((rho >= 0) & (rho < 1)), "rho", "lie in [0, 1)")
    # Weight on itself over weight on another: e^(beta (1 - rho)), which may overflow.
    ratio = scale * (1 - rho) * jnp.log(n)
    other = jnp.exp(-jnp.logaddexp(ratio, jnp.log(n - 1)))
    own = 1 - (n - 1) * other
    excess = own - other  # y_i = excess x_i + other * sum of all
    total = 1 + (n - 1) * rho  # <x_i, sum of all>
    shared = 2 * excess * other * total + other**2 * n * total
    return (excess**2 * rho + shared) / (excess**2 + shared)


def long_context_limit(
    rho: Float[ArrayLike, "..."] | float, scale: Float[ArrayLike, "..."] | float
) -> Float[Array, "..."]:
    r"""The limit of [`long_context_cosine`][] as the context grows.

    1 where $s < 1/(1 - \rho)$ (all tokens become one), $4\rho/(1 + 3\rho)$ at equality,
    ρ above (attention does nothing).

    **Arguments:**

    - `rho`: ρ, from 0 to below 1.
    - `scale`: s, with $\beta = s \log n$.

    **Returns:** the limit of the cosine.

    **Raises:** ValueError where ρ lies outside.

    !!! example

        >>> from tfjax.theory import long_context_limit
        >>> round(float(long_context_limit(0.5, 2.0)), 6)
        0.8

    Source: arXiv 2510.05554.
    """
    rho, scale = as_float("rho", rho), as_float("scale", scale)
    if is_concrete(rho):
        require(rho, jnp.all((rho >= 0) & (rho < 1)), "rho", "lie in [0, 1)")
    critical = 1 / (1 - rho)
    above = jnp.where(scale > critical, rho, 4 * rho / (1 + 3 * rho))
    return jnp.where(scale < critical, jnp.ones_like(above), above)


def normalized_log_variance(
    ts: Float[ArrayLike, " t"],
    scheme: AbstractNormalization,
    *,
    radius: Float[ArrayLike, ""] | float = 1.0,
) -> Float[Array, " t"]:
    r"""How the logarithm of the variance of nearby tokens falls under a normalisation.

    $$\frac{d}{dt} \log \mathrm{Var} = -\frac{2 u(t, r)}{r}, \qquad \dot r = g(t, r)$$

    with the factors (u, g) of the scheme where all tokens agree and V = I. So
    $\mathrm{Var}$ falls as $e^{-2t}$ under Post-LN and nGPT, as $(t + 1)^{-2}$ under
    Pre-LN and Peri-LN, as $e^{-4 \sqrt{t + 1}}$ under LN-scaling.

    **Arguments:**

    - `ts`: increasing times from 0 on, of shape (t,).
    - `scheme`: a normalisation of `tfjax.fields`, such as `PreNorm()`.
    - `radius`: the length of the tokens at time 0.

    **Returns:** $\log \mathrm{Var}(t) - \log \mathrm{Var}(0)$, of shape (t,).

    **Raises:** ValueError where `ts` is of another shape or not increasing.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import PreNorm
        >>> from tfjax.theory import normalized_log_variance
        >>> round(float(normalized_log_variance(jnp.array([9.0]), PreNorm())[0]), 3)
        -4.605

    Source: arXiv 2510.22026, table 1.
    """
    ts = as_float("ts", ts)
    check_shape("ts", ts, 1, "(t,)")
    radius = as_float("radius", radius).astype(ts.dtype)
    tolerance = 1e-10 if jnp.finfo(ts.dtype).bits == 64 else 1e-6
    sol: Any = solve(
        _variance_rate,
        (radius, jnp.zeros((), ts.dtype)),
        scheme,
        t1=ts[-1],
        ts=ts,
        rtol=tolerance,
        atol=tolerance,
    )
    return sol.ys[1]


def _variance_rate(t, y, scheme):
    radius = y[0].reshape(1, 1)
    turn, grow = scheme(t, radius, jnp.ones_like(radius))
    return grow.reshape(()), -2 * (turn / radius).reshape(())
