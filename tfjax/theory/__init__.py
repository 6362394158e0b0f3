"""What theorems predict, as functions to compare with.

- `equiangular`, `equiangular_log_gap`, `equiangular_time`: tokens with equal inner
  products; with n = 2, when two tokens merge. `phase_curve`: who has met by when.
- `uniform_energy`, `dirac_energy`: the least and the greatest energy.
- `circle_growth_rate`, `sphere_growth_rate`: how the uniform measure breaks up.
- `wendel`, `log_concentration_bound`: random starts.
- `metastability`, `merging_angle`: how long clusters stay apart.
- `critical_noise`, `tricritical_beta`, `noisy_kuramoto_order`: with noise.
- `long_context_cosine`, `long_context_limit`: one layer over a long context.
- `normalized_log_variance`: what LayerNorm does over many layers.
- `angle_exponent`, `gradient_exponent`, `random_block`, `random_block_norm`: what wide
  random blocks do to the angles of tokens, and to gradients.
"""

from ._equiangular import (
    equiangular as equiangular,
    equiangular_log_gap as equiangular_log_gap,
    equiangular_time as equiangular_time,
    phase_curve as phase_curve,
)
from ._initialization import (
    angle_exponent as angle_exponent,
    gradient_exponent as gradient_exponent,
    random_block as random_block,
    random_block_norm as random_block_norm,
)
from ._layers import (
    long_context_cosine as long_context_cosine,
    long_context_limit as long_context_limit,
    normalized_log_variance as normalized_log_variance,
)
from ._metastable import (
    Metastability as Metastability,
    merging_angle as merging_angle,
    metastability as metastability,
)
from ._noise import (
    critical_noise as critical_noise,
    noisy_kuramoto_order as noisy_kuramoto_order,
    tricritical_beta as tricritical_beta,
)
from ._random import (
    log_concentration_bound as log_concentration_bound,
    wendel as wendel,
)
from ._uniform import (
    circle_growth_rate as circle_growth_rate,
    dirac_energy as dirac_energy,
    sphere_growth_rate as sphere_growth_rate,
    uniform_energy as uniform_energy,
)
