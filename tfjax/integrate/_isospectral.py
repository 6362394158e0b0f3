"""The solver of Lax pairs, which keeps eigenvalues to rounding."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import identity_like, matmul, must, symmetric, transpose
from ..geometry._rotations import polish
from ._lie import AbstractLie, polynomial
from ._phase_space import check_term


class _Conjugated(dfx.AbstractLocalInterpolation):
    """`e^w(s) y0 e^-w(s)`, with a polynomial w: isospectral at all times of a step."""

    t0: Any
    t1: Any
    y0: Float[Array, "..."]
    turns: tuple[Float[Array, "..."], ...]

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return self.evaluate(t1, left=left) - self.evaluate(t0, left=left)
        return _conjugated(self.y0, polynomial(self.turns, self.t0, self.t1, t0))


def _conjugated(L, w):
    # Of the Pade approximants of e^w and e^-w one is the other's inverse, to rounding.
    expm = jax.scipy.linalg.expm
    return matmul(matmul(expm(w), L), expm(-w))


class _Turns(eqx.Module):
    """The first matrix of a solve, and what has conjugated it since: `S first T`.

    Were each state conjugated from the last, the rounding of a generator that does not
    change would add up: so `S T = 1` is restored in every step, and states are
    conjugated from the first, or from one on the way if S is far from a rotation.
    """

    first: Float[Array, "..."]
    S: Float[Array, "..."]
    T: Float[Array, "..."]
    orthogonal: Bool[Array, "..."]

    @classmethod
    def none(cls, L: Float[Array, "..."]) -> "_Turns":
        one = identity_like(L)
        return cls(L, one, one, _all(L == transpose(L)))

    def then(self, w: Float[Array, "..."]) -> "_Turns":
        """After one more turn, by the exponential of `w`."""
        expm = jax.scipy.linalg.expm
        S, T = matmul(expm(w), self.S), matmul(self.T, expm(-w))
        slack = 100 * jnp.finfo(w.dtype).eps * _largest(w)
        orthogonal = self.orthogonal & _all(jnp.abs(w + transpose(w)) <= slack)
        # Of the size of rounding: values are mended, derivatives are what they were.
        mended = jax.lax.stop_gradient((S, T))
        turned = polish(mended[0])
        inverse = mended[1] + matmul(mended[1], identity_like(S) - matmul(*mended))
        S = S + jnp.where(orthogonal, turned - mended[0], 0)
        T = T + jnp.where(orthogonal, transpose(turned), inverse) - mended[1]
        return _Turns(self.first, S, T, orthogonal)

    def state(self) -> Float[Array, "..."]:
        """The matrix that the first one has become; symmetric where that is."""
        L = matmul(matmul(self.S, self.first), self.T)
        value = jax.lax.stop_gradient(L)
        return L + jnp.where(self.orthogonal, symmetric(value) - value, 0)


def _either(first: Any, a: _Turns, b: _Turns) -> _Turns:
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), a, b)


def _all(x: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """Whether all entries of a matrix are true, for each of a batch."""
    return jnp.all(x, axis=(-2, -1), keepdims=True)


def _largest(x: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.max(jnp.abs(x), axis=(-2, -1), keepdims=True)


class Isospectral(AbstractLie):
    r"""The explicit midpoint rule on Lax pairs: order 2, and the eigenvalues stay.

    $$L_1 = e^{h B_{1/2}} L_0 e^{-h B_{1/2}}, \qquad
      B_{1/2} = B\bigl(e^{h B_0 / 2} L_0 e^{-h B_0 / 2}\bigr)$$

    for $\dot L = [B(L), L]$. B cannot be had from the bracket, so the field must name
    it: those of [`lie_bracket`][tfjax.fields.lie_bracket] (without a force),
    [`double_bracket`][tfjax.fields.double_bracket], [`toda`][tfjax.fields.toda] and
    [`lax_pair`][tfjax.fields.lax_pair] do, by a function `generator(t, L, args)`. No
    Runge-Kutta method, not even an implicit one, keeps the eigenvalues of matrices
    larger than 2 x 2.

    Constant steps only (`dt0`), in `tfjax.solve` and in `diffrax.diffeqsolve`, with any
    `SaveAt`; between steps the eigenvalues stay too, and the order is 2.

    **Raises:** ValueError, when the solve starts, where the field has no `generator`,
    or the state is no array of shape (..., d, d).

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.fields import toda
        >>> from tfjax.integrate import Isospectral
        >>> L0 = jnp.array([[1.0, 1.0], [1.0, 3.0]])
        >>> sol = tfjax.solve(toda, L0, t1=9.0, dt0=0.1, solver=Isospectral())
        >>> bool(abs(jnp.diag(sol.ys[-1]) - jnp.array([3.4142, 0.5858])).max() < 1e-3)
        True

    Source: M. Calvo, A. Iserles, A. Zanna, Numerical solution of isospectral flows,
    Mathematics of Computation 66 (1997), for the theorem on Runge-Kutta methods;
    E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration, section IV.8.
    """

    interpolation_cls: ClassVar[Callable[..., Any]] = _Conjugated

    def order(self, terms):
        return 2

    def init(self, terms, t0, t1, y0, args):
        field = check_term(self, terms)
        if getattr(field, "generator", None) is None:
            rule = (
                "have a `generator` for Isospectral, as lie_bracket without a force, "
                "double_bracket, toda and fields.lax_pair(B) have"
            )
            raise must("field", rule, "one without")
        check_matrices(y0)
        return _Turns.none(y0)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, middle = jnp.asarray(terms.contr(t0, t1), y0.dtype), t0 + 0.5 * (t1 - t0)
        k1 = h * _generator(terms, t0, y0, args)
        k2 = h * _generator(terms, middle, _conjugated(y0, 0.5 * k1), args)
        info = {"y0": y0, "turns": (k1, k2 - k1)}
        turns = _either(made_jump, _Turns.none(y0), solver_state).then(k2)
        y1 = turns.state()
        far = _largest(turns.S) * _largest(turns.T) > 100
        turns = _either(far, _Turns.none(y1), turns)
        return y1, None, info, turns, dfx.RESULTS.successful


def check_matrices(y0: Any) -> None:
    """The state is one array of square matrices."""
    shape = y0.shape if isinstance(y0, jax.Array) else None
    if shape is None or len(shape) < 2 or shape[-1] != shape[-2]:
        got = f"a {type(y0).__name__}" if shape is None else f"of shape {shape}"
        raise must("y0", "have shape (..., d, d) for Isospectral", got)


def _generator(terms, t, L, args):
    """B at a point, in the time of the field: solves back in time run their own."""
    while not isinstance(terms, dfx.ODETerm):
        t, terms = t * getattr(terms, "direction", 1), terms.term
    value = jnp.asarray(terms.vector_field.generator(t, L, args))
    if value.shape != L.shape:
        rule = f"return a matrix of L's shape {L.shape}"
        raise must("generator", rule, f"one of shape {value.shape}")
    return value.astype(L.dtype)
