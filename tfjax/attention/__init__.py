"""Attention kernels for one set of tokens.

- `attend(q, k, v)`: softmax attention, the mean of the values.
- `log_weights(q, k)`: logarithms of the softmax weights.
- `kernel_sum(q, k, v)`: attention without its normaliser.
- `Causal()`: the mask of causal attention; `resolve_mask` reads any mask.
"""

from ._dense import (
    attend as attend,
    kernel_sum as kernel_sum,
    log_weights as log_weights,
)
from ._masks import Causal as Causal, resolve_mask as resolve_mask
