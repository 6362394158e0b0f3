"""What a plot is, and what all plots share: checks, colours, axes, saving."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .._core import must
from ..diagnostics import cluster_labels


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any


INK, GREY, FAINT = "#22252b", "#9aa0a8", "#dde1e6"
BLUE, RED = "#2a6fb0", "#c8452d"
# Neighbours differ in hue and in lightness, also for the colour-blind.
PALETTE = (
    "#2a6fb0", "#e08a1e", "#2f9e77", "#c8452d", "#8a5fb5", "#3fb3d1", "#b0578d",
    "#77923b", "#8c6239", "#4b5f9e",
)  # fmt: skip


class Plot(NamedTuple):
    """A figure and the numbers that it shows.

    - `data`: numpy arrays by name; the plotting function says which.
    - `figure`: a `matplotlib.figure.Figure` that no global state of pyplot knows.
    """

    data: dict[str, np.ndarray]
    figure: Figure


def save_figure(
    figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150
) -> None:
    """Writes a figure to a file; no other function here writes one.

    **Arguments:**

    - `figure`: the `.figure` of a [`Plot`][].
    - `path`: the file; its ending chooses the format (png, svg, pdf).
    - `dpi`: dots per inch, for png.

    **Returns:** None.

    **Raises:** ValueError for an ending that matplotlib does not know; OSError where
    the file cannot be written.

    !!! example

        >>> from tfjax.figures import plot_energy, save_figure
        >>> plot = plot_energy([0.1, 1.0], [0.2, 0.3])
        >>> save_figure(plot.figure, "energy.png")  # doctest: +SKIP

    Source: own.
    """
    figure.savefig(path, dpi=dpi, facecolor="white")


def new_figure(width: float | int, height: float | int) -> Figure:
    """An empty figure, in inches, outside pyplot."""
    try:
        from matplotlib.figure import Figure as new
    except ImportError as error:
        raise ImportError(
            "`tfjax.figures` must have matplotlib, but it was not found: "
            'install the extra, `pip install "tfjax[viz]"`.'
        ) from error
    return new(figsize=(width, height), layout="constrained", facecolor="white")


def figure_of(axes: Axes) -> Figure:
    """The whole figure, also for axes in a part of it."""
    part: Any = axes.figure
    return part.figure


def style(axes: Axes) -> Axes:
    """Thin axes in grey without a frame; the data carry the colour."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
    axes.tick_params(color=GREY, labelcolor=INK)
    axes.grid(True, which="major", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def log_time(axes: Axes, ts: np.ndarray) -> None:
    """A logarithmic time axis over the positive times, labelled in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    positive = ts[ts > 0]
    first = positive[0] if positive[0] < positive[-1] else positive[-1] / 10
    axes.set_xlim(first, positive[-1])
    axes.xaxis.set_major_locator(LogLocator(numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("time t (log scale)")


def as_times(ts: ArrayLike) -> np.ndarray:
    """Increasing times of shape (t,), at least one of them positive."""
    array = np.asarray(ts, dtype=float)
    if array.ndim != 1 or not array.size:
        raise must("ts", "have shape (t,) with t at least 1", f"of shape {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(np.diff(array) < 0):
        raise must(
            "ts", "be finite and increasing", np.array2string(array, threshold=6)
        )
    if not array[-1] > 0:
        raise must("ts", "end at a positive time", f"{array[-1]:g} at the end")
    return array


def as_series(name: str, values: ArrayLike, ts: np.ndarray, ndim: int) -> np.ndarray:
    """Values whose axis `-ndim` runs over the times; entries may be NaN."""
    array = np.asarray(values, dtype=float)
    if array.ndim < ndim or array.shape[-ndim] != ts.size or 0 in array.shape:
        shape = "(t, n, d)" if ndim == 3 else "(t,) or (b, t)"
        rule = f"have shape {shape} with t = {ts.size}"
        raise must(name, rule, f"of shape {array.shape}")
    return array


def as_trajectory(ts: ArrayLike, xs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Times (t,) and finite tokens (t, n, d), d at least 2."""
    times = as_times(ts)
    array = as_series("xs", xs, times, 3)
    if array.ndim != 3 or array.shape[2] < 2:
        rule = f"have shape (t, n, d) with t = {times.size} and d at least 2"
        raise must("xs", rule, f"of shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise must("xs", "be finite", "not in some place")
    return times, array


def labels_along(xs: np.ndarray, threshold: float | int) -> np.ndarray:
    """The cluster of each token of each state, of shape (t, n)."""
    # One state after another: the n x n products of all times would fill the memory.
    one = lambda x: cluster_labels(x, threshold)
    return np.asarray(jax.lax.map(one, jnp.asarray(xs)))


def telling_state(labels: ArrayLike) -> int:
    """Which state of a trajectory tells most: the last with most large clusters.

    **Arguments:**

    - `labels`: the cluster of each token, of shape (t, n).

    **Returns:** the index of the last state among those with most clusters of at least
    three tokens (of all tokens, where there are fewer).

    **Raises:** ValueError where `labels` has another rank.

    !!! example

        >>> from tfjax.figures import telling_state
        >>> telling_state([[0, 1, 2, 3], [0, 0, 0, 3], [0, 0, 0, 3]])
        2

    Source: own.
    """
    array = np.asarray(labels)
    if array.ndim != 2 or 0 in array.shape:
        raise must("labels", "have shape (t, n)", f"of shape {array.shape}")
    least = min(3, array.shape[1])
    large = [np.sum(np.unique(row, return_counts=True)[1] >= least) for row in array]
    return len(large) - 1 - int(np.argmax(large[::-1]))


def shown_state(times: np.ndarray, found: np.ndarray, at: float | int | None) -> int:
    """The state whose clusters the colours tell: that at `at`, or a telling one."""
    return telling_state(found) if at is None else int(np.argmin(np.abs(times - at)))


def cluster_colours(labels: np.ndarray) -> list[str]:
    """A colour for each token: large clusters first, single tokens in grey."""
    names, sizes = np.unique(labels, return_counts=True)
    order = names[np.argsort(-sizes, kind="stable")]
    large = [name for name in order if sizes[names == name][0] > 1]
    colour = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(large)}
    return [colour.get(label, GREY) for label in labels]
