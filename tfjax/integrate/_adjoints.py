"""How a solve is differentiated, chosen by need; a mode that is not offered says so."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax

from .._core import count, must
from ._door import Plan
from ._modes import Refused
from ._reversible import Reversible


def reverse_mode(checkpoints: int | None = None) -> dfx.AbstractAdjoint:
    r"""Reverse mode (`jax.grad`, `jax.jacrev`, `jax.vjp`): the default of `solve`.

    The solve is run again from checkpoints, so that memory grows with their number and
    not with that of the steps: with `checkpoints` states, for any number of steps, or
    with about the square root of `2 max_steps` of them where None.

    **Arguments:**

    - `checkpoints`: how many states are kept for the backward pass. Fewer than
      the default save memory and cost further steps.

    **Returns:** a `diffrax.RecursiveCheckpointAdjoint`, for `solve(adjoint=)`.

    **Raises:** ValueError where `checkpoints` is not a positive integer.

    !!! example

        >>> import jax, jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import reverse_mode
        >>> def end(y0):
        ...     field, adjoint = lambda t, y, args: -y, reverse_mode(checkpoints=4)
        ...     return tfjax.solve(field, y0, t1=1.0, adjoint=adjoint).ys[-1]
        >>> f"{jax.grad(end)(jnp.asarray(1.0)):.4f}"
        '0.3679'

    Source: P. Stumm, A. Walther, New algorithms for optimal online checkpointing, 2010.
    """
    if checkpoints is not None:
        checkpoints = count("checkpoints", checkpoints)
    return dfx.RecursiveCheckpointAdjoint(checkpoints)


def forward_mode() -> dfx.AbstractAdjoint:
    r"""Forward mode (`jax.jvp`, `jax.jacfwd`): for few inputs and many outputs.

    It needs no memory beyond that of the solve, and may be nested for higher
    derivatives in few directions. Reverse mode is refused.

    **Returns:** a `diffrax.ForwardMode`, for `solve(adjoint=)`.

    !!! example

        >>> import jax, jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import forward_mode
        >>> def end(y0):
        ...     field, adjoint = lambda t, y, args: -y, forward_mode()
        ...     return tfjax.solve(field, y0, t1=1.0, adjoint=adjoint).ys[-1]
        >>> f"{jax.jacfwd(end)(jnp.asarray(1.0)):.4f}"
        '0.3679'

    Source: P. Kidger, On Neural Differential Equations, chapter 5.
    """
    return dfx.ForwardMode()


def second_order(checkpoints: int | None = None) -> dfx.AbstractAdjoint:
    r"""Second derivatives by forward over reverse mode, as in `jax.hessian`.

    First derivatives by reverse mode work as well. Memory is bounded as in
    [`reverse_mode`][]; the stages of a step and the records within it are kept
    while the step is differentiated.

    **Arguments:**

    - `checkpoints`: as for [`reverse_mode`][].

    **Returns:** a diffrax adjoint, for `solve(adjoint=)`. Where one function needs
    `jax.jacfwd` as well, or reverse over reverse mode, take `diffrax.DirectAdjoint()`.

    **Raises:** ValueError where `checkpoints` is not a positive integer.

    !!! example

        >>> import jax, jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import second_order
        >>> def square(y0):
        ...     field, adjoint = lambda t, y, args: -y, second_order()
        ...     return tfjax.solve(field, y0, t1=1.0, adjoint=adjoint).ys[-1] ** 2
        >>> f"{jax.hessian(square)(jnp.asarray(1.0)):.4f}"
        '0.2707'

    Source: own; the checkpoints are those of [`reverse_mode`][].
    """
    if checkpoints is not None:
        checkpoints = count("checkpoints", checkpoints)
    return _SecondOrder(checkpoints)


class _SecondOrder(dfx.RecursiveCheckpointAdjoint):
    """Checkpoints around the steps, plain bounded loops inside of them.

    A checkpointed loop has a rule for reverse mode only, so that one within another
    keeps forward mode from passing over the reverse pass.
    """

    def loop(
        self,
        *,
        solver,
        throw,
        passed_solver_state,
        passed_controller_state,
        **kwargs,
    ):
        if _stages_are_checkpointed(solver):
            kind = lambda s: s.scan_kind
            is_none = lambda x: x is None
            solver = eqx.tree_at(kind, solver, "bounded", is_leaf=is_none)
        loop, checkpoints = eqxi.while_loop, self.checkpoints
        return self._loop(
            solver=solver,
            inner_while_loop=functools.partial(loop, kind="bounded"),
            outer_while_loop=functools.partial(
                loop, kind="checkpointed", checkpoints=checkpoints
            ),
            **kwargs,
        )


def _stages_are_checkpointed(solver) -> bool:
    """Whether the stages of a step are a loop that has a rule for reverse mode only."""
    return getattr(solver, "scan_kind", "none") is None


def refused_inputs(plan: Plan) -> Refused:
    """The modes that an adjoint of reverse mode does not offer."""
    adjoint, max_steps = plan.adjoint, plan.max_steps
    nested = _stages_are_checkpointed(plan.solver) or _saves_at_times(plan.saveat)
    if isinstance(adjoint, dfx.BacksolveAdjoint | Reversible):
        bounded = nested = True
    elif isinstance(adjoint, dfx.RecursiveCheckpointAdjoint):
        bounded = adjoint.checkpoints is not None or max_steps is not None
        nested = nested and not isinstance(adjoint, _SecondOrder)
    else:
        return Refused()
    first = _refusal(adjoint, "forward_mode()", "forward mode (jax.jvp, jax.jacfwd)")
    need = "second derivatives (jax.hessian)"
    second = _refusal(adjoint, "second_order()", need) if nested else None
    twice = _refusal(
        adjoint, "diffrax.DirectAdjoint()", "reverse over reverse mode", ""
    )
    then = Refused(forward=second, reverse=twice)
    return Refused(forward=first if bounded or nested else None, then=then)


@contextlib.contextmanager
def explained(plan: Plan) -> Iterator[None]:
    """Says the same where a mode comes by a way that cannot be marked."""
    inputs, outputs = refused_inputs(plan), refused_outputs(plan)
    try:
        yield
    except TypeError as error:
        # Forward mode by a closure.
        if inputs.forward is not None and "custom_vjp" in str(error):
            raise ValueError(inputs.forward) from error
        # Reverse mode beneath another mode, in jax 0.10.
        if outputs.reverse is not None and "NoneType" in str(error):
            raise ValueError(outputs.reverse) from error
        raise


def refused_outputs(plan: Plan) -> Refused:
    """The modes that an adjoint of forward mode does not offer."""
    if not isinstance(plan.adjoint, dfx.ForwardMode):
        return Refused()
    need = "reverse mode (jax.grad, jax.jacrev), or second_order() for jax.hessian,"
    text = _refusal(plan.adjoint, "reverse_mode()", need)
    return Refused(reverse=text, then=Refused(reverse=text))


def _refusal(adjoint, cure, need, room="tfjax.integrate."):
    rule = f"be {room}{cure} for {need} through a solve"
    return str(must("adjoint", rule, type(adjoint).__name__.lstrip("_")))


def _saves_at_times(saveat) -> bool:
    is_sub = lambda x: isinstance(x, dfx.SubSaveAt)
    subs: list[Any] = jax.tree.leaves(saveat.subs, is_leaf=is_sub)
    return any(sub.ts is not None for sub in subs)
