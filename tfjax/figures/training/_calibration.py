"""Bayesian attention and common attention: whose probabilities can be believed?"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...nn import BayesianAttention, BayesianConfig
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
from ._calibrated import BAYESIAN, DRAWN, TRAINED, Problem, Setup, fresh, problem
from ._calibration_panels import draw
from ._calibration_study import Found, study
from ._statistics import Comparison, interval, paired, verdicts


_PROBLEMS = ("digits", "JapaneseVowels_eq")
_REFERENCES = ("dropout", "temperature", "ensemble")
SETTINGS = ("test", "shifted")
METRICS = {"nats": "surprise", "error": "calibration error"}
Pairs = dict[tuple[str, str, str, str], tuple[Comparison, str]]


def calibration(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Small classifiers with common and with Bayesian attention, in pairs.

    A pair has the same training examples, batches, rate and number of steps, and the
    same weights at the start in all that both have. Every contestant has a weight decay
    of its own, of the same few, and dropout and stochastic scores their own parameters
    after that; all chosen on validation data, with models of other seeds. What is
    reported is of test data, and of shifted forms of them.

    **Arguments:**

    - `seed`: of examples, weights and batches, and of the shifts.
    - `quick`: few models, of digits only, in few steps.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: surprise, calibration error and other scores, on test inputs
    and under shift; differences in pairs with intervals of confidence and verdicts.

    **Raises:** FileNotFoundError where the archive's series were not fetched and
    `quick` is false.

    Source: Y. Ovadia et al., arXiv 1906.02530, for calibration under shift; C. Guo et
    al., arXiv 1706.04599, for the temperature.
    """
    names = _PROBLEMS[:1] if quick else _PROBLEMS
    data, found = {name: problem(name, seed) for name in names}, {}
    for k, name in enumerate(names):
        part = lambda done, at=k: progress((at + done) / len(names))
        found[name] = study(data[name], _setup(name, quick), seed, part)
    compared = _compared(found)
    rows = [
        row
        for name, one in found.items()
        for row in [*_checks(name, one, data[name]), *_facts(name, one, compared)]
    ]
    tables = (
        *(_main_table(found, compared, setting) for setting in SETTINGS),
        _doubt_table(found),
        _scaled_table(found),
        _choice_table(found),
    )
    figure = draw(found, compared, {n: len(d.shifts) for n, d in data.items()})
    progress(1.0)
    return Report(rows, figure, _arrays(found, data), _NOTE, tables)


_NOTE = (
    "Two layers of width 32 with four heads, learned positions; 400 steps of AdamW in "
    "batches of 32, a rate of 3e-3 that falls to a tenth; float32. Each of eight seeds "
    "has its own training examples, 30 a class of the digits (8 rows of 8 pixels), 15 "
    "of JapaneseVowels (25 frames of 12 channels), its weights and its batches; tests "
    "are with 359 and 370 inputs, the same for all seeds. Surprise is the mean of -log "
    "p of the label, in nats. The calibration error has 15 bins; it is biased upwards, "
    "and what it would be if every confidence were right is beside it. Shifted means "
    "the mean over all kinds of shift and four strengths of each, so that the "
    "strongest count most. Bayesian attention has keys of one length, but for Gaussian "
    "keys: unit keys is that alone, and the next ones add one thing each to it. "
    "Dropout and stochastic scores are read as the mean of 16 draws, which costs 16 "
    "passes; an ensemble has five standard models of the same examples, and costs five "
    "times as much to train. The temperature is one number for the standard model, "
    "chosen on validation data. Intervals are of 95 %, by Student's t over seeds, for "
    "one set of test inputs; verdicts are by Holm's rule over all comparisons of this "
    "experiment together, at 5 %. Grids were widened once, after a run in which most "
    "choices of weight decay were at an end of theirs, and whose tests had been seen; "
    "a choice that is still at the end of its grid may not be the best one."
)


def _setup(name: str, quick: bool) -> Setup:
    if quick:
        names = "standard", "stochastic"
        tried = (0.3,), (0.2,), (1e-3,), (0.3,)
        return Setup(names, 2, 1, 1, 1, 10, 60, 16, 5e-3, *tried, 4)
    decays, rates = (1.0, 3.0, 10.0, 30.0), (0.05, 0.1, 0.2, 0.4, 0.6)
    tried = decays, rates, (1e-5, 1e-4, 1e-3, 1e-2, 1e-1), (0.1, 0.3, 1.0)
    shots = 30 if name == "digits" else 15
    return Setup(tuple(TRAINED), 8, 3, 5, 2, shots, 400, 32, 3e-3, *tried, 16)


def _settled(values: np.ndarray, setting: str) -> np.ndarray:
    """Of scores by seed and set: of the test inputs, or in the mean over shifts."""
    return values[:, 0] if setting == "test" else values[:, 1:].mean(axis=1)


