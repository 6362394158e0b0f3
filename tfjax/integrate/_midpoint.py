"""The implicit midpoint rule, symplectic for every Hamiltonian."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import optimistix as optx

from ._phase_space import AbstractSymplectic, check_term, hermite, moved, velocity


class ImplicitMidpoint(AbstractSymplectic):
    r"""The implicit midpoint rule, for any field: symplectic for every Hamiltonian.

    $$y_1 = y_0 + h f\bigl(t + \tfrac h2, \tfrac{y_0 + y_1}2\bigr)$$

    Order 2, reversible, and A-stable; it conserves every quadratic invariant, such as
    angular momentum. H need not be separable, and the state need not be a pair. Each
    step solves an equation as large as the state; Newton's method factorises its
    Jacobian, at a cubic cost: for many tokens take [`TaoLeapfrog`][].

    Constant steps only (`dt0`), in `tfjax.solve` and in `diffrax.diffeqsolve`, with any
    `SaveAt`; between steps it interpolates at order 2 too.

    **Arguments:**

    - `root_finder`: an optimistix root finder with tolerances of its own. Where None,
      Newton's method to 1e-12 in float64 and to 1e-6 in float32: what is left of the
      residual is what the conservation laws err by.
    - `root_find_max_steps`: the solve fails where a step needs more iterations.

    **Raises:** ValueError, when the solve starts, where the term is no field of an ODE.

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import ImplicitMidpoint
        >>> oscillator = lambda t, y, args: (y[1], -y[0])
        >>> y0 = (jnp.array(1.0), jnp.array(0.0))
        >>> kwargs = {"t1": 10.0, "dt0": 0.1, "solver": ImplicitMidpoint()}
        >>> q, p = tfjax.solve(oscillator, y0, **kwargs).ys
        >>> bool(abs(q[-1] ** 2 + p[-1] ** 2 - 1) < 1e-4)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    sections IV.2 and VI.4.
    """

    root_finder: optx.AbstractRootFinder | None = None
    root_find_max_steps: int = 20

    def order(self, terms):
        return 2

    def init(self, terms, t0, t1, y0, args):
        check_term(self, terms)
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, middle = terms.contr(t0, t1), t0 + 0.5 * (t1 - t0)
        v0 = velocity(terms, t0, y0, args, solver_state, made_jump)

        def residual(y, given):
            y0, half, middle, args = given
            y1 = moved(y0, half, terms.vf(middle, y, args))
            return jax.tree.map(jnp.subtract, y, y1)

        found = optx.root_find(
            residual,
            self._root_finder(y0),
            moved(y0, 0.5 * h, v0),
            (y0, 0.5 * h, middle, args),
            max_steps=self.root_find_max_steps,
            throw=False,
        )
        y1 = jax.tree.map(lambda mean, y: 2 * mean - y, found.value, y0)
        v1 = terms.vf(t1, y1, args)
        result: Any = dfx.RESULTS.promote(found.result)
        return y1, None, hermite(y0, y1, v0, v1, h), v1, result

    def _root_finder(self, y0):
        if self.root_finder is not None:
            return self.root_finder
        single = jnp.result_type(*jax.tree.leaves(y0)) == jnp.float32
        tolerance = 1e-6 if single else 1e-12
        return optx.Newton(rtol=tolerance, atol=tolerance)
