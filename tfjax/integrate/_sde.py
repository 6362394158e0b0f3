"""Stochastic solves: a drift and a diffusion, driven by one Brownian path."""

from collections.abc import Callable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import PyTree

from .._core import is_concrete, must
from ..fields import VectorField
from ..geometry import AbstractManifold
from ._adjoints import explained
from ._door import Plan, as_state, floats_to_arrays, make_plan
from ._geodesic import Geodesic
from ._solve import checked_state, finished, run_member


_OF = {"ito": dfx.AbstractItoSolver, "stratonovich": dfx.AbstractStratonovichSolver}
_ADDITIVE_ONLY = (dfx.SEA, dfx.SRA1, dfx.ShARK)
_DIAGONAL_ONLY = (dfx.ItoMilstein, dfx.StratonovichMilstein)


def solve_sde(
    drift: VectorField,
    diffusion: Callable[..., Any],
    y0: PyTree[Any],
    args: PyTree[Any] = None,
    *,
    t1: Any,
    t0: Any = 0.0,
    dt0: Any,
    key: Any,
    calculus: Literal["ito", "stratonovich"] = "ito",
    noise: Literal["diagonal", "general"] = "diagonal",
    additive: bool = False,
    ts: Any = None,
    saveat: dfx.SaveAt | None = None,
    solver: dfx.AbstractSolver | None = None,
    manifold: AbstractManifold | None = None,
    max_steps: int | None = 4096,
    adjoint: dfx.AbstractAdjoint | None = None,
    progress: bool | dfx.AbstractProgressMeter = False,
    throw: bool = True,
) -> dfx.Solution:
    r"""Integrates a stochastic differential equation along one Brownian path.

    $$dy = \text{drift}(t, y)\, dt + \text{diffusion}(t, y)\, dW$$

    The path is a function of `key`, of the interval and of the shape of the noise: the
    same key gives the same solution, and other steps see the same path at the times
    `t0 + (t1 - t0) j / 2^k` that lie at least `dt0 / 2` apart. For many paths, `vmap`
    over keys.

    **On a manifold** the state is projected after every step, the drift is made
    tangential, and the noise is not: on the sphere the curvature turns the ambient
    noise of `diffusion = sigma` (a constant) into Brownian motion, with generator
    $\sigma^2 \Delta / 2$, without a correction to the drift. For other noise the
    generator is $\frac12 \mathrm{tr}(\sigma \sigma^T \nabla^2 (f \circ \pi))$ with the
    projection $\pi$; where sigma is tangential that is the Riemannian Hessian of f.
    This is the Ito calculus; with `"stratonovich"`, whose noise must be tangential
    unless it is additive, sigma dW is understood along the curve.

    **Arguments:**

    - `drift`: a function `(t, y, args) -> velocity`, such as the fields of tfjax.
    - `diffusion`: a function `(t, y, args)` that returns an array of the state's shape,
      by which independent noise is multiplied entry by entry, or, where `noise` is
      `"general"`, one of shape `y.shape + (m,)`, which m noises are mixed by.
    - `y0`, `args`, `t1`, `t0`: as for [`solve`][]. Backwards in time (`t1 < t0`) the
      same path is run through from its end; only where Ito and Stratonovich agree, or
      in Stratonovich's calculus, is that the inverse, so Ito needs `additive` for it.
    - `dt0`: the constant step.
    - `key`: the random key of the path.
    - `calculus`: in which the equation is understood, `"ito"` or `"stratonovich"`.
    - `noise`: `"diagonal"` or `"general"`, the form of what `diffusion` returns.
    - `additive`: whether `diffusion` is independent of the state. The two calculi then
      agree, and solvers of either are admitted, with those for such noise only, as
      `diffrax.SRA1()`.
    - `ts`, `saveat`, `max_steps`, `adjoint`, `progress`, `throw`: as for [`solve`][].
      Between steps a path is interpolated linearly, which has less variance than the
      solution: for statistics take `ts` at multiples of `dt0`.
    - `solver`: a diffrax solver of the calculus; `Euler()` for Ito, `Heun()` for
      Stratonovich where None. The Levy area that it needs is found by itself.
    - `manifold`: project every step on it.

    **Returns:** the `diffrax.Solution`, as [`solve`][] does.

    **Raises:** ValueError for arguments that do not fit, such as a solver of the other
    calculus; RuntimeError where the solve fails.

    !!! example

        >>> import jax, jax.numpy as jnp, tfjax
        >>> from tfjax.fields import Kuramoto, kuramoto
        >>> theta, key = jnp.linspace(0.0, 6.0, 8), jax.random.key(0)
        >>> noise = lambda t, theta, args: jnp.full_like(theta, 0.1)
        >>> kwargs = {"t1": 1.0, "dt0": 0.1, "key": key}
        >>> tfjax.solve_sde(kuramoto, noise, theta, Kuramoto(), **kwargs).ys.shape
        (1, 8)

    Source: P. Kloeden, E. Platen, Numerical Solution of Stochastic Differential
    Equations, chapters 10 and 11; P. Kidger, On Neural Differential Equations,
    section 5.5 (the Brownian tree).
    """
    for name, function in (("drift", drift), ("diffusion", diffusion)):
        if not callable(function):
            raise must(name, "be a function (t, y, args)", repr(function))
    if calculus not in _OF:
        raise must("calculus", "be 'ito' or 'stratonovich'", repr(calculus))
    if noise not in ("diagonal", "general"):
        raise must("noise", "be 'diagonal' or 'general'", repr(noise))
    if dt0 is None:
        raise must("dt0", "be given: the steps are constant", "None")
    if solver is None:
        solver = dfx.Euler() if calculus == "ito" else dfx.Heun()
    _check_solver(solver, calculus, noise, additive)
    y0, args = as_state(y0), floats_to_arrays(args)
    drift, diffusion = floats_to_arrays(drift), floats_to_arrays(diffusion)
    if noise == "general" and not isinstance(y0, jax.Array):
        raise must("y0", "be one array for general noise", f"a {type(y0).__name__}")
    plan = make_plan(
        y0,
        t1=t1,
        t0=t0,
        ts=ts,
        saveat=saveat,
        manifold=manifold,
        solver=solver,
        stepsize_controller=None,
        rtol=None,
        atol=None,
        dt0=dt0,
        max_steps=max_steps,
        adjoint=adjoint,
        event=None,
        progress=progress,
        throw=throw,
    )
    plan = _check_direction(plan, calculus, additive)
    path = _Noise(diffusion, _key(key), noise)
    with explained(plan):
        y0 = checked_state(y0, args, plan)
        solution, reached, okay = _run(drift, path, y0, args, plan)
    return finished(solution, reached, okay, y0, args, plan)


