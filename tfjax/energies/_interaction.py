"""The interaction energy of tokens, of which attention is a gradient flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import (
    as_float,
    check_shape,
    expm1_over,
    is_concrete,
    log1p_over,
    matmul,
    must,
    require,
    widen,
)


def interaction_energy(
    x: Float[ArrayLike, "n d"],
    beta: Float[ArrayLike, ""] | float,
    *,
    bilinear: Float[ArrayLike, "d d"] | None = None,
    centred: bool = False,
) -> Float[Array, ""]:
    r"""The interaction energy, which self-attention with V = B increases.

    $$E_\beta(x) = \frac{1}{2 \beta n^2}
      \sum_{i,j} e^{\beta \langle B x_i, x_j \rangle}$$

    **Arguments:**

    - `x`: tokens, of shape (n, d).
    - `beta`: inverse temperature, a scalar, not 0 unless `centred`.
    - `bilinear`: the matrix B, of shape (d, d); the identity where None.
    - `centred`: subtract `1/(2 beta)`, without cancellation. The limit at `beta = 0`
      is `sum_ij <B x_i, x_j> / (2 n^2)`, which is `|mean x|^2 / 2` for B = I.

    **Returns:** the energy, a scalar in the dtype of `x`.

    **Raises:** ValueError where shapes do not fit, where `x` is not finite, where
    `beta = 0` is not centred, or where the exponential leaves the dtype of `x` (use
    [`log_interaction_energy`][] there); under jit the last two are run-time errors.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import interaction_energy
        >>> round(float(interaction_energy(jnp.eye(2), 1.0)), 6)
        0.92957

    Source: arXiv 2312.10794, equation (3.4).
    """
    s, beta, dtype = _products(x, beta, bilinear)
    if is_concrete(x):
        x = as_float("x", x)
        require(x, jnp.isfinite(x), "x", "be finite")
    z = beta * s
    if centred:
        energy = 0.5 * jnp.mean(s * expm1_over(z))
    else:
        beta = require(beta, beta != 0, "beta", "not be 0 unless the energy is centred")
        energy = 0.5 * jnp.mean(jnp.exp(z)) / beta
    energy = energy.astype(dtype)
    limit = jnp.log(jnp.asarray(jnp.finfo(dtype).max, z.dtype))
    fits = (jnp.max(z) < limit) & jnp.isfinite(energy)
    # What was not finite before the exponential is not the fault of beta.
    fits = fits | ~jnp.all(jnp.isfinite(z))
    rule = "keep exp(beta <B x_i, x_j>) and the energy within their dtype"
    if is_concrete(beta, fits):
        require(beta, fits, "beta", f"{rule} (use `log_interaction_energy`)")
        return energy
    return eqx.error_if(
        energy, ~fits, f"`beta` must {rule} (use `log_interaction_energy`)."
    )


def log_interaction_energy(
    x: Float[ArrayLike, "n d"],
    beta: Float[ArrayLike, ""] | float,
    *,
    bilinear: Float[ArrayLike, "d d"] | None = None,
) -> Float[Array, ""]:
    r"""The logarithm of the interaction energy, finite for every beta.

    $$\frac{1}{2 \beta} \log \Bigl( \frac{1}{n^2}
      \sum_{i,j} e^{\beta \langle B x_i, x_j \rangle} \Bigr)$$

    It tends to `max_ij <B x_i, x_j> / 2` as beta grows, and to
    `sum_ij <B x_i, x_j> / (2 n^2)` as beta tends to 0.

    **Arguments:**

    - `x`: tokens, of shape (n, d).
    - `beta`: inverse temperature, a scalar.
    - `bilinear`: the matrix B, of shape (d, d); the identity where None.

    **Returns:** a scalar in the dtype of `x`.

    **Raises:** ValueError where shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import log_interaction_energy
        >>> round(float(log_interaction_energy(jnp.eye(2), 1e6)), 4)
        0.5

    Source: the logarithm of arXiv 2312.10794, equation (3.4).
    """
    s, beta, dtype = _products(x, beta, bilinear)
    z = beta * s
    small = jax.lax.stop_gradient(jnp.max(jnp.abs(z))) < 1
    near = jnp.where(small, z, jnp.zeros_like(z))
    excess = jnp.mean(s * expm1_over(near))  # (mean e^z - 1) / beta
    u = jnp.where(small, beta, jnp.zeros_like(beta)) * excess
    series = 0.5 * excess * log1p_over(u)
    count = jnp.asarray(float(z.size), z.dtype)
    far = jax.nn.logsumexp(z) - jnp.log(count)
    far = 0.5 * far / jnp.where(small, jnp.ones_like(beta), beta)
    return jnp.where(small, series, far).astype(dtype)


def _products(x, beta, bilinear):
    """The Gram matrix <B x_i, x_j>, beta in its dtype, and the dtype to return."""
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    (x,), dtype = widen(x)
    beta = as_float("beta", beta).astype(x.dtype)
    if beta.ndim:
        raise must("beta", "be a scalar", f"of shape {beta.shape}")
    if bilinear is None:
        return matmul(x, x.T), beta, dtype
    bilinear = as_float("bilinear", bilinear).astype(x.dtype)
    if is_concrete(bilinear):
        require(bilinear, jnp.isfinite(bilinear), "bilinear", "be finite")
    d = x.shape[1]
    if bilinear.shape != (d, d):
        raise must("bilinear", f"have shape ({d}, {d})", f"of shape {bilinear.shape}")
    return matmul(matmul(x, bilinear.T), x.T), beta, dtype
