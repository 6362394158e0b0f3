"""Argument checks and the one sentence in which tfjax refuses bad input."""

import operator
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped


def must(name: str, rule: str, got: Any) -> ValueError:
    """The error for a bad argument: its name, what it must be, what it was."""
    return ValueError(f"`{name}` must {rule}, but was {got}.")


def is_concrete(*trees: Any) -> bool:
    """Whether no leaf of the trees is a tracer, so that values may be looked at."""
    leaves = jax.tree_util.tree_leaves(trees)
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def as_float(name: str, value: Any) -> Array:
    """Turns real input into a floating-point array; integers take the default dtype.

    Python floats stay weakly typed, so that they follow the dtype they meet.
    """
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        got = f"a {type(value).__name__}: {value!r}"
        raise must(name, "be a real array", got) from error
    if jnp.issubdtype(array.dtype, jnp.integer):
        weak = isinstance(value, int)
        default = jax.dtypes.canonicalize_dtype(float)
        return jnp.asarray(float(value)) if weak else array.astype(default)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise must(name, "be a real array", f"of dtype {array.dtype}")
    return array


def check_shape(name: str, array: Any, ndim: int, shape: str) -> None:
    """Raises unless `array` has `ndim` axes, none of them empty."""
    if np.ndim(array) != ndim:
        raise must(name, f"have shape {shape}", f"of shape {np.shape(array)}")
    if 0 in np.shape(array):
        rule = f"have shape {shape} with no axis of length 0"
        raise must(name, rule, f"of shape {np.shape(array)}")


def count(name: str, value: Any) -> int:
    """A positive integer, of Python or of numpy."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise must(name, "be a positive integer", repr(value))
    return number


def require(
    value: Shaped[Array, "..."], ok: Bool[Array, "..."], name: str, rule: str
) -> Shaped[Array, "..."]:
    """Returns `value`, or fails where `ok` is false: now if concrete, else at run time.

    The value returned must be the one used afterwards, or a traced check is dropped.
    """
    if is_concrete(value, ok):
        if not bool(jnp.all(ok)):
            raise must(name, rule, _summary(value))
        return value
    return eqx.error_if(value, ~jnp.all(ok), f"`{name}` must {rule}.")


def _summary(value: Any) -> str:
    if np.ndim(value) == 0:
        return f"{np.asarray(value).item():g}"
    text = np.array2string(np.asarray(value), threshold=12, precision=6)
    return " ".join(text.split())
