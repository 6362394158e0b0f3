"""An explicit symplectic solver of Hamiltonians that are not separable."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import as_float, is_concrete, must, require
from ._phase_space import AbstractSymplectic, check_pair, hermite, moved
from ._terms import velocity


def _omega(value: Any) -> Array:
    omega = as_float("omega", value)
    if omega.ndim:
        raise must("omega", "be a scalar", f"of shape {omega.shape}")
    if is_concrete(omega):
        require(omega, jnp.isfinite(omega) & (omega >= 0), "omega", "be at least 0")
    return omega


class TaoLeapfrog(AbstractSymplectic):
    r"""Tao's explicit symplectic method, for every Hamiltonian: order 2.

    It doubles phase space, binds the copies (q, p) and (x, y) by a spring, and splits

    $$\bar H = H(q, y) + H(x, p)
      + \tfrac\omega2 \bigl( |q - x|^2 + |p - y|^2 \bigr)$$

    into three parts that are solved exactly: half a step of the first, half of the
    second, a rotation of the differences, and back. What it conserves is the structure
    of the *doubled* space, where it is symplectic and reversible; it errs in the energy
    by O(h^2), without drift while the copies stay close. They begin equal and are the
    solver's state: `SaveAt(solver_state=True)` hands them on to go on later.

    Three velocities a step and no equation to solve, where [`ImplicitMidpoint`][] is
    symplectic in phase space itself. Constant steps only (`dt0`), in `tfjax.solve` and
    in `diffrax.diffeqsolve`, with any `SaveAt`; between steps it interpolates at order
    2 too.

    **Arguments:**

    - `omega`: the binding, a rate per unit of time. Where it is too weak the copies
      part; the error is O(omega h^2), so that h must be short beside
      `1 / sqrt(omega)`. 20 where nothing is known. It adds squares of positions and of
      momenta: choose units in which both are of like size.

    **Raises:** ValueError where `omega` is negative, or, when the solve starts, where
    the state is no pair (q, p) of one shape.

    !!! example

        >>> import jax, jax.numpy as jnp, tfjax
        >>> from tfjax.fields import hamiltonian
        >>> from tfjax.integrate import TaoLeapfrog
        >>> H = lambda q, p: (q**2 + 1) * (p**2 + 1) / 2
        >>> y0 = (jnp.array(0.0), jnp.array(-1.5))
        >>> kwargs = {"t1": 10.0, "dt0": 0.01, "solver": TaoLeapfrog()}
        >>> q, p = tfjax.solve(hamiltonian(H), y0, **kwargs).ys
        >>> bool(abs(H(q[-1], p[-1]) / H(*y0) - 1) < 1e-3)
        True

    Source: M. Tao, Explicit symplectic approximation of nonseparable Hamiltonians,
    Physical Review E 94 (2016), section II.
    """

    omega: Float[Array, "..."] = eqx.field(default=20.0, converter=_omega)

    def order(self, terms):
        return 2

    def init(self, terms, t0, t1, y0, args):
        check_pair(self, terms, t0, y0, args)
        return y0, terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, middle = terms.contr(t0, t1), t0 + 0.5 * (t1 - t0)
        half = 0.5 * h
        (q, p), ((x, y), v0) = y0, solver_state
        v0 = velocity(terms, t0, (q, y), args, v0, made_jump)
        x, p = moved(x, half, v0[0]), moved(p, half, v0[1])
        v = terms.vf(middle, (x, p), args)
        q, y = moved(q, half, v[0]), moved(y, half, v[1])
        q, p, x, y = self._bound(h, q, p, x, y)
        v = terms.vf(middle, (x, p), args)
        q, y = moved(q, half, v[0]), moved(y, half, v[1])
        v1 = terms.vf(t1, (q, y), args)
        x, p = moved(x, half, v1[0]), moved(p, half, v1[1])
        info = hermite(y0, (q, p), v0, v1, h)
        return (q, p), None, info, ((x, y), v1), dfx.RESULTS.successful

    def _bound(self, h, q, p, x, y):
        """The flow of the spring: sums rest, differences turn by 2 omega h."""

        def parts(q, p, x, y):
            angle = 2 * self.omega.astype(q.dtype) * jnp.asarray(h).astype(q.dtype)
            cos, sin = jnp.cos(angle), jnp.sin(angle)
            mean_q, mean_p = 0.5 * (q + x), 0.5 * (p + y)
            dq, dp = 0.5 * (q - x), 0.5 * (p - y)
            dq, dp = cos * dq + sin * dp, cos * dp - sin * dq
            return mean_q + dq, mean_p + dp, mean_q - dq, mean_p - dp

        turned = jax.tree.map(parts, q, p, x, y)
        return jax.tree.transpose(
            jax.tree.structure(q), jax.tree.structure((0, 0, 0, 0)), turned
        )
