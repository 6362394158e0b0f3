"""K examples a class: do geometric terms help Transformers that learn from so few?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._report import (
    Progress,
    Report,
    Row,
    Table,
    above,
    below,
    near,
    quiet,
    reported,
)
from ._baselines import BAND, band_of, baselines, euclidean, nearest
from ._fewshot_panels import draw
from ._fewshot_training import (
    CONTESTANTS,
    TERMS,
    Found,
    Setup,
    programs,
    study,
    tuning_jobs,
)
from ._shots import SERIES, Problem, Split, accuracy_of, problem, splits
from ._statistics import Comparison, interval, paired, verdicts
from ._warping import warped_matrix


_DIGITS = "digits"
_WITH_TERMS = tuple(name for name, terms in CONTESTANTS.items() if terms)
_SETUP = Setup(
    layers=3,
    heads=4,
    head_dim=8,
    steps=120,
    batch=16,
    tuning=3,
    tuning_shots=(2, 5),
    rates=(1e-3, 3e-3, 1e-2),
    decays=(0.01, 0.1, 1.0, 10.0),
    strengths={
        "isometry": (3e-3, 0.03, 0.3, 3.0),
        "curvature": (3e-3, 0.03, 0.3, 3.0),
        "kinetic": (3e-4, 3e-3, 3e-2, 0.3),
    },
    shares=(0.25, 0.5, 1.0, 2.0),
)
_QUICK = _SETUP._replace(
    layers=2,
    heads=2,
    steps=20,
    tuning=1,
    tuning_shots=(2,),
    rates=(1e-2,),
    decays=(0.1, 1.0),
    strengths={"isometry": (0.3,), "curvature": (0.3,), "kinetic": (3e-3,)},
    shares=(1.0,),
    form="pairs",
    fast=True,
)
# Errors of nearest neighbours on the archive's own parts, as the archive publishes
# them: Euclidean, and warped in a band of so many hundredths of the length.
_PUBLISHED = {"OSULeaf": (0.4793, 7, 0.3884), "ACSF1": (0.4600, 4, 0.3800)}


class Outcome(NamedTuple):
    """Of one problem: accuracies (splits, shots) of everyone, and what else was found.

    `apart` is how many examples 1-NN labels otherwise than scikit-learn does.
    """

    problem: Problem
    drawn: list[Split]
    found: Found
    accuracy: dict[str, Float[np.ndarray, "splits shots"]]
    apart: int


def fewshot(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Transformers with geometric terms and without, on K examples a class.

    With a term a model has the weights, batches, steps and options that it has without.
    All of them stand beside classifiers that few examples suffice for.

    **Arguments:**

    - `seed`: of splits, weights and batches.
    - `quick`: digits alone, K of 1 and 2, few splits, and steps that are too few.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: accuracies by problem and K, with intervals of confidence,
    and for each term whether a difference is shown.

    **Raises:** FileNotFoundError where the series were not fetched and `quick` is
    false; ImportError without scikit-learn.

    Source: H. A. Dau et al., arXiv 1810.07758, for the series and the published errors
    of nearest neighbours; K. Kan et al., arXiv 2501.18793, for the kinetic term.
    """
    setup = _QUICK if quick else _SETUP
    names = (_DIGITS,) if quick else (_DIGITS, *SERIES)
    problems = [problem(name, (1, 2)) if quick else problem(name) for name in names]
    counts = [3 if quick else 20 if each.name == _DIGITS else 10 for each in problems]
    jobs = [
        tuning_jobs(each, setup) + len(CONTESTANTS) * count * len(each.shots)
        for each, count in zip(problems, counts, strict=True)
    ]
    done, outcomes = [0], []

    def tick() -> None:
        done[0] += 1
        progress(done[0] / sum(jobs))

    for each, count in zip(problems, counts, strict=True):
        outcomes.append(_outcome(each, setup, count, seed, tick))
    rows = [*_sound(outcomes), *_published(outcomes)]
    tables = [_accuracies(outcome) for outcome in outcomes]
    if len(outcomes) > 1:
        rows += _overall(outcomes)
    rows += _by_problem(outcomes)
    tables += [_by_cell(outcomes), _against_baselines(outcomes)]
    tables += [_choices(outcomes), _effects(outcomes)]
    figure = draw(
        {each.problem.name: (each.problem, each.accuracy) for each in outcomes}
    )
    progress(1.0)
    return Report(rows, figure, _arrays(outcomes), _NOTE, tuple(tables))


