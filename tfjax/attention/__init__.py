"""Attention kernels for one set of tokens.

- `attend(q, k, v)`: softmax attention, the mean of the values.
- `log_weights(q, k)`: logarithms of the softmax weights.
- `log_sum_exp(q, k)`: the logarithm of what attention divides by.
- `kernel_sum(q, k, v)`: attention without its normaliser.
- `attend_hardmax(q, k, v)`: the limit at infinite inverse temperature.
- `sinkhorn(logits)`, `attend_sinkhorn(q, k, v)`: doubly stochastic weights.
- `posterior(q, k, v)`: attention as exact inference of the key that a query came from:
  a `Posterior` with its mean, covariance and evidence. `mixture(q, k, v)`: that of all
  heads, with the posterior over heads as their gate: a `Mixture`.
- `Causal()`, `Window(w)`, `TopK(k)`: masks; `AbstractMask` is what a new one extends.
- `existing_tokens`, `resolve_mask`: what a mask says.
"""

from ._base import AbstractMask as AbstractMask
from ._hardmax import attend_hardmax as attend_hardmax
from ._log_sum_exp import log_sum_exp as log_sum_exp
from ._masks import (
    Causal as Causal,
    TopK as TopK,
    Window as Window,
    existing_tokens as existing_tokens,
    resolve_mask as resolve_mask,
)
from ._mixture import Mixture as Mixture, mixture as mixture
from ._posterior import Posterior as Posterior, posterior as posterior
from ._sinkhorn import (
    Sinkhorn as Sinkhorn,
    attend_sinkhorn as attend_sinkhorn,
    sinkhorn as sinkhorn,
)
from ._softmax import (
    attend as attend,
    kernel_sum as kernel_sum,
    log_weights as log_weights,
)
