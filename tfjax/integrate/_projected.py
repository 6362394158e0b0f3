"""Any diffrax solver, made to stay on a manifold."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import must
from ..geometry import AbstractManifold


class PresentRows(eqx.Module):
    """A manifold for the rows that exist; the absent ones rest at 0 meanwhile.

    Used inside `solve` for padded token sets: what is stored in absent rows (NaN, say)
    never enters the solver, and `restore` puts it back into what is saved.
    """

    manifold: Any
    exists: Bool[Array, " n"]
    absent: Float[Array, "n d"]

    def project(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.where(self.exists[:, None], self.manifold.project(x), 0.0)

    def tangent(self, x: Float[Array, "n d"], v: Float[Array, "n d"]):
        return jnp.where(self.exists[:, None], self.manifold.tangent(x, v), 0.0)

    def restore(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.where(self.exists[:, None], x, self.absent)


class _Info(eqx.Module):
    """What the interpolation needs; the class is static, the rest are arrays."""

    inner: dict[str, Any]
    manifold: AbstractManifold | PresentRows
    interpolation: Callable[..., Any] = eqx.field(static=True)


class _ProjectedInterpolation(dfx.AbstractLocalInterpolation):
    """The wrapped solver's interpolation, projected: continuous, of the same order."""

    t0: Any
    t1: Any
    info: _Info

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return self.evaluate(t1, left=left) - self.evaluate(t0, left=left)
        inner = self.info.interpolation(t0=self.t0, t1=self.t1, **self.info.inner)
        y = self.info.manifold.project(inner.evaluate(t0, left=left))
        if isinstance(self.info.manifold, PresentRows):
            y = self.info.manifold.restore(y)
        return y


class Projected(dfx.AbstractWrappedSolver):
    """Projects the state of another solver on a manifold after every step.

    Saved times, dense output and events see points of the manifold too. The order of
    the wrapped solver is kept for fields that are tangent to the manifold *and* are
    defined near it; this wrapper does not touch the field. `tfjax.solve(manifold=)`
    does: it integrates the tangential part, taken at the projected point.

    First-same-as-last solvers evaluate the field anew at the projected point, so that
    under `jax.vmap` no member's result depends on its neighbours.

    **Arguments:**

    - `solver`: a diffrax solver, such as `diffrax.Tsit5()`; not a `Projected`.
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
        if type(self.solver) is Projected or not isinstance(
            self.solver, dfx.AbstractSolver
        ):
            raise must("solver", "be a diffrax solver to wrap", repr(self.solver))
        if not isinstance(self.manifold, AbstractManifold | PresentRows):
            raise must("manifold", "be a manifold", repr(self.manifold))

    @property
    def term_structure(self):
        return self.solver.term_structure

    @property
    def term_compatible_contr_kwargs(self):
        return self.solver.term_compatible_contr_kwargs

    # isinstance sees through this wrapper, so diffrax also asks it for these.
    @property
    def root_finder(self):
        return self.solver.root_finder  # type: ignore[attr-defined]

    @property
    def root_find_max_steps(self):
        return self.solver.root_find_max_steps  # type: ignore[attr-defined]

    @property
    def scan_kind(self):
        return self.solver.scan_kind  # type: ignore[attr-defined]

    def order(self, terms):
        return self.solver.order(terms)

    def strong_order(self, terms):
        return self.solver.strong_order(terms)

    def error_order(self, terms):
        return self.solver.error_order(terms)

    def init(self, terms, t0, t1, y0, args):
        return self.solver.init(terms, t0, t1, y0, args)

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        # A cached last stage belongs to the point before projection: refresh it.
        y1, error, dense_info, solver_state, result = self.solver.step(
            terms, t0, t1, y0, args, solver_state, made_jump=True
        )
        info = _Info(dense_info, self.manifold, self.solver.interpolation_cls)
        y1 = self.manifold.project(y1)
        return y1, error, {"info": info}, solver_state, result