def _outcome(
    each: Problem, setup: Setup, count: int, seed: int, tick: Callable[[], None]
) -> Outcome:
    drawn = splits(each, count, seed)
    found = study(each, setup, programs(setup), drawn, seed, tick)
    guessers, accuracy = baselines(each), dict(found.accuracy)
    for name, guess in guessers.items():
        right = [
            accuracy_of(guess(split.train[: K * each.classes], K), each.test_labels)
            for split in drawn
            for K in each.shots
        ]
        accuracy[name] = np.reshape(right, (count, -1))
    return Outcome(each, drawn, found, accuracy, _otherwise(each, drawn[0]))


def _otherwise(each: Problem, split: Split) -> int:
    """How many examples our nearest neighbours label otherwise than scikit-learn's."""
    from ...nn._extra import extra

    theirs = extra("sklearn.neighbors", "fewshot", "data").KNeighborsClassifier(1)
    x, y = each.series[split.train], each.labels[split.train]
    flat = lambda a: a.reshape(len(a), -1).astype(float)
    theirs.fit(flat(x), y)
    ours = nearest(euclidean(each.test_series, x), y)
    return int((theirs.predict(flat(each.test_series)) != ours).sum())


def _sound(outcomes: list[Outcome]) -> list[Row]:
    """What must hold for the comparison to be one."""
    shared, gap = 0, 0
    for one in outcomes:
        for split in one.drawn:
            shared += len(np.intersect1d(split.train, split.validation))
            counts = np.bincount(one.problem.labels[split.train])
            gap = max(gap, int(np.ptp(counts)))
        shared += _alike(one.problem)
    parameters = [p for one in outcomes for p in one.found.parameters.values()]
    uneven = [len(set(one.found.parameters.values())) - 1 for one in outcomes]
    plain = [
        (one.accuracy["plain"].mean(axis=0) * one.problem.classes).min()
        for one in outcomes
    ]
    return [
        near("examples that two of train, validation and test share", shared, 0, 0),
        near("largest difference of examples a class in a training part", gap, 0, 0),
        near(
            "different numbers of parameters of one problem's models", sum(uneven), 0, 0
        ),
        below("most parameters of a model", max(parameters), 3e5),
        below(
            "terms of strength 0: largest difference of losses in the first 10 steps",
            max(one.found.apart for one in outcomes),
            1e-3,
        ),
        near(
            "steps whose gradient was not finite",
            sum(one.found.skipped for one in outcomes),
            0,
            0,
        ),
        above("plain: least mean accuracy, over that of chance", min(plain), 1.0),
        near(
            "examples that 1-NN labels otherwise than scikit-learn does",
            sum(one.apart for one in outcomes),
            0,
            0,
        ),
    ]


def _alike(each: Problem) -> int:
    """Examples to test with that are in the pool as well, value for value."""
    pool = {series.tobytes() for series in each.series}
    return sum(series.tobytes() in pool for series in each.test_series)


def _published(outcomes: list[Outcome]) -> list[Row]:
    """Nearest neighbours on the archive's parts, against the archive's figures."""
    rows = []
    for one in outcomes:
        name, each = one.problem.name, one.problem
        if name not in _PUBLISHED:
            continue
        error, hundredths, warped_error = _PUBLISHED[name]
        band = band_of(hundredths / 100, each.series.shape[1])
        distances = {
            "1-NN": (euclidean(each.test_series, each.series), error),
            f"DTW-1-NN, band {hundredths} %": (
                warped_matrix(each.test_series, each.series, band=band),
                warped_error,
            ),
        }
        for what, (squared, published) in distances.items():
            found = 1 - accuracy_of(nearest(squared, each.labels), each.test_labels)
            claim = f"{name}: error of {what} on the whole pool, as published"
            rows.append(near(claim, found, published, 6e-5))
    return rows


