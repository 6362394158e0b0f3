"""The figure of terms of geometry: what they gain, and what they do to layers."""

from typing import Any

import numpy as np

from .._base import GREY, INK, PALETTE, Figure, new_figure, style
from ._statistics import Comparison


def draw(
    found: dict[str, Any],
    compared: dict[tuple[str, str], Comparison],
    against: dict[str, str],
) -> Figure:
    """Differences with intervals; distortion, turns and rank, layer by layer."""
    figure = new_figure(13, 7.4)
    axes: Any = figure.subplots(2, 2)
    for place in axes.flat:
        style(place)
    _differences(axes[0, 0], found, compared, against)
    last = list(found)[-1]
    panels = (
        (axes[0, 1], "isometry", "distortion of a layer", True),
        (axes[1, 0], "turning", "1 - cos of the turn before a layer", False),
        (axes[1, 1], "rank", "effective rank of the tokens", False),
    )
    for place, field, label, log in panels:
        _by_layer(place, found[last], field)
        place.set(xlabel="layer", ylabel=label)
        place.set_title(f"{label}, trained on {last}", fontsize=10, color=INK)
        if log:
            place.set_yscale("log")
    axes[0, 1].legend(frameon=False, fontsize=8)
    return figure


def _differences(axes, found, compared, against):
    for k, size in enumerate(found):
        names = [name for where, name in compared if where == size]
        places = np.array([list(against).index(name) for name in names]) + 0.25 * k
        each = [compared[size, name] for name in names]
        mean = np.array([one.mean for one in each])
        # One pair has no interval.
        ends = np.array([(one.low, one.high) for one in each])
        ends = np.where(np.isfinite(ends), ends, mean[:, None])
        reach = np.abs(ends - mean[:, None]).T
        axes.errorbar(
            mean, places, xerr=reach, fmt="o", ms=4, capsize=3,
            color=PALETTE[k], label=f"trained on {size}",
        )  # fmt: skip
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(against)), [f"{a} less {b}" for a, b in against.items()])
    axes.invert_yaxis()
    axes.set_xlabel("bits a character, test text: to the left is better")
    axes.set_title("differences in pairs, 95 % intervals", fontsize=10, color=INK)
    axes.legend(frameon=False, fontsize=8)


def _by_layer(axes, one, field):
    for k, (name, shape) in enumerate(one.geometry.items()):
        values = getattr(shape, field)
        layers = np.arange(1, values.shape[1] + 1)
        if field == "turning":  # nothing turns before the first layer
            layers, values = layers[1:], values[:, 1:]
        style = "--" if "flow" in name else "-"
        axes.plot(
            layers, values.mean(axis=0), style, color=PALETTE[k], marker="o", ms=3,
            linewidth=1.3, label=name,
        )  # fmt: skip
    axes.set_xticks(layers)