def _compared(found: dict[str, Found]) -> Pairs:
    """Every contestant less the standard, with a verdict."""
    pairs = {}
    for name, one in found.items():
        standard = one.judged["standard"].scores
        for setting in SETTINGS:
            for metric in METRICS:
                value = lambda s, m=metric, t=setting: _settled(getattr(s, m), t)
                for other, judged in one.judged.items():
                    if other != "standard":
                        pair = paired(value(judged.scores), value(standard))
                        pairs[name, setting, metric, other] = pair
    words = verdicts(list(pairs.values()), better="lower")
    return {key: (pairs[key], word) for key, word in zip(pairs, words, strict=True)}


def _checks(name: str, one: Found, data: Problem) -> list[Row]:
    """What must hold, whoever is calibrated better."""
    scores = {which: judged.scores for which, judged in one.judged.items()}
    standard, sizes = scores["standard"], list(one.parameters.values())
    least = min(s.accuracy[:, 0].min() for s in scores.values())
    moved = scores["temperature"].accuracy - standard.accuracy
    still = [s for which, s in scores.items() if which not in (*DRAWN, "ensemble")]
    drawn = [s for which, s in scores.items() if which in (*DRAWN, "ensemble")]
    doubt = lambda some: [s.information for s in some]
    rows = [
        below(f"{name}: parameters of a model", max(sizes), 300_000),
        below(f"{name}: parameters, most over least", max(sizes) / min(sizes), 1.1),
        near(
            f"{name}: weights that all have, apart at the start",
            _apart_at_start(one), 0, 0,
        ),
        below(
            f"{name}: common attention less the posterior for a prior exp(β|k|²/2)",
            _identity(one.standard, data), 1e-5,
        ),
        above(
            f"{name}: least accuracy on test inputs of any model, against chance",
            least, 1 / data.classes,
        ),
        near(
            f"{name}: accuracy that a temperature changes, most",
            np.abs(moved).max(), 0, 0,
        ),
        above(
            f"{name}: surprise that a temperature saves on validation data, least",
            one.gain.min(), -1e-6,
        ),
        near(
            f"{name}: mutual information of models without draws, most",
            np.max(doubt(still)), 0, 0,
        ),
        above(
            f"{name}: mutual information of those with, mean, least",
            np.min(doubt(drawn)), 0,
        ),
    ]  # fmt: skip
    for k, shift in enumerate(data.shifts):
        last = (k + 1) * len(shift.strengths)
        lost = standard.accuracy[:, 0].mean() - standard.accuracy[:, last].mean()
        claim = f"{name}: accuracy of standard lost to the strongest {shift.name}"
        rows.append(above(claim, lost, 0))
        if k == 0:
            rise = standard.entropy[:, last].mean() - standard.entropy[:, 0].mean()
            claim = f"{name}: entropy of standard gained from the most noise, nats"
            rows.append(above(claim, rise, 0))
    if one.jensen is not None:
        claim = f"{name}: surprise of an ensemble less its members' mean, most"
        rows.append(below(claim, one.jensen, 1e-6))
    return rows


def _apart_at_start(one: Found) -> float:
    """The largest difference of weights that standard and Bayesian models share."""

    def shared(name):
        model = fresh(name, one.standard.config, one.choices[name], 0)
        layers = [
            (x.attention.qkv, x.feed_forward.up, x.feed_forward.down)
            for x in model.layers
        ]
        return jax.tree.leaves((model.embedding, model.position, model.head, layers))

    standard = shared("standard")
    return max(
        float(jnp.abs(a - b).max())
        for name in one.parameters
        for a, b in zip(shared(name), standard, strict=True)
    )


def _identity(model, data: Problem) -> float:
    """Trained common attention, less what the posterior gives with its weights."""
    layer, config = model.layers[0], model.config
    x = layer.norms[0](model.embed(jnp.asarray(data.test[0, 0])))
    free = dataclasses.replace(config, bayesian=BayesianConfig(keys="free"))
    kind = BayesianAttention(free, key=jax.random.key(0), dtype=jnp.float32)
    kind = eqx.tree_at(
        lambda a: (a.qkv, a.out), kind, (layer.attention.qkv, layer.attention.out)
    )
    n, h, size = len(x), config.heads, config.head_dim
    k = jnp.split(x @ layer.attention.qkv.T, 3, axis=1)[1].reshape(n, h, size)
    prior = 0.5 * size**-0.5 * jnp.sum(k * k, axis=-1).T
    found = kind(x, log_prior=jnp.broadcast_to(prior[:, None], (h, n, n)))
    return float(jnp.abs(found - layer.attention(x, None)).max())


