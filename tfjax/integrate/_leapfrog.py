"""Explicit symplectic solvers of separable Hamiltonians: compositions of leapfrog."""

import abc

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ._phase_space import (
    AbstractSymplectic,
    check_separable,
    hermite,
    moved,
)
from ._terms import velocity


class _Composition(AbstractSymplectic):
    """Leapfrog steps of lengths `w_i h`, one after the other, with `sum_i w_i = 1`."""

    @abc.abstractmethod
    def weights(self) -> np.ndarray:
        """The lengths of the steps, over h."""

    def init(self, terms, t0, t1, y0, args):
        check_separable(self, terms, t0, y0, args)
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, time = terms.contr(t0, t1), jnp.asarray(t1 - t0)
        v0 = velocity(terms, t0, y0, args, solver_state, made_jump)
        weights = self.weights()
        starts = np.concatenate([[0.0], np.cumsum(weights)])
        starts[-1] = 1.0

        def leapfrog(carry, stage):
            # Of each velocity one half is used; the compiler drops the other.
            (q, p), force = carry
            weight, start, end = stage
            middle = t0 + 0.5 * (start + end) * time
            p = moved(p, 0.5 * weight * h, force)
            q = moved(q, weight * h, terms.vf(middle, (q, p), args)[0])
            force = terms.vf(t0 + end * time, (q, p), args)[1]
            return ((q, moved(p, 0.5 * weight * h, force)), force), None

        stages = np.stack([weights, starts[:-1], starts[1:]], axis=1)
        stages = jnp.asarray(stages, time.dtype)
        single = len(weights) == 1
        start = (y0, v0[1])
        (y1, force), _ = jax.lax.scan(leapfrog, start, stages, unroll=single)
        v1 = (terms.vf(t1, y1, args)[0], force)
        return y1, None, hermite(y0, y1, v0, v1, h), v1, dfx.RESULTS.successful


class Leapfrog(_Composition):
    r"""The leapfrog method (velocity Verlet), for separable Hamiltonians: order 2.

    $$p_{1/2} = p_0 + \tfrac h2 F(q_0), \quad q_1 = q_0 + h v(p_{1/2}), \quad
      p_1 = p_{1/2} + \tfrac h2 F(q_1)$$

    for $\dot q = v(t, p)$, $\dot p = F(t, q)$: the field maps `(t, (q, p), args)` to
    `(v, F)`. A step evaluates the force once. It is symplectic and reversible: the
    energy errs by O(h^2), without drift, as long as h is a small part of the shortest
    period, and a solve back returns to the start up to rounding.

    Constant steps only (`dt0`), in `tfjax.solve` and in `diffrax.diffeqsolve`, with any
    `SaveAt`; between steps it interpolates at order 2 too.

    **Raises:** ValueError, when the solve starts, where the state is no pair (q, p) of
    one shape, or where the field depends on what it may not.

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import Leapfrog
        >>> oscillator = lambda t, y, args: (y[1], -y[0])
        >>> y0 = (jnp.array(1.0), jnp.array(0.0))
        >>> kwargs = {"t1": 100.0, "dt0": 0.1, "solver": Leapfrog()}
        >>> q, p = tfjax.solve(oscillator, y0, **kwargs).ys
        >>> bool(abs(q[-1] ** 2 + p[-1] ** 2 - 1) < 0.003)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section I.1.4.
    """

    def order(self, terms):
        return 2

    def weights(self) -> np.ndarray:
        return np.ones(1)


class Yoshida4(_Composition):
    r"""Three steps of leapfrog made into a method of order 4: symplectic, reversible.

    The lengths are `w h, (1 - 2 w) h, w h` with `w = 1 / (2 - 2^(1/3))`; the one in the
    middle goes back. Otherwise as [`Leapfrog`][], with three forces a step, and dense
    output of order 4.

    **Raises:** ValueError as [`Leapfrog`][].

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import Yoshida4
        >>> oscillator = lambda t, y, args: (y[1], -y[0])
        >>> y0 = (jnp.array(1.0), jnp.array(0.0))
        >>> kwargs = {"t1": 100.0, "dt0": 0.1, "solver": Yoshida4()}
        >>> q, p = tfjax.solve(oscillator, y0, **kwargs).ys
        >>> bool(abs(q[-1] ** 2 + p[-1] ** 2 - 1) < 1e-4)
        True

    Source: H. Yoshida, Construction of higher order symplectic integrators, Physics
    Letters A 150 (1990), equation (2.11).
    """

    def order(self, terms):
        return 4

    def weights(self) -> np.ndarray:
        outer = 1 / (2 - 2 ** (1 / 3))
        return np.array([outer, 1 - 2 * outer, outer])


class Yoshida6(_Composition):
    r"""Seven steps of leapfrog made into a method of order 6: symplectic, reversible.

    Otherwise as [`Leapfrog`][], with seven forces a step. Dense output is of order 4:
    Hermite's cubic knows no more.

    **Raises:** ValueError as [`Leapfrog`][].

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import Yoshida6
        >>> oscillator = lambda t, y, args: (y[1], -y[0])
        >>> y0 = (jnp.array(1.0), jnp.array(0.0))
        >>> kwargs = {"t1": 100.0, "dt0": 0.1, "solver": Yoshida6()}
        >>> q, p = tfjax.solve(oscillator, y0, **kwargs).ys
        >>> bool(abs(q[-1] ** 2 + p[-1] ** 2 - 1) < 1e-4)
        True

    Source: H. Yoshida, Construction of higher order symplectic integrators, Physics
    Letters A 150 (1990), table 1, solution A; digits of E. Hairer, C. Lubich,
    G. Wanner, Geometric Numerical Integration, section V.3.2.
    """

    def order(self, terms):
        return 6

    def weights(self) -> np.ndarray:
        outer = [0.784513610477557264, 0.235573213359358134, -1.177679984178871007]
        return np.array([*outer, 1 - 2 * sum(outer), *outer[::-1]])
