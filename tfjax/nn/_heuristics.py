"""Rules of thumb for depth and learning rate, each with the model where it is exact.

Nothing calls them by itself: a configuration and an optimiser take what they are given.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, must, require, widen


def suggested_depth(hops: int, *, first: int = 2) -> int:
    r"""How many layers suffice for a chain of look-ups, $\lfloor \log_2 k \rfloor + 2$.

    A task of k hops asks for the token that followed the last occurrence of the present
    one, then the same of that token, k times. A layer can compose two chains of hops
    that earlier layers found, so that k of them take $\lfloor \log_2 k \rfloor + 1$
    rounds of doubling, after one layer in which each token learns the one before it.
    That is what *suffices*; that $\Omega(\log k)$ layers are *needed*, by models whose
    width is well below the length, rests on a conjecture on parallel computation
    (to tell one cycle from two).

    It is no rule for any task of that size: text, or arithmetic of many digits, has no
    known number of hops. In a sequence of n tokens a chain has less than n hops, so
    that `suggested_depth(n)` suffices for chains of every length.

    **Arguments:**

    - `hops`: k, a positive integer.
    - `first`: layers for one hop: 2, of which the first finds the token before.

    **Returns:** a number of layers.

    **Raises:** ValueError where `hops` or `first` is not a positive integer.

    !!! example

        >>> from tfjax.nn import suggested_depth
        >>> [suggested_depth(k) for k in (1, 2, 4, 16, 1024)]
        [2, 3, 4, 6, 12]

    Source: C. Sanford, D. Hsu, M. Telgarsky, Transformers, parallel computation, and
    logarithmic depth, arXiv 2402.09268, the section on k-hop induction heads.
    """
    return count("hops", hops).bit_length() - 1 + count("first", first)


def scaled_learning_rate(
    rate: Float[ArrayLike, "..."] | float,
    layers: int,
    branch_exponent: float | int,
    *,
    tuned_at: int = 1,
) -> Float[Array, "..."]:
    r"""A learning rate for another depth, $\eta\, (L / L_0)^{2 e - 1}$.

    In the model of scalar residual layers $f(w) = \prod_l (1 + a w_l)$, with
    $a = L^{-e}$ and a target of 1, the loss $(f - 1)^2 / 2$ has at w = 0 one Hessian
    eigenvalue $L a^2$, and zeros. So gradient descent is stable there exactly for
    $\eta < 2 / (L a^2)$: 2/L for plain residual layers (e = 0), 2 for e = 1/2, 2L for
    e = 1. The rate of a deeper model falls as 1/L *only* where branches are not scaled.

    It is the threshold of plain gradient descent, at the start, where gradients of all
    layers are alike. Steps of Adam do not shrink with the gradient: it follows
    another rule.

    **Arguments:**

    - `rate`: eta, good at the depth `tuned_at`; positive.
    - `layers`: L.
    - `branch_exponent`: e, that of [`TransformerConfig`][]; not negative.
    - `tuned_at`: L_0, the depth for which `rate` was chosen.

    **Returns:** the rate for L layers, in the shape of `rate`.

    **Raises:** ValueError where an argument lies outside.

    !!! example

        >>> from tfjax.nn import scaled_learning_rate
        >>> [float(scaled_learning_rate(2.0, 16, e)) for e in (0, 0.5, 1)]
        [0.125, 2.0, 32.0]
        >>> float(scaled_learning_rate(0.5, 12, 0, tuned_at=6))
        0.25

    Source: own; Hessian of the product at 0.
    """
    eta = as_float("rate", rate)
    if is_concrete(eta):
        ok = jnp.isfinite(eta) & (eta > 0)
        eta = require(eta, ok, "rate", "be finite and positive")
    if not 0 <= branch_exponent < math.inf:
        raise must("branch_exponent", "be in [0, inf)", repr(branch_exponent))
    deeper = count("layers", layers) / count("tuned_at", tuned_at)
    (wide,), dtype = widen(eta)
    return (deeper ** (2 * branch_exponent - 1) * wide).astype(dtype)
