"""The merges of a trajectory as one tree."""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float, Int

from ._merging import labels_of


class MergeTree(NamedTuple):
    """The merges of n tokens as a binary tree, in the format of scipy.

    - `linkage`: of shape (n - 1, 4), for `scipy.cluster.hierarchy`: row k joins the
      clusters `linkage[k, 0]` and `linkage[k, 1]` at the time `linkage[k, 2]` into the
      cluster n + k of `linkage[k, 3]` tokens; cluster i < n is token i alone.
    - `happened`: of shape (n - 1,): False for the rows at the end that join what never
      merged.
    """

    linkage: Float[np.ndarray, "m 4"]
    happened: Bool[np.ndarray, " m"]


def merge_tree(
    ts: Float[ArrayLike, " t"],
    xs: Float[ArrayLike, "t n d"] | Int[ArrayLike, "t n"],
    threshold: Float[ArrayLike, ""] | float = 0.99,
) -> MergeTree:
    r"""Who merges with whom, and when, as a tree that scipy can cut and draw.

    Two clusters are joined at the first saved time at which a token of one and a token
    of the other are in one cluster; what falls apart later stays joined here. Several
    clusters that meet at one saved time are joined in pairs, largest first.

    A linkage has to end in one cluster: what has not merged by the end is joined as
    long after the last time as that is after the first, where `happened` is False.
    So `scipy.cluster.hierarchy.fcluster(tree.linkage, t, "distance")` are the clusters
    up to any saved time t, the last one included.

    **Arguments:**

    - `ts`: increasing times, of shape (t,).
    - `xs`: tokens on the unit sphere at these times, of shape (t, n, d), or labels of
      clusters that are at hand, of shape (t, n); tokens labelled -1 join none then.
    - `threshold`: for tokens, the inner product above which two are joined.

    **Returns:** a [`MergeTree`][]; times are those of `ts`. Runs outside jit.

    **Raises:** ValueError where the shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import merge_tree
        >>> xs = jnp.stack([jnp.eye(2), jnp.array([[1.0, 0], [1, 0]])])
        >>> merge_tree(jnp.array([0.0, 3.0]), xs).linkage.tolist()
        [[0.0, 1.0, 3.0, 2.0]]

    Source: own.
    """
    times, labels = labels_of(ts, xs, threshold)
    n = labels.shape[1]
    cluster, size = np.arange(n), {i: 1 for i in range(n)}
    rows: list[tuple[int, int, float, int]] = []

    def join(members: np.ndarray, time: float) -> None:
        parts = sorted(set(cluster[members].tolist()), key=lambda c: (-size[c], c))
        whole = parts[0]
        for part in parts[1:]:
            new = n + len(rows)
            size[new] = size[whole] + size[part]
            rows.append((min(whole, part), max(whole, part), time, size[new]))
            cluster[np.isin(cluster, (whole, part))] = new
            whole = new

    for time, now in zip(times, labels, strict=True):
        for label in np.unique(now[now >= 0]):
            join(np.flatnonzero(now == label), float(time))
    happened = np.arange(n - 1) < len(rows)
    span = float(times[-1] - times[0])
    join(np.arange(n), float(times[-1]) + (span if span > 0 else 1.0))
    return MergeTree(np.array(rows, float).reshape(n - 1, 4), happened)