def _facts(name: str, one: Found, compared: Pairs) -> list[Row]:
    """What was measured, judged by nobody."""
    right = one.judged["standard"].scores.accuracy[:, 0]
    rows = [
        reported(
            f"{name}: accuracy of standard on test inputs",
            right.mean(),
            f"{one.neighbour.mean():.3f} for the nearest training example",
        )
    ]
    for kind, who in (("Bayesian", BAYESIAN), ("other", _REFERENCES)):
        for setting in SETTINGS:
            words = [
                word
                for (which, where, _, other), (_, word) in compared.items()
                if which == name and where == setting and other in who
            ]
            count = {word: words.count(word) for word in ("better", "worse")}
            claim = f"{name}, {setting}: {kind} shown better than standard, comparisons"
            text = f"of {len(words)}; shown worse: {count['worse']}"
            rows.append(reported(claim, count["better"], text))
    return rows


def _main_table(found: dict[str, Found], compared: Pairs, setting: str) -> Table:
    rows = []
    for name, one in found.items():
        for other, judged in one.judged.items():
            cells = [name, other]
            for metric in METRICS:
                cells.append(
                    interval(_settled(getattr(judged.scores, metric), setting))
                )
                pair, word = compared.get((name, setting, metric, other), (None, ""))
                cells += ["" if pair is None else pair.words(3), word]
            cells.append(interval(_settled(judged.scores.by_chance, setting)))
            rows.append(tuple(cells))
    columns = (
        "problem", "attention", "surprise", "less standard", "verdict",
        "calibration error", "less standard", "verdict", "error by chance",
    )  # fmt: skip
    titles = {
        "test": "Test inputs as in training: surprise and calibration",
        "shifted": "Shifted test inputs, in the mean: surprise and calibration",
    }
    return Table(titles[setting], columns, tuple(rows))


def _doubt_table(found: dict[str, Found]) -> Table:
    rows = []
    for name, one in found.items():
        for other, judged in one.judged.items():
            s = judged.scores
            cells = [
                interval(_settled(values, setting))
                for values in (s.accuracy, s.brier)
                for setting in SETTINGS
            ]
            told = (
                judged.errors, judged.shifted_errors, judged.shift, judged.unknown,
                judged.unknown_information,
            )  # fmt: skip
            areas = [interval(a) if np.isfinite(a).all() else "" for a in told]
            rows.append((name, other, *cells, *areas))
    columns = (
        "problem", "attention", "accuracy", "shifted", "Brier score", "shifted",
        "errors", "errors, shifted", "shift", "no class", "no class, by information",
    )  # fmt: skip
    title = "Other scores, and areas under ROC curves: what entropy tells apart"
    return Table(title, columns, tuple(rows))


def _scaled_table(found: dict[str, Found]) -> Table:
    rows = []
    for name, one in found.items():
        standard = one.judged["temperature"].scores
        for other, judged in one.scaled.items():
            cells = [name, other, interval(one.temperatures[other])]
            for setting in SETTINGS:
                for metric in METRICS:
                    value = lambda s, m=metric, t=setting: _settled(getattr(s, m), t)
                    pair = paired(value(judged.scores), value(standard))
                    cells.append(pair.words(3))
            rows.append(tuple(cells))
    columns = (
        "problem", "attention", "temperature", "surprise", "calibration error",
        "surprise, shifted", "calibration error, shifted",
    )  # fmt: skip
    title = "Each with a temperature, less the standard with one; without verdicts"
    return Table(title, columns, tuple(rows))


def _choice_table(found: dict[str, Found]) -> Table:
    words = {
        "decay": "weight decay",
        "rate": "share dropped",
        "weight": "weight of the divergence",
        "deviation": "deviation at first",
    }
    rows = []
    for name, one in found.items():
        for (other, what), tried in one.tried.items():
            cells = ", ".join(f"{value:g}: {b:.3f}" for value, b in tried.items())
            chosen = f"{getattr(one.choices[other], what):g}"
            count = f"{one.parameters[other]:,}"
            rows.append((name, other, count, words[what], cells, chosen))
    columns = (
        "problem", "attention", "parameters", "what", "tried: surprise", "chosen"
    )  # fmt: skip
    return Table("Chosen on validation data, by other seeds", columns, tuple(rows))


def _arrays(found: dict[str, Found], data: dict[str, Problem]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, one in found.items():
        for k, shift in enumerate(data[name].shifts):
            arrays[f"{name}, strengths {k}: {shift.name}"] = np.array(shift.strengths)
        for other, judged in one.judged.items():
            for field, array in judged.scores._asdict().items():
                arrays[f"{name}, {other}: {field}"] = array
            arrays[f"{name}, {other}: reliability"] = judged.reliability
    return arrays
