"""Attention as a vector field on the sphere."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import is_concrete, require
from ..attention import kernel_sum
from ._params import AttentionParams, params_at
from ._tokens import apply, kernel_options, mean_values, prepare, sum_over_heads


def self_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""Self-attention on the sphere (SA): a Transformer's layers in continuous time.

    $$\dot x_i = P_{x_i} \sum_h \frac{1}{Z_{i,h}} \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h x_j, \qquad
      P_x y = y - \langle x, y \rangle x$$

    Off the sphere the field is that of the normalised tokens, so repulsive values
    such as V = -I do not blow up the norms.

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `x`: tokens, of shape (n, d).
    - `args`: an [`AttentionParams`][], or a function of time that returns one; its
      defaults where None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`: tangent to the
    sphere, and 0 for tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> v = self_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0))
        >>> v.tolist()
        [[0.0, 0.5], [0.5, 0.0]]

    Source: arXiv 2312.10794, equations (2.3) and (2.5); with Q = K = V = I, SA.
    """
    tokens = prepare(x, params_at(t, args, AttentionParams), normalized=True)
    return tokens.tangential(mean_values(tokens))


def unnormalized_self_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""Unnormalised self-attention on the sphere (USA): a gradient flow when V = QᵀK.

    $$\dot x_i = P_{x_i} \frac1n \sum_h \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h x_j$$

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `x`: tokens, of shape (n, d).
    - `args`: an [`AttentionParams`][], or a function of time that returns one; its
      defaults where None. n counts the tokens that exist.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`: tangent to the
    sphere, and 0 for tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together, or where the exponentials
    leave the dtype (outside jit; inside a solve the solver reports it).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, unnormalized_self_attention
        >>> v = unnormalized_self_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0))
        >>> v.tolist()
        [[0.0, 0.5], [0.5, 0.0]]

    Source: arXiv 2312.10794, section 3.3.
    """
    tokens = prepare(x, params_at(t, args, AttentionParams), normalized=True)
    x, params, exists = tokens.x, tokens.params, tokens.exists
    n = float(x.shape[0]) if exists is None else jnp.sum(exists, dtype=x.dtype)

    def head(q, k, value):
        return kernel_sum(q, k, apply(value, x), **kernel_options(params))

    drift = sum_over_heads(head, x, params) / jnp.maximum(n, 1.0)
    velocity = tokens.tangential(drift)
    if is_concrete(velocity, params, x) and bool(jnp.all(jnp.isfinite(x))):
        rule = "be so small that exp(beta <Q x_i, K x_j>) lies within its dtype"
        require(params.beta, jnp.all(jnp.isfinite(velocity)), "beta", rule)
    return velocity
