"""The parameters of the fields of tokens: PyTrees of arrays, maybe varying in time."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from .._core import as_float, is_concrete, must, require
from ..attention import Causal, existing_tokens


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


class TokenParams(eqx.Module):
    """Parameters of a field of tokens, which say in `mask` which tokens exist."""

    mask: eqx.AbstractVar[Any]


class AttentionParams(TokenParams):
    r"""The parameters of an attention field: a PyTree of arrays.

    Token i attends to token j with logit `beta <Q x_i, K x_j>` and receives `V x_j`.
    Every array is a leaf: it may be differentiated, or vmapped over, and a new value
    does not cause a new compilation. Wherever a field takes these parameters it also
    takes a function of time that returns them, such as a [`PiecewiseConstant`][].

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


class PiecewiseConstant(eqx.Module):
    r"""Parameters that change from layer to layer and are constant in between.

    From `starts[k]` to `starts[k + 1]` the parameters are those of layer k; before
    `starts[0]` they are those of the first layer, from `starts[-1]` on those of the
    last. A discrete Transformer is this, with a step of Euler's method a layer.
    `tfjax.solve` ends steps where the parameters jump.

    **Arguments:**

    - `starts`: when each layer begins, increasing, of shape (l,).
    - `params`: parameters, such as an [`AttentionParams`][], whose floating-point
      arrays have a leading axis of length l; scalars are the same for all layers.

    **Arguments of the call:** `t`, a time.

    **Returns:** the parameters at time t.

    **Raises:** ValueError where `starts` is not increasing, or where an array does not
    have the leading axis.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, PiecewiseConstant
        >>> value = jnp.stack([jnp.eye(2), -jnp.eye(2)])
        >>> layers = PiecewiseConstant(jnp.arange(2.0), AttentionParams(value=value))
        >>> layers(1.5).value.tolist()
        [[-1.0, -0.0], [-0.0, -1.0]]

    Source: arXiv 2312.10794, section 2.1 (layers as times).
    """

    starts: Float[Array, "..."] = eqx.field(
        converter=lambda value: as_float("starts", value)
    )
    params: Any

    def __call__(self, t: Float[ArrayLike, ""] | float) -> Any:
        if self.starts.ndim != 1 or not self.starts.size:
            rule = "have shape (l,) with l at least 1"
            raise must("starts", rule, f"of shape {self.starts.shape}")
        if is_concrete(self.starts):
            self.checked()
        count = self.starts.size
        now = jnp.asarray(t).astype(self.starts.dtype)
        layer = jnp.searchsorted(self.starts, now, side="right") - 1
        layer = jnp.clip(layer, 0, count - 1)

        def pick(leaf):
            if not eqx.is_inexact_array(leaf) or leaf.ndim == 0:
                return leaf
            if leaf.shape[0] != count:
                rule = (
                    f"hold arrays with a leading axis of length {count}, a layer each"
                )
                raise must("params", rule, f"one of shape {leaf.shape}")
            return leaf[layer]

        return jax.tree.map(pick, self.params)

    def checked(self) -> "PiecewiseConstant":
        """The same, or an error where `starts` is not increasing, at run time too."""
        rising = jnp.all(jnp.diff(self.starts) > 0)
        starts = require(self.starts, rising, "starts", "be increasing")
        return eqx.tree_at(lambda layers: layers.starts, self, starts)


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raises unless a part of some parameters is of its kind."""
    if not isinstance(value, kind):
        what = "the class " if isinstance(value, type) else "a "
        what += value.__name__ if isinstance(value, type) else type(value).__name__
        raise must(name, f"be of type {kind.__name__}", what)


_Params = TypeVar("_Params", bound=TokenParams)


def params_at(t: Any, args: Any, kind: type[_Params]) -> _Params:
    """The parameters of a field at time t, which are of a `kind` or a function of t."""
    if args is None:
        return kind()  # type: ignore[call-arg]
    params, of_time = args, callable(args) and not isinstance(args, TokenParams | type)
    if callable(args) and of_time:
        params = args(t)
    if not isinstance(params, kind):
        what = "an array" if isinstance(params, jax.Array) else type(params).__name__
        what = f"the class {params.__name__}" if isinstance(params, type) else what
        got = f"a function that returned {what}" if of_time else what
        rule = (
            f"be of type {kind.__name__}, a function of time that returns one, or None"
        )
        raise must("args", rule, got)
    return params


def present_tokens(args: Any, t: Any, n: int) -> Bool[Array, " n"] | None:
    """Which of n tokens exist, if `args` are parameters that say so.

    **Arguments:**

    - `args`: what a field is called with: [`AttentionParams`][] or other parameters of
      tokens, a function of time that returns them, or anything else.
    - `t`: a time; which tokens exist must not depend on it.
    - `n`: the number of tokens.

    **Returns:** booleans of shape (n,), or None where every token exists.

    **Raises:** ValueError where a mask is not boolean or its shape does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, present_tokens
        >>> params = AttentionParams(mask=jnp.array([True, False]))
        >>> present_tokens(params, 0.0, 2).tolist()
        [True, False]

    Source: own.
    """
    params = args
    if callable(args) and not isinstance(args, TokenParams):
        try:
            kind = eqx.filter_eval_shape(args, jnp.asarray(t))
        except Exception:  # a function of something else: no parameters of ours
            return None
        if not isinstance(kind, TokenParams):
            return None
        params = args(t)
    if not isinstance(params, TokenParams) or params.mask is None:
        return None
    return existing_tokens(params.mask, n)
