"""Depth as time: discrete and continuous Transformers side by side, and their steps."""

from typing import Any, NamedTuple

import diffrax as dfx
import numpy as np
from scipy import stats

from ...integrate import SplitEuler
from ...nn import ContinuousTransformer, Transformer, TransformerConfig
from ...train import witten_bell_bits
from .._base import BLUE, GREY, INK, RED, Figure, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet, reported
from ._continuous_training import (
    Corpus,
    Setup,
    bits,
    chain,
    gradients,
    pair,
    plays,
    step_of,
    train,
    windows,
)


FLOW = "flow"
# How the trained weights are read again. The first is how they were trained; the flow
# itself is Tsit5 with so many steps that more change nothing.
CONTINUOUS: dict[str, dict[str, Any]] = {
    "Midpoint x 1": {},
    "Midpoint x 2": {"steps": 2},
    "Midpoint x 4": {"steps": 4},
    "Bosh3 x 1": {"solver": dfx.Bosh3()},
    FLOW: {"solver": dfx.Tsit5(), "steps": 4},
}
DISCRETE: dict[str, dict[str, Any]] = {
    "SplitEuler x 1": {"solver": SplitEuler()},
    "SplitEuler x 2": {"solver": SplitEuler(), "steps": 2},
    "SplitEuler x 4": {"solver": SplitEuler(), "steps": 4},
    "Euler x 1": {"solver": dfx.Euler()},
    FLOW: {"solver": dfx.Tsit5(), "steps": 4},
}
_KEPT_WHEN_QUICK = {
    "continuous": ("Midpoint x 1", "Midpoint x 2", FLOW),
    "discrete": ("SplitEuler x 1", FLOW),
}


class Found(NamedTuple):
    """What was found, each array with a leading axis of seeds.

    - `losses`: in training, in bits, by model.
    - `layers`: bits of each validation sequence, of the trained models as they are.
    - `read`: the same where the weights are read otherwise, by model and way.
    - `through`, `adjoint`: gradients of the first continuous model, by steps.
    """

    losses: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    read: dict[str, dict[str, np.ndarray]]
    through: np.ndarray
    adjoint: np.ndarray


