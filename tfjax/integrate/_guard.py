"""A step-size controller that reports a failed solve instead of running on."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp


def guard(controller: dfx.AbstractStepSizeController) -> dfx.AbstractStepSizeController:
    """Wraps a controller so that a lost solve ends at once, with its cause in `result`.

    Ends with `nonfinite` where the state that is kept is not finite (under constant
    steps diffrax would call it successful), and with `dt_min_reached` where a rejected
    step cannot be made shorter (diffrax would try until `max_steps`).
    """
    if isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        return _AdaptiveGuard(controller=controller)  # type: ignore[call-arg]
    return _Guard(controller)


def _adapt(controller, t0, t1, y0, y1_candidate, *rest):
    out = controller.adapt_step_size(t0, t1, y0, y1_candidate, *rest)
    keep, next_t0, next_t1, made_jump, state, result = out
    finite = jnp.asarray(True)
    for old, new in zip(
        jax.tree.leaves(y0), jax.tree.leaves(y1_candidate), strict=True
    ):
        kept = jnp.where(keep, new, old)
        finite = finite & jnp.all(jnp.isfinite(kept))
    stuck = jnp.logical_not(keep) & (next_t1 <= next_t0)
    short: Any = dfx.RESULTS.dt_min_reached
    lost: Any = dfx.RESULTS.nonfinite
    result = dfx.RESULTS.where(stuck, short, result)
    result = dfx.RESULTS.where(finite, result, lost)
    return keep, next_t0, next_t1, made_jump, state, result


class _Guard(dfx.AbstractStepSizeController):
    controller: dfx.AbstractStepSizeController

    def wrap(self, direction):
        return _Guard(self.controller.wrap(direction))

    def init(self, *args, **kwargs):
        return self.controller.init(*args, **kwargs)

    def adapt_step_size(self, *args):
        return _adapt(self.controller, *args)


class _AdaptiveGuard(dfx.AbstractAdaptiveStepSizeController):
    controller: dfx.AbstractAdaptiveStepSizeController

    # These stand in for the base class's abstract fields, which a type checker takes
    # for arguments of the constructor: hence the ignored calls above and below.
    @property
    def rtol(self):  # type: ignore[override]
        return self.controller.rtol

    @property
    def atol(self):  # type: ignore[override]
        return self.controller.atol

    @property
    def norm(self):  # type: ignore[override]
        return self.controller.norm

    def wrap(self, direction):
        controller = self.controller.wrap(direction)
        return _AdaptiveGuard(controller=controller)  # type: ignore[call-arg]

    def init(self, *args, **kwargs):
        return self.controller.init(*args, **kwargs)

    def adapt_step_size(self, *args):
        return _adapt(self.controller, *args)
