"""What blocks do to long sequences, and their feed-forward parts to single tokens."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...nn import Transformer, TransformerConfig


BLOCKS = ("residual", "leapfrog", "cayley")


class Passage(NamedTuple):
    """What happens to tokens on the way, by length and layer: (lengths, layers + 1).

    - `states`: the mean of the tokens' norms, over their first ones.
    - `off`: the largest change of any token's norm, relative.
    - `gradients`: the norm of the loss's gradient in all tokens, over that in the last
      layer's.
    - `tangents`: the norm of what a random small change grows to, over its first one.
    """

    states: np.ndarray
    off: np.ndarray
    gradients: np.ndarray
    tangents: np.ndarray


def model_of(config: TransformerConfig, seed: int, dtype: Any = None) -> Transformer:
    """A new model."""
    return _model(config, key=jax.random.key(seed), dtype=dtype)


_model = eqx.filter_jit(Transformer)


@eqx.filter_jit
def _passed(model, text, key):
    """Norms of tokens, and of what a random change becomes, after every layer."""

    def states_of(x):
        def step(x, part):
            x = layer_of(part)(x, mask)
            return x, x

        return jnp.concatenate([x[None], jax.lax.scan(step, x, parts)[1]])

    parts, layer_of, mask = _parts(model, text.shape[1])
    start = model.embed(text)
    change = jax.random.normal(key, start.shape, start.dtype)
    states, tangents = jax.jvp(states_of, (start,), (change,))
    return jnp.linalg.norm(states, axis=-1), jnp.linalg.norm(tangents, axis=-1)


@eqx.filter_jit
def _pulled(model, text, n):
    """Norms of the gradients in all layers' tokens, of the loss on the first n."""
    inputs, targets = text[:, :-1], text[:, 1:]
    parts, layer_of, mask = _parts(model, inputs.shape[1])
    counted = (jnp.arange(inputs.shape[1]) < n)[None]

    def loss(pushes):
        """With a push after each layer, whose slope is the gradient there."""

        def step(x, given):
            part, push = given
            return layer_of(part)(x, mask) + push, None

        x = model.embed(inputs) + pushes[0]
        logits = model.logits(jax.lax.scan(step, x, (parts, pushes[1:]))[0])
        picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        lost = jax.nn.logsumexp(logits, axis=-1) - picked
        return jnp.sum(jnp.where(counted, lost, jnp.zeros_like(lost))) / jnp.sum(
            counted, dtype=lost.dtype
        )

    start = model.embed(inputs)
    pushes = jnp.zeros((model.config.layers + 1, *start.shape), start.dtype)
    gradients = jax.grad(loss)(pushes)
    return jnp.sqrt(jnp.sum(gradients * gradients, axis=(1, 2, 3)))


def _parts(model, n):
    """What changes from layer to layer, the layer with it, and the causal mask."""
    parts, static = eqx.partition(model.layers, eqx.is_array)
    layer_of = lambda part: eqx.combine(part, static)
    return parts, layer_of, jnp.tril(jnp.ones((n, n), bool))


def passage(
    model: Transformer, text: Any, lengths: tuple[int, ...], seed: int
) -> Passage:
    """Of the beginnings of sequences, which have one character more, to be guessed.

    No place sees a later one, so that a shorter sequence is the start of a longer one.
    """
    inputs = text[:, : max(lengths)]
    found = _passed(model, inputs, jax.random.key(seed))
    norms, tangents = (np.asarray(a).astype(float) for a in found)
    growth, rows = norms / norms[:1], []
    for n in lengths:
        gradients = np.asarray(_pulled(model, text, jnp.asarray(n))).astype(float)
        changes = np.sqrt((tangents[:, :, :n] ** 2).sum((1, 2)))
        rows.append(
            (
                growth[:, :, :n].mean((1, 2)),
                np.abs(growth[:, :, :n] - 1).max((1, 2)),
                gradients / gradients[-1],
                changes / changes[0],
            )
        )
    return Passage(*(np.stack(a) for a in zip(*rows, strict=True)))


class Charts(NamedTuple):
    """Derivatives of feed-forward parts, of shape (layers, tokens, d).

    - `map`: singular values of the map alone, at the tokens it is given.
    - `normed`: of the map after its norm.
    - `step`: of what the block makes of it, token to token.
    - `sign`: of the determinant of the step, of shape (layers, tokens).
    - `log_volume`: the logarithm of that determinant's size.
    """

    map: np.ndarray
    normed: np.ndarray
    step: np.ndarray
    sign: np.ndarray
    log_volume: np.ndarray


@eqx.filter_jit
def _charted(model, text, chosen):
    parts, layer_of, mask = _parts(model, text.shape[1])
    zero = lambda where, layer: eqx.tree_at(where, layer, replace_fn=jnp.zeros_like)

    def step(x, part):
        layer = layer_of(part)
        between = zero(lambda one: one.feed_forward.down, layer)(x, mask)
        tokens = between.reshape(-1, between.shape[-1])[chosen]
        after = zero(lambda one: one.attention.out, layer)
        forward = lambda x: after(x[None], None)[0]
        shown = tokens
        if model.config.block == "leapfrog":  # The other half is what the map is given.
            shown = tokens[:, tokens.shape[1] // 2 :]
        alone = lambda x: layer.feed_forward(x[None])[0]
        normed = lambda x: layer.feed_forward(layer.norms[1](x[None]))[0]
        jacobians = lambda f, x: jax.vmap(jax.jacfwd(f))(x)
        J = jacobians(forward, tokens)
        at = jax.vmap(lambda x: layer.norms[1](x[None])[0])(shown)
        found = jacobians(alone, at), jacobians(normed, shown), J
        return layer(x, mask), found

    return jax.lax.scan(step, model.embed(text), parts)[1]


def charts(model: Transformer, text: Any, count: int, seed: int) -> Charts:
    """At tokens of a text, drawn at random."""
    chosen = np.random.default_rng(seed).choice(text.size, count, replace=False)
    found = [np.asarray(J) for J in _charted(model, text, jnp.asarray(chosen))]
    alone, normed, step = (np.linalg.svd(J, compute_uv=False) for J in found)
    sign, log_volume = np.linalg.slogdet(found[-1])
    return Charts(alone, normed, step, sign, log_volume)
