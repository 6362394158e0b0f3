"""Attention on R^d, without LayerNorm: as it is, rescaled, or between the tokens."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import must
from ..attention import attend, attend_hardmax
from ._params import AttentionParams, params_at
from ._tokens import Tokens, apply, kernel_options, mean_values, prepare, sum_over_heads


def euclidean_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""Pure self-attention on R^d: no LayerNorm, so the tokens may run away.

    $$\dot x_i = \sum_h \frac{1}{Z_{i,h}} \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h x_j$$

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `x`: tokens, of shape (n, d).
    - `args`: an [`AttentionParams`][], or a function of time that returns one; its
      defaults where None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`; 0 for tokens
    that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, euclidean_attention
        >>> euclidean_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0)).tolist()
        [[0.5, 0.5], [0.5, 0.5]]

    Source: arXiv 2312.10794, section 9.2; arXiv 2305.05465.
    """
    tokens = prepare(x, params_at(t, args, AttentionParams), normalized=False)
    return tokens.velocity(mean_values(tokens))


def displacement_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""Attention to where the others are, seen from each token, on R^d.

    $$\dot x_i = \sum_h \frac{1}{Z_{i,h}} \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h (x_j - x_i)$$

    With V = I tokens never leave the convex hull of the others.

    **Arguments:** as for [`euclidean_attention`][].

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`; 0 for tokens
    that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, displacement_attention
        >>> displacement_attention(0.0, jnp.eye(2), AttentionParams(beta=0.0)).tolist()
        [[-0.5, 0.5], [0.5, -0.5]]

    Source: arXiv 2312.10794, section 9.3.
    """
    tokens = prepare(x, params_at(t, args, AttentionParams), normalized=False)
    return _displacement(tokens, tokens.x, _softmax(tokens))


def rescaled_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""The tokens of [`euclidean_attention`][] in the frame $z_i = e^{-tV} x_i$.

    $$\dot z_i = \frac{1}{Z_i} \sum_j
      e^{\beta \langle Q e^{tV} z_i, K e^{tV} z_j \rangle} V (z_j - z_i)$$

    With h heads the frame is $e^{-thV}$, and the sum runs over the heads too. What runs
    away exponentially there converges here, to a polytope or to hyperplanes.

    **Arguments:**

    - `t`: time, which the field depends on.
    - `x`: the rescaled tokens z, of shape (n, d).
    - `args`: an [`AttentionParams`][] with one V for all heads, constant in time; its
      defaults where None.

    **Returns:** the velocities of z, of shape (n, d), in the dtype of `x`; 0 for
    tokens that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together, where V has an axis of
    heads, or where the parameters are a function of time.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, rescaled_attention
        >>> rescaled_attention(2.0, jnp.eye(2), AttentionParams(beta=0.0)).tolist()
        [[-0.5, 0.5], [0.5, -0.5]]

    Source: arXiv 2312.10794, section 9.2; arXiv 2305.05465.
    """
    if callable(args):
        rule = "be an AttentionParams or None: V must be constant in time"
        raise must("args", rule, f"a function, {type(args).__name__}")
    params = params_at(t, args, AttentionParams)
    if params.value is not None and params.value.ndim == 3:
        rule = "have shape (d, d), one matrix for all heads"
        raise must("value", rule, f"of shape {params.value.shape}")
    tokens = prepare(x, params, normalized=False)
    z, value = tokens.x, tokens.params.value
    t = _head_count(tokens.params) * jnp.asarray(t).astype(z.dtype)
    grown = (
        jnp.exp(t) * z if value is None else apply(jax.scipy.linalg.expm(t * value), z)
    )
    return _displacement(tokens, grown, _softmax(tokens))


def hardmax_attention(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: AttentionParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""The limit of [`displacement_attention`][] as beta tends to infinity.

    $$\dot x_i = \frac{1}{|C_i|} \sum_{j \in C_i} V (x_j - x_i), \qquad
      C_i = \operatorname{argmax}_j \langle Q x_i, K x_j \rangle$$

    Ties are averaged, and with heads the sum runs over them too.

    The right-hand side jumps where the leaders $C_i$ change, so adaptive solvers
    chatter there; take constant steps. Its derivative is that between the jumps.

    **Arguments:** as for [`euclidean_attention`][]; `beta` is not used, and
    `chunk_size` must be None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`; 0 for tokens
    that are absent or may attend to none.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import hardmax_attention
        >>> x = jnp.array([[1.0, 0.0], [2.0, 0.0]])
        >>> hardmax_attention(0.0, x).tolist()
        [[1.0, 0.0], [0.0, 0.0]]

    Source: arXiv 2312.10794, section 9.3; arXiv 2407.01602.
    """
    params = params_at(t, args, AttentionParams)
    if params.chunk_size is not None:
        raise must("chunk_size", "be None for this field", repr(params.chunk_size))
    tokens = prepare(x, params, normalized=False)

    def mean(q, k, values):
        return attend_hardmax(q, k, values, mask=params.mask)

    return _displacement(tokens, tokens.x, mean)


def _head_count(params: AttentionParams) -> int:
    matrices = (params.query, params.key)
    return max([w.shape[0] for w in matrices if w is not None and w.ndim == 3] or [1])


def _displacement(
    tokens: Tokens,
    positions: Float[Array, "n d"],
    mean: Callable[..., Float[Array, "n m"]],
) -> Float[Array, "n d"]:
    """`sum_h sum_j A_ij V_h (x_j - x_i)`, where the weights come from `positions`."""
    # Differences do not see the centre: leaving it out saves digits near consensus.
    x = tokens.x - jax.lax.stop_gradient(jnp.mean(tokens.x, axis=0, keepdims=True))
    values = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=1)

    def head(q, k, value):
        got = mean(q, k, values)
        # The last column is 1, or 0 where a token sees none and stays where it is.
        return apply(value, got[:, :-1] - got[:, -1:] * x)

    return tokens.velocity(sum_over_heads(head, positions, tokens.params))


def _softmax(tokens: Tokens) -> Callable[..., Float[Array, "n m"]]:
    return functools.partial(attend, **kernel_options(tokens.params))
