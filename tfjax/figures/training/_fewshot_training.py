"""Transformers that learn from K examples a class, with geometric terms and without."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ...nn import Transformer, TransformerConfig
from ...train import classification_loss, geometric_loss, parameter_count
from ._members import Member, Program, batch_places, train_members, training
from ._shots import Problem, Split, accuracy_of, splits


# Which terms a contestant has beside the task's loss.
CONTESTANTS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "isometry": ("isometry",),
    "curvature": ("curvature",),
    "both": ("isometry", "curvature"),
    "kinetic": ("kinetic",),
}
TERMS = ("isometry", "curvature", "kinetic")


class Setup(NamedTuple):
    """How models are trained and chosen: the same for all contestants.

    - `layers`, `heads`, `head_dim`: of the Transformer.
    - `steps`, `batch`: of AdamW, whose rate falls by a cosine.
    - `tuning`, `tuning_shots`: splits, and K, that hyper-parameters are chosen on.
    - `rates`, `decays`: tried for the plain model, all pairs; all keep the chosen one.
    - `strengths`: tried for each term.
    - `shares`: of both chosen strengths, tried for them together.
    - `form`: of isometry, as in `train.geometric_loss`.
    - `fast`: compiles less, and runs slower.
    """

    layers: int
    heads: int
    head_dim: int
    steps: int
    batch: int
    tuning: int
    tuning_shots: tuple[int, ...]
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    strengths: dict[str, tuple[float, ...]]
    shares: tuple[float, ...]
    form: str = "pullback"
    fast: bool = False


class Choice(NamedTuple):
    """Hyper-parameters, and the accuracy in validation that they were chosen for."""

    options: dict[str, float]
    strengths: dict[str, float]
    accuracy: float


class Found(NamedTuple):
    """Of one problem.

    - `chosen`: hyper-parameters, by contestant.
    - `accuracy`: on the examples to test with, (splits, shots), by contestant.
    - `geometry`: each of `TERMS` of models of the most shots, (splits, terms).
    - `apart`: how far losses of contestants whose strengths are 0 are from the plain
      model's, at most, in the first steps.
    - `skipped`: steps whose gradient was not finite.
    - `parameters`: how many every model has.
    """

    chosen: dict[str, Choice]
    accuracy: dict[str, Float[np.ndarray, "splits shots"]]
    geometry: dict[str, Float[np.ndarray, "splits terms"]]
    apart: float
    skipped: int
    parameters: dict[str, int]


_task = lambda model, batch, key: classification_loss(model, batch, None)
_nothing = lambda model, batch, key: jnp.zeros((), batch[0].dtype)


def loss_with(terms: tuple[str, ...], form: str) -> Callable[..., Any]:
    """The task's loss and some terms times their strengths, which may be traced.

    Subsampled as by default: terms are of one sequence of a batch, isometry of one
    layer.
    """

    def loss(model, given, key):
        batch, strengths = given
        used: dict[str, Any] = {term: strengths[term] for term in terms}
        whole = geometric_loss(_task, form=form, **used)
        return whole(model, batch, key)

    return loss


def programs(setup: Setup) -> dict[str, Program]:
    """One for each contestant; where it is to be fast, one for all with a term."""
    make = lambda terms: training(loss_with(terms, setup.form))
    if setup.fast:
        plain, whole = make(()), make(TERMS)
        return {name: whole if terms else plain for name, terms in CONTESTANTS.items()}
    return {name: make(terms) for name, terms in CONTESTANTS.items()}


class Job(NamedTuple):
    """One model: which split and K, with which hyper-parameters."""

    place: int
    split: Split
    shots: int
    options: dict[str, float]
    strengths: dict[str, float]


class Trainer:
    """Trains models of one problem.

    The weights at the start are those of the split; batches are of split and K. Nothing
    else is drawn, so that contestants differ in their terms alone.
    """

    def __init__(self, problem: Problem, setup: Setup, seed: int, *, tuning: bool):
        self.problem, self.setup, self.seed = problem, setup, (seed, int(tuning))
        self.config = TransformerConfig(
            vocabulary=None,
            features=problem.tokens.shape[2],
            classes=problem.classes,
            context=problem.tokens.shape[1],
            layers=setup.layers,
            heads=setup.heads,
            head_dim=setup.head_dim,
            mlp_ratio=2,
            positions="learned",
            scan=setup.fast,
        )

    def member(self, job: Job) -> Member:
        """What a job starts from."""
        rng = np.random.default_rng((*self.seed, job.place, job.shots))
        key = jax.random.fold_in(jax.random.key(self.seed[0]), self.seed[1])
        mkey, tkey = jax.random.split(jax.random.fold_in(key, job.place))
        count = job.shots * self.problem.classes
        return Member(
            _model(self.config, key=mkey, dtype=jnp.float32),
            (
                self.problem.tokens[job.split.train],
                self.problem.labels[job.split.train],
            ),
            batch_places(count, self.setup.steps, self.setup.batch, rng),
            dict.fromkeys(TERMS, 0.0) | job.strengths,
            job.options,
            tkey,
        )

    def run(self, program: Program, jobs: Iterable[Job]) -> Iterator[Any]:
        """Models after training, in order."""
        return train_members(program, map(self.member, jobs))

    def geometry(self, model: Transformer) -> Float[np.ndarray, " terms"]:
        """Each of `TERMS`, of some examples to test with."""
        few = jnp.asarray(self.problem.test_tokens[:8])
        key = jax.random.key(self.seed[0])
        return np.asarray(_geometry(model, few, key, self.setup.form), float)


_model = eqx.filter_jit(Transformer)


def guesses(
    model: Transformer, tokens: Float[np.ndarray, "m n f"]
) -> Int[np.ndarray, " m"]:
    """The classes that a model thinks most likely."""
    return np.asarray(_logits(model, jnp.asarray(tokens))).argmax(axis=-1)


_logits = eqx.filter_jit(lambda model, tokens: model(tokens))


@eqx.filter_jit
def _geometry(model, tokens, key, form):
    """The terms of some sequences and all layers, without their strengths."""
    batch = tokens, jnp.zeros(len(tokens), jnp.int32)
    ones: list[dict[str, Any]] = [{term: 1.0} for term in TERMS]
    terms = [
        geometric_loss(_nothing, sequences=None, layers=None, form=form, **one)
        for one in ones
    ]
    return jnp.stack([term(model, batch, key) for term in terms])


def tune(
    problem: Problem,
    setup: Setup,
    by: dict[str, Program],
    seed: int,
    tick: Callable[[], None],
) -> dict[str, Choice]:
    """Hyper-parameters of the best mean accuracy on the rest of the pool.

    Of splits that are not reported. The plain model comes first, with every pair of
    rate and decay; the others keep what is chosen for it and choose their strengths.
    """
    trainer = Trainer(problem, setup, seed, tuning=True)
    drawn = list(enumerate(splits(problem, setup.tuning, seed, tuning=True)))
    shots = [K for K in setup.tuning_shots if K in problem.shots]

    def best(program, settings):
        jobs = [
            Job(place, split, K, *setting)
            for setting in settings
            for place, split in drawn
            for K in shots
        ]
        right = []
        for job, trained in zip(jobs, trainer.run(program, jobs), strict=True):
            found = guesses(trained.model, problem.tokens)
            rest = job.split.validation
            right.append(accuracy_of(found[rest], problem.labels[rest]))
            tick()
        means = np.reshape(right, (len(settings), -1)).mean(axis=1)
        options, strengths = settings[int(means.argmax())]
        return Choice(options, strengths, float(means.max()))

    options = [
        {"learning_rate": rate, "weight_decay": decay}
        for rate, decay in itertools.product(setup.rates, setup.decays)
    ]
    chosen = {"plain": best(by["plain"], [(each, {}) for each in options])}
    common = chosen["plain"].options
    for term in TERMS:
        tried = [(common, {term: value}) for value in setup.strengths[term]]
        chosen[term] = best(by[term], tried)
    together = chosen["isometry"].strengths | chosen["curvature"].strengths
    tried = [
        (common, {term: share * value for term, value in together.items()})
        for share in setup.shares
    ]
    chosen["both"] = best(by["both"], tried)
    return {name: chosen[name] for name in CONTESTANTS}


def tuning_jobs(problem: Problem, setup: Setup) -> int:
    """How many models `tune` trains."""
    settings = len(setup.rates) * len(setup.decays) + len(setup.shares)
    settings += sum(map(len, setup.strengths.values()))
    shots = [K for K in setup.tuning_shots if K in problem.shots]
    return settings * setup.tuning * len(shots)


def study(
    problem: Problem,
    setup: Setup,
    by: dict[str, Program],
    drawn: list[Split],
    seed: int,
    tick: Callable[[], None],
) -> Found:
    """Chooses, trains on the splits that are reported, and tests."""
    chosen = tune(problem, setup, by, seed, tick)
    trainer = Trainer(problem, setup, seed, tuning=False)
    accuracy, geometry, skipped, parameters = {}, {}, 0, {}
    for name, choice in chosen.items():
        jobs = [
            Job(place, split, K, choice.options, choice.strengths)
            for place, split in enumerate(drawn)
            for K in problem.shots
        ]
        right, shapes = [], []
        for job, trained in zip(jobs, trainer.run(by[name], jobs), strict=True):
            found = guesses(trained.model, problem.test_tokens)
            right.append(accuracy_of(found, problem.test_labels))
            skipped += int(trained.skipped)
            if job.shots == max(problem.shots):
                shapes.append(trainer.geometry(trained.model))
                parameters[name] = parameter_count(trained.model)
            tick()
        accuracy[name] = np.reshape(right, (len(drawn), -1))
        geometry[name] = np.stack(shapes)
    apart = _apart(trainer, by, drawn[0], chosen["plain"].options)
    return Found(chosen, accuracy, geometry, apart, skipped, parameters)


def _apart(trainer, by, split, options):
    """The distance of losses without strengths from the plain model's."""
    job = Job(0, split, max(trainer.problem.shots), options, {})
    losses = {
        name: np.asarray(next(trainer.run(program, [job])).losses[:10], float)
        for name, program in by.items()
    }
    return max(float(np.abs(each - losses["plain"]).max()) for each in losses.values())
