"""Right-hand sides `(t, x, args) -> dx/dt`: pure functions of their arguments.

- `self_attention`: SA on the sphere, with general, multi-head and masked weights.
- `unnormalized_self_attention`: USA on the sphere.
- `AttentionParams`: the parameters of both.
- `circle_attention`, `unnormalized_circle_attention`: the same for angles.
- `kuramoto`: coupled oscillators, and `Kuramoto`, its parameters.
- `intrinsic_attention(manifold)`: attention by geodesics, on any manifold.
- `gradient_flow(energy, manifold)`: the flow that raises or lowers an energy.
- `Sum(f, g)`, `Scaled(f, factor)`, `Bound(f, args)`: fields made of fields.
- `VectorField`: what a field is.
"""

from ._attention import (
    self_attention as self_attention,
    unnormalized_self_attention as unnormalized_self_attention,
)
from ._base import VectorField as VectorField
from ._circle import (
    Kuramoto as Kuramoto,
    circle_attention as circle_attention,
    kuramoto as kuramoto,
    unnormalized_circle_attention as unnormalized_circle_attention,
)
from ._combine import Bound as Bound, Scaled as Scaled, Sum as Sum
from ._gradient import gradient_flow as gradient_flow
from ._intrinsic import intrinsic_attention as intrinsic_attention
from ._params import AttentionParams as AttentionParams
