"""Gradients of reversible solves, whose states are computed anew backwards."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp

from .._core import must
from ._phase_space import AbstractSymplectic, check_term
from ._tao import TaoLeapfrog


def reversible_mode() -> dfx.AbstractAdjoint:
    r"""Reverse mode in the memory of one step, for solvers that run back exactly.

    The backward pass needs the states of the solve, in reverse order. A reversible
    solver returns to them by steps of -h, so that none are kept: memory does not grow
    with the number of steps, whose number needs no bound (`max_steps=None`). Each costs
    a step back and the derivative of a step. The gradient is that of
    [`reverse_mode`][] up to what rounding does to the way back, which chaos amplifies:
    it is for solves of up to some thirty Lyapunov times.

    For [`Leapfrog`][], [`Yoshida4`][], [`Yoshida6`][] and [`ImplicitMidpoint`][], whose
    way back is as exact as its roots, with constant steps, and records at `t1` only.
    What is differentiated is the state, the parameters, and what the field holds or
    closes over; for the times it is refused, and so are second derivatives.

    **Returns:** a diffrax adjoint, for `solve(adjoint=)` and `diffrax.diffeqsolve`.

    **Raises:** ValueError, when the solve starts, where the solver is not one of
    these, or for adaptive steps, events, and other records.

    !!! example

        >>> import jax, jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import Leapfrog, reversible_mode
        >>> def end(q):
        ...     field, y0 = lambda t, y, args: (y[1], -y[0]), (q, jnp.zeros_like(q))
        ...     options = {"solver": Leapfrog(), "adjoint": reversible_mode()}
        ...     return tfjax.solve(field, y0, t1=1.0, dt0=0.01, **options).ys[0][-1]
        >>> f"{jax.grad(end)(jnp.asarray(1.0)):.3f}"  # the cosine of 1
        '0.540'

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section V.1, for reversible methods; the gradient is own.
    """
    return Reversible()


class Reversible(dfx.AbstractAdjoint):
    """See `reversible_mode`."""

    def loop(
        self,
        *,
        args,
        terms,
        solver,
        saveat,
        init_state,
        event,
        stepsize_controller,
        throw,
        passed_solver_state,
        passed_controller_state,
        **kwargs,
    ):
        check_reversible(solver)
        _check(saveat, event, stepsize_controller, init_state, args)
        terms = _explicit(solver, terms, init_state.tprev, init_state.y, args)
        given = init_state.y, args, terms
        init_state, args, terms = _stopped((init_state, args, terms))
        plain = lambda *args, **more: eqxi.while_loop(*args, kind="lax", **more)
        final_state, aux = self._loop(
            args=args,
            terms=terms,
            solver=solver,
            saveat=saveat,
            init_state=init_state,
            event=event,
            stepsize_controller=stepsize_controller,
            inner_while_loop=plain,
            outer_while_loop=plain,
            **kwargs,
        )
        final_state = _stopped(final_state)
        # An error for whoever asks for what is not computed, in place of zeros.
        name = "reversible_mode(): t0, t1, dt0 or the solver"
        clock = [kwargs[k] for k in _CLOCK]
        clock, solver = eqxi.nondifferentiable((clock, solver), name=name)
        reached = final_state.num_accepted_steps, final_state.tprev
        y1 = _last_state(given, final_state.y, reached, clock, solver)
        recorded = jax.tree.map(lambda y: y[None], y1)
        records = lambda s: [r.ys for r in _records(s) if jax.tree.leaves(r.ys)]
        count = len(records(final_state))
        return eqx.tree_at(records, final_state, [recorded] * count), aux


def check_reversible(solver: Any) -> None:
    """Raises for solvers that do not return to where they came from."""
    kind = type(solver)
    if not issubclass(kind, AbstractSymplectic) or issubclass(kind, TaoLeapfrog):
        rule = (
            "not be reversible_mode() unless the solver is Leapfrog, Yoshida4, "
            "Yoshida6 or ImplicitMidpoint"
        )
        raise must("adjoint", rule, f"reversible_mode() with {kind.__name__}")


_SAVES_STATE = dfx.SubSaveAt(t1=True).fn


def _check(saveat, event, controller, init_state, args):
    if event is not None:
        raise must("event", "be None for reversible_mode()", "given")
    while hasattr(controller, "controller"):
        controller = controller.controller
    if not isinstance(controller, dfx.ConstantStepSize):
        rule = "be ConstantStepSize for reversible_mode()"
        raise must("stepsize_controller", rule, type(controller).__name__)
    is_sub = lambda x: isinstance(x, dfx.SubSaveAt)
    plain = not (saveat.dense or saveat.solver_state or saveat.controller_state)
    for sub in jax.tree.leaves(saveat.subs, is_leaf=is_sub):
        plain = plain and not (sub.t0 or sub.steps or sub.ts is not None)
        if sub.fn is not _SAVES_STATE:
            kept = eqx.filter_eval_shape(sub.fn, init_state.tprev, init_state.y, args)
            plain = plain and not jax.tree.leaves(kept)
    if not plain:
        rule = "record the state at t1 only, for reversible_mode()"
        raise must("saveat", rule, "more than that")


_CLOCK = ("t0", "t1", "dt0")


def _explicit(solver, terms, t, y, args):
    """The terms with leaves for all that their field closes over: its gradient too."""
    field = eqx.filter_closure_convert(check_term(solver, terms), t, y, args)

    def where(term):
        while not isinstance(term, dfx.ODETerm):
            term = term.term
        return term.vector_field

    return eqx.tree_at(where, terms, field)


def _stopped(tree):
    stop = lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x
    return jax.tree.map(stop, tree)


def _records(final_state):
    is_record = lambda x: hasattr(x, "save_index")
    return jax.tree.leaves(final_state.save_state, is_leaf=is_record)


@eqx.filter_custom_jvp
def _differentiated_once(tree):
    """The tree itself, whose derivatives are refused."""
    return tree


@_differentiated_once.def_jvp
def _differentiated_twice(primals, tangents):
    if jax.tree.leaves(tangents):
        rule = (
            "be tfjax.integrate.second_order() for second derivatives (jax.hessian) "
            "through a solve, or diffrax.DirectAdjoint() for reverse over reverse mode"
        )
        raise must("adjoint", rule, "Reversible")
    return primals[0], tangents[0]


@eqx.filter_custom_vjp
def _last_state(given, y1, reached, clock, solver):
    """The last state as a function of the first, the parameters and the terms."""
    return y1


@_last_state.def_fwd
def _forward(perturbed, given, y1, *rest):
    return y1, y1


@_last_state.def_bwd
def _backward(y1, cotangent, perturbed, given, _, reached, clock, solver):
    # What the states depend on is all in `given`: the rest has no derivatives.
    floats, rest = eqx.partition(given, eqx.is_inexact_array)
    floats, cotangent = _differentiated_once((floats, cotangent))
    (t0, t1, dt0), (steps, end_time) = clock, reached
    (_, *floats), (_, *rest) = floats, rest
    parts = jnp.ceil((t1 - t0) / eqxi.nextafter(dt0))

    # As of ConstantStepSize: one step of dt0, then equal parts of the interval, which
    # an infinite one does not have; `max_steps` may end the solve at any of them.
    def time(k):
        count = k.astype(jnp.result_type(t0))
        even = jnp.where(jnp.isfinite(t1), (t1 - t0) * (count / parts), count * dt0)
        time = t0 + jnp.where(k == 1, dt0, even)
        return jnp.where(k == steps, end_time, time)

    def one_step(start, end, y, floats):
        args, terms = eqx.combine(floats, rest)
        return solver.step(terms, start, end, y, args, None, made_jump=True)[0]

    def back(i, carry):
        y1, gradient, total = carry
        start, end = time(steps - i - 1), time(steps - i)
        y0 = one_step(end, start, y1, floats)
        _, pull = jax.vjp(lambda y, f: one_step(start, end, y, f), y0, floats)
        gradient, more = pull(gradient)
        return y0, gradient, jax.tree.map(jnp.add, total, more)

    known = lambda y, c: jnp.zeros_like(y) if c is None else c
    gradient = jax.tree.map(known, y1, cotangent)
    carry = y1, gradient, jax.tree.map(jnp.zeros_like, floats)
    _, gradient, total = jax.lax.fori_loop(0, steps, back, carry)
    return gradient, *total
