"""Numbers against time: clusters and energy."""

import numpy as np
from numpy.typing import ArrayLike

from .._core import must
from ._base import (
    BLUE,
    INK,
    RED,
    Axes,
    Plot,
    as_series,
    as_times,
    figure_of,
    log_time,
    new_figure,
    style,
)


def plot_clusters(
    ts: ArrayLike, counts: ArrayLike, *, axes: Axes | None = None
) -> Plot:
    """The number of clusters against logarithmic time, for one run or an ensemble.

    **Arguments:**

    - `ts`: increasing times, of shape (t,); times up to 0 are left out.
    - `counts`: numbers of clusters, of shape (t,) or (b, t). Members with a negative
      or NaN entry have failed and are left out.
    - `axes`: matplotlib axes to draw in; a new figure if None.

    **Returns:** a [`Plot`][] with `data` `ts`, `mean`, `low` and `high` of shape (t,):
    mean, 5 % and 95 % quantile over the members.

    **Raises:** ValueError where shapes do not fit or no member is left.

    !!! example

        >>> from tfjax.figures import plot_clusters
        >>> plot = plot_clusters([0.1, 1.0, 10.0], [[8, 5, 1], [8, 3, 1]])
        >>> plot.data["mean"].tolist()
        [8.0, 4.0, 1.0]

    Source: own.
    """
    times, members = _members("counts", ts, counts)
    mean, low, high = _band(members)
    axes = new_figure(6, 3.6).add_subplot() if axes is None else axes
    from matplotlib.ticker import MaxNLocator

    style(axes)
    shown = times > 0
    if len(members) > 1:
        label = f"5-95 % of {len(members)} runs"
        area = (times[shown], low[shown], high[shown])
        axes.fill_between(*area, color=BLUE, alpha=0.18, linewidth=0, label=label)
    label = "mean" if len(members) > 1 else None
    axes.plot(times[shown], mean[shown], color=BLUE, linewidth=2, label=label)
    log_time(axes, times)
    axes.set_ylim(0, 1.05 * max(high[shown].max(), 1.0))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("number of clusters")
    axes.set_title("Clusters", color=INK)
    if len(members) > 1:
        axes.legend(frameon=False)
    data = {"ts": times, "mean": mean, "low": low, "high": high}
    return Plot(data, figure_of(axes))


def plot_energy(
    ts: ArrayLike,
    energies: ArrayLike,
    *,
    label: str = "energy",
    axes: Axes | None = None,
) -> Plot:
    """An energy against logarithmic time, for one run or an ensemble.

    **Arguments:**

    - `ts`: increasing times, of shape (t,); times up to 0 are left out.
    - `energies`: of shape (t,) or (b, t). Members with a NaN have failed and are left
      out.
    - `label`: what is on the vertical axis.
    - `axes`: matplotlib axes to draw in; a new figure if None.

    **Returns:** a [`Plot`][] with `data` `ts`, `mean`, `low` and `high` of shape (t,):
    mean, 5 % and 95 % quantile over the members.

    **Raises:** ValueError where shapes do not fit or no member is left.

    !!! example

        >>> from tfjax.figures import plot_energy
        >>> plot_energy([0.1, 1.0], [0.2, 0.3]).data["mean"].tolist()
        [0.2, 0.3]

    Source: own.
    """
    times, members = _members("energies", ts, energies)
    mean, low, high = _band(members)
    axes = new_figure(6, 3.6).add_subplot() if axes is None else axes
    style(axes)
    shown = times > 0
    if len(members) > 1:
        area = (times[shown], low[shown], high[shown])
        axes.fill_between(*area, color=RED, alpha=0.18, linewidth=0)
    axes.plot(times[shown], mean[shown], color=RED, linewidth=2)
    log_time(axes, times)
    axes.set_ylabel(label)
    axes.set_title("Energy", color=INK)
    data = {"ts": times, "mean": mean, "low": low, "high": high}
    return Plot(data, figure_of(axes))


def _members(name, ts, values):
    """Times, and the sound rows of the values."""
    times = as_times(ts)
    array = as_series(name, values, times, 1)
    if array.ndim > 2:
        raise must(name, "have shape (t,) or (b, t)", f"of shape {array.shape}")
    array = np.atleast_2d(array)
    bad = ~np.isfinite(array)
    if name == "counts":
        bad |= array < 0
    sound = array[~bad.any(axis=1)]
    if not len(sound):
        raise must(name, "have a member without NaN or negative entries", "without one")
    return times, sound


def _band(members):
    low, high = np.quantile(members, [0.05, 0.95], axis=0)
    return members.mean(axis=0), low, high
