"""Tokens on their way: on the circle, on the sphere, along principal axes above."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._base import (
    GREY,
    INK,
    Axes,
    Plot,
    as_trajectory,
    cluster_colours,
    figure_of,
    labels_along,
    new_figure,
    shown_state,
    style,
)
from ._projection import pca


def plot_trajectory(
    ts: ArrayLike,
    xs: ArrayLike,
    *,
    threshold: float | int = 0.99,
    at: float | int | None = None,
    axes: Axes | None = None,
) -> Plot:
    """The paths of tokens, coloured by their clusters.

    On the circle (d = 2) the radius is logarithmic time, from the inside outwards; the
    sphere (d = 3) is seen from where these clusters show; above, the first two
    principal components of all states are drawn.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere at these times, of shape (t, n, d).
    - `threshold`: the inner product above which two tokens are in one cluster.
    - `at`: colours tell the clusters at this time; at the end if None, or, if there is
      one cluster then, where [`telling_state`][] says.
    - `axes`: matplotlib axes to draw in; a new figure if None.

    **Returns:** a [`Plot`][] with `data` `points` of shape (t, n, 2), the positions
    in the picture, and `labels` of shape (n,), the clusters that the colours show.

    **Raises:** ValueError where shapes do not fit or a state is not finite.

    !!! example

        >>> import numpy as np
        >>> from tfjax.figures import plot_trajectory
        >>> plot = plot_trajectory([0.0, 1.0], np.stack([np.eye(3), np.eye(3)]))
        >>> plot.data["points"].shape
        (2, 3, 2)

    Source: own.
    """
    times, states = as_trajectory(ts, xs)
    found = labels_along(states, threshold)
    shown = shown_state(times, found, at)
    if at is None and np.any(found[-1] != found[-1, 0]):
        shown = len(times) - 1
    labels = found[shown]
    colours = cluster_colours(labels)
    axes = new_figure(5, 5).add_subplot() if axes is None else axes
    d = states.shape[2]
    if d == 2:
        points = _circle(axes, times, states, colours)
    elif d == 3:
        points = _sphere(axes, states, sphere_view(states[shown], labels), colours)
    else:
        points = _plane(axes, states, colours)
    axes.set_title(f"{states.shape[1]} tokens, d = {d}", color=INK)
    return Plot({"points": points, "labels": labels}, figure_of(axes))


def _circle(axes, times, states, colours):
    log = np.log(np.maximum(times, times[times > 0][0]))
    span = log[-1] - log[0]
    radius = 0.35 + 0.65 * (log - log[0]) / (span if span > 0 else 1.0)
    points = states * radius[:, None, None]
    turn = np.linspace(0, 2 * np.pi, 361)
    for r, line in ((0.35, ":"), (1.0, "-")):
        axes.plot(r * np.cos(turn), r * np.sin(turn), line, color=GREY, linewidth=0.8)
    for i, colour in enumerate(colours):
        axes.plot(*points[:, i].T, color=colour, linewidth=1.2, alpha=0.8)
    _ends(axes, points, colours)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    axes.set_axis_off()
    note = f"radius: log time, t = {times[times > 0][0]:g} to {times[-1]:g}"
    axes.text(0.5, -0.02, note, ha="center", va="top", transform=axes.transAxes)
    return points


def _plane(axes, states, colours):
    principal = pca(states, 2)
    style(axes)
    for i, colour in enumerate(colours):
        axes.plot(*principal.points[:, i].T, color=colour, linewidth=1, alpha=0.6)
    _ends(axes, principal.points, colours)
    share = 100 * principal.explained
    axes.set_xlabel(f"principal component 1 ({share[0]:.0f} % of the variance)")
    axes.set_ylabel(f"principal component 2 ({share[1]:.0f} %)")
    axes.set_aspect("equal", adjustable="datalim")
    return principal.points


def _ends(axes, points, colours):
    """Starts as small rings, ends as discs."""
    start, end = points[0], points[-1]
    axes.scatter(
        *start.T, s=12, facecolors="white", edgecolors=colours, linewidths=0.8, zorder=3
    )
    axes.scatter(*end.T, s=42, c=colours, edgecolors="white", linewidths=0.8, zorder=4)


# --- The sphere, seen from afar -------------------------------------------------------


def _sphere(axes, states, view, colours):
    draw_sphere(axes, view)
    draw_paths(axes, states @ view.T, colours)
    draw_tokens(axes, states[0] @ view.T, colours, size=10, ring=True)
    draw_tokens(axes, states[-1] @ view.T, colours, size=46)
    return (states @ view.T)[..., :2]


def sphere_view(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rows right, up and towards the eye, so that the clusters of `x` are in view."""
    centres = x[[np.flatnonzero(labels == label)[0] for label in np.unique(labels)]]
    turn = np.arange(400) + 0.5
    height, angle = 1 - 2 * turn / 400, np.pi * (1 + 5**0.5) * turn
    flat = np.sqrt(1 - height**2)
    eyes = np.stack([flat * np.cos(angle), flat * np.sin(angle), height], axis=1)
    # The cluster that is seen worst counts, lightly too the rest; a pole is no eye.
    inner = eyes @ centres.T
    score = inner.min(axis=1) + 0.1 * inner.mean(axis=1) - 0.5 * np.abs(eyes[:, 2])
    eye = eyes[np.argmax(score)]
    right = np.cross([0.0, 0.0, 1.0], eye)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(eye, right), eye])


