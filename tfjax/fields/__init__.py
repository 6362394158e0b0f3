"""Right-hand sides `(t, x, args) -> dx/dt`: pure functions of their arguments."""

from ._attention import (
    self_attention as self_attention,
    unnormalized_self_attention as unnormalized_self_attention,
)
from ._base import VectorField as VectorField
from ._params import AttentionParams as AttentionParams
