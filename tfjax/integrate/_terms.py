"""What own solvers ask of their term and of the state that they start from."""

from typing import Any

import diffrax as dfx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._core import must


def velocity(terms: Any, t: Any, y: PyTree, args: Any, cached: Any, stale: Any) -> Any:
    """The velocity at the start of a step: the one in the cache, if nothing jumped."""
    if stale is False:
        return cached
    if stale is True:
        return terms.vf(t, y, args)
    fresh = lambda: terms.vf(t, y, args)
    # One branch for a whole batch: a choice for each member would take both.
    return jax.lax.cond(eqxi.unvmap_any(stale), fresh, lambda: cached)


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


def slack(dtype: Any) -> float:
    """By how much a first state may miss: the first step makes up for it.

    Not less than what points in float32 miss, which a solve may have widened.
    """
    return max(float(jnp.finfo(dtype).eps) ** 0.5, 1e-5)
