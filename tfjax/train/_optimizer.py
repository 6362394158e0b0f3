"""AdamW with a schedule."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .._core import count, is_concrete, must


Number = float | int | Float[Array, ""]
SCHEDULES = ("cosine", "linear", "constant")
# Scales of normalisations: shrinking them regularises nothing.
_NOT_DECAYED = ("scale", "logit_scale", "rates")


def make_optimizer(
    *,
    steps: int,
    learning_rate: Number = 1e-3,
    schedule: str = "cosine",
    warmup: int = 0,
    final: float | int = 0.1,
    weight_decay: Number = 0.0,
    betas: tuple[float, float] = (0.9, 0.99),
) -> optax.GradientTransformation:
    """AdamW with a schedule, whose decay leaves scales and vectors alone.

    **Arguments:**

    - `steps`: how long the schedule is.
    - `learning_rate`: its largest value.
    - `schedule`: what follows the warm-up: `"cosine"` or `"linear"`, down to `final`
      times the largest, or `"constant"`.
    - `warmup`: steps in which the rate rises from 0.
    - `final`: the rate at the end, over the largest.
    - `weight_decay`, `betas`: as in `optax.adamw`.

    **Returns:** an optimizer of optax.

    **Raises:** ValueError where an argument is out of range.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import make_optimizer
        >>> optimizer = make_optimizer(steps=100, learning_rate=0.01, warmup=10)
        >>> state = optimizer.init(jnp.zeros(3))

    Source: arXiv 1711.05101, for decay apart from the gradient.
    """
    rates = rate_schedule(
        steps=steps,
        learning_rate=learning_rate,
        schedule=schedule,
        warmup=warmup,
        final=final,
    )
    if is_concrete(weight_decay) and not weight_decay >= 0:
        raise must("weight_decay", "be at least 0", weight_decay)
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise must("betas", "be two numbers in [0, 1)", betas)
    return optax.adamw(
        rates, b1=betas[0], b2=betas[1], weight_decay=weight_decay, mask=_decayed
    )


def rate_schedule(
    *,
    steps: int,
    learning_rate: Number = 1e-3,
    schedule: str = "cosine",
    warmup: int = 0,
    final: float | int = 0.1,
) -> optax.Schedule:
    """The learning rate of every step, as [`make_optimizer`][] uses it.

    **Arguments:**

    - `steps`, `learning_rate`, `schedule`, `warmup`, `final`: as there.

    **Returns:** a function from the number of a step to its rate.

    **Raises:** ValueError where an argument is out of range.

    !!! example

        >>> from tfjax.train import rate_schedule
        >>> rate = rate_schedule(steps=100, learning_rate=0.5, warmup=10)
        >>> [round(float(rate(step)), 3) for step in (0, 5, 10, 55, 100)]
        [0.0, 0.25, 0.5, 0.275, 0.05]

    Source: own.
    """
    steps = count("steps", steps)
    if is_concrete(learning_rate) and not learning_rate > 0:
        raise must("learning_rate", "be positive", learning_rate)
    if schedule not in SCHEDULES:
        rule = f"be one of {', '.join(map(repr, SCHEDULES))}"
        raise must("schedule", rule, repr(schedule))
    if isinstance(warmup, bool) or not 0 <= warmup < steps:
        raise must("warmup", f"lie in [0, steps = {steps})", warmup)
    if not 0 <= final <= 1:
        raise must("final", "lie in [0, 1]", final)
    rest = max(steps - warmup, 1)
    if schedule == "cosine":
        later = optax.cosine_decay_schedule(learning_rate, rest, alpha=final)
    elif schedule == "linear":
        later = optax.linear_schedule(learning_rate, final * learning_rate, rest)
    else:
        later = optax.constant_schedule(learning_rate)
    if not warmup:
        return later
    rise = optax.linear_schedule(0.0, learning_rate, warmup)
    return optax.join_schedules([rise, later], [warmup])


def _decayed(parameters):
    """Which arrays decay: matrices that are no scales."""

    def decays(path, leaf):
        name = getattr(path[-1], "name", "") if path else ""
        return jnp.ndim(leaf) > 1 and name not in _NOT_DECAYED

    return jax.tree_util.tree_map_with_path(decays, parameters)
