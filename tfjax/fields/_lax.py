"""Lax pairs: flows of square matrices whose eigenvalues stay."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import check_shape, commutator, must, square, widen
from ._base import VectorField
from ._lie import matrix_like, value_of


Field = TypeVar("Field", bound=Callable[..., Any])


def lax_pair(B: Callable[..., Any]) -> VectorField:
    r"""The flow of a Lax pair: the eigenvalues of L stay.

    $$\dot L = [B(L), L]$$

    L(t) is $Q L_0 Q^{-1}$ with $\dot Q = B Q$; where B is skew, Q is a rotation.

    A B that is skew for symmetric L alone lets the skew part of L, which is rounding,
    grow: in long solves take it at $(L + L^\top) / 2$.

    **Arguments:**

    - `B`: a function `B(L)` whose values have L's shape. Where the field is called with
      parameters (not None), they are its last argument: `B(L, args)`. It may be an
      `eqx.Module` with leaves of its own.

    **Returns:** a field `(t, L, args=None) -> dL/dt`, an `eqx.Module`, of states of
    shape (..., d, d). Its `generator(t, L, args)` is B, from which
    [`Isospectral`][tfjax.integrate.Isospectral] keeps the eigenvalues to rounding.

    **Raises:** ValueError where `B` is no function, or, by the field, where shapes do
    not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import lax_pair
        >>> flow = lax_pair(lambda L: jnp.triu(L, 1) - jnp.tril(L, -1))
        >>> flow(0.0, jnp.array([[1.0, 1.0], [1.0, 2.0]])).tolist()
        [[2.0, 1.0], [1.0, -2.0]]

    Source: P. Lax, Integrals of nonlinear equations of evolution and solitary waves,
    Communications on Pure and Applied Mathematics 21 (1968).
    """
    if not callable(B):
        raise must("B", "be a function of L", repr(B))
    return _LaxPair(B)


class _LaxPair(eqx.Module):
    B: Callable[..., Any]

    def generator(self, t, L, args=None):
        return value_of("B", self.B, L, args, L.shape)

    def __call__(
        self, t: Any, L: Float[ArrayLike, "..."], args: Any = None
    ) -> Float[Array, "..."]:
        (L,), dtype = widen(square("L", L))
        return commutator(self.generator(t, L, args), L).astype(dtype)


def double_bracket(N: Float[ArrayLike, "..."]) -> VectorField:
    r"""Brockett's flow, which diagonalises and sorts.

    $$\dot H = [H, [H, N]]$$

    For symmetric H and N, $\frac{d}{dt} \operatorname{tr}(N H) = |[H, N]|^2 \ge 0$, a
    sum of squares of entries. If the $n_i$ of a diagonal N are distinct, H tends from
    almost every start to the diagonal matrix of its eigenvalues, in the order of the
    $n_i$, at the rate $\min |\lambda_i - \lambda_j| |n_i - n_j|$.

    **Arguments:**

    - `N`: of shape (d, d), a leaf.

    **Returns:** a field `(t, H, args=None) -> dH/dt`, an `eqx.Module`, of states of
    shape (..., d, d), with a `generator`, as
    [`Isospectral`][tfjax.integrate.Isospectral] needs.

    **Raises:** ValueError where `N` is of another kind, or, by the field, where shapes
    do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import double_bracket
        >>> sort = double_bracket(jnp.diag(jnp.array([1.0, 2.0])))
        >>> sort(0.0, jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
        [[-2.0, 0.0], [0.0, 2.0]]

    Source: R. Brockett, Dynamical systems that sort lists, diagonalize matrices, and
    solve linear programming problems, Linear Algebra and its Applications 146 (1991).
    """
    N = square("N", N)
    check_shape("N", N, 2, "(d, d)")
    return _DoubleBracket(N)


class _DoubleBracket(eqx.Module):
    N: Float[Array, "..."]

    def generator(self, t, L, args=None):
        return commutator(matrix_like("N", self.N, L), L)

    def __call__(
        self, t: Any, H: Float[ArrayLike, "..."], args: Any = None
    ) -> Float[Array, "..."]:
        (H,), dtype = widen(square("H", H))
        return commutator(self.generator(t, H), H).astype(dtype)


def _generated_by(generator: Callable[..., Any]) -> Callable[[Field], Field]:
    """Gives a field the generator that isospectral solvers read."""

    def mark(field: Field) -> Field:
        vars(field)["generator"] = generator
        return field

    return mark


def _above_minus_below(t, L, args=None):
    return jnp.triu(L, 1) - jnp.tril(L, -1)


@_generated_by(_above_minus_below)
def toda(t: Any, L: Float[ArrayLike, "..."], args: Any = None) -> Float[Array, "..."]:
    r"""Toda's lattice as a Lax pair, the flow of the QR algorithm.

    $$\dot L = [B(L), L], \qquad B = L_+ - L_-$$

    with the strictly upper and lower triangles of a symmetric L, for which B is skew. L
    tends to the diagonal matrix of its eigenvalues, which descend. At time 1 it is
    $Q^\top L_0 Q$, with $e^{L_0} = Q R$ and the diagonal of R positive.

    **Arguments:**

    - `t`: not used.
    - `L`: symmetric matrices of shape (..., d, d); tridiagonal ones stay so.
    - `args`: not used.

    **Returns:**

    Velocities of L's shape and dtype. The field has a `generator`, as
    [`Isospectral`][tfjax.integrate.Isospectral] needs.

    **Raises:** ValueError where `L` is not made of square matrices.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import toda
        >>> toda(0.0, jnp.array([[1.0, 1.0], [1.0, 2.0]])).tolist()
        [[2.0, 1.0], [1.0, -2.0]]

    Source: H. Flaschka, The Toda lattice. II, Physical Review B 9 (1974);
    W. Symes, The QR algorithm and scattering for the finite nonperiodic Toda
    lattice, Physica D 4 (1982), for the QR algorithm.
    """
    (L,), dtype = widen(square("L", L))
    return commutator(_above_minus_below(t, L), L).astype(dtype)
