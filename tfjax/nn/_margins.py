"""How far every head of a Transformer is from where a query stops contracting."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from .._core import matmul, must, safe_norm, widen
from ..diagnostics import stability_margins
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

    **Raises:** ValueError where the norm is `"ngpt"`, or the inputs do not fit.

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
    n = x.shape[-2]
    mask = jnp.tril(jnp.ones((n, n), bool)) if config.sees_earlier_only else None
    if config.scan:
        parts, static = eqx.partition(model.layers, eqx.is_array)

        def step(x, part):
            layer, found = visit(eqx.combine(part, static), x, mask)
            return layer(x, mask), (eqx.filter(layer, eqx.is_array), found)

        _, (parts, found) = jax.lax.scan(step, x, parts)
        return eqx.combine(parts, static), found
    layers, results = [], []
    for layer in model.layers:
        layer, found = visit(layer, x, mask)
        x = layer(x, mask)
        layers.append(layer)
        results.append(found)
    return layers, jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)


def seen_by(layer: TransformerLayer, x: Tokens) -> Float[Array, "b n half_or_d"]:
    """The tokens as the attention of a layer sees them, one sequence after another."""
    if layer.config.block == "leapfrog":
        x = x[..., : x.shape[-1] // 2]
    if layer.config.norm in ("pre", "peri"):
        x = layer.norms[0](x)
    return widen(x)[0][0].reshape(-1, *x.shape[-2:])


def heads_of(attention: Attention) -> Heads:
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
    # Matrices that are smaller and have products of the same norms.
    query, key, value, out = map(_factor, _rows(heads))
    query, key = (jnp.swapaxes(a, -1, -2) for a in (query, key))
    value = matmul(out, jnp.swapaxes(value, -1, -2))
    if rotary:
        turns = _rotations(seen.shape[-2], query)
        turned, size = _most_turned(turns, query, key)
        if mask is None:  # Keys may come later too: these turn the other way.
            other, larger = _most_turned(turns, key, query)
            later = (larger > size)[:, None, None]
            turned = jnp.where(later, query, turned)
            key = jnp.where(later, other, key)
        query = turned
    radius = jnp.max(safe_norm(seen))
    worst = stability_margins(query, key, value, radius=radius).worst_case
    return worst, seen.shape[-1] * worst


def measure(
    heads: Heads,
    seen: Float[Array, "b n d"],
    mask: Bool[Array, "n n"] | None,
    rotary: bool,
) -> Float[Array, " h"]:
    """1 over the largest norm of a query's Jacobian, over all tokens seen."""
    k = heads.query.shape[-2]
    # A Jacobian O M R Q has the norm of what it is between the ranges of O' and Q.
    right, _, _, left = map(_factor, _rows(heads))
    right = jnp.swapaxes(right, -1, -2)[None]
    if rotary:
        right = matmul(_rotations(seen.shape[-2], right[0])[:, None], right)

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
        J = matmul(left[None], matmul(both, right)) / k**0.5
        return jnp.max(jnp.linalg.norm(J, ord=2, axis=(-2, -1)), axis=0)

    return 1 / jnp.max(jax.lax.map(one, seen), axis=0)


_HIGH = jax.lax.Precision.HIGHEST


def _rows(heads: Heads) -> list[Float[Array, "h k d"]]:
    return [*heads[:3], jnp.swapaxes(heads.out, -1, -2)]


def _factor(rows: Float[Array, "h k d"]) -> Float[Array, "h k k"]:
    """T of rows' = U T, with U of orthonormal columns.

    By products: LAPACK on wide matrices, several at once, waits for its own threads.
    """
    gram = matmul(rows, jnp.swapaxes(rows, -1, -2))
    values, vectors = jnp.linalg.eigh(gram)
    root = jnp.sqrt(jnp.maximum(values, 0))[..., None]
    return root * jnp.swapaxes(vectors, -1, -2)


def _rotations(n: int, like: Float[Array, "h k c"]) -> Float[Array, "n k k"]:
    """The matrices by which rotary positions turn a vector in places 0 to n - 1."""
    k = like.shape[-2]
    one = jnp.eye(k, dtype=like.dtype)[:, None, None]
    return jnp.moveaxis(rotated(jnp.broadcast_to(one, (k, n, 1, k)))[:, :, 0], 0, -1)


def _most_turned(
    turns: Float[Array, "n k k"],
    turning: Float[Array, "h k c"],
    other: Float[Array, "h k c"],
) -> tuple[Float[Array, "h k c"], Float[Array, " h"]]:
    """Matrices turned to where their products with the others are largest."""
    turned = matmul(turns[:, None], turning[None])
    products = matmul(jnp.swapaxes(other, -1, -2)[None], turned)
    size = jnp.linalg.norm(products, ord=2, axis=(-2, -1))
    worst = jnp.argmax(size, axis=0)
    return matmul(turns[worst], turning), jnp.max(size, axis=0)
