"""The parameters of the attention fields, one PyTree for all of them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import as_float, must
from ..attention import Causal


def _matrix(name: str):
    return lambda value: None if value is None else as_float(name, value)


def _mask(mask: Any) -> Any:
    if mask is None or isinstance(mask, eqx.Module):
        return mask
    if isinstance(mask, tuple):
        return tuple(_mask(part) for part in mask)
    if isinstance(mask, str):
        if mask != "causal":
            rule = 'be None, "causal", boolean, a mask module, or a tuple of these'
            raise must("mask", rule, repr(mask))
        return Causal()
    try:
        array = jnp.asarray(mask)
    except (TypeError, ValueError) as error:
        raise must("mask", "be boolean", repr(mask)) from error
    if array.dtype != bool:
        raise must("mask", "be boolean", f"of dtype {array.dtype}")
    return array


class AttentionParams(eqx.Module):
    r"""The parameters of an attention field: a PyTree of arrays.

    Token i attends to token j with logit `beta <Q x_i, K x_j>` and receives `V x_j`.
    Every array is a leaf: it may be differentiated, or vmapped over, and a new value
    does not cause a new compilation.

    **Arguments:**

    - `beta`: inverse temperature, a scalar.
    - `query`, `key`: the matrices Q and K, of shape (d_k, d), or (h, d_k, d) for h
      heads; the identity where None.
    - `value`: the matrix V, of shape (d, d), or (h, d, d) for h heads, whose outputs
      are summed; the identity where None.
    - `mask`: None, `"causal"`, a boolean array of shape (n,) (which tokens exist) or
      (n, n) (token i may attend to j), a mask module such as `Causal()`, or a tuple of
      these, all of which must permit. An absent token neither sees nor is seen and
      has velocity 0.
    - `chunk_size`: how many tokens attend at a time, to bound memory; all where None.

    **Raises:** ValueError where an entry is not real or a mask is not boolean. Whether
    shapes fit together is checked by the field, since leaves may carry batch axes.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams
        >>> AttentionParams(beta=4.0, value=-jnp.eye(3), mask="causal").value.shape
        (3, 3)

    Source: arXiv 2312.10794, equations (2.3) and (2.5).
    """

    beta: Float[Array, "..."] = eqx.field(
        default=1.0, converter=lambda value: as_float("beta", value)
    )
    query: Float[Array, "..."] | None = eqx.field(
        default=None, converter=_matrix("query")
    )
    key: Float[Array, "..."] | None = eqx.field(default=None, converter=_matrix("key"))
    value: Float[Array, "..."] | None = eqx.field(
        default=None, converter=_matrix("value")
    )
    mask: Bool[Array, "..."] | eqx.Module | tuple | None = eqx.field(
        default=None, converter=_mask
    )
    chunk_size: int | None = eqx.field(default=None, static=True)
