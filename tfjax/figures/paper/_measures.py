"""What several experiments measure along their runs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...diagnostics import inner_products


CLOSE = 0.999
# The start of the authors' illustration of metastability, as angles in radians.
FIVE_ANGLES = (0.06219714, 0.21432297, 1.81912262, 2.91107101, -3.09524835)


def circle_points(theta: Float[Array, " n"]) -> Float[Array, "n 2"]:
    """The points of the circle at some angles."""
    return jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=-1)


def close_share(t: Any, x: Float[Array, "n d"], args: Any) -> Float[Array, ""]:
    """The share of pairs of distinct tokens whose product is above `CLOSE`."""
    n = x.shape[0]
    off = ~jnp.eye(n, dtype=bool)
    return jnp.sum((inner_products(x) > CLOSE) & off) / (n * (n - 1))


def decay_rate(ts: np.ndarray, diameter: np.ndarray) -> float:
    """The decay between 1e-3 and 1e-6: close enough to be linear, far from rounding."""
    late = (diameter < 1e-3) & (diameter > 1e-6)
    return -float(np.polyfit(ts[late], np.log(diameter[late]), 1)[0])
