"""Problems with K labelled examples a class: what is drawn, tuned on, tested with."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from ...train import Examples, load_digits, load_ucr


SHOTS = (1, 2, 5, 10)
SERIES = ("ACSF1", "OSULeaf", "PickupGestureWiimoteZ_eq", "JapaneseVowels_eq")
_MOST_TOKENS = 32


class Problem(NamedTuple):
    """Examples in a pool, which splits are drawn from, and others to test with.

    - `series`, `test_series`: of shape (m, times, channels).
    - `tokens`, `test_tokens`: the same values as at most 32 vectors each.
    - `labels`, `test_labels`: places of classes.
    - `shots`: the K for which splits differ, and leave something to validate with.
    """

    name: str
    series: Float32[np.ndarray, "m t c"]
    tokens: Float32[np.ndarray, "m n f"]
    labels: Int[np.ndarray, " m"]
    test_series: Float32[np.ndarray, "k t c"]
    test_tokens: Float32[np.ndarray, "k n f"]
    test_labels: Int[np.ndarray, " k"]
    shots: tuple[int, ...]

    @property
    def classes(self) -> int:
        """How many."""
        return int(self.labels.max()) + 1


def problem(name: str, shots: tuple[int, ...] = SHOTS) -> Problem:
    """The digits, or a problem of the archive of time series.

    The pool is what is published as the training part, of the digits the first four
    fifths; the rest is for testing.
    """
    examples = load_digits() if name == "digits" else load_ucr(name)
    return problem_of(name, examples, shots)


def problem_of(name: str, examples: Examples, shots: tuple[int, ...]) -> Problem:
    """A problem of labelled sequences."""
    pool, test = examples.train_inputs, examples.validation_inputs
    least = int(np.bincount(examples.train_labels).min())
    return Problem(
        name,
        pool,
        patches(pool, _MOST_TOKENS),
        examples.train_labels,
        test,
        patches(test, _MOST_TOKENS),
        examples.validation_labels,
        tuple(K for K in shots if K < least),
    )


def patches(
    series: Float32[np.ndarray, "m t c"], most: int
) -> Float32[np.ndarray, "m n f"]:
    """At most so many consecutive pieces of each series, as vectors.

    Pieces are as short as possible; the last one is filled with the last value.
    """
    m, t, c = series.shape
    length = math.ceil(t / most)
    fill = -t % length
    whole = np.concatenate([series, np.repeat(series[:, -1:], fill, axis=1)], axis=1)
    return np.ascontiguousarray(whole.reshape(m, (t + fill) // length, length * c))


class Split(NamedTuple):
    """Places in the pool.

    - `train`: one of every class, then a second of every class, and so on, so that
      fewer shots are the first part of more.
    - `validation`: all others; only for choosing hyper-parameters.
    """

    train: Int[np.ndarray, " train"]
    validation: Int[np.ndarray, " rest"]


def draw_split(
    labels: Int[np.ndarray, " m"], most: int, rng: np.random.Generator
) -> Split:
    """So many examples of every class, drawn at random, and all the others."""
    classes = int(labels.max()) + 1
    drawn = [
        rng.choice(np.flatnonzero(labels == each), most, replace=False)
        for each in range(classes)
    ]
    train = np.stack(drawn, axis=1).ravel()
    return Split(train, np.setdiff1d(np.arange(len(labels)), train))


def splits(
    problem: Problem, count: int, seed: int, *, tuning: bool = False
) -> list[Split]:
    """The splits of a seed; those for tuning are others than those for the report."""
    most = max(problem.shots)
    return [
        draw_split(problem.labels, most, np.random.default_rng((seed, tuning, k)))
        for k in range(count)
    ]


def accuracy_of(guesses: Int[np.ndarray, " k"], labels: Int[np.ndarray, " k"]) -> float:
    """The share of right ones."""
    return float(np.mean(guesses == labels))
