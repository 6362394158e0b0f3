"""What the solvers of Hamilton's equations share, and which fields are separable."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax as dfx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, PyTree

from .._core import must


class AbstractSymplectic(dfx.AbstractSolver):
    """A solver of `(dq, dp) = field(t, (q, p), args)`, of constant steps.

    Between its steps it interpolates by Hermite's cubic, from the state and its
    velocity at both ends of a step; the latter is the solver's state.
    """

    term_structure: ClassVar = dfx.AbstractTerm
    interpolation_cls: ClassVar[Callable[..., Any]] = (
        dfx.ThirdOrderHermitePolynomialInterpolation
    )

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


def velocity(terms: Any, t: Any, y: PyTree, args: Any, cached: Any, stale: Any) -> Any:
    """The velocity at the start of a step: the one in the cache, if nothing jumped."""
    if stale is False:
        return cached
    if stale is True:
        return terms.vf(t, y, args)
    fresh = lambda: terms.vf(t, y, args)
    # One branch for a whole batch: a choice for each member would take both.
    return jax.lax.cond(eqxi.unvmap_any(stale), fresh, lambda: cached)


def moved(x: PyTree[Array], h: Any, v: PyTree[Array]) -> PyTree[Array]:
    """`x + h v`, in the dtype of x."""
    h = jnp.asarray(h)
    return jax.tree.map(lambda x, v: x + h.astype(x.dtype) * v, x, v)


def hermite(y0: PyTree, y1: PyTree, v0: PyTree, v1: PyTree, h: Any) -> dict[str, Any]:
    """What the interpolation needs of a step of length h."""
    h = jnp.asarray(h)
    scaled = lambda v: jax.tree.map(lambda v: h.astype(v.dtype) * v, v)
    return {"y0": y0, "y1": y1, "k0": scaled(v0), "k1": scaled(v1)}


def check_term(solver: Any, terms: Any) -> Any:
    """The field of an ODE, or an error that says what the solver does not take."""
    name, term = type(solver).__name__, terms
    while not isinstance(term, dfx.ODETerm) and hasattr(term, "term"):
        if type(term).__name__ == "AdjointTerm":  # diffrax does not export it
            raise backsolve(name)
        term = term.term
    if isinstance(term, dfx.ODETerm):
        return term.vector_field
    raise must("terms", f"be a diffrax.ODETerm for {name}", type(term).__name__)


def backsolve(name: str) -> ValueError:
    """The error for an adjoint whose equations are not of the form that is solved."""
    rule = f"not be BacksolveAdjoint for {name}, whose form its equations do not have"
    return must("adjoint", rule, "BacksolveAdjoint; use RecursiveCheckpointAdjoint")


def check_pair(solver: Any, terms: Any, t0: Any, y0: PyTree, args: Any) -> Any:
    """The field, for a state that is a pair of positions and momenta alike."""
    field = check_term(solver, terms)
    rule = f"be a pair (q, p) of positions and momenta for {type(solver).__name__}"
    if type(y0) is not tuple or len(y0) != 2:
        leaves, kind = len(jax.tree.leaves(y0)), type(y0).__name__
        got = f"a {kind} of {leaves} arrays"
        if isinstance(y0, jax.Array):
            got = f"an array of shape {y0.shape}"
        raise must("y0", rule, got)
    shapes = [jax.tree.map(jnp.shape, part) for part in y0]
    if shapes[0] != shapes[1]:
        raise must("y0", f"{rule}, of one shape", f"of shapes {tuple(shapes)}")
    return field


def check_separable(solver: Any, terms: Any, t0: Any, y0: PyTree, args: Any) -> None:
    """Raises unless dq/dt does not depend on q, nor dp/dt on p.

    A field may declare so in an attribute `separable`; else its program is read.
    """
    field = check_pair(solver, terms, t0, y0, args)
    separable = getattr(field, "separable", None)
    if separable is None:
        separable = is_separable(lambda y: terms.vf(t0, y, args), y0)
    if not separable:
        rule = (
            "be ImplicitMidpoint or TaoLeapfrog where dq/dt depends on q, or dp/dt on "
            "p, by its program (a field that knows better has `separable = True`)"
        )
        raise must("solver", rule, f"{type(solver).__name__}, for separable H only")


def is_separable(field: Callable[[PyTree], PyTree], y: PyTree) -> bool:
    """Whether dq/dt does not depend on q, nor dp/dt on p, by the program of a field."""
    program = jax.make_jaxpr(field)(y).jaxpr
    count = len(jax.tree.leaves(y[0]))
    sources = [{"q"} if i < count else {"p"} for i in range(len(program.invars))]
    reached = _reached(program, sources)
    free_of_q = all("q" not in found for found in reached[:count])
    return free_of_q and all("p" not in found for found in reached[count:])


# Primitives that are a call of one program: their inputs are its inputs.
_CALLS = {
    "checkpoint",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "jit",
    "pjit",
    "remat2",
}


def _reached(program: Any, sources: list[set[str]]) -> list[set[str]]:
    """On which sources each output depends; loops and branches mix all of theirs."""
    env = dict(zip(program.invars, sources, strict=True))
    read = lambda v: set() if isinstance(v, Literal) else env.get(v, set())
    for equation in program.eqns:
        inputs = [read(v) for v in equation.invars]
        inner = _called(equation)
        if inner is None:
            outputs = [set().union(*inputs)] * len(equation.outvars)
        else:
            outputs = _reached(inner, inputs)
        env.update(zip(equation.outvars, outputs, strict=True))
    return [read(v) for v in program.outvars]


def _called(equation: Any) -> Any:
    """The program that an equation calls, if it is a plain call."""
    if equation.primitive.name not in _CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in equation.params:
            inner = equation.params[name]
            inner = getattr(inner, "jaxpr", inner)
            same = len(inner.invars) == len(equation.invars)
            return inner if same else None
    return None
