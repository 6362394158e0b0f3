"""Solvers of rotations that step by their exponentials."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._core import (
    commutator,
    identity_like,
    is_concrete,
    matmul,
    must,
    skew,
    transpose,
)
from ..geometry import SpecialOrthogonal
from ..geometry._rotations import exp_of_skew, polish
from ._phase_space import check_term, velocity


class AbstractLie(dfx.AbstractSolver):
    """A solver whose steps are actions of a group, for the field of an ODE alone."""

    term_structure: ClassVar = dfx.AbstractTerm

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


def polynomial(turns: tuple[Array, ...], t0: Any, t1: Any, t: Any) -> Array:
    """`sum_k turns[k - 1] s^k` at the share s of a step from `t0` to `t1`."""
    span = jnp.asarray(t1 - t0)
    share = jnp.where(span == 0, 0, (t - t0) / jnp.where(span == 0, 1, span))
    share = share.astype(turns[0].dtype)
    total = jnp.zeros_like(turns[0])
    for turn in turns[::-1]:
        total = share * (turn + total)
    return total


def turned(y: Float[Array, "..."], w: Float[Array, "..."]) -> Float[Array, "..."]:
    """`y e^w` for skew w, whose rounding errors do not add up over many steps."""
    return polish(matmul(y, exp_of_skew(w)))


class _Turned(dfx.AbstractLocalInterpolation):
    """`y0 e^w(s)`, with a polynomial w: a rotation at all times of a step."""

    t0: Any
    t1: Any
    y0: Float[Array, "..."]
    turns: tuple[Float[Array, "..."], ...]

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return self.evaluate(t1, left=left) - self.evaluate(t0, left=left)
        return turned(self.y0, polynomial(self.turns, self.t0, self.t1, t0))


class AbstractRotating(AbstractLie):
    """A solver of `y' = y a`, with a the skew part of `y^T f(t, y)`."""

    manifold: eqx.AbstractVar[SpecialOrthogonal | None]
    interpolation_cls: ClassVar[Callable[..., Any]] = _Turned

    def __check_init__(self):
        check_space(self, self.manifold)

    def init(self, terms, t0, t1, y0, args):
        check_term(self, terms)
        check_rotations(self, y0)
        return self.start(terms, t0, y0, args)

    def start(self, terms, t0, y0, args):
        """The solver's state."""
        return None

    def spin(self, terms, t, y, args, h):
        """`h a` at a point."""
        return spin(y, terms.vf(t, y, args), h)


def spin(y: Array, v: Array, h: Any) -> Array:
    """`h a` for a velocity: `y a` is its tangential part."""
    return jnp.asarray(h).astype(y.dtype) * skew(matmul(transpose(y), v))


def _finish(y0, y1, turns, state):
    """What a step returns; it fails where it starts from what is no rotation."""
    failed: Any = dfx.RESULTS.nonfinite
    good: Any = dfx.RESULTS.successful
    result = dfx.RESULTS.where(_rotations(y0), good, failed)
    return y1, None, {"y0": y0, "turns": turns}, state, result


def _rotations(y: Float[Array, "..."]) -> Bool[Array, ""]:
    gap = matmul(transpose(y), y) - identity_like(y)
    proper = jnp.all(jnp.linalg.det(y) > 0)
    return (jnp.max(jnp.abs(gap)) < slack(y.dtype)) & proper


def slack(dtype: Any) -> float:
    """By how much a first state may miss: the first step makes up for it.

    Not less than what points in float32 miss, which a solve may have widened.
    """
    return max(float(jnp.finfo(dtype).eps) ** 0.5, 1e-5)


def check_space(solver: Any, space: Any) -> None:
    """Rotations are the only manifold of these solvers."""
    if space is not None and not isinstance(space, SpecialOrthogonal):
        rule = f"be a SpecialOrthogonal or None for {type(solver).__name__}"
        raise must("manifold", rule, repr(space))


def check_rotations(solver: Any, y0: Any, *, values: bool = True) -> None:
    """The state is one array of rotations; traced ones are looked at in the steps."""
    space, name = solver.manifold, type(solver).__name__
    size = "(..., d, d)" if space is None else f"(..., {space.d}, {space.d})"
    rule = f"be an array of rotations, of shape {size}, for {name}"
    if not isinstance(y0, jax.Array):
        raise must("y0", rule, f"a {type(y0).__name__}")
    d = y0.shape[-1] if y0.ndim > 1 else 0
    if d < 2 or y0.shape[-2] != d or (space is not None and d != space.d):
        raise must("y0", rule, f"of shape {y0.shape}")
    if values and is_concrete(y0):
        y = np.asarray(y0)
        error = np.max(np.abs(np.swapaxes(y, -1, -2) @ y - np.eye(d)))
        if not error < slack(y.dtype):
            got = f"off by {error:.2g} in y0^T y0 (manifold= in solve projects it)"
            raise must("y0", rule, got)
        if not np.all(np.linalg.det(y) > 0):
            raise must("y0", rule, "of determinant -1: a reflection")


