"""The figure of blocks on long sequences."""

from typing import Any, NamedTuple

import numpy as np

from .._base import GREY, INK, PALETTE, Figure, new_figure, style
from ._blocks import BLOCKS, Charts, Passage


_COLOURS = dict(zip(BLOCKS, (PALETTE[3], PALETTE[0], PALETTE[2]), strict=True))


class Drawn(NamedTuple):
    """What the figure shows: by block and depth, and by block and branch exponent."""

    lengths: tuple[int, ...]
    passages: dict[tuple[str, int], Passage]
    charts: dict[tuple[str, float], Charts]


def draw(found: Drawn) -> Figure:
    """Above states and gradients, below singular values of feed-forward parts."""
    figure = new_figure(13, 7.6)
    axes: Any = figure.subplots(2, 3)
    panels = (_states, _gradients, _by_length, _spectra, _smallest, _signs)
    for panel, place in zip(panels, axes.flat, strict=True):
        panel(style(place), found)
        place.title.set_fontsize(10)
    return figure


def _depths(found):
    return sorted({depth for _, depth in found.passages})


def _by_layer(axes, found, name):
    """A quantity layer by layer, of the deepest models, at both ends of the lengths."""
    depth = _depths(found)[-1]
    for block in (block for block, each in found.passages if each == depth):
        each = getattr(found.passages[block, depth], name)
        layers = np.arange(depth + 1)
        axes.semilogy(layers, each[-1], color=_COLOURS[block], label=block)
        axes.semilogy(layers, each[0], ":", color=_COLOURS[block])
    axes.plot([], [], ":", color=INK, label=f"{found.lengths[0]} tokens")
    axes.plot([], [], "-", color=INK, label=f"{found.lengths[-1]:,} tokens")
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xlabel("layer")
    axes.legend(frameon=False, fontsize=8)


def _states(axes, found):
    _by_layer(axes, found, "states")
    axes.set_ylabel("norm of a token over its first one")
    axes.set_title("states: depth matters, length does not", color=INK)


def _gradients(axes, found):
    _by_layer(axes, found, "gradients")
    axes.set_ylabel("gradient over that in the last layer")
    axes.set_title("gradients on their way back (to the left)", color=INK)


def _by_length(axes, found):
    styles = dict(zip(_depths(found)[::-1], ("-", (0, (4, 1.5))), strict=False))
    for (block, depth), one in found.passages.items():
        axes.loglog(
            found.lengths, one.gradients[:, 0], marker="o", markersize=4,
            color=_COLOURS[block], linestyle=styles[depth],
            label=f"{block}, {depth} layers",
        )  # fmt: skip
    _plain_ticks(axes, found.lengths)
    axes.set(xlabel="tokens", ylabel="first layer's gradient over the last one's")
    axes.set_title("gradients grow with the length, in leapfrog least", color=INK)
    top = max(one.gradients.max() for one in found.passages.values())
    axes.set_ylim(1, 4 * top)
    axes.legend(frameon=False, fontsize=8, ncols=2, handlelength=3)


def _plain_ticks(axes, values):
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _spectra(axes, found):
    """Singular values in the first layer, each a mean over tokens of its logarithm."""
    one = found.charts["residual", 0.0]
    mean = lambda values: np.exp(np.log(np.maximum(values[0], 1e-18)).mean(0))
    axes.semilogy(mean(one.map), color=INK, label="map alone")
    axes.semilogy(mean(one.normed), "--", color=INK, label="map after its norm")
    for block in (block for block, exponent in found.charts if exponent == 0):
        values = mean(found.charts[block, 0.0].step)
        axes.semilogy(values, color=_COLOURS[block], label=f"step, {block}")
    axes.set_ylim(1e-6, 5)
    axes.set(xlabel="singular value, by size", ylabel="its size")
    axes.set_title("feed-forward part of the first layer", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _look(exponent):
    return "-" if exponent == 0 else (0, (4, 1.5))


def _smallest(axes, found):
    for (block, exponent), one in found.charts.items():
        smallest = one.step[..., -1].min(axis=1)
        axes.semilogy(
            np.arange(1, smallest.size + 1), smallest, color=_COLOURS[block],
            linestyle=_look(exponent), marker="o", markersize=4,
            label=block + ("" if exponent == 0 else ", branches / L"),
        )  # fmt: skip
    axes.set(xlabel="layer", ylabel="smallest singular value of a step")
    axes.set_title("how near feed-forward steps come to losing an inverse", color=INK)
    axes.legend(frameon=False, fontsize=8)


def _signs(axes, found):
    """Volumes that steps keep or not; where orientation is reversed, a cross."""
    for (block, exponent), one in found.charts.items():
        layers = np.arange(1, one.sign.shape[0] + 1)
        axes.plot(
            layers, one.log_volume.mean(axis=1), color=_COLOURS[block],
            linestyle=_look(exponent), linewidth=1.2,
        )  # fmt: skip
        places = np.broadcast_to(layers[:, None], one.sign.shape)
        for sign, mark in ((1, "."), (-1, "x")):
            at = one.sign == sign
            axes.plot(places[at], one.log_volume[at], mark, color=_COLOURS[block])
    axes.plot([], [], ".", color=INK, label="keeps orientation")
    axes.plot([], [], "x", color=INK, label="reverses it")
    axes.set(xlabel="layer", ylabel="log |det| of a step")
    axes.set_title("volumes; between a dot and a cross is a fold", color=INK)
    axes.legend(frameon=False, fontsize=8)
