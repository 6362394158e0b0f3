"""What blocks do to long sequences, and their feed-forward parts to single tokens."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...nn import Transformer, TransformerConfig


BLOCKS = ("residual", "leapfrog", "cayley")


class Passage(NamedTuple):
    """What happens to the tokens of a model on the way, of shape (layers + 1,).

    - `states`: the mean of the tokens' lengths, over their first ones.
    - `off`: the largest change of any token's length, relative.
    - `gradients`: the norm of the loss's gradient in all tokens, over the last one.
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
    """Lengths of tokens, gradients and tangents after every layer."""
    inputs, targets = text[:, :-1], text[:, 1:]
    n = inputs.shape[1]
    mask = jnp.tril(jnp.ones((n, n), bool))
    parts, static = eqx.partition(model.layers, eqx.is_array)

    def states_of(x):
        def step(x, part):
            x = eqx.combine(part, static)(x, mask)
            return x, x

        return jnp.concatenate([x[None], jax.lax.scan(step, x, parts)[1]])

    def loss(pushes):
        """Of the model, with a push after each layer: its slope is the gradient."""

        def step(x, given):
            part, push = given
            return eqx.combine(part, static)(x, mask) + push, None

        x = model.embed(inputs) + pushes[0]
        logits = model.logits(jax.lax.scan(step, x, (parts, pushes[1:]))[0])
        picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    start = model.embed(inputs)
    change = jax.random.normal(key, start.shape, start.dtype)
    states, tangents = jax.jvp(states_of, (start,), (change,))
    norm = lambda x: jnp.sqrt(jnp.sum(x * x, axis=(1, 2, 3)))
    lengths = jnp.linalg.norm(states, axis=-1)
    off = jnp.max(jnp.abs(lengths / lengths[:1] - 1), axis=(1, 2))
    gradients = norm(jax.grad(loss)(jnp.zeros_like(states)))
    return jnp.mean(lengths / lengths[:1], axis=(1, 2)), off, gradients, norm(tangents)


def passage(model: Transformer, text: Any, seed: int) -> Passage:
    """Of sequences, whose last characters are only guessed, through a model."""
    found = map(np.asarray, _passed(model, text, jax.random.key(seed)))
    states, off, gradients, tangents = (a.astype(float) for a in found)
    return Passage(states, off, gradients / gradients[-1], tangents / tangents[0])


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
    config, n = model.config, text.shape[1]
    mask = jnp.tril(jnp.ones((n, n), bool))
    parts, static = eqx.partition(model.layers, eqx.is_array)
    zero = lambda where, layer: eqx.tree_at(where, layer, replace_fn=jnp.zeros_like)

    def step(x, part):
        layer = eqx.combine(part, static)
        between = zero(lambda one: one.feed_forward.down, layer)(x, mask)
        tokens = between.reshape(-1, between.shape[-1])[chosen]
        after = zero(lambda one: one.attention.out, layer)
        forward = lambda x: after(x[None], None)[0]
        shown = tokens
        if config.block == "leapfrog":  # The other half is what the map is given.
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
    values = (np.linalg.svd(J, compute_uv=False) for J in found)
    return Charts(*values, *np.linalg.slogdet(found[-1]))