def draw_sphere(axes: Axes, view: np.ndarray, *, shaded: bool = True) -> None:
    """A ball with meridians and parallels; those behind it are faint."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Circle

    rim: Any = Circle((0, 0), 1, fill=False, edgecolor=GREY, linewidth=0.9, zorder=2)
    axes.add_patch(rim)
    if shaded:
        grid = np.linspace(-1, 1, 200)
        px, py = np.meshgrid(grid, grid)
        light = np.exp(-((px + 0.35) ** 2 + (py - 0.4) ** 2) / 1.3)
        shades = LinearSegmentedColormap.from_list("ball", ["#d5dde7", "#ffffff"])
        image = axes.imshow(
            light, extent=(-1, 1, -1, 1), origin="lower", cmap=shades, zorder=0
        )
        image.set_clip_path(rim)
    else:
        ball: Any = Circle((0, 0), 1, facecolor="#eff2f6", zorder=0)
        axes.add_patch(ball)
    turn = np.linspace(0, 2 * np.pi, 181)
    zero = np.zeros_like(turn)
    rings = [np.stack([np.cos(turn), np.sin(turn), zero], axis=1)]
    for z in (-0.5, 0.5):
        r = np.sqrt(1 - z**2)
        rings.append(np.stack([r * np.cos(turn), r * np.sin(turn), zero + z], axis=1))
    for angle in np.arange(6) * np.pi / 6:
        c, s = np.cos(angle), np.sin(angle)
        rings.append(
            np.stack([c * np.sin(turn), s * np.sin(turn), np.cos(turn)], axis=1)
        )
    for ring in rings:
        seen = ring @ view.T
        front = np.where(seen[:, 2:] >= 0, seen, np.nan)
        back = np.where(seen[:, 2:] < 0, seen, np.nan)
        line = {"color": "#8e99a8", "linewidth": 0.5, "zorder": 1}
        axes.plot(front[:, 0], front[:, 1], alpha=0.55, **line)
        axes.plot(back[:, 0], back[:, 1], alpha=0.15, **line)
    axes.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal")
    axes.set_axis_off()


def draw_paths(axes: Axes, seen: np.ndarray, colours: list[str]) -> None:
    """Paths (t, n, 3) in the eye's coordinates, fainter behind the sphere."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    for i, colour in enumerate(colours):
        path = seen[:, i]
        pieces = np.stack([path[:-1, :2], path[1:, :2]], axis=1)
        front = (path[:-1, 2] + path[1:, 2]) / 2 >= 0
        shades = [to_rgba(colour, 0.75 if near else 0.18) for near in front]
        lines: Any = LineCollection(list(pieces), colors=shades, linewidths=1.1)
        lines.set_zorder(3)
        axes.add_collection(lines)


def draw_tokens(
    axes: Axes,
    seen: np.ndarray,
    colours: list[str],
    *,
    size: float | int,
    ring: bool = False,
) -> None:
    """Tokens (n, 3) in the eye's coordinates; those behind are small and faint."""
    depth = (seen[:, 2] + 1) / 2
    order = np.argsort(depth)
    alpha: Any = np.where(seen[:, 2] >= 0, 1.0, 0.3)[order]
    paint = [colours[i] for i in order]
    axes.scatter(
        seen[order, 0],
        seen[order, 1],
        s=size * (0.55 + 0.45 * depth[order]),
        c="white" if ring else paint,
        edgecolors=paint if ring else "white",
        linewidths=0.7,
        alpha=alpha,
        zorder=4 if ring else 5,
    )
