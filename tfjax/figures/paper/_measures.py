"""What several experiments measure along their runs."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...diagnostics import inner_products
from .._report import Row, above, near, reported


CLOSE = 0.999
# The start of the authors' illustration of metastability, as angles in radians.
FIVE_ANGLES = (0.06219714, 0.21432297, 1.81912262, 2.91107101, -3.09524835)
# Diffusivities over the critical one, which is left out: branches meet there.
NOISE_RATIOS = np.r_[0.525:0.98:0.05, 0.9825:1.12:0.005, 1.125:1.33:0.05]


def circle_points(theta: Float[Array, "*n"]) -> Float[Array, "*n 2"]:
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
    if late.sum() < 4:
        return float("nan")  # no claim about it holds
    return -float(np.polyfit(ts[late], np.log(diameter[late]), 1)[0])


class Branches(NamedTuple):
    """Order as the noise rises from an ordered state, and as it falls from none."""

    rising: np.ndarray
    falling: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        return np.abs(self.rising - self.falling)


def hysteresis_rows(beta: float, found: Branches, least: float) -> list[Row]:
    """That there are two states above the critical noise only, well apart."""
    apart = found.gap > 1e-6
    gap = found.gap[apart].min() if apart.any() else 0.0
    here = NOISE_RATIOS[apart]
    name = f"beta = {beta:g}"
    return [
        above(f"{name}: gap between the branches, where they differ", gap, least),
        near(f"{name}: noises below D_c with two states", np.sum(here < 1), 0.0, 0.0),
        reported(
            f"{name}: two states up to D / D_c =",
            here.max(initial=0.0),
            "above 1; on the grid of noises",
        ),
    ]