@eqx.filter_jit
def _run(drift, path, y0, args, plan):
    # diffrax mixes the noises by a product that accelerators would round to TF32.
    with jax.default_matmul_precision("highest"):
        solution, reached = run_member(drift, y0, args, plan, path)
    return solution, reached, dfx.is_okay(solution.result)


class _Noise(eqx.Module):
    """The stochastic part of a solve: what `run_member` adds to the drift."""

    diffusion: Callable[..., Any]
    key: Any
    form: str = eqx.field(static=True)

    def term(self, y0: PyTree, args: PyTree, plan: Plan, space: Any) -> Any:
        """The term `diffusion(t, y, args) dW`; y is taken on the manifold."""

        def multiplied_by(t, y, args):
            y = y if space is None else space.project(y)
            return self.diffusion(t, y, args)

        value = jax.eval_shape(multiplied_by, plan.t0, y0, args)
        structure = jax.tree.map(lambda y: jax.ShapeDtypeStruct(y.shape, y.dtype), y0)
        if self.form == "diagonal":
            if _shapes(value) != _shapes(y0):
                rule = "return the state's shape for diagonal noise"
                raise must("diffusion", rule, f"{_shapes(value)} for {_shapes(y0)}")
            field = lambda t, y, args: lx.DiagonalLinearOperator(
                multiplied_by(t, y, args)
            )
        else:
            shape = jnp.shape(value)
            if len(shape) != y0.ndim + 1 or shape[:-1] != y0.shape:
                rule = "return y.shape + (m,) for general noise"
                raise must("diffusion", rule, f"{shape} for {y0.shape}")
            structure = jax.ShapeDtypeStruct(shape[-1:], y0.dtype)
            field = multiplied_by
        low, high = jnp.minimum(plan.t0, plan.t1), jnp.maximum(plan.t0, plan.t1)
        step = jnp.abs(plan.dt0)  # type: ignore[arg-type]
        high = jnp.where(high > low, high, low + step)
        levy = _levy_area(plan.solver)
        path = dfx.VirtualBrownianTree(
            low, high, step / 2, structure, self.key, levy_area=levy
        )
        return dfx.ControlTerm(field, path)


