"""Marks on arrays that refuse a mode of differentiation in our own words.

A rule for derivatives cannot see who asks: reverse mode is forward mode whose linear
part is transposed instead of evaluated. So a mark passes tangents through a linear
identity that raises where it is evaluated (forward mode) or transposed (reverse mode).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree


class Refused(NamedTuple):
    """Why a mode of differentiation is refused; None where it is offered.

    `then` says the same of what is differentiated for the second time: the marked
    arrays beneath a first derivative, and the cotangents that come out of it.
    """

    forward: str | None = None
    reverse: str | None = None
    then: "Refused | None" = None


def mark(tree: PyTree[Any], refused: Refused) -> PyTree[Any]:
    """The tree itself, whose floating-point arrays refuse modes of differentiation."""
    marked, rest = eqx.partition(tree, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(marked)
    if leaves:
        leaves = _values.bind(*leaves, refused=refused)
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


_values = Primitive("tfjax_marked_values")
_tangents = Primitive("tfjax_marked_tangents")


def _pass(*arrays, refused):
    return list(arrays)


def _evaluate(*tangents, refused):
    if refused.forward is not None:
        raise ValueError(refused.forward)
    return list(tangents)


def _jvp(primals, tangents, *, refused):
    # Marked anew, if at all, for what a second derivative does to them.
    then = refused.then
    primals = list(primals) if then is None else _values.bind(*primals, refused=then)
    return primals, _bind_nonzero(tangents, refused)


def _tangents_jvp(primals, tangents, *, refused):
    return _tangents.bind(*primals, refused=refused), _bind_nonzero(tangents, refused)


def _bind_nonzero(tangents, refused):
    """All at once: one unknown tangent keeps reverse mode from evaluating any."""
    nonzero = [t for t in tangents if type(t) is not ad.Zero]
    if not nonzero:
        return list(tangents)
    passed = iter(_tangents.bind(*nonzero, refused=refused))
    return [t if type(t) is ad.Zero else next(passed) for t in tangents]


def _transpose(cotangents, *operands, refused):
    nonzero = [c for c in cotangents if type(c) is not ad.Zero]
    if nonzero and refused.reverse is not None:
        raise ValueError(refused.reverse)
    if nonzero and refused.then is not None:
        nonzero = _values.bind(*nonzero, refused=refused.then)
    passed = iter(nonzero)
    out = [c if type(c) is ad.Zero else next(passed) for c in cotangents]
    return [
        c if ad.is_undefined_primal(o) else None
        for c, o in zip(out, operands, strict=True)
    ]


def _values_batch(arrays, axes, *, refused):
    return _values.bind(*arrays, refused=refused), axes


def _tangents_batch(tangents, axes, *, refused):
    # Only what is evaluated is batched: reverse mode transposes before.
    _evaluate(*tangents, refused=refused)
    return _tangents.bind(*tangents, refused=refused), axes


for _primitive, _impl in ((_values, _pass), (_tangents, _evaluate)):
    _primitive.multiple_results = True
    _primitive.def_impl(_impl)
    _primitive.def_abstract_eval(_pass)
    mlir.register_lowering(_primitive, mlir.lower_fun(_impl, multiple_results=True))
batching.primitive_batchers[_values] = _values_batch
batching.primitive_batchers[_tangents] = _tangents_batch
ad.primitive_jvps[_values] = _jvp
ad.primitive_jvps[_tangents] = _tangents_jvp
ad.primitive_transposes[_tangents] = _transpose
