"""Terms of geometry in training: what they change, and whether they help."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...nn import TransformerConfig
from ...train import LayerGeometry, layer_geometry, parameter_count, witten_bell_bits
from .._report import Progress, Report, Row, Table, below, near, quiet, reported
from ._continuous_training import Corpus, bits, chain, plays
from ._geometry_panels import draw
from ._members import Program, train_members
from ._regularized import Parts, Setup, Variant, fresh, member, parts, program
from ._statistics import Comparison, interval, paired, verdicts


VARIANTS = {
    "plain": Variant(),
    "isometry": Variant(("isometry",)),
    "curvature": Variant(("curvature",)),
    "isometry and curvature": Variant(("isometry", "curvature")),
    "kinetic": Variant(("kinetic",)),
    "flow": Variant(continuous=True),
    "flow, kinetic": Variant(("kinetic",), continuous=True),
}
# With what a variant is compared.
AGAINST = {
    "isometry": "plain",
    "curvature": "plain",
    "isometry and curvature": "plain",
    "kinetic": "plain",
    "flow, kinetic": "flow",
}
# What the term of a variant is to lower, by name in `LayerGeometry`.
LOWERS = {"isometry": "isometry", "curvature": "turning", "kinetic": "kinetic"}
_QUICK = ("plain", "isometry", "curvature")
# Seeds that strengths are chosen with begin here; none of them is compared.
_TUNING = 1000


class Choice(NamedTuple):
    """What was chosen on validation data, of what was tried.

    - `decay`, `strengths`: chosen; strengths by variant and term.
    - `tried`: mean bits on the validation part, by variant and value.
    """

    decay: float
    strengths: dict[str, dict[str, float]]
    tried: dict[str, dict[float, float]]


class Found(NamedTuple):
    """Of one size of the training text, each array with a leading axis of seeds."""

    choice: Choice
    bits: dict[str, np.ndarray]
    geometry: dict[str, LayerGeometry]


def geometry(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Language models trained with and without terms of geometry, in pairs.

    A pair has the same weights at the start, the same batches, rate and number of
    steps. The weight decay is chosen for the models without terms, and kept; then the
    strength of each term is chosen, as many values tried as of the decay. All that is
    chosen on validation text, with models of other seeds; what is reported is of
    another text, which was looked at once.

    **Arguments:**

    - `seed`: of weights and batches, and of the text where it is quick.
    - `quick`: few small models, which read a random Markov chain.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: bits a character, differences in pairs with intervals of
    confidence and verdicts; what the terms do to the geometry of the layers.

    **Raises:** FileNotFoundError where the plays were not fetched and `quick` is false.

    Source: K. Kan et al., arXiv 2501.18793 and 2505.13499, for the kinetic term in
    continuous depth; the other terms are own.
    """
    corpus = chain(seed) if quick else plays()
    setup, sizes = _setup(corpus.vocabulary, quick)
    programs = {terms: program(terms) for terms in {v.terms for v in VARIANTS.values()}}
    found: dict[str, Found] = {}
    for k, (name, size) in enumerate(sizes.items()):
        part = lambda done, at=k: progress((at + done) / len(sizes))
        # Of all plays only the discrete models: a flow is twice the work.
        variants = {
            name: variant
            for name, variant in VARIANTS.items()
            if (name in _QUICK if quick else size is not None or "flow" not in name)
        }
        data = parts(corpus, setup, size)
        found[name] = _study(variants, programs, data, setup, seed, part)
    rows = _checks(found, corpus, setup)
    compared = _compared(found)
    tables = (
        _bits_table(found, compared),
        _choice_table(found),
        _geometry_table(found),
    )
    rows += [
        reported(f"{size}: {name} less {AGAINST[name]}, bits", one.mean, words)
        for (size, name), (one, words) in compared.items()
    ]
    progress(1.0)
    figure = draw(found, {key: one for key, (one, _) in compared.items()}, AGAINST)
    return Report(rows, figure, _arrays(found), _NOTE, tables)


