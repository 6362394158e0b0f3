"""Measures in place of tokens: the limit of many, with noise or without.

The equations are fields for `solve`, of `MeanFieldParams`.

- `circle_continuity`: of densities at evenly spaced angles; `circle_velocity`,
  `circle_energy`, `circle_modes`.
- `sphere_continuity`: of densities on S^2, by their harmonics; `sphere_energy`,
  `sphere_points`, `sphere_coefficients`, `sphere_density`.
- `resolution(density)`, `sphere_resolution(coefficients)`, a `Resolution`: whether the
  angles, or degrees, carry it; `resolution_lost()`: an event that ends a solve where
  they do not.
- `stationary_density`, `noise_branch`: what noise and attention come to on the circle,
  and how that changes with the noise; `sphere_stationary`, `sphere_noise_branch`: on
  S^2.
- `wasserstein_line`, `wasserstein_circle`, `assignment_distance`: between measures.
- `sample_circle`, `particle_errors`: tokens against their mean field;
  `ModalAttention(modes)`: their field, for many of them.
"""

from ._circle import (
    circle_continuity as circle_continuity,
    circle_energy as circle_energy,
    circle_modes as circle_modes,
    circle_velocity as circle_velocity,
)
from ._distances import (
    assignment_distance as assignment_distance,
    wasserstein_circle as wasserstein_circle,
    wasserstein_line as wasserstein_line,
)
from ._modal import ModalAttention as ModalAttention
from ._params import MeanFieldParams as MeanFieldParams
from ._particles import (
    particle_errors as particle_errors,
    sample_circle as sample_circle,
)
from ._resolution import (
    Resolution as Resolution,
    resolution as resolution,
    resolution_lost as resolution_lost,
    sphere_resolution as sphere_resolution,
)
from ._sphere import (
    sphere_coefficients as sphere_coefficients,
    sphere_continuity as sphere_continuity,
    sphere_density as sphere_density,
    sphere_energy as sphere_energy,
    sphere_points as sphere_points,
)
from ._sphere_stationary import (
    sphere_noise_branch as sphere_noise_branch,
    sphere_stationary as sphere_stationary,
)
from ._stationary import (
    noise_branch as noise_branch,
    stationary_density as stationary_density,
)
