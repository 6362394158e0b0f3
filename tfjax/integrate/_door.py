"""What `solve` is asked for, checked and brought into one form."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._core import as_float, count, is_concrete, must
from ..geometry import AbstractManifold
from ..geometry._base import has_points, shape_of_points
from ._geodesic import Geodesic
from ._isospectral import Isospectral, check_matrices
from ._lie import AbstractLie, AbstractRotating, check_rotations, check_space
from ._phase_space import AbstractSymplectic
from ._projected import Projected
from ._reversible import Reversible, check_reversible
from ._splitting import SplitEuler
from ._terms import backsolve


class Plan(eqx.Module):
    """Everything about a solve but the field, the state and the parameters."""

    t0: Float[Array | np.ndarray, ""]
    t1: Float[Array | np.ndarray, ""]
    dt0: Float[Array | np.ndarray, ""] | None
    saveat: dfx.SaveAt
    controller: dfx.AbstractStepSizeController
    solver: dfx.AbstractSolver
    manifold: AbstractManifold | None
    adjoint: dfx.AbstractAdjoint
    event: dfx.Event | None
    max_steps: int | None = eqx.field(static=True)
    meter: dfx.AbstractProgressMeter
    throw: bool = eqx.field(static=True)

    @property
    def space(self) -> AbstractManifold | None:
        """The manifold that the state must lie on, whoever projects on it."""
        if self.manifold is None and type(self.solver) is Projected:
            return self.solver.manifold  # type: ignore[return-value]
        return self.manifold


def as_state(y0: Any) -> Any:
    """The state with floating-point leaves; half precision is widened to float32."""

    def leaf(value):
        array = as_float("y0", value)
        half = jnp.finfo(array.dtype).bits < 32
        # The step sizes of a solver and its clock need at least float32.
        return array.astype(jnp.float32) if half else jnp.asarray(array)

    return jax.tree.map(leaf, y0)


def floats_to_arrays(tree: Any) -> Any:
    """Python floats become arrays, so that another value is not another program."""
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, float) else x, tree)


def make_plan(
    y0: Any,
    *,
    t1: Any,
    t0: Any,
    ts: Any,
    saveat: dfx.SaveAt | None,
    manifold: AbstractManifold | None,
    solver: dfx.AbstractSolver | None,
    stepsize_controller: dfx.AbstractStepSizeController | None,
    rtol: Any,
    atol: Any,
    dt0: Any,
    max_steps: int | None,
    adjoint: dfx.AbstractAdjoint | None,
    event: dfx.Event | None,
    progress: bool | dfx.AbstractProgressMeter,
    throw: bool,
) -> Plan:
    """Checks the arguments of `solve` and fills in its defaults."""
    leaves = jax.tree.leaves(y0)
    if not leaves:
        raise must("y0", "hold at least one array", repr(y0))
    for leaf in leaves:
        if 0 in leaf.shape:
            rule = "have no axis of length 0 (there are no tokens)"
            raise must("y0", rule, f"of shape {leaf.shape}")
    dtype = jnp.result_type(*leaves)
    t0, t1 = _time("t0", t0, dtype), _time("t1", t1, dtype)
    if saveat is not None and ts is not None:
        raise must("ts", "be None where saveat is given", "given too")
    if ts is not None:
        ts = _check_times("ts", _times(ts, dtype), t0, t1)
        if throw:
            ts = _traced("ts", ts, jnp.isfinite, "be finite")
            onward = lambda ts: jnp.diff(ts) * jnp.where(t1 < t0, -1, 1) >= 0
            rule = "run from t0 towards t1: decreasing where t1 < t0, else increasing"
            ts = _traced("ts", ts, onward, rule)
        saveat = dfx.SaveAt(ts=ts)
    elif saveat is not None:
        saveat = _cast_saveat(saveat, dtype, t0, t1)
    else:
        saveat = dfx.SaveAt(t1=True)
    solver = dfx.Tsit5() if solver is None else solver
    if not isinstance(solver, dfx.AbstractSolver):
        raise must("solver", "be a diffrax solver", repr(solver))
    if manifold is not None and not isinstance(manifold, AbstractManifold):
        raise must("manifold", "be a manifold of tfjax.geometry", repr(manifold))
    if type(solver) is Geodesic and manifold is None:
        manifold = solver.manifold  # type: ignore[assignment]
    if max_steps is not None:
        max_steps = count("max_steps", max_steps)
    kinds = {
        "adjoint": (adjoint, dfx.AbstractAdjoint),
        "event": (event, dfx.Event),
        "stepsize_controller": (stepsize_controller, dfx.AbstractStepSizeController),
    }
    for name, (value, kind) in kinds.items():
        if value is not None and not isinstance(value, kind):
            raise must(name, f"be a diffrax.{kind.__name__} or None", repr(value))
    if dt0 is not None:
        dt0 = _step(dt0, t0, t1, dtype)
    if stepsize_controller is None:
        stepsize_controller = _controller(solver, rtol, atol, dt0, dtype, throw)
    if isinstance(stepsize_controller, dfx.ConstantStepSize):
        if dt0 is None:
            raise must("dt0", "be given for constant steps", "None")
        if throw and event is None:
            _check_count(dt0, t0, t1, max_steps)
    if adjoint is None:
        adjoint = dfx.RecursiveCheckpointAdjoint()
    if isinstance(adjoint, dfx.BacksolveAdjoint) and manifold is not None:
        rule = "not be BacksolveAdjoint with a manifold, since it leaves the manifold"
        raise must("adjoint", rule, "BacksolveAdjoint; use RecursiveCheckpointAdjoint")
    if isinstance(adjoint, Reversible):
        check_reversible(solver)
    if isinstance(adjoint, dfx.BacksolveAdjoint):
        if isinstance(solver, AbstractSymplectic | AbstractLie | SplitEuler):
            raise backsolve(type(solver).__name__)
    if throw:
        t0 = _traced("t0", t0, jnp.isfinite, "be finite")
        t1 = _traced("t1", t1, jnp.isfinite, "be finite")
        if dt0 is not None:
            fits = lambda dt: jnp.isfinite(dt) & (dt != 0)
            dt0 = _traced("dt0", dt0, fits, "be finite and not 0")
    plan = Plan(
        t0=t0,
        t1=t1,
        dt0=dt0,
        saveat=saveat,
        controller=stepsize_controller,
        solver=solver,
        manifold=manifold,
        adjoint=adjoint,
        event=event,
        max_steps=max_steps,
        meter=_meter(progress),
        throw=throw,
    )
    if plan.space is not None:
        _check_points(y0, plan.space, solver)
    _check_group(y0, plan)
    return plan


def _check_group(y0: Any, plan: Plan) -> None:
    """Solvers that act by a group keep the state on its orbit themselves."""
    solver, space = plan.solver, plan.manifold
    if isinstance(solver, Isospectral):
        if space is not None:
            rule = "be None for Isospectral, which keeps the eigenvalues by itself"
            raise must("manifold", rule, repr(space))
        check_matrices(y0)
    if isinstance(solver, AbstractRotating):
        check_space(solver, space)
        check_rotations(solver, y0, values=plan.throw and space is None)


def _check_points(y0: Any, space: AbstractManifold, solver: Any) -> None:
    """The state is one array of points of the manifold that is meant."""
    if type(solver) in (Projected, Geodesic) and solver.manifold != space:
        rule = f"be that of the solver, {solver.manifold}, or None"
        raise must("manifold", rule, space)
    if not (isinstance(y0, jax.Array) and has_points(y0, space)):
        got = f"of shape {y0.shape}" if isinstance(y0, jax.Array) else repr(y0)
        raise must("y0", f"have {shape_of_points(space)}", got)


def _traced(name: str, value: Any, fits: Any, rule: str) -> Any:
    """A check of a value that only the running program knows."""
    if is_concrete(value):
        return value
    return eqx.error_if(value, ~jnp.all(fits(value)), f"`{name}` must {rule}.")


def _real(name: str, value: Any, dtype: Any) -> Any:
    """Real numbers in the state's dtype; concrete ones in numpy, which is quicker."""
    if not is_concrete(value):
        return as_float(name, value).astype(dtype)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        array = np.asarray(as_float(name, value))  # half precision, or an error
    return array.astype(dtype)


