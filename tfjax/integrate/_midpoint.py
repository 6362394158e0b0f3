"""The implicit midpoint rule, symplectic for every Hamiltonian."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, PyTree

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

    - `root_finder`: an optimistix root finder with tolerances of its own, which are
      relative to the largest entry of each array of the state. Where None, Newton's
      method to 1e-12 in float64 and to 1e-6 in float32: what is left of the residual
      is what the conservation laws err by.
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
        half = 0.5 * h
        v0 = velocity(terms, t0, y0, args, solver_state, made_jump)
        # The middle is sought in units of the state's own size: no other unit counts.
        guess, scale = jax.lax.stop_gradient((moved(y0, half, v0), _scale(y0, h, v0)))

        def residual(u, given):
            y0, half, middle, args, guess, scale = given
            y = _at(guess, scale, u)
            mean = moved(y0, half, terms.vf(middle, y, args))
            return jax.tree.map(lambda y, mean, s: (y - mean) / s, y, mean, scale)

        found = optx.root_find(
            residual,
            self._root_finder(y0),
            jax.tree.map(jnp.zeros_like, y0),
            (y0, half, middle, args, guess, scale),
            max_steps=self.root_find_max_steps,
            throw=False,
        )
        mean = _at(guess, scale, found.value)
        y1 = jax.tree.map(lambda mean, y: 2 * mean - y, mean, y0)
        v1 = terms.vf(t1, y1, args)
        result: Any = dfx.RESULTS.promote(found.result)
        return y1, None, hermite(y0, y1, v0, v1, h), v1, result

    def _root_finder(self, y0):
        if self.root_finder is not None:
            return self.root_finder
        single = jnp.result_type(*jax.tree.leaves(y0)) == jnp.float32
        tolerance = 1e-6 if single else 1e-12
        return optx.Newton(rtol=tolerance, atol=tolerance)


def _at(guess: PyTree[Array], scale: PyTree[Array], u: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda y, s, u: y + s * u, guess, scale, u)


def _scale(y0: PyTree[Array], h: Any, v0: PyTree[Array]) -> PyTree[Array]:
    """How large each leaf is, or what a step adds to it; 1 where both are zero."""
    largest = lambda x: jnp.max(jnp.abs(x), initial=0.0)
    size = jax.tree.map(largest, y0)
    size = moved(size, jnp.abs(h), jax.tree.map(largest, v0))
    return jax.tree.map(lambda s: jnp.where(s == 0, 1, s), size)
