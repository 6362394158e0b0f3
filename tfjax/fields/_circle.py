"""Angles on the circle: attention in d = 2 without its coordinates, and Kuramoto."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, is_concrete, must, require, widen
from ..attention import log_weights, resolve_mask
from ._args import attention_args
from ._params import AttentionParams


_UNUSED = ("query", "key", "value", "chunk_size")


def circle_attention(
    t: Float[ArrayLike, ""] | float,
    theta: Float[ArrayLike, " n"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, " n"]:
    r"""Self-attention (SA) on the circle, for the angles of the tokens.

    $$\dot\theta_i = \frac{1}{Z_i} \sum_j e^{\beta \cos(\theta_j - \theta_i)}
      \sin(\theta_j - \theta_i), \qquad
      Z_i = \sum_k e^{\beta \cos(\theta_k - \theta_i)}$$

    It is [`self_attention`][] of the points `(cos, sin)`; the sines of the differences
    keep their digits where the angles are about to agree.

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `theta`: angles in radians, of shape (n,); those that differ by full turns are
      the same.
    - `args`: an [`AttentionParams`][] with `beta` and `mask`, the other entries None,
      or a function of time that returns one; its defaults where None.

    **Returns:** the angular velocities, of shape (n,), in the dtype of `theta`; 0 for
    tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit, or `args` holds more than `beta`
    and `mask`.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, circle_attention
        >>> theta = jnp.array([0.0, jnp.pi / 2])
        >>> velocity = circle_attention(0.0, theta, AttentionParams(beta=0.0))
        >>> [round(float(v), 6) for v in velocity]
        [0.5, -0.5]

    Source: arXiv 2312.10794, equation (7), with the normaliser of equation (2.3).
    """
    theta, params, dtype, (_, allowed) = _prepare(t, theta, args)
    points = jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=1)
    weights = jnp.exp(log_weights(points, points, beta=params.beta, mask=allowed))
    return jnp.sum(weights * jnp.sin(_gaps(theta, allowed)), axis=1).astype(dtype)


def unnormalized_circle_attention(
    t: Float[ArrayLike, ""] | float,
    theta: Float[ArrayLike, " n"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, " n"]:
    r"""Unnormalised self-attention (USA) on the circle, for the angles of the tokens.

    $$\dot\theta_i = \frac1n \sum_j e^{\beta \cos(\theta_j - \theta_i)}
      \sin(\theta_j - \theta_i)$$

    It is [`unnormalized_self_attention`][] of the points `(cos, sin)`, and at beta = 0
    [`kuramoto`][] with coupling 1.

    **Arguments:** as for [`circle_attention`][]; n counts the tokens that exist.

    **Returns:** the angular velocities, of shape (n,), in the dtype of `theta`; 0 for
    tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit, where `args` holds more than `beta`
    and `mask`, or where the exponentials leave the dtype (outside jit; inside a solve
    the solver reports it).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, unnormalized_circle_attention
        >>> theta = jnp.array([0.0, jnp.pi / 2])
        >>> velocity = unnormalized_circle_attention(0.0, theta)
        >>> [round(float(v), 6) for v in velocity]
        [0.5, -0.5]

    Source: arXiv 2312.10794, equation (7).
    """
    theta, params, dtype, (exists, allowed) = _prepare(t, theta, args)
    gaps = _gaps(theta, allowed)
    exponents = params.beta * jnp.cos(gaps)
    if allowed is not None:
        exponents = jnp.where(allowed, exponents, -jnp.inf)
    total = jnp.sum(jnp.exp(exponents) * jnp.sin(gaps), axis=1)
    n = float(theta.size) if exists is None else jnp.sum(exists, dtype=theta.dtype)
    velocity = (total / jnp.maximum(n, 1.0)).astype(dtype)
    if is_concrete(velocity, params, theta) and bool(jnp.all(jnp.isfinite(theta))):
        rule = "be so small that exp(beta cos(theta_j - theta_i)) lies within its dtype"
        require(params.beta, jnp.all(jnp.isfinite(velocity)), "beta", rule)
    return velocity


class Kuramoto(eqx.Module):
    r"""The parameters of [`kuramoto`][]: a PyTree of arrays.

    **Arguments:**

    - `coupling`: the strength K of the coupling, a scalar.
    - `frequencies`: the natural frequencies omega, in radians per unit of time, of
      shape (n,); 0 where None.

    **Raises:** ValueError where an entry is not real. Whether shapes fit is checked by
    the field, since leaves may carry batch axes.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import Kuramoto
        >>> Kuramoto(coupling=2.0, frequencies=jnp.array([-1.0, 1.0])).frequencies.shape
        (2,)

    Source: Y. Kuramoto (1975); arXiv 2312.10794, section 7.
    """

    coupling: Float[Array, "..."] = eqx.field(
        default=1.0, converter=lambda value: as_float("coupling", value)
    )
    frequencies: Float[Array, "..."] | None = eqx.field(
        default=None,
        converter=lambda w: None if w is None else as_float("frequencies", w),
    )


def kuramoto(
    t: Float[ArrayLike, ""] | float,
    theta: Float[ArrayLike, " n"],
    args: Kuramoto | Callable | None = None,
) -> Float[Array, " n"]:
    r"""Kuramoto's oscillators, all coupled to all through their mean field.

    $$\dot\theta_i = \omega_i + \frac{K}{n} \sum_j \sin(\theta_j - \theta_i)
      = \omega_i + K R \sin(\psi - \theta_i), \qquad
      R e^{i \psi} = \frac1n \sum_j e^{i \theta_j}$$

    The second form is exact, and costs O(n).

    **Arguments:**

    - `t`: time; unused.
    - `theta`: angles in radians, of shape (n,).
    - `args`: a [`Kuramoto`][]; coupling 1 and frequencies 0 where None.

    **Returns:** the angular velocities, of shape (n,), in the dtype of `theta`.

    **Raises:** ValueError where shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import Kuramoto, kuramoto
        >>> theta = jnp.array([0.0, jnp.pi / 2])
        >>> kuramoto(0.0, theta, Kuramoto(coupling=2.0)).round(6).tolist()
        [1.0, -1.0]

    Source: Y. Kuramoto (1975); arXiv 2312.10794, section 7.
    """
    theta, dtype = _angles(theta)
    params = Kuramoto() if args is None else args(t) if callable(args) else args
    if not isinstance(params, Kuramoto):
        rule = "be a Kuramoto, a function of time that returns one, or None"
        raise must("args", rule, f"a {type(args).__name__}")
    coupling = params.coupling.astype(theta.dtype)
    if coupling.ndim:
        raise must("coupling", "be a scalar", f"of shape {coupling.shape}")
    sine, cosine = jnp.sin(theta), jnp.cos(theta)
    pull = jnp.mean(sine) * cosine - jnp.mean(cosine) * sine
    velocity = coupling * pull
    if params.frequencies is not None:
        if params.frequencies.shape != theta.shape:
            rule = f"have shape {theta.shape}, one for each angle"
            raise must("frequencies", rule, f"of shape {params.frequencies.shape}")
        velocity = params.frequencies.astype(theta.dtype) + velocity
    return velocity.astype(dtype)


def _angles(theta: Any) -> tuple[Array, Any]:
    theta = as_float("theta", theta)
    check_shape("theta", theta, 1, "(n,)")
    (theta,), dtype = widen(theta)
    return theta, dtype


def _prepare(
    t: Any, theta: Any, args: Any
) -> tuple[Array, AttentionParams, Any, tuple[Any, Any]]:
    """Angles (absent ones 0), parameters, the dtype out, who exists and who sees whom.

    Absent tokens see none and are seen by none.
    """
    theta, dtype = _angles(theta)
    params = attention_args(t, args, _UNUSED)
    params = AttentionParams(beta=params.beta.astype(theta.dtype), mask=params.mask)
    exists, pairs = resolve_mask(params.mask, theta.size)
    if exists is not None:
        theta = jnp.where(exists, theta, 0.0)
        if pairs is None:
            pairs = exists[:, None] & exists[None, :]
    return theta, params, dtype, (exists, pairs)


def _gaps(theta, allowed):
    """`theta_j - theta_i`, 0 for pairs that the mask forbids: a NaN does not leak."""
    gaps = theta[None, :] - theta[:, None]
    return gaps if allowed is None else jnp.where(allowed, gaps, 0.0)
