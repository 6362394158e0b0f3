"""Attention kernels for one set of tokens.

- `attend(q, k, v)`: softmax attention, the mean of the values.
- `log_weights(q, k)`: logarithms of the softmax weights.
- `kernel_sum(q, k, v)`: attention without its normaliser.
- `Causal()`, `Window(w)`, `TopK(k)`: masks; `AbstractMask` is what a new one extends.
- `existing_tokens`, `resolve_mask`: what a mask says.
"""

from ._base import AbstractMask as AbstractMask
from ._masks import (
    Causal as Causal,
    TopK as TopK,
    Window as Window,
    existing_tokens as existing_tokens,
    resolve_mask as resolve_mask,
)
from ._softmax import (
    attend as attend,
    kernel_sum as kernel_sum,
    log_weights as log_weights,
)
