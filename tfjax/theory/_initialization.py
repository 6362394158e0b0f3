"""What a random Transformer block does to the angles of tokens, and to gradients.

The block is of pre-norm form, of width d, with n tokens x_i, where N divides a token by
its root mean square:

    x <- sqrt(1 - a^2) x + a V softmax_j(<N x_i, W N x_j> / sqrt(d)) N x
    x <- sqrt(1 - m^2) x + m R tanh(S N x)

The entries of W, V, S, R are independent, normal, of variances sigma_A^2 / d, 1 / d,
sigma_w^2 / d, and 1 over the hidden width. As d grows all inner products become
deterministic, and tokens that start equiangular remain so: their mean square q and
their common cosine c tell the whole state.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, matmul, must, require, widen


def random_block(
    norm: Float[ArrayLike, "..."] | float,
    cosine: Float[ArrayLike, "..."] | float,
    n: int,
    *,
    attention: Float[ArrayLike, ""] | float,
    mlp: Float[ArrayLike, ""] | float,
    logit_scale: Float[ArrayLike, ""] | float,
    weight_scale: Float[ArrayLike, ""] | float,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""The mean square and the cosine of tokens after a wide random block.

    $$q_1 = (1 - a^2) q + a^2 \big(c + \tfrac{1 - c}n e^{s^2}\big), \qquad
      q_1 c_1 = (1 - a^2) q c + a^2 \big(c + \tfrac{1 - c}n e^{s^2 c}\big)$$

    with $s^2 = \sigma_A^2 (1 - c)$, to the first order in 1/n: it asks for
    $e^{s^2} \ll n$. Then, with $K(c) = E[\tanh(\sigma_w z) \tanh(\sigma_w z')]$ over
    standard normal pairs of correlation c,

    $$q_2 = (1 - m^2) q_1 + m^2 K(1), \qquad
      q_2 c_2 = (1 - m^2) q_1 c_1 + m^2 K(c_1)$$

    **Arguments:**

    - `norm`: q, the mean square of a token's coordinates, positive.
    - `cosine`: c, the cosine of two tokens, from 0 to 1.
    - `n`: the number of tokens, at least 2.
    - `attention`, `mlp`: a and m, the strengths of the branches, between 0 and 1.
    - `logit_scale`: sigma_A, the deviation of the logits, not negative.
    - `weight_scale`: sigma_w, of the first layer of the MLP, positive, 8 at most.

    **Returns:** q and c after the block, in the shape of `norm` and `cosine`.
    Differentiable where c < 1.

    **Raises:** ValueError where an argument lies outside.

    !!! example

        >>> from tfjax.theory import random_block
        >>> options = {"attention": 0.5, "mlp": 0.5, "logit_scale": 1.0}
        >>> q, c = random_block(1.0, 0.0, 32, weight_scale=3.0, **options)
        >>> round(float(q), 3), round(float(c), 3)
        (0.765, 0.01)

    Source: the block is of the form that arXiv 2403.02579 studies; its full text was
    not at hand, and the map is derived here: each branch ends in a new random matrix,
    so that it adds to inner products only the mean product of its own outputs.
    """
    if count("n", n) < 2:
        raise must("n", "be at least 2", n)
    named = {"norm": norm, "cosine": cosine, "logit_scale": logit_scale}
    norm, cosine, logit_scale = (as_float(name, x) for name, x in named.items())
    if is_concrete(norm, cosine, logit_scale):
        require(norm, jnp.all(norm > 0), "norm", "be positive")
        fits = jnp.all((cosine >= 0) & (cosine <= 1))
        require(cosine, fits, "cosine", "lie in [0, 1]")
        require(logit_scale, logit_scale >= 0, "logit_scale", "not be negative")
    strengths = _checked(attention, mlp, weight_scale)
    wide, dtype = widen(norm, cosine, logit_scale, *strengths)
    norm, cosine, logit_scale, a, m, scale = wide
    # A part of the logits is common to all keys of a query; softmax does not see it.
    spread = logit_scale**2 * (1 - cosine)
    weight = (1 - cosine) / n
    q = (1 - a**2) * norm + a**2 * (cosine + weight * jnp.exp(spread))
    p = (1 - a**2) * norm * cosine
    p = p + a**2 * (cosine + weight * jnp.exp(spread * cosine))
    after = (1 - m**2) * q + m**2 * _moments(scale)[0]
    overlap = (1 - m**2) * p + m**2 * _overlap(scale, p / q)
    return after.astype(dtype), (overlap / after).astype(dtype)


def random_block_norm(
    attention: Float[ArrayLike, "..."] | float,
    mlp: Float[ArrayLike, "..."] | float,
    weight_scale: Float[ArrayLike, "..."] | float,
) -> Float[Array, "..."]:
    r"""The mean square of tokens that wide random blocks keep, where all are one.

    $$q = \frac{(1 - m^2) a^2 + m^2 K(1)}{1 - (1 - a^2)(1 - m^2)}$$

    **Arguments:** as for [`angle_exponent`][].

    **Returns:** q, in the shape of the arguments.

    **Raises:** ValueError where an argument lies outside.

    !!! example

        >>> from tfjax.theory import random_block_norm
        >>> round(float(random_block_norm(0.5, 0.5, 3.0)), 4)
        0.8544

    Source: as for [`random_block`][]; derived here.
    """
    (a, m, scale), dtype = widen(*_checked(attention, mlp, weight_scale))
    return _kept_norm(a, m, scale).astype(dtype)


