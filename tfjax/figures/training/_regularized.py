"""Language models with and without terms of geometry: data, weights, training."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Integer

from ...nn import ContinuousTransformer, Transformer, TransformerConfig
from ...train import geometric_loss, language_loss
from ._continuous_training import Corpus
from ._members import Member, Program, training


class Variant(NamedTuple):
    """A way of training: the terms that are added, and whether depth is time."""

    terms: tuple[str, ...] = ()
    continuous: bool = False


class Setup(NamedTuple):
    """How models are trained, all alike.

    - `seeds`, `tuning_seeds`: how many models of each variant are compared, and how
      many more, of other seeds, strengths are chosen with.
    - `steps`, `batch`, `rate`: of AdamW; the rate falls to a tenth by a cosine.
    - `decays`: of weights, that are tried for models without terms.
    - `strengths`: of each term, that are tried.
    - `windows`: sequences that bits are of.
    """

    config: TransformerConfig
    seeds: int
    tuning_seeds: int
    steps: int
    batch: int
    rate: float
    decays: tuple[float, ...]
    strengths: dict[str, tuple[float, ...]]
    windows: int


class Parts(NamedTuple):
    """Tokens to train on; sequences to choose by, and others to test with."""

    train: Integer[np.ndarray, " n"]
    validation: Integer[np.ndarray, "windows length"]
    test: Integer[np.ndarray, "windows length"]


def parts(corpus: Corpus, setup: Setup, size: int | None) -> Parts:
    """A text to train on, and held-out sequences that are validation and test in turn.

    Of the text to train on, `size` tokens from the middle of it; None takes all.
    """
    length = setup.config.context + 1
    many = len(corpus.validation) // length
    sequences = corpus.validation[: many * length].reshape(many, length)
    spread = lambda a: a[np.linspace(0, len(a) - 1, setup.windows).astype(int)]
    begin = 0 if size is None else (len(corpus.train) - size) // 2
    train = corpus.train[begin : None if size is None else begin + size]
    held_out = sequences.astype(np.int32)
    return Parts(train.astype(np.int32), spread(held_out[0::2]), spread(held_out[1::2]))


def fresh(config: TransformerConfig, seed: int, *, continuous: bool = False) -> Any:
    """A model of this seed, in float32; discrete and continuous have equal weights."""
    model = Transformer(config, key=jax.random.key(seed), dtype=jnp.float32)
    return ContinuousTransformer.from_transformer(model) if continuous else model


def program(terms: tuple[str, ...]) -> Program:
    """The training of a model with these terms, whose strengths are data."""

    def loss(model, given, key):
        tokens, strengths = given
        wanted = {name: strengths[name] for name in terms}
        return geometric_loss(language_loss, **wanted)(model, tokens, key)

    return training(loss)


def member(
    variant: Variant,
    data: Parts,
    setup: Setup,
    seed: int,
    *,
    decay: float,
    strengths: dict[str, float],
) -> Member:
    """A model of a variant, before its training; batches are the seed's."""
    length = setup.config.context + 1
    rng = np.random.default_rng((seed, length))
    starts = rng.integers(0, data.train.size - length, (setup.steps, setup.batch))
    return Member(
        fresh(setup.config, seed, continuous=variant.continuous),
        data.train,
        (starts[..., None] + np.arange(length)).astype(np.int32),
        {name: strengths[name] for name in variant.terms},
        {"learning_rate": setup.rate, "weight_decay": decay},
        jax.random.key(seed),
    )
