"""The share of pairs that have met, over inverse temperatures: runs, panels, times."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ...fields import AttentionParams, VectorField
from ...geometry import Sphere
from ...integrate import reduce_to_span, solve_ensemble
from .._base import Axes, style
from ._measures import close_share


def uniform_starts(key, n: int, d: int, count: int):
    """Uniform tokens, in the coordinates of their span."""

    def start(key):
        x = Sphere(d).random(key, (n,), dtype=jnp.float32)
        return reduce_to_span(x)[0]

    return jax.jit(lambda keys: jax.lax.map(start, keys))(jax.random.split(key, count))


def _all_met(t, x, args, **_):
    return close_share(t, x, args) == 1


def share_along(
    field: VectorField, x0: Any, betas: np.ndarray, ts: np.ndarray
) -> np.ndarray:
    """The share of close pairs at each time, a row for each start and beta.

    A run ends when all have met: what follows is slow to compute and changes nothing.
    """
    sol = solve_ensemble(
        field,
        x0,
        AttentionParams(beta=jnp.asarray(betas, jnp.float32)),
        in_axes=(0, {"beta": 0}),
        t1=ts[-1],
        saveat=dfx.SaveAt(ts=jnp.asarray(ts), fn=close_share),
        manifold=Sphere(x0.shape[2]),
        rtol=1e-5,
        atol=1e-5,
        max_steps=100_000,
        event=dfx.Event(_all_met),
        throw=True,
    )
    shares = np.asarray(sol.ys, dtype=float)
    return np.where(np.isfinite(shares), shares, 1.0)


def draw_share(axes: Axes, ts: np.ndarray, betas: np.ndarray, share: np.ndarray):
    """A panel: the share over time and inverse temperature."""
    options = {"cmap": "viridis", "vmin": 0, "vmax": 1, "shading": "nearest"}
    mesh = style(axes).pcolormesh(ts, betas, share, **options)
    # Without the outer halves of the first and the last cell.
    axes.set(xlim=(ts[0], ts[-1]), ylim=(betas[0], betas[-1]))
    return mesh


def half_times(ts: np.ndarray, share: np.ndarray) -> np.ndarray:
    """When the share passes one half, between saved times."""
    return np.array([np.interp(0.5, np.maximum.accumulate(s), ts) for s in share])