def _time(name: str, value: Any, dtype: Any) -> Any:
    time = _real(name, value, dtype)
    if time.ndim:
        raise must(name, "be a scalar", f"of shape {time.shape}")
    if is_concrete(time) and not np.isfinite(time):
        raise must(name, "be finite", float(time))
    return time


def _times(ts: Any, dtype: Any) -> Any:
    ts = _real("ts", ts, dtype)
    if ts.ndim != 1 or not ts.size:
        raise must("ts", "have shape (t,) with t at least 1", f"of shape {ts.shape}")
    return ts


def _check_times(name: str, ts: Any, t0: Any, t1: Any) -> Any:
    """Saved times run from t0 towards t1, without leaving the interval.

    What lies outside by no more than rounding (as of a `geomspace`) is brought inside.
    """
    if not is_concrete(ts, t0, t1):
        return ts  # diffrax checks traced times at run time
    ts, low, high = np.asarray(ts), min(t0, t1), max(t0, t1)
    if not np.all(np.isfinite(ts)):
        raise must(name, "be finite", ts)
    slack = 8 * np.spacing(np.maximum(abs(low), abs(high)))
    outside = ts[(ts < low - slack) | (ts > high + slack)]
    if outside.size:
        raise must(
            name, f"lie within [{low:g}, {high:g}]", f"{outside[0]} in one place"
        )
    ts = np.clip(ts, low, high)
    wrong = np.diff(ts) * (1 if t1 >= t0 else -1) < 0
    if np.any(wrong):
        order = "increasing" if t1 >= t0 else "decreasing"
        i = int(np.argmax(wrong))
        got = f"{ts[i]:g} followed by {ts[i + 1]:g}"
        raise must(name, f"be {order}, in the direction of integration", got)
    return ts


