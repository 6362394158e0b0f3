"""Linear flows of matrices: brackets with a matrix, and products from both sides."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, commutator, matmul, must, square, widen
from ._base import VectorField


def lie_bracket(
    W: Float[ArrayLike, "..."], F: Callable[..., Any] | None = None
) -> VectorField:
    r"""The bracket of a square matrix with a constant one, and a force.

    $$\dot H = [H, W] + F(H), \qquad [H, W] = H W - W H$$

    Without a force $H(t) = e^{-Wt} H_0 e^{Wt}$: the eigenvalues stay for any W, the sum
    of squares of the entries for all H only where W is skew up to a multiple of the
    identity. For the covariance $C = X^\top X / n$ of tokens it is what C does where
    all tokens turn by a skew value matrix, $\dot X = X W$. A force moves the
    eigenvalues, unless it is a bracket $[H, G(H)]$ itself.

    **Arguments:**

    - `W`: of shape (d, d), a leaf.
    - `F`: a function `F(H)` whose values have H's shape. Where the field is called with
      parameters (not None), they are its last argument: `F(H, args)`. It may be an
      `eqx.Module` with leaves of its own. None is no force.

    **Returns:** a field `(t, H, args=None) -> dH/dt`, an `eqx.Module`, of states of
    shape (..., d, d). Without a force it has a `generator`, as
    [`Isospectral`][tfjax.integrate.Isospectral] needs.

    **Raises:** ValueError where an argument is of another kind, or, by the field, where
    shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import lie_bracket
        >>> turn = lie_bracket(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
        >>> turn(0.0, jnp.diag(jnp.array([2.0, 1.0]))).tolist()
        [[0.0, 1.0], [1.0, 0.0]]

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section IV.3.2, for isospectral flows.
    """
    if F is not None and not callable(F):
        raise must("F", "be a function of H, or None", repr(F))
    W = square("W", W)
    check_shape("W", W, 2, "(d, d)")
    return _LieBracket(W, F)


class _LieBracket(eqx.Module):
    W: Float[Array, "..."]
    F: Callable[..., Any] | None

    @property
    def generator(self) -> Callable[..., Any] | None:
        return None if self.F is not None else self._generator

    def _generator(self, t, H, args=None):
        return -matrix_like("W", self.W, H)

    def __call__(
        self, t: Any, H: Float[ArrayLike, "..."], args: Any = None
    ) -> Float[Array, "..."]:
        (H,), dtype = widen(square("H", H))
        velocity = commutator(H, matrix_like("W", self.W, H))
        if self.F is not None:
            velocity = velocity + value_of("F", self.F, H, args, H.shape)
        return velocity.astype(dtype)


def rectangular_bracket(A: Any = None, B: Any = None) -> VectorField:
    r"""Products of a matrix of tokens with matrices from both sides.

    $$\dot H = H B - A H$$

    For constant A and B it is $H(t) = e^{-At} H_0 e^{Bt}$, and if both are skew the
    singular values stay. Attention without a value matrix is the case $A = -P(H)$ of
    its weights, B = 0: P is not skew, and the singular values move.

    **Arguments:**

    - `A`: acts on tokens: a matrix of shape (n, n), a leaf; a function `A(H)` whose
      values have that shape; or None, which is 0. Where the field is called with
      parameters (not None), they are the last argument of a function: `A(H, args)`.
    - `B`: acts on coordinates, of shape (d, d), likewise.

    **Returns:** a field `(t, H, args=None) -> dH/dt`, an `eqx.Module`, of states of
    shape (n, d).

    **Raises:** ValueError where both are None or one is of another kind, or, by the
    field, where shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import rectangular_bracket
        >>> swap = rectangular_bracket(A=jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
        >>> swap(0.0, jnp.array([[1.0], [2.0]])).tolist()
        [[-2.0], [1.0]]

    Source: own.
    """
    if A is None and B is None:
        raise must("A", "be given where B is not", "None")
    return _RectangularBracket(_side("A", A), _side("B", B))


class _RectangularBracket(eqx.Module):
    A: Any
    B: Any

    def __call__(
        self, t: Any, H: Float[ArrayLike, "..."], args: Any = None
    ) -> Float[Array, "..."]:
        H = as_float("H", H)
        check_shape("H", H, 2, "(n, d)")
        (H,), dtype = widen(H)
        n, d = H.shape
        velocity = jnp.zeros_like(H)
        if self.B is not None:
            velocity = velocity + matmul(H, value_of("B", self.B, H, args, (d, d)))
        if self.A is not None:
            velocity = velocity - matmul(value_of("A", self.A, H, args, (n, n)), H)
        return velocity.astype(dtype)


def _side(name: str, value: Any) -> Any:
    if value is None or callable(value):
        return value
    value = square(name, value)
    check_shape(name, value, 2, "(m, m)")
    return value


def value_of(name: str, part: Any, H: Any, args: Any, shape: tuple[int, ...]) -> Any:
    """A matrix, or what a function of the state gives, of the shape that fits."""
    if not callable(part):
        if part.shape != shape:
            raise must(name, f"have shape {shape} here", f"of shape {part.shape}")
        return part.astype(H.dtype)
    value = as_float(name, part(H) if args is None else part(H, args))
    if value.shape != shape:
        rule = f"return a matrix of shape {shape}"
        raise must(name, rule, f"one of shape {value.shape}")
    return value.astype(H.dtype)


def matrix_like(name: str, matrix: jax.Array, H: jax.Array) -> jax.Array:
    """A constant matrix for states of shape (..., d, d), in their shape and dtype."""
    if matrix.shape != H.shape[-2:]:
        rule = f"have shape {H.shape[-2:]} here"
        raise must(name, rule, f"of shape {matrix.shape}")
    return jnp.broadcast_to(matrix.astype(H.dtype), H.shape)
