"""Models of discrete and of continuous depth: how they are trained and compared."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Integer

from ...integrate import reverse_mode, solve
from ...nn import ContinuousTransformer, Transformer, TransformerConfig
from ...train import cross_entropy, language_loss, load_shakespeare, make_step, start


class Setup(NamedTuple):
    """How models are trained: the same for both depths.

    - `seeds`: how many of each, with weights and batches of their own.
    - `steps`, `batch`, `rate`: of Adam; the rate rises for a tenth of the steps, and
      falls to 0 by a cosine.
    - `windows`: sequences of the validation part, evenly spread, that bits are of.
    - `refined`: steps from knot to knot at which gradients are compared.
    """

    config: TransformerConfig
    seeds: int
    steps: int
    batch: int
    rate: float
    windows: int
    refined: tuple[int, ...]


class Corpus(NamedTuple):
    """Tokens to train on and to validate with, and how many kinds there are.

    `entropy` is what no model beats, in bits a token, where that is known.
    """

    train: Integer[np.ndarray, " n"]
    validation: Integer[np.ndarray, " m"]
    vocabulary: int
    entropy: float | None = None


def plays() -> Corpus:
    """Shakespeare's, by character."""
    text = load_shakespeare()
    return Corpus(text.train, text.validation, len(text.alphabet))


def chain(seed: int, count: int = 20_000, vocabulary: int = 8) -> Corpus:
    """A random Markov chain: `count` tokens to train on, as many to validate with."""
    rng = np.random.default_rng((seed, vocabulary))
    rows = rng.dirichlet(np.full(vocabulary, 0.3), vocabulary)
    place, tokens = 0, np.empty(2 * count, np.int32)
    limits, draws = np.cumsum(rows, axis=1), rng.uniform(size=2 * count)
    for k, draw in enumerate(draws):
        place = min(int(np.searchsorted(limits[place], draw)), vocabulary - 1)
        tokens[k] = place
    often = np.bincount(tokens, minlength=vocabulary) / tokens.size
    each = -np.sum(rows * np.log2(np.maximum(rows, 1e-300)), axis=1)
    return Corpus(tokens[:count], tokens[count:], vocabulary, float(often @ each))


def pair(config: TransformerConfig, seed: int) -> dict[str, Any]:
    """Both models, with the same weights at the start, in float32."""
    key = jax.random.key(seed)
    discrete = Transformer(config, key=key, dtype=jnp.float32)
    continuous = ContinuousTransformer.from_transformer(discrete)
    return {"discrete": discrete, "continuous": continuous}


def optimizer(setup: Setup) -> optax.GradientTransformation:
    """Adam, warmed up and cooled down."""
    rate = optax.warmup_cosine_decay_schedule(
        0.0, setup.rate, setup.steps // 10, setup.steps
    )
    return optax.adam(rate)


def train(
    model: Any,
    corpus: Corpus,
    setup: Setup,
    step: Callable[..., Any],
    seed: int,
    progress: Callable[[float], None],
) -> tuple[Any, Float[np.ndarray, " steps"]]:
    """A trained model, and its loss in bits at every step; batches are the seed's."""
    length = setup.config.context + 1
    rng = np.random.default_rng((seed, length))
    shape = (setup.steps, setup.batch)
    starts = rng.integers(0, corpus.train.size - length, shape)
    state = start(model, optimizer(setup), jax.random.key(seed))
    losses = []
    for k, places in enumerate(starts):
        batch = corpus.train[places[:, None] + np.arange(length)]
        state, metrics = step(state, jnp.asarray(batch.astype(np.int32)))
        losses.append(metrics.loss)
        if k % 50 == 49:
            progress((k + 1) / setup.steps)
    return state.model, np.asarray(jnp.stack(losses), float) / math.log(2)


def step_of(setup: Setup) -> Callable[..., Any]:
    """One compiled step, for all models of the same kind."""
    return make_step(language_loss, optimizer(setup), clip=1.0)


def windows(corpus: Corpus, setup: Setup) -> Integer[np.ndarray, "windows length"]:
    """Sequences of the validation part, evenly spread, the same for all models."""
    length = setup.config.context + 1
    starts = np.linspace(0, corpus.validation.size - length, setup.windows).astype(int)
    return corpus.validation[starts[:, None] + np.arange(length)].astype(np.int32)


def bits(
    model: Any, tokens: Integer[np.ndarray, "windows length"]
) -> Float[np.ndarray, " windows"]:
    """Bits a character of each sequence."""
    parts = np.split(tokens, range(64, len(tokens), 64))
    return np.concatenate([np.asarray(_bits(model, part), float) for part in parts])


@eqx.filter_jit
def _bits(model, tokens):
    each = jax.vmap(cross_entropy)(model(tokens[:, :-1]), tokens[:, 1:])
    return each / math.log(2)


def gradients(
    model: ContinuousTransformer,
    tokens: Integer[np.ndarray, "windows length"],
    refined: tuple[int, ...],
) -> tuple[Float[np.ndarray, "refined p"], Float[np.ndarray, "refined p"]]:
    """Gradients of a loss in all parameters, for steps of the midpoint method.

    **Returns:** by reverse mode through the steps, and by the adjoint equation, solved
    back in time with the same steps; in the default precision.
    """
    wide = lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf
    model, L = jax.tree.map(wide, model), model.config.layers
    most = L * max(refined)
    found = [
        [_slope(model, tokens, jnp.asarray(1 / (L * n)), most, how) for n in refined]
        for how in (reverse_mode(), dfx.BacksolveAdjoint())
    ]
    return np.asarray(jnp.stack(found[0])), np.asarray(jnp.stack(found[1]))


@eqx.filter_jit
def _slope(model, tokens, h, most, adjoint):
    floats, rest = eqx.partition(model, eqx.is_inexact_array)

    def loss(floats):
        model = eqx.combine(floats, rest)
        field = lambda t, x, args: eqx.combine(args, rest).velocity(t, x)
        solution = solve(
            field,
            model.embed(tokens[:, :-1]),
            floats,
            t1=1.0,
            dt0=h,
            solver=dfx.Midpoint(),
            adjoint=adjoint,
            max_steps=most,
        )
        ys: Any = solution.ys
        return cross_entropy(model.logits(ys[-1]), tokens[:, 1:])

    leaves: list[Array] = jax.tree.leaves(jax.grad(loss)(floats))
    return jnp.concatenate([leaf.ravel() for leaf in leaves])
