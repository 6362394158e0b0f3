"""Measures in place of tokens: the limit of many, with noise or without.

On the circle, for densities at evenly spaced angles:

- `circle_continuity`: the continuity equation, a field for `solve`, of
  `MeanFieldParams`; `circle_velocity`, `circle_energy`, `circle_modes`.
- `resolution(density)`, a `Resolution`; `resolution_lost()`: an event that ends a solve.
"""

from ._circle import (
    circle_continuity as circle_continuity,
    circle_energy as circle_energy,
    circle_modes as circle_modes,
    circle_velocity as circle_velocity,
)
from ._params import MeanFieldParams as MeanFieldParams
from ._resolution import (
    Resolution as Resolution,
    resolution as resolution,
    resolution_lost as resolution_lost,
)
