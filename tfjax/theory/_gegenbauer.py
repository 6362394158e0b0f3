"""Means of exponentials over Gegenbauer weights: Bessel functions without overflow."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from .._core import count, is_concrete, must, require


# Up to here the rules below are good.
LARGEST_BETA = 5000.0


@functools.cache
def _rule(order: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t - 1 and logarithms of the weights for (1 - t^2)^(order - 1/2)."""
    if order == 0:
        nodes, weights = scipy.special.roots_chebyt(400)
        nodes, log_weights = nodes - 1, np.log(weights)
    elif order < 32:
        nodes, weights = scipy.special.roots_gegenbauer(400, order)
        with np.errstate(divide="ignore"):  # weights next to the ends may underflow
            nodes, log_weights = nodes - 1, np.log(weights)
    else:
        # With t = sin(phi) the weight, cos(phi)^(2 order), vanishes at the ends: the
        # trapezoidal rule converges exponentially once it resolves the tilted peak.
        count = math.ceil(9 * math.sqrt(2 * order + LARGEST_BETA))
        phi = np.pi * ((np.arange(count) + 0.5) / count - 0.5)
        # sin(phi) - 1 and log(cos(phi)), without cancellation.
        nodes = -2 * np.sin(np.pi / 4 - phi / 2) ** 2
        log_weights = order * np.log1p(-(np.sin(phi) ** 2))
    total: Any = scipy.special.logsumexp(log_weights)
    return nodes, log_weights - total


def log_exponential_mean(
    order: float | int, beta: Float[Array, "..."]
) -> Float[Array, "..."]:
    r"""The log of the mean of $e^{\beta (t - 1)}$ under $(1 - t^2)^{\nu - 1/2}$.

    It is that of $\Gamma(\nu + 1) (2/\beta)^\nu I_\nu(\beta) e^{-\beta}$, by a rule
    whose relative error is at most 1e-10 up to `LARGEST_BETA`, and rounding up to 20.

    **Arguments:**

    - `order`: ν, at least 0; a Python number.
    - `beta`: inverse temperatures.

    **Returns:** the logarithms, in the shape and dtype of `beta`.
    """
    nodes, log_weights = (jnp.asarray(a, beta.dtype) for a in _rule(float(order)))
    shape = (1,) * beta.ndim + (-1,)
    terms = beta[..., None] * nodes.reshape(shape)
    shape = jnp.broadcast_shapes(terms.shape, shape[:-1] + log_weights.shape)
    log_weights = jnp.broadcast_to(log_weights.reshape((1,) * beta.ndim + (-1,)), shape)
    return jax.nn.logsumexp(terms + log_weights, axis=-1)


def log_funk_hecke(k: int, d: int, beta: Float[Array, "..."]) -> Any:
    r"""The log of the Funk-Hecke coefficient, $\lambda_k (2/\beta)^k e^{-\beta}$.

    $\lambda_k = \Gamma(d/2) (2/\beta)^{d/2-1} I_{k+d/2-1}(\beta)$ is the eigenvalue of
    the kernel $e^{\beta \langle x, y \rangle}$ on harmonics of degree k.
    """
    ratio = math.lgamma(d / 2) - math.lgamma(k + d / 2)
    return ratio + log_exponential_mean(k + d / 2 - 1, beta)


def check_dimension(d: Any) -> None:
    """The space around a sphere has at least two dimensions."""
    if count("d", d) < 2:
        raise must("d", "be at least 2", d)


def check_beta(beta: Array, *, scaled: bool) -> None:
    """Refuses what lies beyond the rules, or exp(beta) beyond the dtype."""
    if is_concrete(beta):
        require(beta, jnp.all(beta >= 0), "beta", "not be negative")
        limit = LARGEST_BETA
        if not scaled:
            limit = min(limit, float(jnp.log(jnp.finfo(beta.dtype).max)))
        rule = f"be finite, and below {limit:.4g}"
        require(beta, jnp.all(beta < limit), "beta", rule)