def _differences(outcomes: list[Outcome], term: str) -> list[Comparison]:
    """With a term less without, of means over K, problem by problem."""
    return [
        paired(one.accuracy[term].mean(axis=1), one.accuracy["plain"].mean(axis=1))
        for one in outcomes
    ]


def _overall(outcomes: list[Outcome]) -> list[Row]:
    """Every term over all problems: the comparison that was planned first."""
    count = min(len(one.drawn) for one in outcomes)
    mean = lambda term: np.mean(
        [one.accuracy[term][:count].mean(axis=1) for one in outcomes], axis=0
    )
    found = [paired(mean(term), mean("plain")) for term in _WITH_TERMS]
    return _judged(
        found, [f"all problems: {term} less plain, accuracy" for term in _WITH_TERMS]
    )


def _by_problem(outcomes: list[Outcome]) -> list[Row]:
    by = {term: _differences(outcomes, term) for term in _WITH_TERMS}
    found = [by[term][k] for k in range(len(outcomes)) for term in _WITH_TERMS]
    claims = [
        f"{one.problem.name}: {term} less plain, accuracy, mean over K"
        for one in outcomes
        for term in _WITH_TERMS
    ]
    return _judged(found, claims)


def _judged(found: list[Comparison], claims: list[str]) -> list[Row]:
    words = verdicts(found, better="higher")
    return [
        reported(claim, one.mean, f"{one.low:+.3f} to {one.high:+.3f}: {word}")
        for claim, one, word in zip(claims, found, words, strict=True)
    ]


def _accuracies(one: Outcome) -> Table:
    shots = one.problem.shots
    rows = [
        (name, *(interval(values[:, k]) for k in range(len(shots))))
        for name, values in one.accuracy.items()
    ]
    title = (
        f"{one.problem.name}: accuracy on {len(one.problem.test_labels)} examples of "
        f"{one.problem.classes} classes, over {len(one.drawn)} splits"
    )
    return Table(title, ("", *(f"K = {K}" for K in shots)), tuple(rows))


def _by_cell(outcomes: list[Outcome]) -> Table:
    """Every K of every problem."""
    cells = [(one, k) for one in outcomes for k in range(len(one.problem.shots))]
    found = [
        paired(one.accuracy[term][:, k], one.accuracy["plain"][:, k])
        for one, k in cells
        for term in _WITH_TERMS
    ]
    texts = _texts(found)
    width = len(_WITH_TERMS)
    rows = [
        (
            f"{one.problem.name}, K = {one.problem.shots[k]}",
            *texts[width * i : width * (i + 1)],
        )
        for i, (one, k) in enumerate(cells)
    ]
    title = f"With a term less without: accuracy; {len(found)} comparisons together"
    return Table(title, ("", *_WITH_TERMS), tuple(rows))


def _against_baselines(outcomes: list[Outcome]) -> Table:
    """The plain model beside those that are no Transformers."""
    others = [name for name in outcomes[0].accuracy if name not in CONTESTANTS]
    mean = lambda one, name: one.accuracy[name].mean(axis=1)
    found = [
        paired(mean(one, "plain"), mean(one, name))
        for one in outcomes
        for name in others
    ]
    texts, width = _texts(found), len(others)
    rows = [
        (one.problem.name, *texts[width * i : width * (i + 1)])
        for i, one in enumerate(outcomes)
    ]
    title = f"Plain Transformer less another, mean over K; {len(found)} comparisons"
    return Table(title, ("", *others), tuple(rows))


def _texts(found: list[Comparison]) -> list[str]:
    words = verdicts(found, better="higher")
    return [f"{one.words(3)}: {word}" for one, word in zip(found, words, strict=True)]


