"""Clusters along a trajectory: when and which of them merge."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, must
from ._clusters import cluster_labels, count_clusters


def _trajectory(ts, xs):
    ts, xs = as_float("ts", ts), as_float("xs", xs)
    check_shape("ts", ts, 1, "(t,)")
    check_shape("xs", xs, 3, "(t, n, d)")
    if ts.shape[0] != xs.shape[0]:
        rule = f"have {ts.shape[0]} states, one for each of ts"
        raise must("xs", rule, f"of shape {xs.shape}")
    return ts, xs


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

    **Raises:** ValueError where the shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import merge_times
        >>> xs = jnp.stack([jnp.eye(2), jnp.array([[1.0, 0], [1, 0]])])
        >>> merge_times(jnp.array([0.0, 3.0]), xs).tolist()
        [3.0, 0.0]

    Source: own.
    """
    ts, xs = _trajectory(ts, xs)
    counts = jax.vmap(lambda x: count_clusters(x, threshold))(xs)
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

    **Raises:** ValueError where the shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import merge_events
        >>> xs = jnp.stack([jnp.eye(2), jnp.array([[1.0, 0], [1, 0]])])
        >>> merge_events(jnp.array([0.0, 3.0]), xs)
        [Merge(time=3.0, parts=((0,), (1,)))]

    Source: own.
    """
    ts, xs = _trajectory(ts, xs)
    labels = np.asarray(jax.vmap(lambda x: cluster_labels(x, threshold))(xs))
    events = []
    for time, before, now in zip(
        np.asarray(ts)[1:], labels[:-1], labels[1:], strict=True
    ):
        for label in np.unique(now):
            members = np.flatnonzero(now == label)
            parts = [members[before[members] == b] for b in np.unique(before[members])]
            if label >= 0 and len(parts) > 1:
                parts.sort(key=lambda part: (-len(part), part[0]))
                groups = tuple(tuple(int(i) for i in part) for part in parts)
                events.append(Merge(float(time), groups))
    return events
