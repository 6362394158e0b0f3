"""Who joins whom, and when: a tree of clusters over logarithmic time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._core import must
from ._base import (
    FAINT,
    GREY,
    INK,
    Axes,
    Plot,
    as_trajectory,
    cluster_colours,
    figure_of,
    labels_along,
    log_time,
    new_figure,
    shown_state,
)


class _Node(NamedTuple):
    """A cluster: since when, which tokens, and the clusters that it was made of."""

    time: float
    members: tuple[int, ...]
    children: tuple["_Node", ...]


def plot_merges(
    ts: ArrayLike,
    xs: ArrayLike,
    labels: Sequence[str],
    *,
    threshold: float | int = 0.99,
    at: float | int | None = None,
) -> Plot:
    """The tokens by name, and lines that join where their clusters first do.

    Read from left to right: each token has a line, which meets the lines of the
    others when they are first in one cluster. A cluster that falls apart again stays
    joined here.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere at these times, of shape (t, n, d).
    - `labels`: n names of the tokens.
    - `threshold`: the inner product above which two tokens are in one cluster.
    - `at`: colours tell the clusters at this time; None takes the last time with most
      clusters of at least three tokens.

    **Returns:** a [`Plot`][] with `data` `order` of shape (n,), the tokens from top to
    bottom; `times`, when clusters joined, and `sizes`, of how many tokens, both of
    shape (m,); and `clusters` of shape (n,), the labels that the colours show.

    **Raises:** ValueError where shapes do not fit, or a state is not finite.

    !!! example

        >>> import numpy as np
        >>> from tfjax.figures import plot_merges
        >>> xs = np.stack([np.eye(2), np.ones((2, 2)) / 2**0.5])
        >>> plot_merges([0.0, 3.0], xs, ["bread", "dough"]).data["times"].tolist()
        [3.0]

    Source: own.
    """
    times, states = as_trajectory(ts, xs)
    n = states.shape[1]
    if isinstance(labels, str) or len(labels) != n:
        raise must("labels", f"be {n} names, one for each token", f"{len(labels)}")
    found = labels_along(states, threshold)
    roots = _tree(times, found)
    shown = shown_state(times, found, at)
    colours = cluster_colours(found[shown])
    order = [i for root in roots for i in root.members]
    axes = new_figure(8, 1.3 + 0.165 * n).add_subplot()
    place = {token: float(row) for row, token in enumerate(order)}
    joined: list[tuple[float, int]] = []
    start = times[times > 0][0]
    for root in roots:
        y, colour = _draw(axes, root, place, colours, start, times[shown], joined)
        _line(axes, max(root.time, start), times[-1], y, colour)
    axes.axvline(times[shown], color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    _finish(axes, times, labels, order, colours, times[shown], threshold)
    joined.sort()
    data = {
        "order": np.array(order),
        "times": np.array([time for time, _ in joined]),
        "sizes": np.array([size for _, size in joined], dtype=int),
        "clusters": found[shown],
    }
    return Plot(data, figure_of(axes))


def _tree(times, found):
    """The clusters at the end as trees; largest first, here and in every node."""
    current = {i: _Node(-np.inf, (i,), ()) for i in range(found.shape[1])}
    for time, labels in zip(times, found, strict=True):
        # A cluster keeps together what was joined before: by chains of both kinds.
        for label in np.unique(labels):
            inside = [int(i) for i in np.flatnonzero(labels == label)]
            parts = {current[i].members: current[i] for i in inside}
            if len(parts) > 1:
                children = tuple(sorted(parts.values(), key=_largest_first))
                members = tuple(i for child in children for i in child.members)
                node = _Node(float(time), members, children)
                current.update(dict.fromkeys(members, node))
    roots = {node.members: node for node in current.values()}
    return sorted(roots.values(), key=_largest_first)


def _largest_first(node):
    return -len(node.members), min(node.members)


def _draw(axes, node, place, colours, start, shown, joined):
    """Draws what is left of a node; returns its height and its colour."""
    if not node.children:
        return place[node.members[0]], colours[node.members[0]]
    joined.append((node.time, len(node.members)))
    now = max(node.time, start)
    # Up to the time that the colours tell, all members of a node have one colour.
    own = colours[node.members[0]] if node.time <= shown else INK
    heights = []
    for child in node.children:
        y, colour = _draw(axes, child, place, colours, start, shown, joined)
        _line(axes, max(child.time, start), now, y, colour)
        heights.append(y)
    width = {"linewidth": 1.3, "solid_capstyle": "round"}
    axes.plot([now, now], [min(heights), max(heights)], color=own, **width)
    return (min(heights) + max(heights)) / 2, own


def _line(axes, begin, end, y, colour):
    axes.plot([begin, end], [y, y], color=colour, linewidth=1.3)


def _finish(
    axes: Axes,
    times: np.ndarray,
    labels: Sequence[str],
    order: list[int],
    colours: list[str],
    shown: float | int,
    threshold: float | int,
) -> None:
    log_time(axes, times)
    axes.set_yticks(range(len(order)), [labels[i] for i in order], fontsize=8.5)
    for tick, i in zip(axes.get_yticklabels(), order, strict=True):
        tick.set_color(INK if colours[i] == GREY else colours[i])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(True, axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_ylabel("tokens")
    axes.set_title(
        "When tokens join one cluster "
        f"(⟨x, x'⟩ > {threshold:g}; colours: clusters at t = {shown:.3g})",
        color=INK,
        fontsize=11,
    )
