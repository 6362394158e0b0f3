"""Weights of a Transformer scaled so that its attention contracts on given tokens."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._core import as_float, must, require
from ._branches import Tokens
from ._margins import Heads, bounds, heads_of, layer_by_layer, measure, seen_by
from ._transformer import Transformer, TransformerLayer


KINDS = ("measured", "typical", "worst_case")
# An interval of logarithms, about log(d), is halved so often; norms are found from
# above, by less than k^(2^-13), that is 4e-4 for k = 32.
_HALVINGS, _SQUARINGS = 15, 12


def stable_initialization(
    model: Transformer,
    inputs: Shaped[Array, "..."],
    *,
    margin: Float[ArrayLike, ""] | float = 2.0,
    kind: Literal["measured", "typical", "worst_case"] = "measured",
) -> Transformer:
    r"""A Transformer whose every head has at least a margin of contraction, on tokens.

    The queries and keys of each head are multiplied by a number $\sqrt s \le 1$ of its
    own, the largest for which its margin, as [`attention_margins`][] finds it, is not
    below the one asked for. The bounds are proportional to $1 / s$; the measured margin
    is not, as softmax weights change with s, and s is found by bisection from where the
    bound proves the margin. What a layer sees depends on the layers before: they are
    scaled first. Heads that have the margin stay as they are.

    Values are not scaled, so that what attention adds keeps its size: a head with small
    s takes the mean of what it sees. That is the price of a margin, and that of the
    worst case costs about d times more than the typical one.

    **Arguments:**

    - `model`: a [`Transformer`][], of any norm but `"ngpt"`.
    - `inputs`: what the model takes; a few sequences of the data.
    - `margin`: positive: 1 is where a query stops contracting, 2 halves what it moves.
    - `kind`: which margin. `"measured"` holds on these tokens and on no others, which
      may have half of it; `"worst_case"` on all tokens that are not longer than these,
      in sequences that are not longer; `"typical"` is a rule of thumb, and promises
      neither.

    **Returns:** the model with other queries and keys: margins that were below `margin`
    equal it within rounding (`"measured"`: are above it by less than a thousandth,
    unless they jump there).

    **Raises:** ValueError where the norm is `"ngpt"`, attention is Bayesian, the inputs
    do not fit, or the margin is not positive.

    !!! example

        >>> import jax
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.nn import attention_margins, stable_initialization
        >>> config = TransformerConfig(vocabulary=9, layers=2, heads=2, head_dim=8)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> tokens = jax.numpy.arange(9)
        >>> float(attention_margins(model, tokens).measured.min()) < 1
        True
        >>> stable = stable_initialization(model, tokens, margin=1.5)
        >>> round(float(attention_margins(stable, tokens).measured.min()), 3)
        1.5

    Source: own.
    """
    if kind not in KINDS:
        raise must("kind", f"be one of {', '.join(map(repr, KINDS))}", repr(kind))
    margin = as_float("margin", margin)
    if margin.ndim:
        raise must("margin", "be a scalar", f"of shape {margin.shape}")
    rule = "be finite and positive"
    margin = require(margin, jnp.isfinite(margin) & (margin > 0), "margin", rule)

    def visit(layer: TransformerLayer, x: Tokens, mask: Any) -> Any:
        seen, heads = seen_by(layer, x), heads_of(layer.attention)
        given, wanted = (seen, mask, layer.attention.rotary), margin.astype(seen.dtype)
        worst, typical = bounds(heads, *given)
        bound = typical if kind == "typical" else worst
        log_s = jnp.minimum(0, jnp.log(bound / wanted))
        if kind == "measured":
            found = lambda log_s: measure(_scaled(heads, log_s), *given, _SQUARINGS)
            log_s = _largest(lambda log_s: found(log_s) >= wanted, log_s)
        return _with_scaled(layer, log_s), None

    layers, _ = layer_by_layer(model, inputs, visit)
    return eqx.tree_at(lambda m: m.layers, model, layers)


def _scaled(heads: Heads, log_s: Float[Array, " h"]) -> Heads:
    root = jnp.exp(0.5 * log_s)[:, None, None]
    return heads._replace(query=root * heads.query, key=root * heads.key)


def _largest(
    enough: Callable[[Array], Array], low: Float[Array, " h"]
) -> Float[Array, " h"]:
    """Numbers from `low` to 0 that are enough, the largest ones by bisection."""
    top = jnp.zeros_like(low)

    def halve(_, interval):
        low, high = interval
        middle = 0.5 * (low + high)
        ok = enough(middle)
        return jnp.where(ok, middle, low), jnp.where(ok, high, middle)

    low, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (low, top))
    return jnp.where(enough(top), top, low)


def _with_scaled(layer: TransformerLayer, log_s: Float[Array, " h"]) -> Any:
    """A layer whose queries and keys are multiplied by exp(log_s / 2)."""
    qkv = layer.attention.qkv
    factors = jnp.stack([jnp.exp(0.5 * log_s)] * 2 + [jnp.ones_like(log_s)])
    rows = jnp.repeat(factors.reshape(-1), qkv.shape[0] // factors.size)[:, None]
    scaled = (rows * qkv.astype(rows.dtype)).astype(qkv.dtype)
    return eqx.tree_at(lambda one: one.attention.qkv, layer, scaled)
