"""The root finder of events: Newton's method within a bracket that shrinks."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float


class BracketedNewton(optx.AbstractRootFinder):
    """Newton's method, which bisects where a step leaves the bracket or is not short.

    For conditions that are negative at the lower end of a step and positive at the
    upper one. An extreme over pairs of tokens has kinks, over which Newton's
    method alone can go back and forth for ever; and bisection alone takes one
    function, and goes astray where only some members of a batch have an event. The
    root is found to rounding, hence no tolerances.
    """

    rtol: ClassVar[float] = 0.0  # type: ignore[misc]
    atol: ClassVar[float] = 0.0  # type: ignore[misc]
    norm: ClassVar[Callable] = optx.max_norm  # type: ignore[misc]

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        lower, upper = (jnp.asarray(options[end], y.dtype) for end in _ENDS)
        return _Bracket(lower, upper, upper - lower)

    def step(self, fn, y, args, options, state, tags):
        def total(y):
            # Of several conditions all but the one that occurred are 0.
            values, aux = fn(y, args)
            return sum(jax.tree.leaves(values)), aux

        value, slope, aux = jax.jvp(total, (y,), (jnp.ones_like(y),), has_aux=True)
        lower = jnp.where(value <= 0, y, state.lower)
        upper = jnp.where(value >= 0, y, state.upper)
        change = value / jnp.where(slope == 0, 1, slope)
        newton, middle = y - change, lower + (upper - lower) / 2
        good = (slope != 0) & (lower <= newton) & (newton <= upper)
        good = good & (2 * jnp.abs(change) <= state.step)
        new = jnp.where(value == 0, y, jnp.where(good, newton, middle))
        return new, _Bracket(lower, upper, jnp.abs(new - y)), aux

    def terminate(self, fn, y, args, options, state, tags):
        largest = jnp.maximum(jnp.abs(state.lower), jnp.abs(state.upper))
        done = state.step <= 2 * jnp.finfo(y.dtype).eps * largest
        return done, optx.RESULTS.successful

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        return y, aux, {}


_ENDS = ("lower", "upper")


class _Bracket(eqx.Module):
    """Where the root lies, and how long the last step towards it was."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    step: Float[Array, ""]