def _shapes(tree):
    return jax.tree.map(jnp.shape, tree)


def _levy_area(solver: Any) -> Any:
    """What the solver asks of the path besides its increments."""
    inner = getattr(solver, "solver", solver)
    need = getattr(inner, "minimal_levy_area", dfx.AbstractBrownianIncrement)
    offered = (dfx.BrownianIncrement, dfx.SpaceTimeLevyArea, dfx.SpaceTimeTimeLevyArea)
    return next(area for area in offered if issubclass(area, need))


def _check_solver(solver: Any, calculus: str, noise: str, additive: bool) -> None:
    if type(solver) is Geodesic:
        raise must("solver", "not be Geodesic where there is noise", "one")
    inner = getattr(solver, "solver", solver)
    name = type(inner).__name__
    kinds = tuple(_OF.values()) if additive else _OF[calculus]
    if not isinstance(inner, kinds):
        rule = f"be a solver of the calculus {calculus!r}"
        if isinstance(inner, tuple(_OF.values())):
            rule += " (or the noise declared additive, where the calculi agree)"
        raise must("solver", rule, name)
    if isinstance(inner, _ADDITIVE_ONLY) and not additive:
        raise must("additive", f"be True for {name}, which is for such noise", additive)
    if isinstance(inner, _DIAGONAL_ONLY) and noise != "diagonal":
        raise must("noise", f"be 'diagonal' for {name}", repr(noise))


def _check_direction(plan: Plan, calculus: str, additive: bool) -> Plan:
    """Backwards in time, Ito's sum is another integral; Levy areas are not offered."""
    rule = "not be before `t0` in Ito's calculus, unless the noise is additive"
    if _levy_area(plan.solver) is not dfx.BrownianIncrement:
        name = type(getattr(plan.solver, "solver", plan.solver)).__name__
        rule = f"not be before `t0` for {name}"
    elif calculus == "stratonovich" or additive:
        return plan
    if is_concrete(plan.t0, plan.t1):
        if plan.t1 < plan.t0:
            raise must("t1", rule, f"{float(plan.t1):g} with t0 = {float(plan.t0):g}")
        return plan
    t1 = eqx.error_if(plan.t1, plan.t1 < plan.t0, f"`t1` must {rule}.")
    return eqx.tree_at(lambda p: p.t1, plan, t1)


def _key(key: Any) -> Any:
    array = key if isinstance(key, jax.Array) else np.asarray(key)
    typed = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    shape = () if typed else (2,)
    if not (typed or array.dtype == np.uint32) or array.shape != shape:
        got = f"of shape {array.shape} and dtype {array.dtype}"
        raise must("key", "be one random key, as of jax.random.key(0)", got)
    return jnp.asarray(array)
