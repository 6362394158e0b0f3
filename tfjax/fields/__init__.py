"""Right-hand sides `(t, x, args) -> dx/dt`: pure functions of their arguments.

- `self_attention`: SA on the sphere, with general, multi-head and masked weights.
- `unnormalized_self_attention`: USA on the sphere.
- `AttentionParams`: the parameters of both.
- `VectorField`: what a field is.
"""

from ._attention import (
    self_attention as self_attention,
    unnormalized_self_attention as unnormalized_self_attention,
)
from ._base import VectorField as VectorField
from ._params import AttentionParams as AttentionParams
