"""Several views of one experiment side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._core import must
from ._base import (
    BLUE,
    GREY,
    INK,
    RED,
    Plot,
    as_series,
    as_trajectory,
    cluster_colours,
    labels_along,
    log_time,
    new_figure,
    style,
)
from ._curves import plot_clusters, plot_energy
from ._trajectory import (
    draw_paths,
    draw_sphere,
    draw_tokens,
    plot_trajectory,
    sphere_view,
)


def plot_overview(
    ts: ArrayLike,
    xs: ArrayLike,
    counts: ArrayLike,
    energies: ArrayLike,
    *,
    threshold: float | int = 0.99,
    energy_label: str = "energy",
    title: str | None = None,
) -> Plot:
    """One trajectory, and beside it clusters and energy against logarithmic time.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere, of shape (t, n, d).
    - `counts`, `energies`: of shape (t,), or (b, t) for an ensemble.
    - `threshold`: the inner product above which two tokens are in one cluster.
    - `energy_label`: what is on the axis of the energy.
    - `title`: above everything.

    **Returns:** a [`Plot`][] with `data` `points` and `labels` as for
    [`plot_trajectory`][], and the means `counts` and `energies` of shape (t,).

    **Raises:** as [`plot_trajectory`][] and [`plot_clusters`][].

    !!! example

        >>> import numpy as np
        >>> from tfjax.figures import plot_overview
        >>> xs = np.stack([np.eye(3), np.eye(3)])
        >>> plot = plot_overview([0.0, 1.0], xs, [3, 3], [0.2, 0.2])
        >>> sorted(plot.data)
        ['counts', 'energies', 'labels', 'points']

    Source: own.
    """
    figure = new_figure(10, 5)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.15, 1))
    path = plot_trajectory(
        ts, xs, threshold=threshold, axes=figure.add_subplot(grid[:, 0])
    )
    clusters = plot_clusters(ts, counts, axes=figure.add_subplot(grid[0, 1]))
    lower = figure.add_subplot(grid[1, 1])
    energy = plot_energy(ts, energies, label=energy_label, axes=lower)
    if title is not None:
        figure.suptitle(title, color=INK)
    data = path.data | {
        "counts": clusters.data["mean"],
        "energies": energy.data["mean"],
    }
    return Plot(data, figure)


def plot_time_scales(
    ts: ArrayLike,
    xs: ArrayLike,
    counts: ArrayLike,
    *,
    times: Sequence[float | int] = (0.0, 5.0, 200.0),
    threshold: float | int = 0.99,
) -> Plot:
    """Tokens on the sphere at three times, and the mean number of clusters.

    The second of the three times parts the two time scales: clusters form before it,
    and merge after it.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens of one run, of shape (t, n, 3).
    - `counts`: numbers of clusters, of shape (t,) or (b, t).
    - `times`: three times; the nearest saved ones are shown.
    - `threshold`: the inner product above which two tokens are in one cluster.

    **Returns:** a [`Plot`][] with `data` `ts`, `mean`, `low`, `high` as for
    [`plot_clusters`][], and `shown`, the three times.

    **Raises:** ValueError where shapes do not fit or a state is not finite.

    !!! example

        >>> import numpy as np
        >>> from tfjax.figures import plot_time_scales
        >>> xs = np.stack([np.eye(3)] * 3)
        >>> plot = plot_time_scales([0.0, 5.0, 200.0], xs, [3, 3, 3])
        >>> plot.data["shown"].tolist()
        [0.0, 5.0, 200.0]

    Source: own.
    """
    grid_times, states = as_trajectory(ts, xs)
    if states.shape[2] != 3:
        raise must("xs", "have shape (t, n, 3)", f"of shape {states.shape}")
    if len(times) != 3:
        raise must("times", "be three times", f"{len(times)}")
    chosen = [int(np.argmin(np.abs(grid_times - time))) for time in times]
    labels = labels_along(states[chosen[-1:]], threshold)[0]
    view = sphere_view(states[chosen[-1]], labels)
    colours = cluster_colours(labels)
    figure = new_figure(10, 2.85)
    halves: Any = figure.subfigures(1, 2, width_ratios=(1.85, 1))
    left, right = halves
    left.supxlabel(
        f"{states.shape[1]} tokens, coloured by the cluster in which they end",
        fontsize="medium",
        color=INK,
    )
    begin = 0
    for axes, now in zip(left.subplots(1, 3), chosen, strict=True):
        draw_sphere(axes, view)
        draw_paths(axes, states[begin : now + 1] @ view.T, colours)
        draw_tokens(axes, states[now] @ view.T, colours, size=50)
        axes.set_title(f"t = {grid_times[now]:g}", color=INK)
        begin = now
    axes = right.subplots()
    plot = plot_clusters(grid_times, counts, axes=axes)
    _annotate_scales(axes, plot, grid_times[chosen[1]])
    return Plot(plot.data | {"shown": grid_times[chosen]}, figure)


def _annotate_scales(axes, plot, split):
    positive = plot.data["ts"] > 0
    top = axes.get_ylim()[1]
    axes.axvspan(axes.get_xlim()[0], split, color=BLUE, alpha=0.05, linewidth=0)
    axes.axvline(split, color=GREY, linewidth=0.8, linestyle=":")
    edges = axes.get_xlim()
    spots = ((edges[0], split, "clusters form"), (split, edges[1], "clusters merge"))
    for begin, end, text in spots:
        middle = np.sqrt(begin * end)
        axes.text(middle, 1.02 * top, text, ha="center", va="bottom", color=INK)
    axes.set_title("")
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(frameon=False, loc="upper right", fontsize=9)
    values = plot.data["mean"]
    for time in (split, plot.data["ts"][positive][-1]):
        value = float(np.interp(time, plot.data["ts"], values))
        axes.plot([time], [value], "o", color=BLUE, markersize=4, clip_on=False)
        axes.annotate(
            f"{value:.1f}",
            (time, value),
            xytext=(3, 7),
            textcoords="offset points",
            ha="left" if time == split else "right",
            color=BLUE,
        )


def plot_metastable(
    ts: ArrayLike,
    xs: ArrayLike,
    energies: ArrayLike,
    *,
    exit_time: float | int,
    plateaus: Sequence[float | int] = (),
    threshold: float | int = 0.99,
) -> Plot:
    """Tokens on the circle that rest in clusters for long, and their energy.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the circle, of shape (t, n, 2).
    - `energies`: of shape (t,), scaled so that full collapse is 1.
    - `exit_time`: when the last two clusters have merged; the colours tell the
      clusters half way before.
    - `plateaus`: energies at which the tokens rest, drawn as lines.
    - `threshold`: the inner product above which two tokens are in one cluster.

    **Returns:** a [`Plot`][] with `data` `points` and `labels` as for
    [`plot_trajectory`][], and `ts` and `energies` of shape (t,).

    **Raises:** ValueError where shapes do not fit or a state is not finite.

    !!! example

        >>> import numpy as np
        >>> from tfjax.figures import plot_metastable
        >>> xs = np.stack([np.eye(2), np.eye(2)])
        >>> plot = plot_metastable([0.0, 1.0], xs, [0.5, 0.5], exit_time=1.0)
        >>> plot.data["energies"].tolist()
        [0.5, 0.5]

    Source: arXiv 2312.10794, section 6; arXiv 2410.06833.
    """
    times, states = as_trajectory(ts, xs)
    if states.shape[2] != 2:
        raise must("xs", "have shape (t, n, 2)", f"of shape {states.shape}")
    values = as_series("energies", energies, times, 1)
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    rest = exit_time / 2
    path = plot_trajectory(times, states, threshold=threshold, at=rest, axes=left)
    style(right)
    for plateau in plateaus:
        right.axhline(plateau, color=GREY, linewidth=0.9, linestyle="--")
        right.annotate(
            f"{plateau:.3g}",
            (1, plateau),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=GREY,
        )
    shown = times > 0
    right.plot(times[shown], values[shown], color=RED, linewidth=2)
    log_time(right, times)
    right.axvline(exit_time, color=BLUE, linewidth=1, linestyle=":")
    right.annotate(
        f"exit at t = {exit_time:.2f}",
        (exit_time, float(values.min())),
        xytext=(-6, 4),
        textcoords="offset points",
        ha="right",
        color=BLUE,
    )
    right.set_ylabel(r"scaled energy $e^{-\beta}\, 2 \beta\, E_\beta$")
    right.set_title("A long rest in few clusters, then the exit", color=INK)
    return Plot(path.data | {"ts": times, "energies": values}, figure)
