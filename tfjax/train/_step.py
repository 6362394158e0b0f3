"""One step of training, compiled: gradient, guard, clipping, update."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Key

from .._core import count, must


Loss = Callable[[Any, Any, Key[Array, ""]], Float[Array, ""]]


class TrainState(eqx.Module):
    """All that training goes on from, and that a checkpoint holds.

    **Arguments:**

    - `model`: with parameters in full precision.
    - `optimizer_state`: of optax.
    - `key`: which does not change; step s draws from `jax.random.fold_in(key, s)`.
    - `step`: how many steps were taken, skipped ones among them.
    - `skipped`: how many had a gradient that was not finite, and changed nothing.
    """

    model: Any
    optimizer_state: Any
    key: Key[Array, ""]
    step: Int[Array, ""]
    skipped: Int[Array, ""]


class StepMetrics(NamedTuple):
    """What a step measures: loss and norm of the gradient, before any clipping."""

    loss: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    skipped: Bool[Array, ""]


def start(
    model: Any, optimizer: optax.GradientTransformation, key: Key[Array, ""]
) -> TrainState:
    """The state before the first step.

    **Arguments:**

    - `model`: a tree whose floating-point arrays are trained.
    - `optimizer`: of optax.
    - `key`: what every step draws from.

    **Returns:** a [`TrainState`][].

    Source: own.
    """
    parameters = eqx.filter(model, eqx.is_inexact_array)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(model, optimizer.init(parameters), key, zero, zero)


def make_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    clip: float | None = None,
    dtype: DTypeLike | None = None,
) -> Callable[[TrainState, Any], tuple[TrainState, StepMetrics]]:
    """A compiled step of training.

    **Arguments:**

    - `loss`: a function `(model, batch, key) -> scalar`.
    - `optimizer`: of optax, schedules included.
    - `accumulate`: the batch's leading axes are cut into so many parts, whose gradients
      are averaged: less memory, the same step (but for dropout, which every part draws
      anew). On CPU it is faster, too, where the
      memory of a whole batch is beyond the processor's cache.
    - `clip`: the largest norm of a gradient; longer ones are shortened to it.
    - `dtype`: what the loss is computed in, such as bfloat16; parameters and the
      optimizer stay as they are. None is the parameters' own.

    **Returns:** a function `(state, batch) -> (state, metrics)`. A gradient or loss
    that is not finite changes neither parameters nor the optimizer's state.

    **Raises:** ValueError where an argument is of another kind.

    !!! example

        >>> import jax, jax.numpy as jnp, optax
        >>> from tfjax.train import make_step, start
        >>> square = lambda model, batch, key: jnp.sum((model - batch) ** 2)
        >>> optimizer = optax.sgd(0.25)
        >>> state = start(jnp.zeros(2), optimizer, jax.random.key(0))
        >>> step = make_step(square, optimizer)
        >>> state, metrics = step(state, jnp.array([1.0, 3.0]))
        >>> state.model.tolist(), float(metrics.loss)
        ([0.5, 1.5], 10.0)

    Source: own.
    """
    parts = count("accumulate", accumulate)
    if clip is not None and not clip > 0:
        raise must("clip", "be positive, or None", clip)

    def value(parameters, rest, batch, key):
        if dtype is not None:
            parameters = jax.tree.map(lambda p: p.astype(dtype), parameters)
        return loss(eqx.combine(parameters, rest), batch, key).astype(jnp.float32)

    def gradients(parameters, rest, batch, key):
        if parts == 1:
            return jax.value_and_grad(value)(parameters, rest, batch, key)
        cut = jax.tree.map(lambda a: _cut(a, parts), batch)
        zeros = jax.tree.map(jnp.zeros_like, parameters)

        def add(total, given):
            part, key = given
            more = jax.value_and_grad(value)(parameters, rest, part, key)
            return jax.tree.map(lambda a, b: a + b / parts, total, more), None

        start = jnp.zeros(()).astype(jnp.float32), zeros
        return jax.lax.scan(add, start, (cut, jax.random.split(key, parts)))[0]

    @eqx.filter_jit
    def step(state: TrainState, batch: Any) -> tuple[TrainState, StepMetrics]:
        parameters, rest = eqx.partition(state.model, eqx.is_inexact_array)
        key = jax.random.fold_in(state.key, state.step)
        found, gradient = gradients(parameters, rest, batch, key)
        norm = global_norm(gradient)
        good = jnp.isfinite(found) & jnp.isfinite(norm)
        if clip is not None:
            gradient = _clipped(gradient, norm, clip)
        # optax mixes dtypes, which strict promotion of the caller's would refuse.
        with jax.numpy_dtype_promotion("standard"):
            updates, optimizer_state = optimizer.update(
                gradient, state.optimizer_state, parameters
            )
            moved = optax.apply_updates(parameters, updates)
        kept = lambda new, old: jax.tree.map(
            lambda a, b: jnp.where(good, a, b), new, old
        )
        new = TrainState(
            eqx.combine(kept(moved, parameters), rest),
            kept(optimizer_state, state.optimizer_state),
            state.key,
            state.step + 1,
            state.skipped + jnp.where(good, 0, 1),
        )
        return new, StepMetrics(found, norm, ~good)

    return step


def global_norm(tree: Any) -> Float[Array, ""]:
    """The norm of all entries together, in float32; it does not overflow on the way.

    **Arguments:**

    - `tree`: arrays.

    **Returns:** a scalar; not finite where an entry is not.

    Source: own.
    """
    leaves = [leaf.astype(jnp.float32) for leaf in jax.tree.leaves(tree)]
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in leaves]))
    unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    return unit * jnp.sqrt(sum(jnp.sum((leaf / unit) ** 2) for leaf in leaves))


def _clipped(gradient, norm, most):
    share = most / jnp.maximum(norm, most)
    return jax.tree.map(lambda g: g * share.astype(g.dtype), gradient)


def _cut(array, parts):
    if not array.ndim or array.shape[0] % parts:
        rule = f"have leading axes that `accumulate` = {parts} divides"
        raise must("batch", rule, f"of shape {array.shape}")
    return array.reshape(parts, array.shape[0] // parts, *array.shape[1:])
