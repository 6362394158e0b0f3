"""Explicit Runge-Kutta methods whose stages move along geodesics of a manifold."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import must
from ..geometry import AbstractManifold
from ..geometry._base import has_points, shape_of_points
from ._lie import slack
from ._on_manifold import AbstractOnManifold, Inside, PresentRows, restored
from ._phase_space import check_term


class _Chart(dfx.AbstractTerm):
    """A term seen from a point: of the velocities at it that lead to other points."""

    term: Any
    manifold: Any
    start: Float[Array, "..."]

    def vf(self, t, y, args):
        point = _moved(self.manifold, self.start, y)
        velocity = self.term.vf(t, point, args)
        return _seen(self.manifold, self.start, point, velocity)

    def contr(self, t0, t1, **kwargs):
        return self.term.contr(t0, t1, **kwargs)

    def prod(self, vf, control):
        return self.term.prod(vf, control)


@jax.jit  # differentiated once, and not again for every loop around a stage
def _moved(manifold, start, v):
    """Where the geodesic of a velocity ends."""
    return manifold.exp(start, v)


@jax.jit
def _seen(manifold, start, point, velocity):
    """The tangential part of a velocity at a point, in the chart of another."""
    tangential = manifold.tangent(point, velocity)
    log = lambda point: manifold.log(start, point)
    return jax.jvp(log, (point,), (tangential,))[1]


class _GeodesicInterpolation(dfx.AbstractLocalInterpolation):
    """The wrapped solver's interpolation in the chart of its step."""

    t0: Any
    t1: Any
    start: Float[Array, "..."]
    info: Inside

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return self.evaluate(t1, left=left) - self.evaluate(t0, left=left)
        v = self.info.evaluate(self.t0, self.t1, t0, left)
        manifold = self.info.manifold
        return restored(manifold, manifold.exp(self.start, v))


class Geodesic(AbstractOnManifold):
    r"""An explicit Runge-Kutta method in the exponential chart at the start of a step.

    With $y = \exp_{y_0}(v)$ a step of the wrapped solver integrates

    $$\dot v = D \log_{y_0}(y)\, [P_y f(t, y)], \qquad v(0) = 0,$$

    and ends at $y_1 = \exp_{y_0}(v_1)$; P takes the tangential part, as in
    `tfjax.solve(manifold=)`. The order, the error estimate and the interpolation are
    those of the wrapped solver, and every stage, state, saved time and dense output
    lies on the manifold: the field is never evaluated off it, as it is by the stages
    under [`Projected`][]. A solution that is a geodesic, such as that of $y' = y a$ for
    rotations and a constant skew $a$, takes one step of any method.

    A step must not leave the region where geodesics from its start are shortest: on
    the sphere and for rotations it turns by less than pi.

    In `tfjax.solve` the manifold is that of the solver, whether `manifold` is given or
    not: `y0` is projected first, and absent tokens rest. In a plain
    `diffrax.diffeqsolve`, a solve from what is no point does not succeed. As with
    [`Projected`][], stages are not kept from step to step.

    **Arguments:**

    - `solver`: an explicit Runge-Kutta solver of diffrax, such as `diffrax.Tsit5()`, or
      `diffrax.Euler()`.
    - `manifold`: a manifold of `tfjax.geometry`; the state is one array of its points.

    **Raises:** ValueError where `solver` or `manifold` is of another kind; when the
    solve starts, where the state is of another shape, where the field returns another
    shape than the state's, where there is noise, or for `diffrax.BacksolveAdjoint`.

    !!! example

        >>> import diffrax, jax.numpy as jnp, tfjax
        >>> from tfjax.geometry import SpecialOrthogonal
        >>> from tfjax.integrate import Geodesic
        >>> turn = lambda t, y, args: y @ jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> solver = Geodesic(diffrax.Euler(), SpecialOrthogonal(2))
        >>> sol = tfjax.solve(turn, jnp.eye(2), t1=1.0, dt0=1.0, solver=solver)
        >>> bool(abs(sol.ys[-1, 1, 0] - jnp.sin(1.0)) < 1e-6)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section IV.5 (local coordinates), with the exponential chart of every step's start.
    """

    solver: dfx.AbstractSolver
    manifold: AbstractManifold | PresentRows

    interpolation_cls = _GeodesicInterpolation

    def __check_init__(self):
        kind = type(self.solver)
        if not issubclass(kind, (dfx.AbstractERK, dfx.Euler)):
            rule = "be an explicit Runge-Kutta solver of diffrax, such as Tsit5()"
            solver = isinstance(self.solver, dfx.AbstractSolver)
            raise must("solver", rule, kind.__name__ if solver else repr(self.solver))
        if not isinstance(self.manifold, AbstractManifold | PresentRows):
            raise must("manifold", "be a manifold", repr(self.manifold))

    def init(self, terms, t0, t1, y0, args):
        field = check_term(self, terms)
        if isinstance(self.manifold, PresentRows):
            return jnp.asarray(True)  # `solve` has looked at the rows that exist
        _check_shapes(self.manifold, field, t0, y0, args)
        return _is_point(self.manifold, y0)

    def func(self, terms, t0, y0, args):
        point = self.manifold.project(y0)
        return self.manifold.tangent(point, terms.vf(t0, point, args))

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        # What a solver keeps from its last step belongs to the chart of that step.
        fresh = self.solver.init(terms, t0, t1, y0, args)
        v1, error, dense_info, _, result = self.solver.step(
            _Chart(terms, self.manifold, y0),
            t0,
            t1,
            jnp.zeros_like(y0),
            args,
            fresh,
            made_jump=True,
        )
        info = Inside(dense_info, self.manifold, self.solver.interpolation_cls)
        failed: Any = dfx.RESULTS.nonfinite
        result = dfx.RESULTS.where(solver_state, result, failed)
        y1 = self.manifold.exp(y0, v1)
        return y1, error, {"start": y0, "info": info}, solver_state, result


def _check_shapes(manifold, field, t0, y0, args):
    """The state is one array of points, and the velocity has its shape."""
    if not (eqx.is_array(y0) and has_points(y0, manifold)):
        got = f"of shape {y0.shape}" if eqx.is_array(y0) else f"a {type(y0).__name__}"
        raise must("y0", f"have {shape_of_points(manifold)}", got)
    velocity = eqx.filter_eval_shape(field, t0, y0, args)
    shape = jax.tree.map(jnp.shape, velocity)
    if shape != y0.shape:
        rule = f"return a velocity of the state's shape {y0.shape}"
        raise must("field", rule, f"one of shape {shape}")


def _is_point(manifold, y: Float[Array, "..."]) -> Bool[Array, ""]:
    """Whether the state is one of points, which may miss by what a step makes up for.

    The embedding tells: angles of more than a turn are points too.
    """
    embedded = manifold.embed(y)
    gap = jnp.max(jnp.abs(embedded - manifold.embed(manifold.project(y))))
    scale = jnp.maximum(jnp.max(jnp.abs(embedded)), 1)
    return gap < scale * slack(y.dtype)
