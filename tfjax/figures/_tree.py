"""The merge tree of many tokens, over logarithmic time."""

import numpy as np
from numpy.typing import ArrayLike

from .._core import must
from ..diagnostics import MergeTree
from ._base import (
    FAINT,
    GREY,
    INK,
    Axes,
    Plot,
    as_times,
    cluster_colours,
    figure_of,
    log_time,
    new_figure,
)


def plot_merge_tree(
    ts: ArrayLike, tree: MergeTree, *, axes: Axes | None = None
) -> Plot:
    """Who merges with whom, from left to right over logarithmic time.

    A line is a cluster, as wide as its tokens are many; colours tell the clusters at
    the end, or, if there is one then, those before the last merge. Lines of clusters
    that never merge run to the right edge.

    **Arguments:**

    - `ts`: the increasing times of the trajectory, of shape (t,).
    - `tree`: what `tfjax.diagnostics.merge_tree` made of it.
    - `axes`: matplotlib axes to draw in; a new figure if None.

    **Returns:** a [`Plot`][] with `data` `order` of shape (n,), the tokens from top to
    bottom; `labels` of shape (n,), the clusters that the colours show; and `times` of
    shape (m,), when clusters merged.

    **Raises:** ValueError where `ts` is not a trajectory's times, or `tree` is no tree.

    !!! example

        >>> import numpy as np
        >>> from tfjax.diagnostics import merge_tree
        >>> from tfjax.figures import plot_merge_tree
        >>> ts = np.array([0.0, 1.0, 5.0])
        >>> tree = merge_tree(ts, np.array([[0, 1, 2], [0, 0, 2], [0, 0, 2]]))
        >>> plot_merge_tree(ts, tree).data["times"].tolist()
        [1.0]

    Source: own.
    """
    times = as_times(ts)
    if not isinstance(tree, MergeTree):
        raise must("tree", "be a MergeTree of tfjax.diagnostics", repr(tree))
    rows, happened = tree.linkage, tree.happened
    n = len(rows) + 1
    members = [[i] for i in range(n)]
    for a, b, _, _ in rows:
        large, small = sorted((int(a), int(b)), key=lambda c: -len(members[c]))
        members.append(members[large] + members[small])
    order = np.array(members[-1])
    colours, labels = _colours(members, happened)
    place = np.empty(n)
    place[order] = np.arange(n)
    axes = new_figure(7, 4.5).add_subplot() if axes is None else axes
    start, end = times[times > 0][0], times[-1]
    heights = place.tolist() + [0.0] * len(rows)
    births = [start] * n + [max(float(time), start) for time in rows[:, 2]]
    for k, (a, b, time, _) in enumerate(rows):
        pair = int(a), int(b)
        heights[n + k] = (heights[pair[0]] + heights[pair[1]]) / 2
        now = max(float(time), start) if happened[k] else end
        for c in pair:
            if births[c] <= end:
                line = [births[c], now], [heights[c]] * 2
                axes.plot(*line, color=colours[c], linewidth=_width(members[c]))
        if happened[k]:
            ends = [now] * 2, [heights[c] for c in pair]
            axes.plot(*ends, color=colours[n + k], linewidth=1.2)
    last = len(heights) - 1
    if births[last] <= end:
        line = [births[last], end], [heights[last]] * 2
        axes.plot(*line, color=colours[last], linewidth=_width(members[last]))
    _finish(axes, times, n)
    data = {"order": order, "labels": labels, "times": rows[happened, 2]}
    return Plot(data, figure_of(axes))


def _colours(members, happened):
    """A colour for every cluster of the tree, and the tokens' labels behind them."""
    n = len(happened) + 1
    cut = n + int(happened.sum()) - (1 if happened.all() else 0)
    labels = np.arange(n)
    for inside in members[:cut]:
        labels[inside] = min(inside)
    shades = cluster_colours(labels)
    return [
        shades[inside[0]] if len(set(labels[inside])) == 1 else INK
        for inside in members
    ], labels


def _width(inside):
    return 0.8 + 0.7 * np.log2(len(inside))


def _finish(axes, times, n):
    log_time(axes, times)
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks([])
    axes.grid(True, axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.set_ylabel(f"{n} tokens")
    axes.set_title("Who merges with whom, and when", color=INK)
