"""The figure of how Transformers start."""

from typing import Any, NamedTuple

import numpy as np

from .._base import BLUE, GREY, INK, PALETTE, RED, Figure, new_figure, style
from ._contraction import EXPONENTS, LAYERS, Descent


_COLOURS = {"measured": PALETTE[0], "typical": PALETTE[1], "worst_case": PALETTE[2]}
_NAMES = {"measured": "measured", "typical": "typical", "worst_case": "worst case"}


class Margins(NamedTuple):
    """Those of `tfjax.nn.attention_margins`, of shape (seeds, layers, heads)."""

    worst_case: np.ndarray
    typical: np.ndarray
    measured: np.ndarray


class Drawn(NamedTuple):
    """What the figure shows.

    - `standard`: margins of the standard start, of shape (seeds, layers, heads).
    - `starts`: those of other starts, by kind and margin asked for.
    - `fork`: fixed points of attention to two keys.
    - `sizes`: slopes of self-attention in balls, and bounds.
    - `rates`: of gradient descent.
    """

    standard: Margins
    starts: dict[tuple[str, float], Margins]
    fork: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]
    rates: Descent


def draw(found: Drawn) -> Figure:
    """Above how models start, below where what they are made of contracts."""
    figure = new_figure(13, 7.6)
    axes: Any = figure.subplots(2, 3)
    panels = (_layers, _asked, _promised, _fork, _ball, _rates)
    for panel, place in zip(panels, axes.flat, strict=True):
        panel(style(place), found)
        place.title.set_fontsize(10)
    return figure


def _layers(axes, found):
    """Every head of every seed, layer by layer."""
    for k, kind in enumerate(_NAMES):
        margins = getattr(found.standard, kind)
        seeds, layers, heads = margins.shape
        spread = np.linspace(-0.3, 0.3, seeds * heads)
        for layer in range(layers):
            each = np.sort(margins[:, layer].ravel())
            label = _NAMES[kind] if layer == 0 else None
            axes.plot(
                layer + 1 + spread, each, ".", color=list(_COLOURS.values())[k],
                markersize=4, label=label,
            )  # fmt: skip
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.set_yscale("log")
    axes.set_xticks(range(1, found.standard.measured.shape[1] + 1))
    axes.set(xlabel="layer (a dot is a head)", ylabel="margin")
    axes.set_title("standard start: below 1 a query expands", color=INK)
    axes.legend(frameon=False, fontsize=8, loc="center right")


def _asked(axes, found):
    """What was asked for against what is measured on the text."""
    asked = sorted({margin for _, margin in found.starts})
    ends = np.array([min(asked) / 1.4, max(asked) * 1.4])
    axes.plot(ends, ends, color=GREY, linewidth=1)
    shifts = dict(zip(_NAMES, (1, 0.9, 1.1), strict=True))
    for (kind, margin), margins in found.starts.items():
        each = margins.measured.ravel()
        label = _NAMES[kind] if margin == asked[0] else None
        x = np.full(each.size, margin * shifts[kind])
        axes.plot(x, each, "_", color=_COLOURS[kind], markersize=9, alpha=0.5)
        axes.plot([], [], "s", color=_COLOURS[kind], label=label)
    axes.set(xscale="log", yscale="log")
    _plain_ticks(axes.xaxis, asked)
    axes.set(xlabel="margin asked for", ylabel="margin measured on the text")
    axes.set_title("three ways to ask: too little, right, too much", color=INK)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _plain_ticks(axis, values):
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _promised(axes, found):
    """What the typical margin promises, and what there is."""
    groups = {"standard": found.standard}
    groups |= {
        f"typical {margin:g}": margins
        for (kind, margin), margins in found.starts.items()
        if kind == "typical"
    }
    lows, highs = [], []
    for k, (name, margins) in enumerate(groups.items()):
        x, y = margins.typical.ravel(), margins.measured.ravel()
        axes.plot(x, y, ".", color=PALETTE[k], markersize=5, label=name)
        lows.append(min(x.min(), y.min()))
        highs.append(max(x.max(), y.max()))
    ends = np.array([min(lows), max(highs)])
    axes.plot(ends, ends, color=GREY, linewidth=1, label="were it met")
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.set(xscale="log", yscale="log")
    ticks = 2.0 ** np.arange(-2, 4)
    _plain_ticks(axes.xaxis, ticks[(ticks >= ends[0]) & (ticks <= ends[1])])
    _plain_ticks(axes.yaxis, ticks[(ticks >= ends[0]) & (ticks <= ends[1])])
    axes.set(xlabel="typical margin", ylabel="margin measured on the text")
    axes.set_title("the typical margin is no bound", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _fork(axes, found):
    beta, curve = found.fork["curve"]
    for sign in (1, -1):
        axes.plot(beta, sign * curve, color=BLUE, linewidth=1.4)
        points = sign * found.fork["fixed point"]
        axes.plot(found.fork["beta"], points, "o", color=RED, markersize=5, mec="white")
    past = beta >= 1
    axes.plot(beta[past], 0 * beta[past], "--", color=BLUE, linewidth=1)
    axes.set(xlabel=r"$\beta$, that is 1 over the margin", ylabel="fixed point")
    axes.set_title("two keys: one fixed point up to margin 1, then three", color=INK)


def _ball(axes, found):
    radius = found.sizes["radius"]
    axes.loglog(radius, found.sizes["bound"], "-", color=RED, label="bound")
    largest = found.sizes["largest |Df|"]
    axes.loglog(radius, largest, "o", color=BLUE, label="largest of random tokens")
    _plain_ticks(axes.xaxis, radius)
    axes.set(xlabel="radius of the ball", ylabel="|Df| of self-attention")
    axes.set_title("self-attention, where all tokens move", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _rates(axes, found):
    for k, exponent in enumerate(EXPONENTS):
        label = ("branches as they are", r"branches / $\sqrt{L}$", "branches / L")[k]
        axes.loglog(LAYERS, found.rates.expected[k], "-", color=PALETTE[k])
        axes.loglog(
            LAYERS, found.rates.found[k], "o", color=PALETTE[k], label=f"{label}, "
            f"rate $2 L^{{{2 * exponent - 1:g}}}$",
        )  # fmt: skip
    _plain_ticks(axes.xaxis, LAYERS)
    axes.set(xlabel="layers L", ylabel="largest stable rate")
    axes.set_title("descent on a product of residual layers", color=INK)
    axes.legend(frameon=False, fontsize=8)
