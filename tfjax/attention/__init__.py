"""Attention kernels for one set of tokens."""

from ._dense import (
    attend as attend,
    kernel_sum as kernel_sum,
    log_weights as log_weights,
)
from ._masks import Causal as Causal, resolve_mask as resolve_mask
