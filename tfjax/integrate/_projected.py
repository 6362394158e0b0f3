"""Any diffrax solver, made to stay on a manifold."""

from typing import Any

import diffrax as dfx

from .._core import must
from ..geometry import AbstractManifold
from ._on_manifold import AbstractOnManifold, Inside, PresentRows, restored


class _ProjectedInterpolation(dfx.AbstractLocalInterpolation):
    """The wrapped solver's interpolation, projected: continuous, of the same order."""

    t0: Any
    t1: Any
    info: Inside

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return self.evaluate(t1, left=left) - self.evaluate(t0, left=left)
        y = self.info.evaluate(self.t0, self.t1, t0, left)
        y = self.info.manifold.project(y)
        return restored(self.info.manifold, y)


class Projected(AbstractOnManifold):
    """Projects the state of another solver on a manifold after every step.

    Saved times, dense output and events see points of the manifold too. The order of
    the wrapped solver is kept for fields that are tangent to the manifold *and* are
    defined near it; this wrapper does not touch the field. `tfjax.solve(manifold=)`
    does: it integrates the tangential part, taken at the projected point.

    First-same-as-last solvers evaluate the field anew at the projected point, so that
    under `jax.vmap` no member's result depends on its neighbours.

    **Arguments:**

    - `solver`: a diffrax solver, such as `diffrax.Tsit5()`; not a `Projected` or a
      [`Geodesic`][].
    - `manifold`: a manifold of `tfjax.geometry`; the state is one array of its points.

    **Raises:** ValueError where `solver` or `manifold` is of another kind.

    !!! example

        >>> import diffrax, jax.numpy as jnp
        >>> from tfjax.geometry import Sphere
        >>> from tfjax.integrate import Projected
        >>> turn = diffrax.ODETerm(lambda t, x, args: jnp.array([-x[1], x[0]]))
        >>> solver = Projected(diffrax.Euler(), Sphere(2))
        >>> y0 = jnp.array([1.0, 0.0])
        >>> sol = diffrax.diffeqsolve(turn, solver, 0.0, 1.0, 0.1, y0)
        >>> bool(abs(jnp.linalg.norm(sol.ys) - 1) < 1e-6)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section IV.4 (standard projection method).
    """

    solver: dfx.AbstractSolver
    manifold: AbstractManifold | PresentRows

    interpolation_cls = _ProjectedInterpolation

    def __check_init__(self):
        wrapped = issubclass(type(self.solver), AbstractOnManifold)
        if wrapped or not isinstance(self.solver, dfx.AbstractSolver):
            raise must("solver", "be a diffrax solver to wrap", repr(self.solver))
        if not isinstance(self.manifold, AbstractManifold | PresentRows):
            raise must("manifold", "be a manifold", repr(self.manifold))

    def init(self, terms, t0, t1, y0, args):
        return self.solver.init(terms, t0, t1, y0, args)

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        # A cached last stage belongs to the point before projection: refresh it.
        y1, error, dense_info, solver_state, result = self.solver.step(
            terms, t0, t1, y0, args, solver_state, made_jump=True
        )
        info = Inside(dense_info, self.manifold, self.solver.interpolation_cls)
        y1 = self.manifold.project(y1)
        return y1, error, {"info": info}, solver_state, result