_NOTE = (
    "Four layers of width 64, 0.2 million parameters, sequences of 64 characters, "
    "batches of 16; 500 steps of AdamW with gradients clipped at norm 1 and a "
    "rate of 4e-3 that falls to a tenth, the better of 2e-3 and 4e-3 by "
    "validation bits of one plain model; float32. The last tenth of every play is "
    "cut into sequences that belong to validation and test in turn; bits are of "
    "256 of each, evenly spread. Terms are estimated from one sequence of each "
    "batch, isometry from one layer with four probes. Intervals are of 95 %, by "
    "Student's t over seeds, for one text; verdicts are by Holm's rule over all "
    "comparisons of this experiment together, at 5 %. A strength at the end of "
    "its grid may not be the best one. Both terms together have the strengths "
    "that were chosen for each alone; flows have the weight decay of the discrete "
    "models. In 500 steps 40,000 characters are seen a dozen times."
)


def _setup(vocabulary: int, quick: bool) -> tuple[Setup, dict[str, int | None]]:
    if quick:
        config = TransformerConfig(
            vocabulary=vocabulary, context=12, layers=2, heads=1, head_dim=8
        )
        strengths = {"isometry": (1.0,), "curvature": (1.0,), "kinetic": (0.3,)}
        setup = Setup(config, 2, 1, 60, 8, 1e-2, (0.1,), strengths, 32)
        return setup, {"a chain": None}
    config = TransformerConfig(
        vocabulary=vocabulary, context=64, layers=4, heads=4, head_dim=16
    )
    strengths = {
        "isometry": (0.01, 0.1, 1.0),
        "curvature": (0.01, 0.1, 1.0),
        "kinetic": (0.001, 0.01, 0.1),
    }
    setup = Setup(config, 6, 2, 500, 16, 4e-3, (0.01, 0.1, 1.0), strengths, 256)
    return setup, {"all plays": None, "40,000 characters": 40_000}


def _study(
    variants: dict[str, Variant],
    programs: dict[tuple[str, ...], Program],
    data: Parts,
    setup: Setup,
    seed: int,
    progress: Progress,
) -> Found:
    """Choose on validation data, then train and test."""
    own = [name for name, variant in variants.items() if len(variant.terms) == 1]
    grids = {name: setup.strengths[variants[name].terms[0]] for name in own}
    grids["plain"] = setup.decays
    total = setup.tuning_seeds * sum(map(len, grids.values()))
    total, done = total + setup.seeds * len(variants), 0

    def trained(name, decay, strengths, seeds):
        nonlocal done
        variant = variants[name]
        members = (
            member(variant, data, setup, s, decay=decay, strengths=strengths)
            for s in seeds
        )
        for one in train_members(programs[variant.terms], members):
            done += 1
            progress(done / total)
            yield one.model

    def validated(name, decay, strengths):
        seeds = range(seed + _TUNING, seed + _TUNING + setup.tuning_seeds)
        models = trained(name, decay, strengths, seeds)
        return float(np.mean([bits(model, data.validation) for model in models]))

    tried = {"plain": {value: validated("plain", value, {}) for value in setup.decays}}
    decay = _least(tried["plain"])
    strengths: dict[str, dict[str, float]] = {}
    for name in own:
        (term,) = variants[name].terms
        tried[name] = {
            value: validated(name, decay, {term: value}) for value in grids[name]
        }
        strengths[name] = {term: _least(tried[name])}
    for name, variant in variants.items():
        if name not in own:
            strengths[name] = {term: strengths[term][term] for term in variant.terms}
    test: dict[str, np.ndarray] = {}
    shapes: dict[str, LayerGeometry] = {}
    for name in variants:
        seeds = range(seed, seed + setup.seeds)
        models = list(trained(name, decay, strengths[name], seeds))
        test[name] = np.array([bits(model, data.test).mean() for model in models])
        each = [_shape(model, data, k) for k, model in enumerate(models)]
        shapes[name] = jax.tree.map(lambda *a: np.stack(a), *each)
    return Found(Choice(decay, strengths, tried), test, shapes)


def _least(tried: dict[float, float]) -> float:
    return min(tried, key=lambda value: tried[value])


