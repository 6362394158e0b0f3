"""The feed-forward part of a Transformer, alone and beside attention."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, matmul, must, widen
from ._params import AttentionParams, TokenParams, check_kind, params_at
from ._tokens import mean_values, prepare


class FeedForward(eqx.Module):
    r"""The parameters of a feed-forward layer, $w\, \sigma(a x + b)$.

    **Arguments:**

    - `w`: the outer matrix, of shape (d, m).
    - `a`: the inner matrix, of shape (m, d).
    - `b`: the bias, of shape (m,); 0 where None.
    - `activation`: the function σ, applied to every entry.

    **Raises:** ValueError where an entry is not real. Whether shapes fit together is
    checked by the field.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import FeedForward
        >>> FeedForward(w=jnp.ones((2, 8)), a=jnp.ones((8, 2))).a.shape
        (8, 2)

    Source: arXiv 2312.10794, section 2.1.
    """

    w: Float[Array, "..."] = eqx.field(converter=lambda value: as_float("w", value))
    a: Float[Array, "..."] = eqx.field(converter=lambda value: as_float("a", value))
    b: Float[Array, "..."] | None = eqx.field(
        default=None,
        converter=lambda value: None if value is None else as_float("b", value),
    )
    activation: Callable[[Any], Any] = eqx.field(default=jax.nn.relu, static=True)

    def __check_init__(self):
        if not callable(self.activation):
            raise must("activation", "be a function", repr(self.activation))


class BlockParams(TokenParams):
    """The parameters of a Transformer block: attention and a feed-forward layer.

    **Arguments:**

    - `attention`: an [`AttentionParams`][], whose mask says which tokens exist.
    - `feed_forward`: a [`FeedForward`][]; none where None.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import BlockParams, FeedForward
        >>> layer = FeedForward(w=jnp.ones((2, 8)), a=jnp.ones((8, 2)))
        >>> float(BlockParams(feed_forward=layer).attention.beta)
        1.0

    Source: arXiv 2312.10794, section 2.3.2.
    """

    attention: AttentionParams = eqx.field(default_factory=AttentionParams)
    feed_forward: FeedForward | None = None

    def __check_init__(self):
        check_kind("attention", self.attention, AttentionParams)
        if self.feed_forward is not None:
            check_kind("feed_forward", self.feed_forward, FeedForward)

    @property
    def mask(self) -> Any:
        """The mask of the attention."""
        return self.attention.mask


def feed_forward(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "*n d"],
    args: FeedForward | Callable,
) -> Float[Array, "*n d"]:
    r"""A neural ODE: a ResNet in continuous time, which moves every point by itself.

    $$\dot x_i = w\, \sigma(a x_i + b)$$

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `x`: points, of shape (d,) or (n, d).
    - `args`: a [`FeedForward`][], or a function of time that returns one.

    **Returns:** the velocities, in the shape and dtype of `x`.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import FeedForward, feed_forward
        >>> layer = FeedForward(w=jnp.eye(2), a=-jnp.eye(2))
        >>> feed_forward(0.0, jnp.array([-1.0, 2.0]), layer).tolist()
        [1.0, 0.0]

    Source: arXiv 2312.10794, section 2.1; arXiv 1806.07366.
    """
    layer = args(t) if callable(args) else args
    if not isinstance(layer, FeedForward):
        rule = "be a FeedForward, or a function of time that returns one"
        raise must("args", rule, type(layer).__name__)
    x = as_float("x", x)
    if x.ndim not in (1, 2) or 0 in x.shape:
        raise must("x", "have shape (d,) or (n, d)", f"of shape {x.shape}")
    (x,), dtype = widen(x)
    return _layer(layer, x).astype(dtype)


def _layer(layer: FeedForward, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """`w sigma(a x + b)` for every row, with the shapes checked."""
    d, hidden = x.shape[-1], layer.a.shape[0] if layer.a.ndim else 0
    shapes = {"w": (d, hidden), "a": (hidden, d), "b": (hidden,)}
    names = {"w": "(d, m)", "a": "(m, d)", "b": "(m,)"}
    for name, shape in shapes.items():
        array = getattr(layer, name)
        if array is not None and array.shape != shape:
            rule = f"have shape {names[name]} with d = {d}, m = {hidden}"
            raise must(name, rule, f"of shape {array.shape}")
    w, a = layer.w.astype(x.dtype), layer.a.astype(x.dtype)
    inner = matmul(x, a.T)
    if layer.b is not None:
        inner = inner + jnp.broadcast_to(layer.b.astype(x.dtype), inner.shape)
    outer = layer.activation(inner)
    if jnp.shape(outer) != inner.shape:
        got = f"one that returned the shape {jnp.shape(outer)}"
        raise must("activation", f"keep the shape {inner.shape} of its argument", got)
    return matmul(outer, w.T)


def transformer_block(
    t: Float[ArrayLike, ""] | float,
    x: Float[ArrayLike, "n d"],
    args: BlockParams | Callable | None = None,
) -> Float[Array, "n d"]:
    r"""A whole Transformer block on the sphere: attention and feed-forward together.

    $$\dot x_i = P_{x_i} \Bigl( \sum_h \frac{1}{Z_{i,h}} \sum_j
      e^{\beta \langle Q_h x_i, K_h x_j \rangle} V_h x_j
      + w\, \sigma(a x_i + b) \Bigr)$$

    **Arguments:**

    - `t`: time, which the parameters may depend on.
    - `x`: tokens, of shape (n, d), normalised here.
    - `args`: a [`BlockParams`][], or a function of time that returns one; plain
      self-attention where None.

    **Returns:** the velocities, of shape (n, d), in the dtype of `x`: tangent to the
    sphere, and 0 for tokens that are absent.

    **Raises:** ValueError where shapes do not fit together.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import BlockParams, FeedForward, transformer_block
        >>> layer = FeedForward(w=jnp.eye(2), a=jnp.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> transformer_block(0.0, jnp.eye(2), BlockParams(feed_forward=layer)).shape
        (2, 2)

    Source: arXiv 2312.10794, section 2.3.2.
    """
    params = params_at(t, args, BlockParams)
    tokens = prepare(x, params.attention, normalized=True)
    drift = mean_values(tokens)
    if params.feed_forward is not None:
        drift = drift + _layer(params.feed_forward, tokens.x)
    return tokens.tangential(drift)