def continuous_depth(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Transformers of discrete and of continuous depth, trained side by side.

    Both have the same parameters at the start, the same batches, rate and number of
    steps. A continuous one takes a step of the midpoint method from knot to knot
    through linearly interpolated weights, which is twice the work of a layer.

    **Arguments:**

    - `seed`: of the weights and batches, and of the text where it is quick.
    - `quick`: one small model of each kind, which read a random Markov chain.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: bits a character, with intervals of confidence; what becomes
    of them where trained weights are read with other steps or solvers; how far the
    gradient of the adjoint equation is from that through the steps.

    **Raises:** FileNotFoundError where the plays were not fetched and `quick` is false.

    Source: R. Chen et al., arXiv 1806.07366, for depth as time; K. Ott et al., arXiv
    2007.15386, for what becomes of trained weights under other steps.
    """
    corpus = chain(seed) if quick else plays()
    setup = _setup(corpus.vocabulary, quick)
    found = _study(corpus, setup, seed, quick, progress)
    rows = _bits_rows(found, corpus, setup)
    rows += _reading_rows(found)
    rows += _gradient_rows(found, setup, quick)
    progress(1.0)
    return Report(rows, _draw(found, setup), _arrays(found, setup), _NOTE)


_NOTE = (
    "Four layers of width 96, no scale on the branches, sequences of 64 characters; "
    "800 steps of Adam with 16 sequences each, rate 2e-3, chosen beforehand and not "
    "tuned for either; float32. Bits are of 512 sequences of 64 characters, evenly "
    "spread over the validation part, which nothing was chosen by. Intervals are of "
    "95 %, by Student's t over seeds: of weights and batches, for one text. Equal "
    "parameters and steps are not equal work: the continuous model evaluates its "
    "branches twice a layer. The flow is Tsit5 with four steps from knot to knot; of "
    "the discrete model it goes through constant weights, both branches at once. "
    "Gradients are in float64, of the first continuous model after training."
)


def _setup(vocabulary: int, quick: bool) -> Setup:
    if quick:
        config = TransformerConfig(
            vocabulary=vocabulary, context=16, layers=2, heads=2, head_dim=8
        )
        return Setup(config, 1, 150, 16, 1e-2, 64, (8, 16, 32))
    config = TransformerConfig(
        vocabulary=vocabulary, context=64, layers=4, heads=4, head_dim=24
    )
    return Setup(config, 5, 800, 16, 2e-3, 512, (1, 2, 4, 8, 16, 32))


def _study(
    corpus: Corpus, setup: Setup, seed: int, quick: bool, progress: Progress
) -> Found:
    step, tokens = step_of(setup), windows(corpus, setup)
    ways = {"discrete": DISCRETE, "continuous": CONTINUOUS}
    losses: dict[str, list[Any]] = {name: [] for name in ways}
    layers: dict[str, list[Any]] = {name: [] for name in ways}
    read: dict[str, dict[str, list[Any]]] = {name: {} for name in ways}
    slopes: list[np.ndarray] = []
    for k in range(setup.seeds):
        models = pair(setup.config, seed + k)
        for j, (name, model) in enumerate(models.items()):
            part = lambda done, at=2 * k + j: progress(
                0.9 * (at + 0.8 * done) / (2 * setup.seeds)
            )
            trained, loss = train(model, corpus, setup, step, seed + k, part)
            losses[name].append(loss)
            layers[name].append(bits(trained, tokens))
            for way, options in ways[name].items():
                if quick and way not in _KEPT_WHEN_QUICK[name]:
                    continue
                other = _read(trained, options)
                read[name].setdefault(way, []).append(bits(other, tokens))
            if name == "continuous" and k == 0:
                slopes += gradients(trained, tokens[:8], setup.refined)
    through, adjoint = slopes
    stack = lambda tree: {key: np.stack(value) for key, value in tree.items()}
    kept = {name: stack(each) for name, each in read.items()}
    return Found(stack(losses), stack(layers), kept, through, adjoint)


def _read(model: Any, options: dict[str, Any]) -> ContinuousTransformer:
    """The flow through trained weights; those of a discrete model are constant."""
    if isinstance(model, Transformer):
        return ContinuousTransformer.from_transformer(
            model, weights="constant", **options
        )
    return ContinuousTransformer.from_transformer(model.transformer, **options)


def _mean(values: np.ndarray) -> tuple[float, str]:
    """The mean over seeds, and its interval of confidence in words."""
    if len(values) < 2:
        return float(values.mean()), "measured, one seed"
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(values.mean()), f"measured, ± {half:.2g} over {len(values)} seeds"


def _bits_rows(found: Found, corpus: Corpus, setup: Setup) -> list[Row]:
    rows = []
    each = {name: one.mean(axis=1) for name, one in found.layers.items()}
    for name, values in each.items():
        mean, words = _mean(values)
        rows.append(reported(f"{name}: bits a character", mean, words))
    difference, words = _mean(each["continuous"] - each["discrete"])
    claim = "continuous less discrete, in pairs: bits a character"
    rows.append(reported(claim, difference, words))
    worst = max(values.max() for values in each.values())
    least = min(values.min() for values in each.values())
    order = 1 if corpus.entropy is not None else 2
    bound = witten_bell_bits(corpus.train, corpus.validation, order, corpus.vocabulary)
    name = {1: "single characters", 2: "pairs of characters"}[order]
    rows.append(below(f"largest bits, against a count of {name}", worst, bound))
    if corpus.entropy is not None:
        # Of so many dependent tokens the mean strays by a few hundredths.
        claim = "smallest bits, against the entropy of the chain"
        rows.append(above(claim, least, corpus.entropy - 0.1))
    return rows


def _reading_rows(found: Found) -> list[Row]:
    rows, gaps = [], {}
    for name, ways in found.read.items():
        flow = ways[FLOW]
        for way, values in ways.items():
            mean, words = _mean((values - found.layers[name]).mean(axis=1))
            if way in ("Midpoint x 1", "SplitEuler x 1"):
                apart = np.abs(values - found.layers[name]).max()
                claim = f"{name}, read as {way}: largest difference from the model"
                rows.append(below(claim, apart, 1e-3))
            else:
                claim = f"{name}, read as {way}: more bits than as trained"
                rows.append(reported(claim, mean, words))
            gaps[name, way] = float(np.abs(values - flow).mean())
    one, two = (gaps["continuous", f"Midpoint x {n}"] for n in (1, 2))
    claim = "continuous: distance from the flow, of 2 steps over 1, per sequence"
    rows.append(below(claim, two / one, 0.6))
    claim = "distance of layers from their flow over that of the continuous model"
    rows.append(above(claim, gaps["discrete", "SplitEuler x 1"] / one, 1.0))
    return rows


def _gradient_rows(found: Found, setup: Setup, quick: bool) -> list[Row]:
    apart, orders = _apart(found)
    rows = [
        reported(
            f"gradient, {n} steps a layer: adjoint equation against backpropagation",
            gap,
            "measured, relative",
        )
        for n, gap in zip(setup.refined, apart, strict=True)
    ]
    claim = "gradients: order in which they meet, at the shortest steps"
    return [*rows, near(claim, orders[-1], 2.0, 0.4 if quick else 0.2)]


def _apart(found: Found) -> tuple[np.ndarray, np.ndarray]:
    """The relative distance of both gradients, and its order at every halving."""
    norm = lambda a: np.linalg.norm(a, axis=-1)
    apart = norm(found.adjoint - found.through) / norm(found.through)
    return apart, np.log2(apart[:-1] / apart[1:])


def _arrays(found: Found, setup: Setup) -> dict[str, np.ndarray]:
    apart, orders = _apart(found)
    arrays = {
        "steps a layer": np.asarray(setup.refined),
        "distance of gradients": apart,
        "order of gradients": orders,
    }
    for name, losses in found.losses.items():
        arrays[f"{name}: bits in training"] = losses.astype(np.float32)
        arrays[f"{name}: bits"] = found.layers[name].mean(axis=1)
        for way, values in found.read[name].items():
            arrays[f"{name}, {way}: bits"] = values.mean(axis=1)
    return arrays


def _draw(found: Found, setup: Setup) -> Figure:
    """Training; what other steps make of trained weights; gradients."""
    figure = new_figure(12, 3.8)
    axes: Any = figure.subplots(1, 3)
    looks = {"discrete": (BLUE, "o"), "continuous": (RED, "s")}
    left, middle, right = (style(one) for one in axes)
    for name, (colour, _) in looks.items():
        smooth = _smooth(found.losses[name].mean(axis=0))
        left.plot(smooth, color=colour, linewidth=1.3, label=name)
        held = found.layers[name].mean(axis=1)
        left.plot(np.full(len(held), setup.steps), held, "_", color=colour, ms=9)
    left.set(xlabel="step", ylabel="bits a character", xlim=(0, 1.04 * setup.steps))
    left.set_title("training; at its end, validation", fontsize=10, color=INK)
    left.legend(frameon=False)
    ways: list[str] = []
    for name, (colour, mark) in looks.items():
        for way, values in found.read[name].items():
            label = f"{way}, {name}" if way == FLOW else way
            place = np.full(len(values), len(ways)) + 0.0
            middle.plot(values.mean(axis=1), place, mark, color=colour, ms=4)
            ways.append(label)
    middle.set_yticks(range(len(ways)), ways, fontsize=8)
    middle.invert_yaxis()
    middle.set_xlabel("bits a character")
    middle.set_title("trained weights, read with other steps", fontsize=10, color=INK)
    apart, _ = _apart(found)
    refined = np.asarray(setup.refined)
    right.loglog(refined, apart, "o-", color=RED, ms=4, linewidth=1.3)
    guide = apart[-1] * (refined[-1] / refined) ** 2.0
    right.loglog(refined, guide, color=GREY, linewidth=1, linestyle="--")
    right.annotate(
        "order 2", (refined[-2], guide[-2]), (6, 6), textcoords="offset points"
    )
    right.set(xlabel="steps a layer", ylabel="relative distance")
    right.set_title("adjoint equation and backpropagation", fontsize=10, color=INK)
    return figure


def _smooth(losses: np.ndarray) -> np.ndarray:
    """Means over up to 20 steps before."""
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(ends - 20, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)
