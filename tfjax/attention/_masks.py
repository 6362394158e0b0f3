"""Who may attend to whom."""

import operator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Int

from .._core import count, must
from ._base import AbstractMask, MaskLike, Permits, boolean, every, parts


class Causal(AbstractMask):
    """The mask of causal attention: token i sees the tokens j <= i.

    **Arguments of the call:** `n_q` and `n_k`, the numbers of queries and keys.

    **Returns:** booleans of shape (n_q, n_k), True where j <= i.

    !!! example

        >>> from tfjax.attention import Causal
        >>> Causal()(2, 2).tolist()
        [[True, False], [True, True]]

    Source: arXiv 2411.04990, equation (1.2).
    """

    def permits(
        self, i: Int[ArrayLike, "..."], j: Int[ArrayLike, "..."]
    ) -> Bool[Array, "..."]:
        return jnp.less_equal(j, i)

    @property
    def reach(self) -> tuple[int | None, int | None]:
        return None, 0


def _width(value: Any) -> int:
    try:
        width = operator.index(value)
    except TypeError:
        width = -1
    if isinstance(value, bool) or width < 0:
        raise must("w", "be an integer of at least 0", repr(value))
    return width


class Window(AbstractMask):
    """The mask of windowed attention: token i sees the tokens with |i - j| <= w.

    The kernels compute the band of the window only: their cost is O(n w d). Beside
    [`Causal`][], in a tuple, a token sees itself and the w before it.

    **Arguments:**

    - `w`: how far a token sees, to either side; 0 is itself only.

    **Arguments of the call:** `n_q` and `n_k`, the numbers of queries and keys.

    **Returns:** booleans of shape (n_q, n_k), True where |i - j| <= w.

    **Raises:** ValueError where `w` is not an integer of at least 0.

    !!! example

        >>> from tfjax.attention import Window
        >>> Window(1)(3, 3).tolist()
        [[True, True, False], [True, True, True], [False, True, True]]

    Source: arXiv 2004.05150, section 3.1.
    """

    w: int = eqx.field(static=True, converter=_width)

    def permits(
        self, i: Int[ArrayLike, "..."], j: Int[ArrayLike, "..."]
    ) -> Bool[Array, "..."]:
        return jnp.abs(jnp.subtract(i, j)) <= self.w

    @property
    def reach(self) -> tuple[int | None, int | None]:
        return self.w, self.w


class TopK(eqx.Module):
    """The mask of sparse attention: a query sees the k keys of its highest scores.

    Only keys that every other mask and the prior permit are counted; of equal scores
    the key of the lower index goes first. A score is the logit
    `beta <q_i, k_j> + log pi_ij`, so a negative beta sees the farthest keys. Which keys
    these are is locally constant: gradients pass through their weights only.

    All n_q n_k scores are still computed, once, and searched; only weights, mean and
    gradients are of k keys. On CPU the search costs more than it saves unless k is
    small (some 30 or less, with gradients), and in float64 it sorts whatever k is.

    **Arguments:**

    - `k`: how many keys a query sees; all of them where it has no more than k.

    **Raises:** ValueError where `k` is not a positive integer.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import TopK, attend
        >>> x = jnp.array([[1.0], [2.0], [3.0]])
        >>> attend(x, x, x, beta=0.0, mask=TopK(2)).ravel().tolist()
        [1.5, 1.5, 1.5]

    Source: arXiv 2106.06899, section 3.
    """

    k: int = eqx.field(static=True, converter=lambda k: count("k", k))


def existing_tokens(mask: MaskLike, n: int) -> Bool[Array, " n"] | None:
    """Which of n tokens exist, as far as a mask says so.

    Who may attend to whom is not looked at, so that nothing of shape (n, n) is made.

    **Arguments:**

    - `mask`: what `mask` of [`attend`][] may be.
    - `n`: the number of tokens.

    **Returns:** booleans of shape (n,), the conjunction of the boolean arrays of that
    shape in `mask`; None where there is none.

    **Raises:** ValueError where a boolean mask has neither shape (n,) nor (n, n).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import Causal, existing_tokens
        >>> existing_tokens((Causal(), jnp.array([True, False])), 2).tolist()
        [True, False]

    Source: own.
    """
    arrays = [part for part in parts(mask) if not _is_rule(part)]
    arrays = [_shaped(boolean(part), n, n, f" for {n} tokens") for part in arrays]
    return every(array for array in arrays if array.ndim == 1)


def resolve_mask(
    mask: MaskLike, n: int
) -> tuple[Bool[Array, " n"] | None, Bool[Array, "n n"] | None]:
    """Splits a mask of tokens into "which exist" and "which pairs may attend".

    **Arguments:**

    - `mask`: what `mask` of [`attend`][] may be, but for [`TopK`][], which is no mask
      of the places of tokens.
    - `n`: the number of tokens.

    **Returns:** the pair (exists, pairs), of shapes (n,) and (n, n); each is None
    where nothing restricts it. Absent tokens are struck from `pairs` too.

    **Raises:** ValueError where a mask is not boolean or its shape does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import Causal, resolve_mask
        >>> exists, pairs = resolve_mask((Causal(), jnp.array([False, True])), 2)
        >>> pairs.tolist()
        [[False, False], [False, True]]

    Source: own.
    """
    for part in parts(mask):
        if isinstance(part, TopK):
            raise must("mask", "be known without the scores", repr(part))
    exists, permits = existing_tokens(mask, n), read_mask(mask, n, n)
    pairs = Permits(pairs=permits.pairs, rules=permits.rules).dense(n, n)
    if exists is not None and pairs is not None:
        pairs = pairs & exists[None, :] & exists[:, None]
    return exists, pairs


def read_mask(mask: MaskLike, n_q: int, n_k: int) -> Permits:
    """A mask in the form that the kernels use, each part of it checked."""
    arrays, rules, top = [], [], n_k
    for part in parts(mask):
        if isinstance(part, TopK):
            top = min(part.k, top)
        elif isinstance(part, AbstractMask):
            rules.append(part)
        else:
            array = boolean(part(n_q, n_k) if callable(part) else part)
            arrays.append(_shaped(array, n_q, n_k))
    keys = every(array for array in arrays if array.ndim == 1)
    pairs = every(array for array in arrays if array.ndim == 2)
    return Permits(keys, pairs, tuple(rules), None if top == n_k else top)


def _is_rule(part):
    return callable(part) or isinstance(part, TopK)


def _shaped(mask, n_q, n_k, of_what=""):
    if mask.shape not in ((n_k,), (n_q, n_k)):
        rule = f"have shape ({n_k},) or ({n_q}, {n_k}){of_what}"
        raise must("mask", rule, f"of shape {mask.shape}")
    return mask
