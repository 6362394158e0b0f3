"""How random Transformers start: their margins of contraction on text, as measured."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...nn import (
    Transformer,
    TransformerConfig,
    attention_margins,
    stable_initialization,
)
from .._report import Progress, Report, Row, above, below, quiet, reported
from ._contraction import ball, descent, more_rows, pitchfork
from ._reading import sequences
from ._start_panels import Drawn, Margins, draw


KINDS = ("measured", "typical", "worst_case")
MARGINS = (2.0, 4.0, 8.0)
_SEEDS = 5
_UNTIL = 1e-3  # of the measured margin, where bisection ends


class _Start(NamedTuple):
    """Margins after an initialisation, of shape (seeds, layers, heads).

    - `read`: on the text that it was made for.
    - `other`: on other text.
    - `logits`: by what the logits were multiplied.
    """

    read: Margins
    other: Margins
    logits: np.ndarray


def stable_start(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Heads of a new Transformer contract as much as was asked for, on real text.

    **Arguments:**

    - `seed`: of the weights, of the places in the text, of what is drawn besides.
    - `quick`: two small models that read a paragraph, in place of five that read plays.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: margins of every head at the start, as they are and as they
    were asked for; where softmax, attention and gradient descent contract.

    **Raises:** FileNotFoundError where the plays were not fetched and `quick` is false.

    Source: own; V. Castin, P. Ablin, G. Peyre, arXiv 2312.14820, for tokens in a ball.
    """
    margins = MARGINS[:1] if quick else MARGINS
    models, texts = _models_and_texts(seed, quick)
    starts: dict[tuple[str, float], _Start] = {}
    standard = _start(models, models, texts)
    rows = _standard_rows(standard)
    for k, kind in enumerate(KINDS[:2] if quick else KINDS):
        for margin in margins:
            made = [_stable(m, texts[0], jnp.asarray(margin), kind) for m in models]
            starts[kind, margin] = one = _start(made, models, texts)
            rows += _met_rows(kind, margin, one)
        progress(0.7 * (k + 1) / len(KINDS))
    forked, fork = pitchfork()
    bounded, sizes = ball(seed, 500 if quick else 20_000)
    learned, rates = descent()
    rows += more_rows(seed, quick) + forked + bounded + learned
    data = {"standard": np.stack(standard.read)}
    for (kind, margin), one in starts.items():
        data[f"{kind}, {margin:g}"] = np.stack(one.read)
        data[f"{kind}, {margin:g}: logits over the standard"] = one.logits
    data |= fork | sizes | {"rate": rates.found, "rate by theory": rates.expected}
    progress(0.9)
    shown = {key: one.read for key, one in starts.items()}
    figure = draw(Drawn(standard.read, shown, fork, sizes, rates))
    progress(1.0)
    return Report(rows, figure, data, _NOTE)


def _models_and_texts(seed: int, quick: bool) -> tuple[list[Transformer], Any]:
    """Models of standard weights, the text to start with, and another."""
    length = 32 if quick else 128
    texts, size = zip(
        *(sequences(1, length, seed=2 * seed + k, quick=quick) for k in range(2)),
        strict=True,
    )
    config = TransformerConfig(vocabulary=size[0], scan=True)
    if quick:
        config = dataclasses.replace(config, layers=2, heads=2, head_dim=8)
    keys = jax.random.split(jax.random.key(seed), 2 if quick else _SEEDS)
    return [_model(config, key=key) for key in keys], texts


_model = eqx.filter_jit(Transformer)


@eqx.filter_jit
def _stable(model, text, margin, kind):
    return stable_initialization(model, text, margin=margin, kind=kind)


_margins = eqx.filter_jit(attention_margins)


def _start(models: list[Transformer], standard: list[Transformer], texts: Any):
    def of(text):
        each = [_margins(model, text) for model in models]
        return Margins(*(np.stack(a) for a in zip(*each, strict=True)))

    logits = []
    for model, other in zip(models, standard, strict=True):
        new, old = (np.asarray(m.layers.attention.qkv) for m in (model, other))
        heads, k = model.config.heads, model.config.head_dim
        logits.append((new[:, ::k, 0] / old[:, ::k, 0])[:, :heads] ** 2)
    return _Start(of(texts[0]), of(texts[1]), np.stack(logits))


def _standard_rows(one: _Start) -> list[Row]:
    rows = []
    for name, what in (("worst_case", "smallest"), ("typical", "smallest")):
        found = getattr(one.read, name).min()
        title = name.replace("_", " ")
        rows.append(reported(f"standard start: {what} {title} margin", found, _ONE))
    measured = one.read.measured
    rows.append(
        reported("standard start: smallest measured margin", measured.min(), _ONE)
    )
    share = (measured < 1).mean()
    claim = "standard start: share of heads with a query that expands"
    rows.append(reported(claim, share, "0 if the typical margin were a bound"))
    claim = "standard start: largest ratio of worst-case margin to measured"
    return [*rows, below(claim, (one.read.worst_case / measured).max(), 1.0)]


def _met_rows(kind: str, margin: float, one: _Start) -> list[Row]:
    """The margin that was asked for is there; what it is worth, and what it costs."""
    start = f"start of {kind.replace('_', ' ')} margin {margin:g}:"
    found = getattr(one.read, kind)
    over = found / margin - 1
    if kind == "measured":
        rows = [
            above(f"{start} smallest margin over it, less 1", over.min(), -1e-12),
            below(f"{start} largest margin over it, less 1", over.max(), _UNTIL),
        ]
    else:
        claim = f"{start} smallest margin over it, less 1"
        rows = [above(claim, over.min(), -1e-12)]
        claim = f"{start} largest distance from it, of heads that were scaled"
        rows.append(below(claim, np.abs(over[one.logits < 1]).max(), 1e-12))
        smallest = one.read.measured.min() / margin
        claim = f"{start} smallest measured one, over it"
        judged = above if kind == "worst_case" else below
        rows.append(judged(claim, smallest, 1.0))
    other = one.other.measured.min() / margin
    rows.append(reported(f"{start} same on other text", other, "measured, over it"))
    scale = np.exp(np.log(one.logits).mean())
    return [*rows, reported(f"{start} logits over the standard", scale, "the price")]


_ONE = "1 is where a query stops contracting"
_NOTE = (
    "Models of the default configuration, with the alphabet of the text, their layers "
    "in a loop; 128 characters, and 128 others on which nothing was scaled. A margin "
    "is 1 over the largest slope of a query whose keys stay; heads that have more than "
    "what is asked for keep it. The typical margin is that of keys in all directions "
    "alike, which characters are not: early places see few of them and frequent ones "
    "return, so that a start of typical margin 2 has queries that expand, and a row "
    "says so. The worst case holds for any keys, and leaves logits so small that "
    "attention is all but a mean."
)
