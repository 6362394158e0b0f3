"""The one table of tolerances, by the precision in which the suite runs."""

from typing import NamedTuple

import jax


class Tolerances(NamedTuple):
    """What counts as equal.

    `identity`: two sides of an identity, a few operations apart.
    `composite`: the result of a long computation, such as a solve or its gradient.
    """

    identity: float
    composite: float

    def rounding(self, times: int) -> float:
        """Of an identity; in float32, of so many of its roundings."""
        return self.identity * (1 if jax.config.jax_enable_x64 else times)


FLOAT32 = Tolerances(identity=1e-6, composite=5e-4)
FLOAT64 = Tolerances(identity=1e-12, composite=5e-7)


def tolerances() -> Tolerances:
    """The row of the table that holds now."""
    return FLOAT64 if jax.config.jax_enable_x64 else FLOAT32
