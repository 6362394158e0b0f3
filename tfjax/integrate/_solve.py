"""One solve: from a field and a state to a `diffrax.Solution`."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .._core import is_concrete, must
from ..fields import PiecewiseConstant, TokenParams, VectorField
from ..geometry import AbstractManifold, Euclidean
from ._adjoints import explained, refused_inputs, refused_outputs
from ._door import Plan, as_state, floats_to_arrays, make_plan
from ._events import starting
from ._geodesic import Geodesic
from ._guard import guard
from ._modes import mark
from ._on_manifold import PresentRows
from ._padding import PresentNorm, existing_rows, restoring
from ._projected import Projected


def solve(
    field: VectorField,
    y0: PyTree[Any],
    args: PyTree[Any] = None,
    *,
    t1: Any,
    t0: Any = 0.0,
    ts: Any = None,
    saveat: dfx.SaveAt | None = None,
    manifold: AbstractManifold | None = None,
    solver: dfx.AbstractSolver | None = None,
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: Any = None,
    atol: Any = None,
    dt0: Any = None,
    max_steps: int | None = 4096,
    adjoint: dfx.AbstractAdjoint | None = None,
    event: dfx.Event | None = None,
    progress: bool | dfx.AbstractProgressMeter = False,
    throw: bool = True,
) -> dfx.Solution:
    r"""Integrates `dy/dt = field(t, y, args)` from `t0` to `t1`.

    The whole solve is compiled once per field, shapes and solver; new values of the
    state, the parameters, the times, `rtol` and `atol` reuse it.

    **Arguments:**

    - `field`: a function `(t, y, args) -> dy/dt`.
    - `y0`: the state at `t0`, for the fields of tfjax tokens of shape (n, d).
      Integers take the default dtype, half precision is widened to float32; time
      runs in the state's dtype.
    - `args`: the parameters of the field. From an `AttentionParams` the mask of
      existing tokens is read: absent rows take no part and come back as they went in.
    - `t1`, `t0`: the end and the start, in either order; `t1 = t0` returns `y0`.
    - `ts`: times to save at, of shape (t,), from `t0` towards `t1`; only `t1` if None.
    - `saveat`: a `diffrax.SaveAt` in place of `ts`, for dense output, every step, or
      functions of the state.
    - `manifold`: integrate the tangential part of the field, at the projected point:
      `y0` (projected first), states, saved times and dense output lie on it.
    - `solver`: a diffrax solver, `Tsit5()` if None. A [`Geodesic`][] brings its
      manifold along: `manifold` may be left out.
    - `stepsize_controller`: a diffrax controller, in place of the tolerances.
    - `rtol`, `atol`: tolerances per step, 1e-6 where None.
    - `dt0`: alone, the constant step; with a tolerance, the first step. Its sign
      follows `t1 - t0`.
    - `max_steps`: the solve fails after this many steps; None is no limit.
    - `adjoint`: how to differentiate: `integrate.reverse_mode()` if None,
      `forward_mode()`, `second_order()`, `reversible_mode()`, or any diffrax adjoint. A
      mode that it does not offer is an error.
    - `event`: a `diffrax.Event` that ends the solve early, such as
      `integrate.one_cluster()`; whether it occurred is `diffrax.is_event(.result)`.
      The last record of `t1=True` is then that of the event.
    - `progress`: show a progress bar: a bool or a diffrax meter.
    - `throw`: raise where the solve fails. If False, look at `.result`, with
      `diffrax.is_okay`; unsaved entries of `.ys` are inf.

    Unsaved records, after an event, a failure, or the last step, are told apart by
    [`saved`][]. To go on later, solve from the last state: with constant steps the
    result is that of one solve, to rounding, with adaptive ones to the tolerances. What
    controllers remember would not make it closer: a solve ends with a step that is
    cut short, where one solve would have gone on otherwise.

    **Returns:** the `diffrax.Solution`, with `.ts` of shape (t,), `.ys` of shape
    (t, n, d), `.stats` and `.result`.

    **Raises:** ValueError for arguments that do not fit; RuntimeError where the solve
    fails, with the time reached. Under jit both become run-time errors.

    !!! example

        >>> import jax, tfjax
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> from tfjax.geometry import Sphere
        >>> x0 = Sphere(3).random(jax.random.key(0), (8,))
        >>> params = AttentionParams(beta=1.0)
        >>> sol = tfjax.solve(self_attention, x0, params, t1=5.0, manifold=Sphere(3))
        >>> sol.ys.shape
        (1, 8, 3)

    Source: arXiv 2312.10794, equation (2.3), for the fields; P. Kidger, On Neural
    Differential Equations, chapter 5, for the solvers.
    """
    if not callable(field):
        raise must("field", "be a function (t, y, args) -> dy/dt", repr(field))
    y0, args, field = as_state(y0), floats_to_arrays(args), floats_to_arrays(field)
    if isinstance(args, PiecewiseConstant) and throw:
        args = args.checked()
    plan = make_plan(
        y0,
        t1=t1,
        t0=t0,
        ts=ts,
        saveat=saveat,
        manifold=manifold,
        solver=solver,
        stepsize_controller=stepsize_controller,
        rtol=rtol,
        atol=atol,
        dt0=dt0,
        max_steps=max_steps,
        adjoint=adjoint,
        event=event,
        progress=progress,
        throw=throw,
    )
    with explained(plan):
        y0 = checked_state(y0, args, plan)
        solution, reached, okay = _run(field, y0, args, plan)
    return finished(solution, reached, okay, y0, args, plan)


def checked_state(y0: PyTree, args: PyTree, plan: Plan) -> PyTree:
    """The state, whose traced values fail at run time where they cannot take part."""
    if not plan.throw or is_concrete(y0, args):
        return y0
    ok = takes_part(y0, args, plan.space)
    rule = f"`y0` must {_rule(plan.space)}, and so must the parameters in `args`."
    return eqx.error_if(y0, ~ok, rule)


def finished(
    solution: dfx.Solution,
    reached: Any,
    okay: Any,
    y0: PyTree,
    args: PyTree,
    plan: Plan,
) -> dfx.Solution:
    """The solution, or the error that says why there is none."""
    if not plan.throw:
        return solution
    if not is_concrete(okay):
        return solution.result.error_if(solution, ~okay)
    if not okay:
        # A value that cannot be integrated stops the solve at once: name it.
        if not takes_part(y0, args, plan.space):
            raise _culprit(y0, args, plan.space)
        raise RuntimeError(failure(solution, reached, plan))
    return solution


def failure(solution: dfx.Solution, reached: Any, plan: Plan) -> str:
    """What went wrong in a solve, where, and after how many steps."""
    steps = int(np.asarray(solution.stats["num_steps"]))
    at = "" if reached is None else f" at t = {float(reached):g}"
    way = f"from t0 = {float(plan.t0):g} to t1 = {float(plan.t1):g}"
    text = f"The solve {way} stopped{at} after {steps} steps: "
    if solution.result == dfx.RESULTS.max_steps_reached:
        return text + f"`max_steps` was reached, which was {plan.max_steps}."
    if solution.result == dfx.RESULTS.nonfinite:
        return text + "the state is not finite, or has no point on the manifold."
    if solution.result == dfx.RESULTS.dt_min_reached:
        return text + "no step was short enough; is the field finite here?"
    return text + dfx.RESULTS[solution.result]


@eqx.filter_jit
def _run(field, y0, args, plan):
    solution, reached = run_member(field, y0, args, plan)
    return solution, reached, dfx.is_okay(solution.result)


def run_member(
    field: VectorField, y0: PyTree, args: PyTree, plan: Plan, path: Any = None
) -> tuple[dfx.Solution, Float[Array, ""] | None]:
    """One solve, traced: the solution, and the time that it reached.

    `path.term(y0, args, plan, space)` is a stochastic term beside the field.
    """
    inputs = (field, y0, args, plan, path)
    field, y0, args, plan, path = mark(inputs, refused_inputs(plan))
    ok = takes_part(y0, args, plan.space)
    for time in (plan.t0, plan.t1, plan.dt0):
        ok = ok & (True if time is None else jnp.isfinite(time))
    space: AbstractManifold | PresentRows | None = plan.manifold
    solver, saveat, controller = plan.solver, plan.saveat, plan.controller
    event = plan.event
    exists = existing_rows(y0, args)
    kind: Any = Projected
    if type(solver) is Geodesic:
        kind, solver = Geodesic, solver.solver
    elif type(solver) is Projected and (space is not None or exists is not None):
        space = solver.manifold if plan.manifold is None else plan.manifold
        solver = solver.solver
    if exists is not None:
        whole = Euclidean(y0.shape[-1]) if space is None else space
        space = PresentRows(whole, exists, y0)
        y0 = jnp.where(exists[:, None], y0, 0.0)
        saveat, event = restoring(saveat, event, space)
        if isinstance(controller, dfx.PIDController):
            norm = PresentNorm(exists, controller.norm)
            controller = eqx.tree_at(lambda c: c.norm, controller, norm)
    rhs: Any = _Shaped(field)
    if space is not None:
        # Every stage of a Geodesic is a point, and it takes the tangential part.
        rhs = _Tangential(field, space) if kind is Projected else rhs
        y0 = space.project(y0)
        solver = kind(solver, space)
    terms: Any = dfx.ODETerm(rhs)
    if path is not None:
        terms = dfx.MultiTerm(terms, path.term(y0, args, plan, space))
    event = starting(event, y0, args)
    adaptive = isinstance(controller, dfx.AbstractAdaptiveStepSizeController)
    if isinstance(args, PiecewiseConstant) and adaptive:
        # A step across a jump would be rejected until it is tiny.
        jumps = args.starts.astype(jnp.result_type(plan.t0))
        controller = dfx.ClipStepSizeController(controller, jump_ts=jumps)
    # One more record, of the time at the end: a failed solve can say how far it came.
    watched = not isinstance(plan.adjoint, dfx.BacksolveAdjoint)
    solution = dfx.diffeqsolve(
        terms,
        solver,
        plan.t0,
        plan.t1,
        plan.dt0,
        y0,
        args,
        saveat=_watching(saveat) if watched else saveat,
        stepsize_controller=guard(controller),
        adjoint=plan.adjoint,
        event=event,
        max_steps=plan.max_steps,
        throw=False,
        progress_meter=plan.meter,
    )
    solution, reached = _unwatch(solution) if watched else (solution, None)
    if not watched:
        # Only states have a gradient there; equinox fails on zeros for the others.
        ts = jax.lax.stop_gradient(solution.ts)
        solution = eqx.tree_at(lambda s: s.ts, solution, ts)
    nonfinite: Any = dfx.RESULTS.nonfinite
    result = dfx.RESULTS.where(ok, solution.result, nonfinite)
    solution = eqx.tree_at(lambda s: s.result, solution, result)
    return mark((solution, reached), refused_outputs(plan))


def _is_none(x):
    return x is None


def _watching(saveat):
    """Adds a record of the time, and of nothing else, at the end."""
    end = dfx.SubSaveAt(t1=True, fn=lambda t, y, args: None)
    subs = (saveat.subs, end)
    return eqx.tree_at(lambda s: s.subs, saveat, subs, is_leaf=_is_none)


def _unwatch(solution):
    (ts, reached), (ys, _) = solution.ts, solution.ys
    own = lambda s: (s.ts, s.ys)
    return eqx.tree_at(own, solution, (ts, ys), is_leaf=_is_none), reached[-1]


class _Tangential(eqx.Module):
    """The tangential part of a field, taken at the projected point."""

    field: Any
    manifold: AbstractManifold | PresentRows

    def __call__(self, t, y, args=None):
        point = self.manifold.project(y)
        return self.manifold.tangent(point, _velocity(self.field, t, point, args))


class _Shaped(eqx.Module):
    """A field whose velocity has the shape of the state, or it is an error."""

    field: Any

    @property
    def separable(self):
        return getattr(self.field, "separable", None)

    @property
    def generator(self):
        return getattr(self.field, "generator", None)

    @property
    def parts(self):
        return getattr(self.field, "parts", None)

    def __call__(self, t, y, args=None):
        return _velocity(self.field, t, y, args)


def _velocity(field, t, y, args):
    velocity = field(t, y, args)
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (y, velocity)]
    if shapes[0] != shapes[1]:
        rule = f"return a velocity of the state's shape {shapes[0]}"
        raise must("field", rule, f"one of shape {shapes[1]}")
    return velocity


def takes_part(y0: PyTree, args: PyTree, manifold: Any) -> Bool[Array, ""]:
    """Whether every value that takes part is finite and has a projection."""
    exists = existing_rows(y0, args)
    ok = jnp.asarray(True)
    for leaf in jax.tree.leaves(y0):
        fit = jnp.isfinite(leaf) if manifold is None else manifold.projectable(leaf)
        if exists is not None:
            fit = fit | (exists if fit.ndim == 1 else exists[:, None]) ^ True
        ok = ok & jnp.all(fit)
    for _, leaf in _parameters(args):
        ok = ok & jnp.all(jnp.isfinite(leaf))
    return ok


def _parameters(args):
    """The names and values of the numbers in parameters of tokens."""
    if not isinstance(args, TokenParams | PiecewiseConstant):
        return []
    leaves = jax.tree_util.tree_flatten_with_path(
        eqx.filter(args, eqx.is_inexact_array)
    )
    return [(path[-1].name, leaf) for path, leaf in leaves[0]]


def _rule(manifold):
    if manifold is None:
        return "be finite"
    with jax.ensure_compile_time_eval():
        zero_is_a_point = bool(manifold.projectable(np.zeros(manifold.point_shape)))
    if zero_is_a_point:
        return "be finite"
    if len(manifold.point_shape) > 1:
        return f"be finite, and have one nearest point of {manifold}"
    return "be finite, with no zero row"


def _culprit(y0, args, manifold):
    """The error for the value that is bad, and where it stands."""
    rule = _rule(manifold)
    for name, leaf in _parameters(args):
        if not np.all(np.isfinite(leaf)):
            return must(name, "be finite", _first(~np.isfinite(leaf), leaf))
    exists = existing_rows(y0, args)
    for leaf in jax.tree.leaves(y0):
        array = np.asarray(leaf)
        present = np.ones(array.shape, bool)
        if exists is not None:
            present = present & np.asarray(exists)[:, None]
        bad = ~np.isfinite(array) & present
        if bad.any():
            return must("y0", rule, _first(bad, array))
    one = (0,) * len(manifold.point_shape)
    lost = ~np.asarray(manifold.projectable(y0)) & present[(..., *one)]
    row = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(lost)))
    return must("y0", rule, f"{np.asarray(y0)[row or ...]} at row {row}")


def _first(bad, array):
    if np.ndim(array) == 0:
        return f"{float(array):g}"
    place = tuple(int(i[0]) for i in np.nonzero(bad))
    return f"{np.asarray(array)[place]:g} at index {place}"
