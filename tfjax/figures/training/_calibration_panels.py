"""The figure of calibration: reliability, scores against shift, differences."""

from typing import Any

import numpy as np
from scipy import stats

from .._base import GREY, INK, PALETTE, Figure, new_figure, style


_SETTINGS = ("test", "shifted")


def draw(
    found: dict[str, Any], compared: dict[Any, Any], kinds: dict[str, int]
) -> Figure:
    """A row for every problem; `kinds` is how many kinds of shift each has."""
    figure = new_figure(22, 5.2 * len(found))
    grid: Any = figure.subplots(len(found), 5, squeeze=False)
    for row, (name, one) in zip(grid, found.items(), strict=True):
        for place in row:
            style(place)
        _reliability(row[0], one.judged)
        _by_strength(row[1], one.judged, kinds[name], "nats", "surprise, nats")
        _by_strength(row[2], one.judged, kinds[name], "error", "calibration error")
        _differences(row[3], name, compared, "nats", "surprise")
        _differences(row[4], name, compared, "error", "calibration error")
        row[0].set_title(f"{name}: all shifted inputs", fontsize=10, color=INK)
        row[0].legend(frameon=False, fontsize=7)
    return figure


def _look(name: str, names: Any) -> dict[str, Any]:
    """Black for the standard; dashed lines for what needs no Bayesian attention."""
    if name == "standard":
        return {"color": INK, "linestyle": "-", "linewidth": 2.0, "label": name}
    place = list(names).index(name) - 1
    dashed = name in ("dropout", "temperature", "ensemble")
    line = "--" if dashed else "-"
    colour = PALETTE[place % len(PALETTE)]
    return {"color": colour, "linestyle": line, "linewidth": 1.2, "label": name}


def _reliability(axes, judged):
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for name, one in judged.items():
        many, confidence, right = one.reliability[:, 1].sum(axis=0)
        shown = many >= 20 * len(one.reliability)
        x, y = confidence[shown] / many[shown], right[shown] / many[shown]
        axes.plot(x, y, marker="o", ms=2.5, **_look(name, judged))
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))


def _by_strength(axes, judged, kinds, field, label):
    for name, one in judged.items():
        values = getattr(one.scores, field)
        by = values[:, 1:].reshape(len(values), kinds, -1).mean(axis=1)
        by = np.concatenate([values[:, :1], by], axis=1)
        half = stats.t.ppf(0.975, len(by) - 1) * stats.sem(by, axis=0)
        x = np.arange(by.shape[1])
        look = _look(name, judged)
        axes.errorbar(x, by.mean(axis=0), yerr=half, elinewidth=0.7, **look)
    axes.set_xticks(range(by.shape[1]))
    axes.set(xlabel="strength of the shift, mean over kinds", ylabel=label)


def _differences(axes, problem, compared, metric, label):
    names = list(dict.fromkeys(key[3] for key in compared if key[0] == problem))
    for k, setting in enumerate(_SETTINGS):
        pairs = [compared[problem, setting, metric, name][0] for name in names]
        mean = np.array([one.mean for one in pairs])
        reach = np.array([(one.mean - one.low, one.high - one.mean) for one in pairs])
        places = np.arange(len(names)) + 0.25 * k
        axes.errorbar(
            mean, places, xerr=reach.T, fmt="o", ms=4, capsize=3, color=PALETTE[k],
            label=setting,
        )  # fmt: skip
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -1.0)  # downwards, with room for the legend
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(f"{label}: left is better")
    axes.set_title("less that of standard, in pairs, 95 %", fontsize=10, color=INK)
    axes.legend(frameon=False, fontsize=8, loc="upper center", ncols=2)
