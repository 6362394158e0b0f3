"""Who may attend to whom."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._core import must


class Causal(eqx.Module):
    """The mask of causal attention: token i sees the tokens j <= i.

    A mask without leaves, so that the parameters which hold it can be differentiated.

    **Arguments of the call:** `n_q` and `n_k`, the numbers of queries and keys.

    **Returns:** booleans of shape (n_q, n_k), True where j <= i.

    !!! example

        >>> from tfjax.attention import Causal
        >>> Causal()(2, 2).tolist()
        [[True, False], [True, True]]

    Source: arXiv 2411.04990, equation (1.2).
    """

    def __call__(self, n_q: int, n_k: int) -> Bool[Array, "n_q n_k"]:
        return jnp.tril(jnp.ones((n_q, n_k), dtype=bool))


def resolve_mask(
    mask: Any, n: int
) -> tuple[Bool[Array, " n"] | None, Bool[Array, "n n"] | None]:
    """Splits a mask of tokens into "which exist" and "which pairs may attend".

    **Arguments:**

    - `mask`: None, a boolean array of shape (n,) (which tokens exist) or (n, n)
      (token i may attend to token j), a mask module such as [`Causal`][], or a tuple
      of these, all of which must permit.
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
    """
    exists, pairs = None, None
    for part in mask if isinstance(mask, tuple) else (mask,):
        if part is None:
            continue
        allowed: Any = part(n, n) if callable(part) else jnp.asarray(part)
        if allowed.dtype != bool:
            raise must("mask", "be boolean", f"of dtype {allowed.dtype}")
        if allowed.shape == (n,):
            exists = allowed if exists is None else exists & allowed
        elif allowed.shape == (n, n):
            pairs = allowed if pairs is None else pairs & allowed
        else:
            rule = f"have shape ({n},) or ({n}, {n}) for {n} tokens"
            raise must("mask", rule, f"of shape {allowed.shape}")
    if exists is not None and pairs is not None:
        pairs = pairs & exists[None, :] & exists[:, None]
    return exists, pairs