def _choices(outcomes: list[Outcome]) -> Table:
    """Hyper-parameters, chosen on validation data of splits that are not reported."""
    rows = []
    for one in outcomes:
        chosen = one.found.chosen
        options = chosen["plain"].options
        cells = [f"{options['learning_rate']:g}", f"{options['weight_decay']:g}"]
        for term in _WITH_TERMS:
            values = [f"{value:.3g}" for value in chosen[term].strengths.values()]
            cells.append(" and ".join(values))
        rows.append((one.problem.name, *cells))
    columns = ("", "rate", "weight decay", *_WITH_TERMS)
    return Table("Chosen in validation", columns, tuple(rows))


def _effects(outcomes: list[Outcome]) -> Table:
    """What terms do to what they penalise: with it over without, at the largest K."""
    rows = []
    for one in outcomes:
        geometry = {name: g.mean(axis=0) for name, g in one.found.geometry.items()}
        cells = []
        for name in _WITH_TERMS:
            places = [TERMS.index(term) for term in CONTESTANTS[name]]
            ratios = geometry[name][places] / geometry["plain"][places]
            cells.append(" and ".join(f"{ratio:.2f}" for ratio in ratios))
        rows.append((one.problem.name, *cells))
    title = "What is penalised, with a term over without, on examples to test with"
    return Table(title, ("", *_WITH_TERMS), tuple(rows))


def _arrays(outcomes: list[Outcome]) -> dict[str, Any]:
    arrays = {}
    for one in outcomes:
        name = one.problem.name
        arrays[f"{name}: shots"] = np.asarray(one.problem.shots)
        for who, values in one.accuracy.items():
            arrays[f"{name}, {who}: accuracy"] = values
        for who, values in one.found.geometry.items():
            arrays[f"{name}, {who}: {', '.join(TERMS)}"] = values
    return arrays


_NOTE = (
    "Splits draw K examples of every class from what is published as the training "
    "part (of the digits the first four fifths, mostly, it seems, by other writers "
    "than the rest); the rest is the same test for all splits, which nothing was "
    "chosen by. Intervals are of 95 %, by Student's t over splits, which overlap "
    "and share the test: for other examples of the kind they are too narrow. ACSF1 "
    "has 10 examples a class to draw from and PickupGesture 5: K = 10, and K = 5 "
    "and 10, are left out there, where all splits would be one. Series that differ "
    "in length are in the form of equal length of those who packed them; long ones "
    "are cut into at most 32 consecutive pieces, the tokens. Models have 3 layers "
    "of width 32 and learned positions; 120 steps of AdamW with batches of 16, in "
    "float32. On 3 other splits, with K of 2 and 5, validated on the rest of the "
    "pool, 12 pairs of rate and weight decay were tried for the plain model. All "
    "keep the best pair, so that a model differs from the plain one by its term "
    "alone; 4 strengths were tried for each term, and for both together 4 multiples "
    "of the two that were chosen. In training, isometry is that of the pullback "
    "metric of one layer at one sequence a step, drawn at random; curvature is the "
    "turning of tokens from layer to layer, and kinetic their squared steps, of one "
    "sequence. A verdict is by Holm's rule at 5 %, over all comparisons of one "
    "table, or of all rows that begin alike (all problems; single ones), together. "
    f"DTW has a band of {100 * BAND:.0f} % of the length; of the digits it warps the "
    "order of rows. Logistic regression and the SVM choose strength and width by "
    "cross-validation on their K examples; for K = 1 they keep the defaults of "
    "scikit-learn. A test of meta-learning, with classes that training never saw, "
    "would need more classes than 6 to 10. "
    "A value at the end of its grid, as the table of choices has several, may not be "
    "the best one; the weakest strength, which curvature has mostly, changes next to "
    "nothing, so that no difference says little of stronger ones. The Transformers' "
    "rate and weight decay were chosen with labels that the other methods did not see."
)
