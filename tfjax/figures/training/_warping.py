"""Dynamic time warping: the distance of two series up to local shifts in time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@jax.jit(static_argnames="band")
def warped_distances(
    x: Float[Array, "t c"], ys: Float[Array, "m t c"], *, band: int
) -> Float[Array, " m"]:
    r"""Squared distances of a series to others of its length, by the best warping.

    The least sum of $|x_i - y_j|^2$ over paths from (0, 0) to the last places, each of
    whose steps moves i, j or both by 1, and with $|i - j|$ at most `band`
    (Sakoe-Chiba).

    Antidiagonals $k = i + j$ are filled one after another, each at $e = i - j$ in
    [-band, band]: a cell has its predecessors at e - 1 and e + 1 one step ago, and at e
    two steps ago. Cells whose k + e is odd lie between places and stay infinite.

    **Arguments:**

    - `x`, `ys`: series of t vectors with c channels.
    - `band`: at least 0, which is the Euclidean distance.

    **Returns:** the squared distance to each.

    Source: H. Sakoe and S. Chiba, IEEE Transactions on Acoustics, Speech, and Signal
    Processing 26 (1978), eq. 8, with equal weights for all steps.
    """
    t, band = x.shape[0], min(band, x.shape[0] - 1)
    # Every place twice, and none before the first and after the last.
    doubled = lambda a: jnp.pad(
        jnp.repeat(a, 2, axis=-2),
        [(0, 0)] * (a.ndim - 2) + [(band, band), (0, 0)],
        constant_values=jnp.inf,
    )
    first, second = doubled(x), doubled(ys)[:, ::-1]
    width, steps = 2 * band + 1, 2 * t - 1

    def fill(before, k):
        """The antidiagonal k, of shape (m, width), from the two before it."""
        two, one = before
        a = jax.lax.dynamic_slice_in_dim(first, k, width, 0)
        # y at k - e, as it is reversed.
        b = jax.lax.dynamic_slice_in_dim(second, 2 * t - 1 - k, width, 1)
        gap = a[None] - b
        cost = jnp.sum(gap * gap, axis=-1)
        edge = jnp.full((cost.shape[0], 1), jnp.inf, cost.dtype)
        sides = jnp.concatenate([edge, one, edge], axis=1)
        least = jnp.minimum(jnp.minimum(sides[:, :-2], sides[:, 2:]), two)
        # Outside of both series the difference of infinities is NaN.
        new = jnp.where(jnp.isfinite(cost), cost + least, jnp.inf)
        return (one, new), None

    nothing = jnp.full((ys.shape[0], width), jnp.inf, x.dtype)
    before = nothing.at[:, band].set(jnp.zeros((), x.dtype))  # the step to (0, 0)
    (_, last), _ = jax.lax.scan(fill, (before, nothing), jnp.arange(steps))
    return last[:, band]


def warped_matrix(
    xs: Float[np.ndarray, "k t c"], ys: Float[np.ndarray, "m t c"], *, band: int
) -> Float[np.ndarray, "k m"]:
    """Squared distances of every series of `xs` to every one of `ys`."""
    others: Any = jnp.asarray(ys)
    each = [warped_distances(jnp.asarray(x), others, band=band) for x in xs]
    return np.stack([np.asarray(row) for row in each])
