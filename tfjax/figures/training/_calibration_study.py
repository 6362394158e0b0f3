"""Choosing on validation data, then training, and looking at the test data once."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ...nn import Prediction
from ...train import parameter_count
from .._report import Progress
from ._baselines import euclidean, nearest
from ._calibrated import (
    TUNING,
    Choice,
    Problem,
    Setup,
    drawn,
    fresh,
    models,
    read,
)
from ._scores import (
    Scores,
    best_temperature,
    reliability,
    scores,
    tells_apart,
    tempered,
    together,
)


class Judged(NamedTuple):
    """One model on the test inputs and on all shifted ones; or a stack of models.

    - `scores`: of each set.
    - `errors`, `shifted_errors`: how well entropy tells wrong answers from right ones,
      as an area under the ROC curve, for the test inputs, and for all shifted ones.
    - `shift`, `unknown`: how well it tells shifted inputs, and inputs of no class, from
      the test inputs.
    - `unknown_information`: the latter by the mutual information; NaN where it is 0.
    - `reliability`: of the test inputs, and of all shifted ones.
    """

    scores: Scores
    errors: Any
    shifted_errors: Any
    shift: Any
    unknown: Any
    unknown_information: Any
    reliability: Float[np.ndarray, "*seeds two three bins"]


class Found(NamedTuple):
    """Of one problem.

    - `choices`, `tried`: what was chosen for each contestant; the mean surprise on the
      validation part of what was tried, by contestant, name and value.
    - `judged`, `scaled`: by contestant, with a leading axis of seeds: as it is, and
      with a temperature of its own, chosen on the validation part.
    - `temperatures`: these, by contestant and seed.
    - `gain`: of a temperature for the standard models on the validation part, in nats.
    - `jensen`: the largest surprise of an ensemble less the mean of its members.
    - `parameters`: how many a model has.
    - `neighbour`: accuracy of the nearest training example, by seed.
    - `standard`: a trained model.
    """

    choices: dict[str, Choice]
    tried: dict[tuple[str, str], dict[float, float]]
    judged: dict[str, Judged]
    scaled: dict[str, Judged]
    temperatures: dict[str, np.ndarray]
    gain: np.ndarray
    jensen: float | None
    parameters: dict[str, int]
    neighbour: np.ndarray
    standard: Any


def study(problem: Problem, setup: Setup, seed: int, progress: Progress) -> Found:
    """Everything about one problem."""
    tuned = setup.tuning_seeds * sum(
        len(values) for name in setup.contestants for _, values in _grids(name, setup)
    )
    total = tuned + setup.seeds * (len(setup.contestants) - 1 + setup.ensemble)
    done = 0

    def each(name, choice, which):
        nonlocal done
        for one in models(name, problem, setup, choice, which):
            done += 1
            progress(min(done / total, 1.0))
            yield one

    choices, tried = {}, {}
    for name in setup.contestants:
        choices[name] = _chosen(name, problem, setup, seed, each, tried)
    seeds = range(seed, seed + setup.seeds)
    validation: dict[str, list[Prediction]] = {}
    test: dict[str, list[Prediction]] = {}
    jensen: float | None = None
    standard: Any = None
    for name in setup.contestants:
        others = range(setup.ensemble if name == "standard" else 1)
        which = [(s, other) for s in seeds for other in others]
        held, shown = [], []
        for (s, _), model in zip(which, each(name, choices[name], which), strict=True):
            one, two = _read_all(name, model, problem, setup, s)
            held.append(one)
            shown.append(two)
            standard = model if standard is None else standard
        validation[name], test[name] = held[:: len(others)], shown[:: len(others)]
        if len(others) > 1:
            cut = range(0, len(which), len(others))
            validation["ensemble"] = [together(held[k : k + len(others)]) for k in cut]
            test["ensemble"] = [together(shown[k : k + len(others)]) for k in cut]
            jensen = max(
                _excess(test["ensemble"][i], shown[k : k + len(others)], problem)
                for i, k in enumerate(cut)
            )
    labels = problem.validation_labels
    log_p = lambda one: np.asarray(one.log_probabilities)
    temperatures = {
        name: np.array([best_temperature(log_p(one), labels) for one in found])
        for name, found in validation.items()
    }
    judged = {name: _stack(found, problem) for name, found in test.items()}
    scaled = {
        name: _stack(list(map(tempered, found, temperatures[name])), problem)
        for name, found in test.items()
    }
    # The standard one and what is made of it come first.
    first = {"standard": judged["standard"], "temperature": scaled.pop("standard")}
    judged = first | judged
    nats = lambda one: -log_p(one)[np.arange(len(labels)), labels].mean()
    warm = map(tempered, validation["standard"], temperatures["standard"])
    gain = [
        nats(one) - nats(two)
        for one, two in zip(validation["standard"], warm, strict=True)
    ]
    return Found(
        choices,
        tried,
        judged,
        scaled,
        temperatures,
        np.array(gain),
        jensen,
        {
            name: parameter_count(fresh(name, standard.config, choices[name], seed))
            for name in setup.contestants
        },
        np.array([_neighbour(problem, setup, s) for s in seeds]),
        standard,
    )


def _read_all(
    name: str, model: Any, problem: Problem, setup: Setup, seed: int
) -> tuple[Prediction, Prediction]:
    """For the validation part and for all sets of test inputs, in one program."""
    many, sets = len(problem.validation), problem.test.shape[:2]
    flat = problem.test.reshape(-1, *problem.test.shape[2:])
    found = read(name, model, np.concatenate([problem.validation, flat]), setup, seed)
    return (
        jax.tree.map(lambda a: a[:many], found),
        jax.tree.map(lambda a: a[many:].reshape(*sets, *a.shape[1:]), found),
    )


def _grids(name: str, setup: Setup) -> list[tuple[str, tuple[Any, ...]]]:
    """What is tried, one after the other, each for what was chosen before it."""
    grids: list[tuple[str, tuple[Any, ...]]] = [("decay", setup.decays)]
    if name == "dropout":
        grids.append(("rate", setup.rates))
    if name == "stochastic":
        grids += [("weight", setup.weights), ("deviation", setup.deviations)]
    return [(what, values) for what, values in grids if len(values) > 1]


def _chosen(name, problem, setup, seed, each, tried) -> Choice:
    """By the least mean surprise on the validation part."""
    middle = lambda values: values[len(values) // 2]
    grids = setup.decays, setup.rates, setup.weights, setup.deviations
    choice = Choice(*map(middle, grids))
    begin = seed + TUNING
    which = [(s, 0) for s in range(begin, begin + setup.tuning_seeds)]
    for what, values in _grids(name, setup):
        nats = {}
        for value in values:
            new = choice._replace(**{what: value})
            found = [
                read(name, model, problem.validation[None], setup, s)
                for (s, _), model in zip(which, each(name, new, which), strict=True)
            ]
            all_scores = [scores(one, problem.validation_labels) for one in found]
            nats[value] = float(np.mean([one.nats for one in all_scores]))
        tried[name, what] = nats
        choice = choice._replace(**{what: min(nats, key=lambda value: nats[value])})
    return choice


def _judge(found: Prediction, problem: Problem) -> Judged:
    """Of predictions for the test inputs, the shifted ones, and those of no class."""
    known = jax.tree.map(lambda a: a[:-1], found)
    log_p, doubt = np.asarray(known.log_probabilities), np.asarray(found.entropy)
    wrong = log_p.argmax(-1) != problem.test_labels
    flat = log_p[1:].reshape(-1, log_p.shape[-1])
    labels = np.tile(problem.test_labels, len(log_p) - 1)
    information = np.asarray(found.mutual_information)
    some = bool(information.any())
    return Judged(
        scores(known, problem.test_labels),
        tells_apart(doubt[0], wrong[0]),
        tells_apart(doubt[1:-1].ravel(), wrong[1:].ravel()),
        _apart(doubt[1:-1], doubt[0]),
        _apart(doubt[-1], doubt[0]),
        _apart(information[-1], information[0]) if some else float("nan"),
        np.stack(
            [reliability(log_p[0], problem.test_labels), reliability(flat, labels)]
        ),
    )


def _apart(some, others):
    doubt = np.concatenate([some.ravel(), others.ravel()])
    return tells_apart(doubt, np.arange(doubt.size) < some.size)


def _stack(found: list[Prediction], problem: Problem) -> Judged:
    return jax.tree.map(lambda *a: np.stack(a), *[_judge(o, problem) for o in found])


def _excess(ensemble: Prediction, members: list[Prediction], problem: Problem) -> float:
    """Of an ensemble's surprise over the mean of its members; never above 0."""

    def nats(one):
        log_p = np.asarray(one.log_probabilities)[:-1]
        places = np.broadcast_to(problem.test_labels[:, None], (*log_p.shape[:2], 1))
        return -np.take_along_axis(log_p, places, axis=-1).mean(axis=(1, 2))

    apart = nats(ensemble) - np.mean([nats(one) for one in members], axis=0)
    return float(apart.max())


def _neighbour(problem: Problem, setup: Setup, seed: int) -> float:
    train = drawn(problem, setup.shots, seed)
    squared = euclidean(problem.test[0], problem.inputs[train])
    guesses = nearest(squared, problem.labels[train])
    return float(np.mean(guesses == problem.test_labels))