def angle_exponent(
    attention: Float[ArrayLike, "..."] | float,
    mlp: Float[ArrayLike, "..."] | float,
    weight_scale: Float[ArrayLike, "..."] | float,
) -> Float[Array, "..."]:
    r"""How fast small angles between tokens grow along wide random blocks.

    $$\lambda_a = \log \frac{1 - c'}{1 - c} \Big|_{c \to 1}
      = \log (1 - a^2) + \log \Big(1 - m^2 + \frac{m^2 \kappa}{q_1}\Big)$$

    where $\kappa = \sigma_w^2 E[\tanh'(\sigma_w z)^2]$ and
    $q_1 = (1 - a^2) q + a^2$ with the q of [`random_block_norm`][]. Below 0 all tokens
    become one (order), above 0 they do not (chaos). Neither n nor the scale of the
    logits matters: to all nearly equal tokens attention hands the same mean, up to
    the third order in 1 - c.

    **Arguments:**

    - `attention`, `mlp`: a and m, the strengths of the branches, between 0 and 1.
    - `weight_scale`: sigma_w, of the first layer of the MLP, positive, 8 at most.

    **Returns:** the exponent of a block, in the shape of the arguments.

    **Raises:** ValueError where an argument lies outside.

    !!! example

        >>> from tfjax.theory import angle_exponent
        >>> [round(float(angle_exponent(0.5, 0.5, s)), 3) for s in (3.0, 5.0)]
        [-0.114, 0.09]

    Source: arXiv 2403.02579 defines the exponent; this closed form is derived here.
    """
    (a, m, scale), dtype = widen(*_checked(attention, mlp, weight_scale))
    return (jnp.log1p(-(a**2)) + _growth(a, m, scale)[0]).astype(dtype)


def gradient_exponent(
    attention: Float[ArrayLike, "..."] | float,
    mlp: Float[ArrayLike, "..."] | float,
    weight_scale: Float[ArrayLike, "..."] | float,
) -> Float[Array, "..."]:
    r"""How fast squared gradients grow backwards along wide random blocks.

    $$\lambda_g = \log \frac{q_1}{q} + \log \Big(1 - m^2 + \frac{m^2 \kappa}{q_1}\Big)$$

    with q, $q_1$ and $\kappa$ as in [`angle_exponent`][]: of the part of the gradient
    that is common to all tokens, which outgrows the rest. Differences between the
    tokens' gradients grow with the angle exponent. Where all tokens are one.

    **Arguments:** as for [`angle_exponent`][].

    **Returns:** the exponent of a block, in the shape of the arguments.

    **Raises:** ValueError where an argument lies outside.

    !!! example

        >>> from tfjax.theory import gradient_exponent
        >>> round(float(gradient_exponent(0.5, 0.5, 3.0)), 3)
        0.216

    Source: arXiv 2403.02579 defines the exponent; this closed form is derived here.
    """
    (a, m, scale), dtype = widen(*_checked(attention, mlp, weight_scale))
    growth, q1 = _growth(a, m, scale)
    return (jnp.log(q1 / _kept_norm(a, m, scale)) + growth).astype(dtype)


def _checked(attention, mlp, weight_scale) -> tuple[Array, Array, Array]:
    a, m = as_float("attention", attention), as_float("mlp", mlp)
    scale = as_float("weight_scale", weight_scale)
    if is_concrete(a, m, scale):
        for name, value in (("attention", a), ("mlp", m)):
            fits = jnp.all((value > 0) & (value < 1))
            require(value, fits, name, "lie between 0 and 1")
        # Beyond 8 the steps of tanh are finer than the quadrature.
        fits = jnp.all((scale > 0) & (scale <= 8))
        require(scale, fits, "weight_scale", "be positive and 8 at most")
    return a, m, scale


# The trapezoidal rule: for analytic functions times e^(-z^2/2) it converges
# exponentially, and much faster than Gauss's for tanh, which has poles near the axis.
_NODES = np.linspace(-9.0, 9.0, 385)
_WEIGHTS = np.exp(-(_NODES**2) / 2)
_WEIGHTS /= _WEIGHTS.sum()


def _mean(values) -> Array:
    """The mean over a standard normal variable, whose nodes are the last axis."""
    return matmul(values, jnp.asarray(_WEIGHTS, values.dtype))


def _moments(scale) -> tuple[Array, Array]:
    """K(1) and kappa: the mean squares of tanh(s z) and of its derivative by z."""
    nodes = jnp.asarray(_NODES, scale.dtype)
    square = jnp.tanh(jnp.multiply.outer(scale, nodes)) ** 2
    return _mean(square), scale**2 * _mean((1 - square) ** 2)


def _overlap(scale, cosine) -> Array:
    """K(c), over the independent half sum and half difference of the pair."""
    nodes = jnp.asarray(_NODES, cosine.dtype)
    outer = lambda size: jnp.multiply.outer(scale * jnp.sqrt(size), nodes)
    # A cosine may pass 1 by rounding.
    both, apart = outer((1 + cosine) / 2), outer(jnp.maximum(1 - cosine, 0) / 2)
    both, apart = both[..., :, None], apart[..., None, :]
    return _mean(_mean(jnp.tanh(both + apart) * jnp.tanh(both - apart)))


def _kept_norm(a, m, scale) -> Array:
    kept = (1 - a**2) * (1 - m**2)
    return ((1 - m**2) * a**2 + m**2 * _moments(scale)[0]) / (1 - kept)


def _growth(a, m, scale) -> tuple[Array, Array]:
    """log(1 - m^2 + m^2 kappa / q_1), and q_1: what the MLP does where all are one."""
    q1 = (1 - a**2) * _kept_norm(a, m, scale) + a**2
    return jnp.log(1 - m**2 + m**2 * _moments(scale)[1] / q1), q1
