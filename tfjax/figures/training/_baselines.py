"""Classifiers that few examples suffice for: neighbours, lines, kernels."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...nn._extra import extra
from ._shots import Problem
from ._warping import warped_matrix


_FOLDS = 3
# The first of equals is chosen by cross-validation: the defaults of scikit-learn.
_STRENGTHS = (1.0, 0.01, 0.1, 10.0)
_WIDTHS = (1.0, 0.1, 10.0)
BAND = 0.1


def euclidean(
    xs: Float[np.ndarray, "k t c"], ys: Float[np.ndarray, "m t c"]
) -> Float[np.ndarray, "k m"]:
    """Squared distances of every series of `xs` to every one of `ys`."""
    ys = ys.astype(float)
    return np.stack([((x.astype(float) - ys) ** 2).sum((1, 2)) for x in xs])


def band_of(share: float, times: int) -> int:
    """The band of a warping, as the archive counts it: a share of the length."""
    return math.ceil(share * times)


def nearest(
    squared: Float[np.ndarray, "k m"], labels: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " k"]:
    """The label of the nearest of m examples, the first of equally near ones."""
    return labels[np.argmin(squared, axis=1)]


Guesser = Callable[[Int[np.ndarray, " train"], int], Int[np.ndarray, " k"]]


def baselines(problem: Problem) -> dict[str, Guesser]:
    """Functions of places in the pool, and of K, that label the examples to test with.

    None of them chooses anything by the examples to test with. Logistic regression and
    the SVM choose their strength (and width) by cross-validation on the K examples a
    class, in K parts but at most three; for K = 1 they keep the defaults.
    """
    near = euclidean(problem.test_series, problem.series)
    band = band_of(BAND, problem.series.shape[1])
    warped = warped_matrix(problem.test_series, problem.series, band=band)
    linear = extra("sklearn.linear_model", "fewshot", "data")
    machines = extra("sklearn.svm", "fewshot", "data")
    logistic = linear.LogisticRegression(max_iter=500)
    machine = machines.SVC()
    flat = lambda a: a.reshape(len(a), -1).astype(float)
    pool, test = flat(problem.series), flat(problem.test_series)

    def by(distances: Float[np.ndarray, "k m"]) -> Guesser:
        return lambda places, K: nearest(distances[:, places], problem.labels[places])

    def by_lines(places, K):
        x, asked = _spanned(pool[places], test)
        grid = {"C": list(_STRENGTHS)}
        return _fitted(logistic, grid, x, problem.labels[places], K).predict(asked)

    def by_kernels(places, K):
        x = pool[places]
        scale = 1 / (x.shape[1] * max(float(x.var()), 1e-12))
        widths = [width * scale for width in _WIDTHS]
        grid = {"C": list(_STRENGTHS), "gamma": widths}
        return _fitted(machine, grid, x, problem.labels[places], K).predict(test)

    return {
        "1-NN": by(near),
        "DTW-1-NN": by(warped),
        "logistic": by_lines,
        "SVM": by_kernels,
    }


def _spanned(x: Float[np.ndarray, "m f"], others: Float[np.ndarray, "k f"]) -> Any:
    """Both in orthonormal axes of the space that `x` spans around its mean.

    Weights outside of it cost and do nothing, so that a linear model of penalised
    weights is the same; but m examples of 1460 values have no more coordinates than m.
    """
    middle = x.mean(axis=0)
    _, sizes, rows = np.linalg.svd(x - middle, full_matrices=False)
    axes = rows[sizes > 1e-9 * sizes.max()].T
    return (x - middle) @ axes, (others - middle) @ axes


def _fitted(model, grid, x, y, K):
    selection = extra("sklearn.model_selection", "fewshot", "data")
    clone = extra("sklearn.base", "fewshot", "data").clone(model)
    threads = extra("threadpoolctl", "fewshot", "data")
    # For matrices so small several threads wait for each other, twenty times longer.
    with threads.threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that have not quite converged
        if K == 1:
            return clone.fit(x, y)
        folds = selection.StratifiedKFold(min(K, _FOLDS))
        return selection.GridSearchCV(clone, grid, cv=folds).fit(x, y)
