"""Classifiers with common and with Bayesian attention: data, weights, training."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int

from ...nn import BayesianConfig, Prediction, Transformer, TransformerConfig, predict
from ...train import classification_loss, load_digits, load_ucr, variational_loss
from ._members import Member, batch_places, train_members, training
from ._shifts import IMAGES, SERIES, Shift, scrambled, shifted
from ._shots import draw_split


# What is trained; the rest of the contestants are these, read in other ways.
TRAINED: dict[str, BayesianConfig | None] = {
    "standard": None,
    "dropout": None,
    "unit keys": BayesianConfig(),
    "learned prior": BayesianConfig(prior="learned", precision="learned"),
    "gated heads": BayesianConfig(combine="gated"),
    "Gaussian keys": BayesianConfig(keys="free"),
    "spread": BayesianConfig(spread=True),
    "stochastic": BayesianConfig(scores="stochastic"),
}
BAYESIAN = tuple(name for name, choices in TRAINED.items() if choices is not None)
# Those whose predictions are means over draws of their random parts.
DRAWN = ("dropout", "stochastic")
# Seeds that hyper-parameters are chosen with begin here; none of them is compared.
TUNING = 1000


class Setup(NamedTuple):
    """How models are trained, all alike.

    - `contestants`: names in `TRAINED`.
    - `seeds`, `tuning_seeds`: how many models of each are compared, and how many more,
      of other seeds, hyper-parameters are chosen with.
    - `ensemble`: how many models there are in one.
    - `layers`: of a model.
    - `shots`: labelled examples of every class.
    - `steps`, `batch`, `rate`: of AdamW; the rate falls to a tenth by a cosine.
    - `decays`, `rates`, `weights`, `deviations`: what is tried: of weight decay, of
      dropout, of the divergence of stochastic scores, and of these at first.
    - `samples`: draws that a prediction is the mean of.
    """

    contestants: tuple[str, ...]
    seeds: int
    tuning_seeds: int
    ensemble: int
    layers: int
    shots: int
    steps: int
    batch: int
    rate: float
    decays: tuple[float, ...]
    rates: tuple[float, ...]
    weights: tuple[float, ...]
    deviations: tuple[float, ...]
    samples: int


class Choice(NamedTuple):
    """Hyper-parameters: of all, of dropout, of stochastic scores."""

    decay: float
    rate: float
    weight: float
    deviation: float


class Problem(NamedTuple):
    """Examples in three parts, with shifted forms of the last.

    - `inputs`, `labels`: that training examples are drawn from.
    - `validation`, `validation_labels`: to choose by.
    - `test`: the test inputs, then those of every shift and strength, then inputs of no
      class.
    - `test_labels`: of the test inputs.
    """

    inputs: Float32[np.ndarray, "m n f"]
    labels: Int[np.ndarray, " m"]
    validation: Float32[np.ndarray, "k n f"]
    validation_labels: Int[np.ndarray, " k"]
    test: Float32[np.ndarray, "sets l n f"]
    test_labels: Int[np.ndarray, " l"]
    shifts: tuple[Shift, ...]

    @property
    def classes(self) -> int:
        """How many."""
        return int(self.labels.max()) + 1


def sizes(problem: Problem, layers: int) -> TransformerConfig:
    """The sizes of a model of so many layers."""
    _, n, f = problem.inputs.shape
    return TransformerConfig(
        vocabulary=None,
        features=f,
        classes=problem.classes,
        context=n,
        layers=layers,
        heads=4,
        head_dim=8,
        positions="learned",
    )


def problem(name: str, seed: int) -> Problem:
    """The digits, or a problem of the archive of time series.

    What is published for testing, of the digits the last fifth of every class, is for
    testing; of the rest the last third of every class is for validation.
    """
    digits = name == "digits"
    examples = load_digits() if digits else load_ucr(name)
    labels, kinds = examples.train_labels, IMAGES if digits else SERIES
    last = np.concatenate(
        [
            places[len(places) - round(len(places) / 3) :]
            for places in (np.flatnonzero(labels == k) for k in np.unique(labels))
        ]
    )
    held_out = np.isin(np.arange(len(labels)), last)
    test = examples.validation_inputs
    nothing = scrambled(test, np.random.default_rng((seed, len(kinds))))
    return Problem(
        examples.train_inputs[~held_out],
        labels[~held_out],
        examples.train_inputs[held_out],
        labels[held_out],
        np.concatenate([shifted(test, kinds, seed), nothing[None]]),
        examples.validation_labels,
        kinds,
    )


def fresh(
    name: str, config: TransformerConfig, choice: Choice, seed: int, other: int = 0
) -> Transformer:
    """A model of this seed, in float32; what all of them have starts alike.

    `other` are further ones that read the same examples, for an ensemble.
    """
    rate = choice.rate if name == "dropout" else 0.0
    values = config.to_dict() | {"dropout": rate, "bayesian": TRAINED[name]}
    key = jax.random.fold_in(jax.random.key(seed), other)
    config = TransformerConfig.from_dict(values)
    model = Transformer(config, key=key, dtype=jnp.float32)
    if name != "stochastic":
        return model
    # As data, where the config's deviation would be compiled in.
    start = jnp.full(config.heads, math.log(choice.deviation), jnp.float32)
    places = lambda model: [layer.attention.log_deviation for layer in model.layers]
    return eqx.tree_at(places, model, [start] * config.layers)


def _loss(model, given, key):
    examples, strengths = given
    loss = variational_loss(classification_loss, strengths["divergence"])
    return loss(model, examples, key)


_PROGRAM = training(_loss)


def drawn(problem: Problem, shots: int, seed: int) -> Int[np.ndarray, " train"]:
    """The training examples of a seed."""
    rng = np.random.default_rng((seed, 0))
    return draw_split(problem.labels, shots, rng).train


def models(
    name: str,
    problem: Problem,
    setup: Setup,
    choice: Choice,
    which: Iterable[tuple[int, int]],
) -> Iterator[Transformer]:
    """Trained models of seeds, and of others with the same examples, in order.

    All contestants have the examples, the batches and the weights of the seed.
    """
    config = sizes(problem, setup.layers)

    def member(seed, other):
        train = drawn(problem, setup.shots, seed)
        rng = np.random.default_rng((seed, 1 + other))
        places = batch_places(len(train), setup.steps, setup.batch, rng)
        weight = choice.weight if name == "stochastic" else 0.0
        return Member(
            fresh(name, config, choice, seed, other),
            (problem.inputs, problem.labels.astype(np.int32)),
            train[places].astype(np.int32),
            {"divergence": weight},
            {"learning_rate": setup.rate, "weight_decay": choice.decay},
            jax.random.fold_in(jax.random.key(seed + 1), other),
        )

    for trained in train_members(_PROGRAM, (member(*each) for each in which)):
        yield trained.model


def read(
    name: str,
    model: Transformer,
    inputs: Float32[np.ndarray, "..."],
    setup: Setup,
    seed: int,
) -> Prediction:
    """What a trained model predicts, in the mean over draws where it has any."""
    if name not in DRAWN:
        return predict(model, jnp.asarray(inputs))
    key = jax.random.key(seed + 2)
    return predict(model, jnp.asarray(inputs), key=key, samples=setup.samples)
