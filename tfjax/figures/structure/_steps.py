"""Steps of a solver one by one, and by how much what should stay moves."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Run(NamedTuple):
    """What steps in blocks leave behind.

    - `mean`: the mean error of each quantity in each block, with its sign.
    - `largest`: the largest absolute error in each block.
    - `states`: the states at the ends of the blocks.
    """

    mean: Any
    largest: Any
    states: Any


def run(
    solver: dfx.AbstractSolver,
    field: Callable[..., Any],
    watch: Callable[..., Any],
    y0: Any,
    step: float,
    length: int = 1,
    blocks: int = 200,
) -> Run:
    """`blocks` times `length` constant steps, watched after every one of them.

    One program per solver serves all steps and lengths. `watch` maps a state to its
    quantities, whose errors are their differences from those of `y0`.
    """
    numbers = jnp.asarray(float(step)), jnp.asarray(length)
    *found, okay = _run(solver, field, watch, y0, *numbers, blocks)
    if not bool(okay):
        raise RuntimeError(f"{type(solver).__name__} failed at the step {step:g}.")
    return Run(*(jax.tree.map(np.asarray, part) for part in found))


@eqx.filter_jit
def _run(solver, field, watch, y0, h, length, blocks):
    term, zero = dfx.ODETerm(field), jnp.zeros_like(h)
    first = watch(y0)

    def step(_, carry):
        y, state, okay, total, largest = carry
        y, _, _, state, result = solver.step(term, zero, h, y, None, state, False)
        error = jax.tree.map(jnp.subtract, watch(y), first)
        total = jax.tree.map(jnp.add, total, error)
        largest = jax.tree.map(lambda a, b: jnp.maximum(a, abs(b)), largest, error)
        return y, state, okay & dfx.is_okay(result), total, largest

    def block(carry, _):
        none = jax.tree.map(jnp.zeros_like, first)
        *carry, total, largest = jax.lax.fori_loop(
            0, length, step, (*carry, none, none)
        )
        mean = jax.tree.map(lambda a: a / length, total)
        return tuple(carry), (mean, largest, carry[0])

    begin = y0, solver.init(term, zero, h, y0, None), jnp.asarray(True)
    (_, _, okay), found = jax.lax.scan(block, begin, length=blocks)
    return *found, okay


def growth(mean: np.ndarray, largest: np.ndarray) -> float:
    """The fitted growth of an error over a run, in units of its largest value.

    It is 1 or -1 for a steady drift, and near 0 where the error comes and goes.
    """
    time = np.linspace(-0.5, 0.5, len(mean))
    return float(time @ mean / (time @ time) / largest.max())


def standard_errors(mean: np.ndarray) -> float:
    """The slope over its standard error, were the blocks independent of each other."""
    time = np.linspace(-0.5, 0.5, len(mean))
    slope = time @ mean / (time @ time)
    rest = mean - mean.mean() - slope * time
    return float(slope / np.sqrt(rest @ rest / (len(mean) - 2) / (time @ time)))


def order(steps: Any, errors: Any) -> float:
    """The slope of errors against steps, of those between 1e-11 and 1e-3."""
    steps, errors = np.asarray(steps), np.asarray(errors)
    clear = (errors >= 1e-11) & (errors <= 1e-3)
    if clear.sum() < 3:
        return float("nan")  # no claim about it holds
    return float(np.polyfit(np.log(steps[clear]), np.log(errors[clear]), 1)[0])


class RK4(dfx.AbstractERK):
    """The classical method of Runge and Kutta, of order 4."""

    tableau: ClassVar[dfx.ButcherTableau] = dfx.ButcherTableau(
        c=np.array([0.5, 0.5, 1.0]),
        a_lower=(
            np.array([0.5]),
            np.array([0.0, 0.5]),
            np.array([0.0, 0.0, 1.0]),
        ),
        b_sol=np.array([1.0, 2.0, 2.0, 1.0]) / 6,
        b_error=np.zeros(4),
    )
    interpolation_cls: ClassVar[Callable[..., Any]] = (
        dfx.ThirdOrderHermitePolynomialInterpolation.from_k
    )

    def order(self, terms):
        return 4