class LieEuler(AbstractRotating):
    r"""Euler's method on rotations: order 1, one field a step.

    $$y_1 = y_0 e^{h a_0}, \qquad a = \operatorname{skew}(y^\top f(t, y))$$

    so that $y a$ is the tangential part of the field. States, saved times and dense
    output are rotations to rounding, over any number of steps.

    Constant steps only (`dt0`), in `tfjax.solve` and in `diffrax.diffeqsolve`, with any
    `SaveAt`. With `tfjax.solve(manifold=)`, which is not needed, every state is
    projected as well: also a first one that is no rotation yet.

    **Arguments:**

    - `manifold`: a [`SpecialOrthogonal`][tfjax.geometry.SpecialOrthogonal] that the
      states, of shape (..., d, d), must belong to. None takes d from them.

    **Raises:** ValueError, when the solve starts, where `manifold` or the state is of
    another kind. A solve from a traced state that is no rotation does not succeed.

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import LieEuler
        >>> turn = lambda t, y, args: y @ jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> kwargs = {"t1": 1.0, "dt0": 0.1, "solver": LieEuler()}
        >>> y = tfjax.solve(turn, jnp.eye(2), **kwargs).ys[-1]
        >>> bool(abs(y[1, 0] - jnp.sin(1.0)) < 1e-6)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section IV.8.
    """

    manifold: SpecialOrthogonal | None = None

    def order(self, terms):
        return 1

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        w = self.spin(terms, t0, y0, args, terms.contr(t0, t1))
        return _finish(y0, turned(y0, w), (w,), None)


class LieMidpoint(AbstractRotating):
    r"""The explicit midpoint rule on rotations: order 2, two fields a step.

    $$y_1 = y_0 e^{h a_{1/2}}, \qquad a_{1/2} = a(t + \tfrac h2, y_0 e^{h a_0 / 2})$$

    with a as for [`LieEuler`][], and the rest as there. Between steps it is of order 2
    too.

    **Arguments:**

    - `manifold`: as for [`LieEuler`][].

    **Raises:** ValueError as [`LieEuler`][].

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import LieMidpoint
        >>> turn = lambda t, y, args: 2 * t * y @ jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> kwargs = {"t1": 1.0, "dt0": 0.1, "solver": LieMidpoint()}
        >>> y = tfjax.solve(turn, jnp.eye(2), **kwargs).ys[-1]
        >>> bool(abs(y[1, 0] - jnp.sin(1.0)) < 1e-6)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section IV.8.
    """

    manifold: SpecialOrthogonal | None = None

    def order(self, terms):
        return 2

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, middle = terms.contr(t0, t1), t0 + 0.5 * (t1 - t0)
        k1 = self.spin(terms, t0, y0, args, h)
        k2 = self.spin(terms, middle, turned(y0, 0.5 * k1), args, h)
        return _finish(y0, turned(y0, k2), (k1, k2 - k1), None)


class RKMK4(AbstractRotating):
    r"""The method of Runge, Kutta and Munthe-Kaas on rotations: order 4.

    The classical method of order 4 for w in $y = y_0 e^w$, with two commutators:
    $k_i = h a(t + c_i h, y_0 e^{w_i})$, with a as for [`LieEuler`][], and

    $$w_2 = \tfrac12 k_1, \quad w_3 = \tfrac12 k_2 + \tfrac18 [k_1, k_2], \quad
      w_4 = k_3, \quad
      w = \tfrac16 (k_1 + 2 k_2 + 2 k_3 + k_4) + \tfrac1{12} [k_1, k_4]$$

    For a on the other side, $y' = a y$, the commutators have the other sign. Four
    fields a step; between steps w is Hermite's cubic, of order 4 too. The rest is as
    for [`LieEuler`][].

    **Arguments:**

    - `manifold`: as for [`LieEuler`][].

    **Raises:** ValueError as [`LieEuler`][].

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import RKMK4
        >>> turn = lambda t, y, args: 4 * t**3 * y @ jnp.array([[0.0, -1], [1, 0]])
        >>> kwargs = {"t1": 1.0, "dt0": 0.1, "solver": RKMK4()}
        >>> y = tfjax.solve(turn, jnp.eye(2), **kwargs).ys[-1]
        >>> bool(abs(y[1, 0] - jnp.sin(1.0)) < 1e-6)
        True

    Source: H. Munthe-Kaas, High order Runge-Kutta methods on manifolds, Applied
    Numerical Mathematics 29 (1999); E. Hairer, C. Lubich, G. Wanner,
    Geometric Numerical Integration, section IV.8.2.
    """

    manifold: SpecialOrthogonal | None = None

    def order(self, terms):
        return 4

    def start(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, middle = terms.contr(t0, t1), t0 + 0.5 * (t1 - t0)
        v0 = velocity(terms, t0, y0, args, solver_state, made_jump)
        k1 = spin(y0, v0, h)
        k2 = self.spin(terms, middle, turned(y0, k1 / 2), args, h)
        w3 = k2 / 2 + commutator(k1, k2) / 8
        k3 = self.spin(terms, middle, turned(y0, w3), args, h)
        k4 = self.spin(terms, t1, turned(y0, k3), args, h)
        w = (k1 + 2 * k2 + 2 * k3 + k4) / 6 + commutator(k1, k4) / 12
        y1 = turned(y0, w)
        v1 = terms.vf(t1, y1, args)
        # dw/ds at the end: what the derivative of the exponential takes to h a there.
        k = spin(y1, v1, h)
        inner = commutator(w, k)
        slope = k + inner / 2 + commutator(w, inner) / 12
        turns = (k1, 3 * w - 2 * k1 - slope, k1 + slope - 2 * w)
        return _finish(y0, y1, turns, v1)
