"""How far every head of a Transformer is from where a query stops contracting."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from .._core import matmul, must, safe_norm, widen
from ._bayesian import BayesianAttention
from ._branches import Attention, Tokens, rotated
from ._transformer import Transformer, TransformerLayer


class AttentionMargins(NamedTuple):
    """The margins of each head in each layer, of shape (layers, heads).

    Above 1 a query contracts, below 1 it may expand; infinite where a head gives the
    same to all queries.

    - `worst_case`: for any keys in the ball that the tokens fill; never above
      `measured`.
    - `typical`: for keys that point in all directions alike.
    - `measured`: on these tokens, 1 over the largest norm of a query's Jacobian.
    """

    worst_case: Float[Array, "*layers h"]
    typical: Float[Array, "*layers h"]
    measured: Float[Array, "*layers h"]


class Heads(NamedTuple):
    """The weights of all heads, at least in float32."""

    query: Float[Array, "h k d"]
    key: Float[Array, "h k d"]
    value: Float[Array, "h k d"]
    out: Float[Array, "h d k"]


def attention_margins(
    model: Transformer, inputs: Shaped[Array, "..."]
) -> AttentionMargins:
    r"""How far every head is from where a query stops contracting, on given tokens.

    A head takes a query x in place t, and the keys y that it sees, to

    $$f(x) = O V \sum_j p_j y_j, \qquad
      p_j \propto \exp \frac{\langle R_t Q x, R_j K y_j \rangle}{\sqrt{d_k}}$$

    with the rotations $R$ of rotary positions. With $z_j = (R_j K)^\top R_t Q$ applied
    to $y_j$ from the left,

    $$f'(x) = \frac{O V \operatorname{Cov}_p(y, z)}{\sqrt{d_k}}, \qquad
      |f'(x)| \le \frac{|O V| \, R^2}{\sqrt{d_k}} \max_s |K^\top R_s Q|$$

    where R is the largest norm of a token and s runs over the distances that occur.
    Both sides are margins when turned upside down: the right one is that of
    [`stability_margins`][], the left one is `measured`, at its smallest over all
    tokens. Tokens are those that the attention of each layer sees, after its norm.

    The typical margin is no bound. On text it is far above the measured one: places
    near the start see few keys, and letters that return weigh more than others.

    It is attention alone that is judged: before the factor of branches, and before the
    outer norm of `"peri"`, which undoes the scale of its values.

    **Arguments:**

    - `model`: a [`Transformer`][], of any norm but `"ngpt"`: a query that is normalised
      after Q has no bound, as Q x may be as small as it likes.
    - `inputs`: what the model takes.

    **Returns:** [`AttentionMargins`][], each of shape (layers, heads).

    **Raises:** ValueError where the norm is `"ngpt"`, attention is Bayesian, or the
    inputs do not fit.

    !!! example

        >>> import jax
        >>> from tfjax.nn import Transformer, TransformerConfig, attention_margins
        >>> config = TransformerConfig(vocabulary=9, layers=2, heads=2, head_dim=8)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> margins = attention_margins(model, jax.numpy.arange(9))
        >>> margins.measured.shape
        (2, 2)
        >>> bool((margins.worst_case <= margins.measured).all())
        True

    Source: own; the covariance is the derivative of the softmax mean.
    """

    def visit(layer: TransformerLayer, x: Tokens, mask: Any) -> Any:
        seen, heads = seen_by(layer, x), heads_of(layer.attention)
        given = seen, mask, layer.attention.rotary
        return layer, (*bounds(heads, *given), measure(heads, *given))

    return AttentionMargins(*layer_by_layer(model, inputs, visit)[1])


def layer_by_layer(
    model: Transformer,
    inputs: Shaped[Array, "..."],
    visit: Callable[[TransformerLayer, Tokens, Any], tuple[TransformerLayer, Any]],
) -> tuple[Any, Any]:
    """All layers as `visit` returns them, and what else it returns, stacked.

    Tokens go on through the layer that `visit` returns.
    """
    config, x = model.config, model.embed(inputs)
    if config.norm == "ngpt":
        rule = "have the norm 'pre', 'post' or 'peri', which leave queries their length"
        raise must("model", rule, "one of norm 'ngpt'")
    if config.bayesian is not None:
        rule = "have common attention, whose derivative the margins are made of"
        raise must("model", rule, "one with `bayesian`")
    n = x.shape[-2]
    mask = jnp.tril(jnp.ones((n, n), bool)) if config.sees_earlier_only else None
    each, results = model.layers, []
    if config.scan:
        parts, static = eqx.partition(model.layers, eqx.is_array)
        part = lambda k: jax.tree.map(lambda leaf: leaf[k], parts)
        each = [eqx.combine(part(k), static) for k in range(config.layers)]
    layers = []
    for layer in each:
        layer, found = visit(layer, x, mask)
        x = layer(x, mask)
        layers.append(layer)
        results.append(found)
    stack = lambda *leaves: jnp.stack(leaves)
    if config.scan:
        arrays = [eqx.filter(layer, eqx.is_array) for layer in layers]
        layers = eqx.combine(jax.tree.map(stack, *arrays), static)
    return layers, jax.tree.map(stack, *results)


def seen_by(layer: TransformerLayer, x: Tokens) -> Float[Array, "b n half_or_d"]:
    """The tokens as the attention of a layer sees them, one sequence after another."""
    if layer.config.block == "leapfrog":
        x = x[..., : x.shape[-1] // 2]
    if layer.config.norm in ("pre", "peri"):
        x = layer.norms[0](x)
    return widen(x)[0][0].reshape(-1, *x.shape[-2:])


def heads_of(attention: Attention | BayesianAttention) -> Heads:
    """Its weights, head by head."""
    (qkv, out), _ = widen(attention.qkv, attention.out)
    d, h = out.shape[0], attention.heads
    query, key, value = qkv.reshape(3, h, d // h, d)
    return Heads(query, key, value, jnp.moveaxis(out.reshape(d, h, d // h), 1, 0))


def bounds(
    heads: Heads,
    seen: Float[Array, "b n d"],
    mask: Bool[Array, "n n"] | None,
    rotary: bool,
) -> tuple[Float[Array, " h"], Float[Array, " h"]]:
    """The margins of the worst case and of the typical one."""
    query, key, value, out = _grams(heads)
    turns = _turns(seen.shape[-2], query, rotary)
    if mask is None:  # Keys may come later too: these turn the other way.
        turns = jnp.concatenate([turns, jnp.swapaxes(turns, -1, -2)])
    logits = jnp.max(_norm(key, turns[:, None], query), axis=0)
    values = _norm(out, jnp.eye(value.shape[-1], dtype=value.dtype)[None], value)
    radius = jnp.max(safe_norm(seen))
    worst = value.shape[-1] ** 0.5 / (logits * values * radius**2)
    return worst, seen.shape[-1] * worst


def measure(
    heads: Heads,
    seen: Float[Array, "b n d"],
    mask: Bool[Array, "n n"] | None,
    rotary: bool,
    squarings: int = 20,
) -> Float[Array, " h"]:
    """1 over the largest norm of a query's Jacobian, over all tokens seen."""
    right, _, _, left = _grams(heads)
    k = right.shape[-1]
    turns = _turns(seen.shape[-2], right, rotary)

    def one(y):
        project = lambda weights: jnp.einsum("nd,hkd->nhk", y, weights, precision=_HIGH)
        q, key, v = map(project, heads[:3])
        if rotary:
            q, key = rotated(q[None])[0], rotated(key[None])[0]
        logits = k**-0.5 * jnp.einsum("nhk,mhk->nhm", q, key, precision=_HIGH)
        if mask is not None:
            logits = jnp.where(mask[:, None], logits, -jnp.inf)
        p = jax.nn.softmax(logits, axis=-1)
        mean = lambda a: jnp.einsum("nhm,mhk->nhk", p, a, precision=_HIGH)
        # Less a mean first: that of all keys is near enough to each one's own.
        key, v = (a - jnp.mean(a, axis=0, keepdims=True) for a in (key, v))
        both = jnp.einsum("nhm,mhv,mhk->nhvk", p, v, key, precision=_HIGH)
        both = both - mean(v)[..., None] * mean(key)[..., None, :]
        sizes = _norm(left, matmul(both, turns[:, None]), right, squarings)
        return jnp.max(sizes, axis=0) / k**0.5

    return 1 / jnp.max(jax.vmap(one)(seen), axis=0)


