"""Text out of a language model, token after token."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key

from .._core import count, must
from ..nn import ContinuousTransformer, Transformer


def sample(
    model: Transformer | ContinuousTransformer,
    prompt: Int[Array, " p"],
    length: int,
    *,
    key: Key[Array, ""],
    temperature: float | int = 1.0,
    top_k: int | None = None,
) -> Int[Array, " length"]:
    r"""Draws the tokens that follow a prompt.

    $$x_{t+1} \sim \mathrm{softmax}(\ell(x_{t-c+1}, \dots, x_t) / \tau)$$

    with the logits of the model on the last tokens, as many as it can see.

    **Arguments:**

    - `model`: a causal language model.
    - `prompt`: at least one token.
    - `length`: how many to draw.
    - `key`: for the draws.
    - `temperature`: above 1 more surprising, below 1 less; 0 takes the likeliest.
    - `top_k`: draw from so many of the likeliest; None draws from all.

    **Returns:** the tokens drawn, without the prompt.

    **Raises:** ValueError where an argument is wrong, or the model is a classifier.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import sample
        >>> config = TransformerConfig(vocabulary=9, layers=1, heads=1, head_dim=8)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> sample(model, jnp.array([1, 2]), 5, key=jax.random.key(1)).shape
        (5,)

    Source: own.
    """
    config, length = model.config, count("length", length)
    if config.vocabulary is None or config.classes is not None:
        raise must("model", "be a language model", "a classifier")
    if not config.sees_earlier_only:
        raise must("model", "be causal", "one that sees later tokens")
    if not len(prompt):
        raise must("prompt", "have at least one token", "empty")
    if not 0 <= temperature < float("inf"):
        raise must("temperature", "be at least 0", temperature)
    kept = config.vocabulary if top_k is None else count("top_k", top_k)
    known = prompt[-config.context :].astype(jnp.int32)
    window = jnp.pad(known, (0, config.context - len(known)))
    heat = jnp.asarray(temperature, jnp.float32)
    kept = min(kept, config.vocabulary)
    return _draw(model, window, jnp.asarray(len(known)), heat, key, length, kept)


@eqx.filter_jit
def _draw(model, window, filled, temperature, key, length: int, kept: int):
    context = window.shape[0]

    def step(carry, key):
        window, filled = carry
        # What lies behind the last token is not seen by it: the model is causal.
        logits = model(window)[filled - 1].astype(jnp.float32)
        least = jax.lax.top_k(logits, kept)[0][-1]
        likely = jnp.where(logits >= least, logits, -jnp.inf)
        cold = temperature == 0
        warm = likely / jnp.where(cold, jnp.ones_like(temperature), temperature)
        drawn = jr.categorical(key, warm).astype(window.dtype)
        token = jnp.where(cold, jnp.argmax(logits).astype(window.dtype), drawn)
        full = filled == context
        window = jnp.where(full, jnp.roll(window, -1), window)
        place = jnp.where(full, context - 1, filled)
        return (window.at[place].set(token), place + 1), token

    return jax.lax.scan(step, (window, filled), jr.split(key, length))[1]