def _shape(model: Any, data: Parts, k: int) -> LayerGeometry:
    """The geometry of the layers, over a few sequences of the test part."""
    few = data.test[:: max(len(data.test) // 8, 1)][:8, :-1]
    return layer_geometry(model, jnp.asarray(few), key=jax.random.key(k))


def _compared(
    found: dict[str, Found],
) -> dict[tuple[str, str], tuple[Comparison, str]]:
    """Every variant less the one without its terms, with a verdict."""
    pairs = {
        (size, name): paired(one.bits[name], one.bits[AGAINST[name]])
        for size, one in found.items()
        for name in one.bits
        if name in AGAINST
    }
    words = verdicts(list(pairs.values()), better="lower")
    return {key: (pairs[key], word) for key, word in zip(pairs, words, strict=True)}


def _checks(found: dict[str, Found], corpus: Corpus, setup: Setup) -> list[Row]:
    sizes = [
        parameter_count(fresh(setup.config, 0, continuous=variant.continuous))
        for variant in VARIANTS.values()
    ]
    rows = [
        below("parameters of a model", max(sizes), 300_000),
        near("parameters: most less least of all variants", np.ptp(sizes), 0, 0),
    ]
    pairs = witten_bell_bits(corpus.train, corpus.validation, 2, corpus.vocabulary)
    order = "pairs of characters counted in the whole training text"
    if corpus.entropy is not None:
        pairs = witten_bell_bits(corpus.train, corpus.validation, 1, corpus.vocabulary)
        order = "single characters counted in the whole training text"
    for size, one in found.items():
        if size == "all plays" or corpus.entropy is not None:
            worst = one.bits["plain"].max()
            rows.append(
                below(f"{size}: plain, largest bits, against {order}", worst, pairs)
            )
        for name in one.bits:
            for term in VARIANTS[name].terms:
                measure = LOWERS[term]
                with_term, without = (
                    getattr(one.geometry[which], measure).mean()
                    for which in (name, AGAINST[name])
                )
                ratio = with_term / without
                claim = f"{size}: {measure} of layers, with {name} over without"
                rows.append(below(claim, ratio, 1.0))
    return rows


def _bits_table(found: dict[str, Found], compared: dict[Any, Any]) -> Table:
    rows = []
    for size, one in found.items():
        for name, values in one.bits.items():
            difference, word = "", ""
            if name in AGAINST:
                comparison, word = compared[size, name]
                difference = f"{comparison.words(3)} than {AGAINST[name]}"
            rows.append((size, name, interval(values), difference, word))
    columns = ("trained on", "variant", "bits a character", "difference", "verdict")
    return Table("Test text, bits a character", columns, tuple(rows))


def _choice_table(found: dict[str, Found]) -> Table:
    rows = []
    for size, one in found.items():
        for name, tried in one.choice.tried.items():
            what = "weight decay" if name == "plain" else "strength"
            words = ", ".join(f"{value:g}: {b:.3f}" for value, b in tried.items())
            chosen = f"{_least(tried):g}"
            rows.append((size, name, what, words, chosen))
    columns = ("trained on", "variant", "what", "tried: bits", "chosen")
    return Table("Chosen on validation text, by other seeds", columns, tuple(rows))


def _geometry_table(found: dict[str, Found]) -> Table:
    rows = []
    for size, one in found.items():
        for name, shape in one.geometry.items():
            mean = lambda field: interval(np.asarray(field.mean(axis=1)))
            fields = (shape.isometry, shape.turning, shape.kinetic, shape.rank)
            last = interval(np.asarray(shape.cosine[:, -1]))
            rows.append((size, name, *map(mean, fields), last))
    columns = (
        "trained on", "variant", "distortion", "turning", "kinetic", "rank",
        "cosine at the end",
    )  # fmt: skip
    title = "Layers after training, means over layers, ± over seeds"
    return Table(title, columns, tuple(rows))


def _arrays(found: dict[str, Found]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for size, one in found.items():
        for name, values in one.bits.items():
            arrays[f"{size}, {name}: bits"] = values
            for field, array in one.geometry[name]._asdict().items():
                arrays[f"{size}, {name}: {field}"] = array
    return arrays