_HIGH = jax.lax.Precision.HIGHEST


def _grams(heads: Heads) -> list[Float[Array, "h k k"]]:
    """Of each head QQ', KK', VV', O'O."""
    rows = *heads[:3], jnp.swapaxes(heads.out, -1, -2)
    return [matmul(a, jnp.swapaxes(a, -1, -2)) for a in rows]


def _turns(n: int, like: Float[Array, "h k k"], rotary: bool) -> Float[Array, "m k k"]:
    """The matrices by which rotary positions turn vectors in places 0 to n - 1."""
    k = like.shape[-1]
    one = jnp.eye(k, dtype=like.dtype)
    if not rotary:
        return one[None]
    columns = jnp.broadcast_to(one[:, None, None], (k, n, 1, k))
    return jnp.moveaxis(rotated(columns)[:, :, 0], 0, -1)


def _norm(
    left: Float[Array, "h k k"],
    middle: Float[Array, "*n h_or_1 k k"],
    right: Float[Array, "h k k"],
    squarings: int = 20,
) -> Float[Array, "*n h"]:
    r"""Spectral norms |A M B|, given A'A, M and BB', by squaring a matrix p times.

    From above, by less than a factor $k^{2^{-p - 1}}$. It takes products alone: with
    many calls of LAPACK beside products of its own, a program of jax 0.10 may not end.
    """
    many = (1,) * (middle.ndim - 3)
    left, right = (a.reshape(*many, *a.shape) for a in (left, right))
    square = matmul(matmul(right, jnp.swapaxes(middle, -1, -2)), matmul(left, middle))
    log_norm, weight = jnp.zeros(square.shape[:-2], square.dtype), 0.5
    for _ in range(squarings):
        size = jnp.trace(square, axis1=-2, axis2=-1)
        zero = size <= 0
        size = jnp.where(zero, jnp.ones_like(size), size)
        log_norm = jnp.where(zero, -jnp.inf, log_norm + weight * jnp.log(size))
        square = square / size[..., None, None]
        square = matmul(square, square)
        weight = 0.5 * weight
    last = jnp.trace(square, axis1=-2, axis2=-1)
    last = jnp.where(last > 0, last, jnp.ones_like(last))
    return jnp.exp(log_norm + weight * jnp.log(last))
