"""Clusters along a trajectory: when and which of them merge."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from .._core import as_float, check_shape, is_concrete, must, require
from ._clusters import cluster_labels, count_clusters


def _trajectory(ts, xs):
    ts, xs = as_float("ts", ts), as_float("xs", xs)
    check_shape("ts", ts, 1, "(t,)")
    check_times(ts)
    check_shape("xs", xs, 3, "(t, n, d)")
    if ts.shape[0] != xs.shape[0]:
        rule = f"have {ts.shape[0]} states, one for each of ts"
        raise must("xs", rule, f"of shape {xs.shape}")
    return ts, xs


def check_times(ts: Any) -> None:
    """Raises unless the times are finite and do not fall; traced ones pass."""
    if is_concrete(ts):
        times = np.asarray(ts)
        rising = bool(np.all(np.diff(times) >= 0))
        if not (rising and np.all(np.isfinite(times))):
            got = " ".join(np.array2string(times, threshold=6).split())
            raise must("ts", "be finite and increasing", got)


def merge_times(
    ts: Float[ArrayLike, " t"],
    xs: Float[ArrayLike, "t n d"],
    threshold: Float[ArrayLike, ""] | float = 0.99,
) -> Float[Array, " n"]:
    r"""When at most one, two, ... n clusters are left.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere at these times, of shape (t, n, d).
    - `threshold`: the inner product above which two tokens are joined.

    **Returns:** times of shape (n,): entry `k - 1` is the first of `ts` at which there
    are at most k clusters, inf if there is none; entry 0 is the time of full collapse.

    **Raises:** ValueError where the shapes do not fit, or times are not increasing.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import merge_times
        >>> xs = jnp.stack([jnp.eye(2), jnp.array([[1.0, 0], [1, 0]])])
        >>> merge_times(jnp.array([0.0, 3.0]), xs).tolist()
        [3.0, 0.0]

    Source: own.
    """
    ts, xs = _trajectory(ts, xs)
    counts = _counts_along(xs, as_float("threshold", threshold))
    most = jnp.arange(1, xs.shape[1] + 1)
    reached = (counts[None, :] <= most[:, None]) & (counts[None, :] > 0)
    late = jnp.broadcast_to(ts[None, :], reached.shape)
    return jnp.min(jnp.where(reached, late, jnp.inf), axis=1)


class Merge(NamedTuple):
    """Clusters that became one: at which saved time, and which tokens they held."""

    time: float
    parts: tuple[tuple[int, ...], ...]


def merge_events(
    ts: Float[ArrayLike, " t"],
    xs: Float[ArrayLike, "t n d"],
    threshold: Float[ArrayLike, ""] | float = 0.99,
) -> list[Merge]:
    r"""Which clusters merge, and when: the story of a trajectory.

    **Arguments:** as for [`merge_times`][].

    **Returns:** a list of [`Merge`][]`(time, parts)` in order of time, where `parts`
    are the clusters at the previous saved time that are joined at `time`, largest
    first. Single tokens count as clusters. Runs outside jit.

    **Raises:** ValueError where the shapes do not fit, or times are not increasing.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import merge_events
        >>> xs = jnp.stack([jnp.eye(2), jnp.array([[1.0, 0], [1, 0]])])
        >>> merge_events(jnp.array([0.0, 3.0]), xs)
        [Merge(time=3.0, parts=((0,), (1,)))]

    Source: own.
    """
    ts, xs = _trajectory(ts, xs)
    return label_merges(ts, _labels_along(xs, as_float("threshold", threshold)))


@jax.jit  # or a loop outside jit is compiled anew by every call
def _counts_along(xs, threshold):
    return jax.lax.map(lambda x: count_clusters(x, threshold), xs)


@jax.jit
def _labels_along(xs, threshold):
    # One state at a time: all of them at once would hold t n^2 numbers.
    return jax.lax.map(lambda x: cluster_labels(x, threshold), xs)


def labels_of(
    ts: Float[ArrayLike, " t"],
    xs: Float[ArrayLike, "t n d"] | Int[ArrayLike, "t n"],
    threshold: Float[ArrayLike, ""] | float,
) -> tuple[np.ndarray, np.ndarray]:
    """Times (t,) and labels (t, n), of tokens (t, n, d) or labels that are at hand."""
    if np.ndim(xs) != 2:
        times, states = _trajectory(ts, xs)
        threshold = as_float("threshold", threshold)
        require(threshold, jnp.isfinite(threshold), "threshold", "be finite")
        require(states, jnp.isfinite(states), "xs", "be finite")
        labels = _labels_along(states, threshold)
        return np.asarray(times), np.asarray(labels)
    times, labels = np.asarray(ts), np.asarray(xs)
    fits = times.ndim == 1 and labels.shape[:1] == times.shape and labels.size
    if not fits or labels.dtype.kind not in "iu":
        rule = "be tokens (t, n, d) or integer labels (t, n), a row for each of ts"
        raise must("xs", rule, f"{labels.dtype} of shape {labels.shape}")
    check_times(times)
    return times, labels


def label_merges(
    ts: Float[ArrayLike, " t"], labels: Int[ArrayLike, "t n"]
) -> list[Merge]:
    r"""Which clusters merge, and when, from labels that are at hand.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `labels`: the cluster of each token at these times, as [`cluster_labels`][] gives
      them, of shape (t, n); tokens labelled -1 are left out.

    **Returns:** as [`merge_events`][].

    **Raises:** ValueError where the shapes do not fit, or times are not increasing.

    !!! example

        >>> import numpy as np
        >>> from tfjax.diagnostics import label_merges
        >>> label_merges(np.array([0.0, 3.0]), np.array([[0, 1], [0, 0]]))
        [Merge(time=3.0, parts=((0,), (1,)))]

    Source: own.
    """
    ts, labels = np.asarray(ts), np.asarray(labels)
    if labels.ndim != 2 or ts.shape != labels.shape[:1]:
        rule = "have shape (t, n), with a row for each of ts"
        raise must("labels", rule, f"of shape {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise must("labels", "be integers", f"of dtype {labels.dtype}")
    check_times(ts)
    events = []
    for time, before, now in zip(ts[1:], labels[:-1], labels[1:], strict=True):
        for label in np.unique(now[now >= 0]):
            members = np.flatnonzero((now == label) & (before >= 0))
            parts = [members[before[members] == b] for b in np.unique(before[members])]
            if len(parts) > 1:
                parts.sort(key=lambda part: (-len(part), part[0]))
                groups = tuple(tuple(int(i) for i in part) for part in parts)
                events.append(Merge(float(time), groups))
    return events
