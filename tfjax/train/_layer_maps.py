"""The layers of a model as maps of the tokens of one sequence."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import must
from ..geometry import Sphere
from ..integrate import solve
from ..nn import ContinuousTransformer, Transformer
from ..nn._continuous import _FIELD, _knots
from ._isometry import layer_norm_tangent


class LayerMaps(NamedTuple):
    """What the layers of a model do to the tokens of one sequence, without dropout.

    - `parts`: arrays that tell the layers apart, with a leading axis of layers.
    - `apply`: of the arrays of one layer, and tokens (n, d), the next tokens.
    - `tangent`: of the arrays of one layer, tokens x that enter it and v, the part of v
      in which they can differ; None where tokens go everywhere.
    """

    parts: Any
    apply: Callable[[Any, Array], Array]
    tangent: Callable[[Any, Array, Array], Array] | None


def layer_maps(model: Any) -> LayerMaps:
    """The layers of a Transformer, or the flow of a continuous one between knots.

    **Raises:** ValueError where the model is of another kind, or its steps are chosen
    by tolerances, so that a knot's flow is no function of its tokens alone.
    """
    if isinstance(model, Transformer):
        return _discrete(model)
    if isinstance(model, ContinuousTransformer):
        return _continuous(model)
    rule = "be a Transformer or a ContinuousTransformer for the pullback of its layers"
    raise must("model", rule, f"a {type(model).__name__}")


def mask_of(model: Any, x: Float[Array, "n d"]) -> Array | None:
    """Which places see which."""
    if not model.config.sees_earlier_only:
        return None
    return jnp.tril(jnp.ones((len(x), len(x)), bool))


def _discrete(model):
    config, layers = model.config, model.layers
    if not config.scan:
        arrays, static = eqx.partition(layers, eqx.is_array)
        stacked = jax.tree.map(lambda *each: jnp.stack(each), *arrays)
        layers = eqx.combine(stacked, static[0])
    arrays, static = eqx.partition(layers, eqx.is_array)
    apply = lambda part, x: eqx.combine(part[0], static)(x, mask_of(model, x))
    if config.norm == "ngpt":
        tangent = lambda part, x, v: Sphere(config.width).tangent(x, v)
        return LayerMaps((arrays, None), apply, tangent)
    if config.norm == "post":
        # Tokens lie where the norm before has put them. Those that enter the first
        # layer count as normalised too: else it would collapse two directions of each.
        after = layers.norms[1].scale[:-1]
        before = jnp.concatenate([jnp.ones_like(layers.norms[1].scale[:1]), after])
        tangent = lambda part, x, v: layer_norm_tangent(x, v, part[1])
        return LayerMaps((arrays, before), apply, tangent)
    return LayerMaps((arrays, None), apply, None)


def _continuous(model):
    if not (model.rtol is None and model.atol is None):
        rule = "have equal steps, no tolerances, for the pullback of its flow"
        raise must("model", rule, f"with rtol {model.rtol} and atol {model.atol}")
    here, there, static = _knots(model)
    linear = model.weights == "linear"

    def apply(part, x):
        here, there = part
        solution = solve(
            _FIELD,
            x,
            (eqx.combine(here, static), eqx.combine(there, static), None)
            if linear
            else (eqx.combine(here, static), None, None),
            t1=1.0,
            dt0=1 / model.steps,
            solver=model.solver,
            # The one that passes both derivatives of the layer, and theirs.
            adjoint=dfx.DirectAdjoint(),
            max_steps=model.steps,
            throw=False,
        )
        ys: Any = solution.ys
        return ys[-1]

    return LayerMaps((here, there if linear else None), apply, None)
