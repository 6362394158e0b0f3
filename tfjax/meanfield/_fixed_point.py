"""States that make themselves: iterated until they settle, then by Newton's method."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from .._core import as_float, check_shape, is_concrete, require
from ._params import MeanFieldParams, mean_field_args


_SEED = 1e-3
_ROUNDS = 4096

Image = Callable[[Float[Array, " k"], MeanFieldParams], Float[Array, " k"]]


def settle(
    image: Image, state: Float[Array, " k"], params: MeanFieldParams
) -> Float[Array, " k"]:
    """The fixed point of a map that a guess tends to; differentiable in the params."""
    # Newton doubles the digits: what moves less than this has them all.
    small = float(jnp.finfo(state.dtype).eps) ** 0.75
    iterate = lambda _, state: image(state, jax.lax.stop_gradient(params))
    state = jax.lax.fori_loop(0, _ROUNDS, iterate, state)
    newton = optx.Newton(rtol=small, atol=small)
    excess = lambda state, params: image(state, params) - state
    return optx.root_find(excess, newton, state, params, max_steps=256).value


def branch(
    image: Image,
    point: Float[Array, " k"],
    state: Float[Array, " k"],
    diffusivities: Float[Array, " m"],
    params: MeanFieldParams,
) -> Float[Array, "m k"]:
    """Fixed points, each from the one before with a thousandth of `point` in it."""

    def visit(state, diffusivity):
        start = jax.lax.stop_gradient((1 - _SEED) * state + _SEED * point)
        state = settle(image, start, with_noise(params, diffusivity))
        return state, state

    return jax.lax.scan(visit, state, diffusivities)[1]


def with_noise(params: MeanFieldParams, diffusivity: Any) -> MeanFieldParams:
    """The same parameters with another diffusivity."""
    return MeanFieldParams(params.beta, diffusivity, params.normalized)


def noisy(args: Any, dtype: Any) -> MeanFieldParams:
    """Parameters in a dtype whose diffusivity is positive, where that is known."""
    params = mean_field_args(args, dtype)
    if is_concrete(params.diffusivity):
        fits = params.diffusivity > 0
        require(params.diffusivity, fits, "diffusivity", "be positive")
    return params


def check_diffusivities(diffusivities: Any, dtype: Any) -> Float[Array, " m"]:
    """Those along a branch, in a dtype."""
    diffusivities = as_float("diffusivities", diffusivities)
    check_shape("diffusivities", diffusivities, 1, "(m,)")
    diffusivities = diffusivities.astype(dtype)
    if is_concrete(diffusivities):
        fits = jnp.isfinite(diffusivities) & (diffusivities > 0)
        require(diffusivities, fits, "diffusivities", "be finite and positive")
    return diffusivities