def _cast_saveat(saveat: Any, dtype: Any, t0: Any, t1: Any) -> dfx.SaveAt:
    if not isinstance(saveat, dfx.SaveAt):
        raise must("saveat", "be a diffrax.SaveAt", repr(saveat))

    def sub(subsaveat):
        if subsaveat.ts is None:
            return subsaveat
        if subsaveat.ts.ndim != 1:
            got = f"times of shape {subsaveat.ts.shape}"
            raise must("saveat", "hold times of shape (t,)", got)
        ts = _check_times("saveat", subsaveat.ts.astype(dtype), t0, t1)
        return eqx.tree_at(lambda s: s.ts, subsaveat, ts)

    is_sub = lambda x: isinstance(x, dfx.SubSaveAt)
    subs = jax.tree.map(sub, saveat.subs, is_leaf=is_sub)
    return eqx.tree_at(lambda s: s.subs, saveat, subs, is_leaf=lambda x: x is None)


def _step(dt0: Any, t0: Any, t1: Any, dtype: Any) -> Any:
    step = _real("dt0", dt0, dtype)
    if step.ndim:
        raise must("dt0", "be a scalar", f"of shape {step.shape}")
    if is_concrete(step, t0, t1):
        size, late = abs(float(step)), max(abs(float(t0)), abs(float(t1)))
        if not 0 < size < np.inf:
            raise must("dt0", "be finite and not 0", float(step))
        spacing = float(np.spacing(np.asarray(late, dtype)))
        if size < spacing and t0 != t1:
            rule = f"be at least {spacing:.3g}, the spacing of {dtype} at time {late:g}"
            raise must("dt0", rule, f"{size:g} (start the clock nearer to 0)")
        return np.asarray(-size if t1 < t0 else size, dtype)
    # The sign follows the direction of integration.
    return jnp.where(t1 < t0, -jnp.abs(step), jnp.abs(step))


def _check_count(dt0: Any, t0: Any, t1: Any, max_steps: int | None) -> None:
    """Constant steps can be counted beforehand."""
    if max_steps is None or not is_concrete(dt0, t0, t1):
        return
    steps = np.ceil(abs(float(t1) - float(t0)) / abs(float(dt0)) * (1 - 1e-6))
    if steps > max_steps:
        rule = f"be at least {steps:.0f} for steps of {float(dt0):g}"
        raise must("max_steps", rule, max_steps)


def _controller(solver, rtol, atol, dt0, dtype, throw):
    if rtol is None and atol is None and dt0 is not None:
        return dfx.ConstantStepSize()
    if not isinstance(solver, dfx.AbstractAdaptiveSolver):
        name = type(getattr(solver, "solver", solver)).__name__
        rule = f"be given, without rtol and atol, for {name}: it estimates no error"
        raise must("dt0", rule, "None" if dt0 is None else "given with tolerances")
    tolerances = {}
    for name, value in (("rtol", rtol), ("atol", atol)):
        tolerance = _real(name, 1e-6 if value is None else value, dtype)
        if tolerance.ndim:
            raise must(name, "be a scalar", f"of shape {tolerance.shape}")
        if is_concrete(tolerance) and not 0 <= float(tolerance) < np.inf:
            raise must(name, "be finite and not negative", float(tolerance))
        if throw:
            fits = lambda value: jnp.isfinite(value) & (value >= 0)
            tolerance = _traced(name, tolerance, fits, "be finite and not negative")
        tolerances[name] = tolerance
    return dfx.PIDController(**tolerances)


def _meter(progress):
    if isinstance(progress, dfx.AbstractProgressMeter):
        return progress
    if not isinstance(progress, bool):
        raise must("progress", "be a bool or a diffrax meter", repr(progress))
    if not progress:
        return dfx.NoProgressMeter()
    try:
        return dfx.TqdmProgressMeter()
    except ValueError:  # tqdm is not installed
        return dfx.TextProgressMeter()
