"""A trajectory as a film: tokens that move, in an animated GIF."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._core import count, must
from ._base import (
    FAINT,
    GREY,
    INK,
    Plot,
    as_trajectory,
    cluster_colours,
    labels_along,
    new_figure,
    shown_state,
    style,
)
from ._projection import pca
from ._trajectory import draw_paths, draw_sphere, draw_tokens, sphere_view


_TAIL = 8  # how many earlier frames the tail of a token shows
_INCHES, _DPI = 4.4, 100


def animate_trajectory(
    ts: ArrayLike,
    xs: ArrayLike,
    path: str | os.PathLike[str],
    *,
    frames: int = 100,
    times: ArrayLike | None = None,
    fps: int = 15,
    threshold: float | int = 0.99,
    at: float | int | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Plot:
    """Writes the tokens on their way to an animated GIF, coloured by their clusters.

    On the circle (d = 2) they move round it; the sphere (d = 3) makes one slow turn;
    above, the first two principal components of all states are shown. The file appears
    when it is complete: an interrupted run leaves nothing behind.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere at these times, of shape (t, n, d).
    - `path`: the file, which ends in `.gif`.
    - `frames`: at most so many frames, evenly in log time: the nearest saved states,
      each once.
    - `times`: the times to show instead, of shape (f,): again the nearest saved states.
    - `fps`: frames per second.
    - `threshold`: the inner product above which two tokens are in one cluster.
    - `at`: colours tell the clusters at this time; None is as in [`plot_trajectory`][].
    - `progress`: called as `progress(done, total)` after every frame.

    **Returns:** a [`Plot`][] whose figure is the last frame, with `data` `times` of
    shape (f,), what the frames show; `clusters` of shape (f,), how many there are then;
    and `labels` of shape (n,), the clusters that the colours show.

    **Raises:** ValueError where shapes do not fit, a state is not finite, or the path
    has another ending; OSError where the file cannot be written.

    !!! example

        >>> import numpy as np
        >>> from tfjax.figures import animate_trajectory
        >>> xs = np.stack([np.eye(2), np.eye(2)])
        >>> animate_trajectory([1.0, 2.0], xs, "tokens.gif").data["times"].tolist()
        [1.0, 2.0]

    Source: own.
    """
    saved, states = as_trajectory(ts, xs)
    target = Path(path)
    if target.suffix.lower() != ".gif":
        raise must("path", "end in .gif", str(path))
    frames, fps = count("frames", frames), count("fps", fps)
    chosen = _chosen(saved, frames, times)
    found = labels_along(states, threshold)
    shown = shown_state(saved, found, at)
    if at is None and np.any(found[-1] != found[-1, 0]):
        shown = len(saved) - 1
    labels = found[shown]
    counts = np.array([len(np.unique(found[k])) for k in chosen])
    figure = new_figure(_INCHES, _INCHES)
    # The layout that fits itself would shake from frame to frame.
    figure.set_layout_engine("none")
    draw = _scene(figure, states, chosen, labels, states[shown])
    from matplotlib.animation import PillowWriter

    film = PillowWriter(fps=fps)
    with _complete(target) as scratch:
        film.setup(figure, str(scratch), dpi=_DPI)
        for number, k in enumerate(chosen):
            draw(number)
            words = "1 cluster" if counts[number] == 1 else f"{counts[number]} clusters"
            figure.axes[0].set_title(f"t = {saved[k]:.3g},  {words}", color=INK)
            film.grab_frame(facecolor="white")
            if progress is not None:
                progress(number + 1, len(chosen))
        film.finish()
    data = {"times": saved[chosen], "clusters": counts, "labels": labels}
    return Plot(data, figure)


def _chosen(saved, frames, times):
    """The numbers of the saved states to show, each once, in order."""
    if times is None:
        positive = saved[saved > 0]
        later = np.geomspace(positive[0], positive[-1], frames)[1:]
        wanted = np.concatenate([saved[:1], later])
    else:
        wanted = np.asarray(times, float)
        if wanted.ndim != 1 or not wanted.size or not np.all(np.isfinite(wanted)):
            rule = "be finite and of shape (f,) with f at least 1"
            raise must("times", rule, f"of shape {wanted.shape}")
    return np.unique(np.abs(saved[None, :] - wanted[:, None]).argmin(axis=1))


@contextlib.contextmanager
def _complete(target: Path) -> Iterator[Path]:
    """A file beside the target that takes its place when the block ends well."""
    with tempfile.TemporaryDirectory(prefix=".tfjax-", dir=target.parent) as folder:
        scratch = Path(folder) / target.name
        yield scratch
        os.replace(scratch, target)


# --- What moves -----------------------------------------------------------------------


def _scene(figure, states, chosen, labels, telling):
    """Draws what rests; returns a function that draws frame number k."""
    colours = cluster_colours(labels)
    d = states.shape[2]
    if d == 3:
        view = sphere_view(telling, labels)
        return _turning_sphere(figure, states[chosen], view, colours)
    if d == 2:
        return _moving_points(_circle(figure), states[chosen], colours)
    principal = pca(states, 2)
    axes = _plane(figure, principal)
    return _moving_points(axes, principal.points[chosen], colours)


def _turning_sphere(figure, seen, view, colours):
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.88))

    def draw(number):
        angle = 2 * np.pi * number / len(seen)
        c, s = np.cos(angle), np.sin(angle)
        turned = view @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        axes.clear()
        # A GIF has 256 colours: those of a shade would take the tokens' away.
        draw_sphere(axes, turned, shaded=False)
        tail = seen[max(number - _TAIL, 0) : number + 1] @ turned.T
        draw_paths(axes, tail, colours)
        draw_tokens(axes, tail[-1], colours, size=46)

    return draw


def _circle(figure):
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.88))
    turn = np.linspace(0, 2 * np.pi, 361)
    axes.plot(np.cos(turn), np.sin(turn), color=FAINT, linewidth=1.5, zorder=0)
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal")
    axes.set_axis_off()
    return axes


def _plane(figure, principal):
    axes = style(figure.add_axes((0.19, 0.12, 0.77, 0.78)))
    share = 100 * principal.explained
    axes.set_xlabel(f"principal component 1 ({share[0]:.0f} % of the variance)")
    axes.set_ylabel(f"principal component 2 ({share[1]:.0f} %)")
    flat = principal.points.reshape(-1, 2)
    middle = (flat.min(axis=0) + flat.max(axis=0)) / 2
    reach = 0.56 * max(np.ptp(flat, axis=0).max(), 1e-3)
    for axis, centre in zip("xy", middle, strict=True):
        axes.set(**{f"{axis}lim": (centre - reach, centre + reach)})
    axes.set_aspect("equal")
    return axes


def _moving_points(axes, points, colours):
    tails = [
        axes.plot([], [], color=colour, linewidth=1.2, alpha=0.5, zorder=2)[0]
        for colour in colours
    ]
    where = {"s": 46, "c": colours, "edgecolors": "white", "linewidths": 0.8}
    discs = axes.scatter(*points[0].T, zorder=3, **where)
    start = {"s": 10, "facecolors": "none", "edgecolors": GREY, "linewidths": 0.6}
    axes.scatter(*points[0].T, zorder=1, **start)

    def draw(number):
        discs.set_offsets(points[number])
        tail = points[max(number - _TAIL, 0) : number + 1]
        for i, line in enumerate(tails):
            line.set_data(tail[:, i, 0], tail[:, i, 1])

    return draw
