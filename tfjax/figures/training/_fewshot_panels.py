"""The figure of few shots: accuracies, and what each term changes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._base import GREY, INK, PALETTE, Figure, new_figure, style
from ._fewshot_training import CONTESTANTS
from ._shots import Problem
from ._statistics import paired


_WITH_TERMS = tuple(name for name, terms in CONTESTANTS.items() if terms)
_COLOURS = {"plain": INK} | dict(zip(_WITH_TERMS, PALETTE, strict=False))
_STROKES = {"1-NN": "--", "DTW-1-NN": "-.", "logistic": ":", "SVM": (0, (6, 2))}


def draw(outcomes: Mapping[str, tuple[Problem, dict[str, np.ndarray]]]) -> Figure:
    """Above accuracies by K, below paired differences with their intervals."""
    figure = new_figure(max(3.1 * len(outcomes) + 1.6, 6.0), 6.4)
    axes: Any = figure.subplots(2, len(outcomes), squeeze=False, sharex="col")
    for column, (name, (problem, accuracy)) in enumerate(outcomes.items()):
        top, bottom = (style(axes[row, column]) for row in (0, 1))
        places = np.arange(len(problem.shots))
        for who, values in accuracy.items():
            plain = who in CONTESTANTS
            top.plot(
                places,
                values.mean(axis=0),
                color=_COLOURS.get(who, GREY),
                linestyle="-" if plain else _STROKES[who],
                marker="o" if plain else None,
                markersize=3.5,
                linewidth=1.4,
                label=who,
            )
        top.set_title(name.removesuffix("_eq"), fontsize=10, color=INK)
        _differences(bottom, places, accuracy)
        bottom.set_xticks(places, [str(K) for K in problem.shots])
        bottom.set_xlabel("K, examples a class")
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("with a term less plain")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", frameon=False, fontsize=9,
        ncols=len(labels) if len(outcomes) > 2 else 5,
    )  # fmt: skip
    return figure


def _differences(axes, places, accuracy):
    """Means over splits, and their 95 % intervals."""
    axes.axhline(0, color=GREY, linewidth=0.9)
    for shift, term in zip(np.linspace(-0.24, 0.24, 4), _WITH_TERMS, strict=True):
        for k, place in enumerate(places):
            one = paired(accuracy[term][:, k], accuracy["plain"][:, k])
            x = place + shift
            axes.plot([x, x], [one.low, one.high], color=_COLOURS[term], linewidth=1.6)
            axes.plot(x, one.mean, "o", color=_COLOURS[term], markersize=3.5)
