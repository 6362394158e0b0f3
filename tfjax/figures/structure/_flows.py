"""Flows of matrices, stacked and side by side, and their starts."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...fields import double_bracket, lax_pair, lie_bracket, rectangular_bracket, toda


D = 5
EIGENVALUES = np.array([-2.0, -0.5, 0.7, 1.6, 3.0])
TARGET = np.array([1.5, 0.5, 2.5, 1.0, 2.0])
LAX = ("Toda", "Toda, other sign", "Brockett", "pair without rest")


class Stacked(eqx.Module):
    """Lax pairs of one size, one above the other: a Lax pair again.

    A step of a stack is the stack of the steps: one program does for all flows.
    """

    flows: tuple[Any, ...]

    def generator(self, t, L, args=None):
        pairs = zip(self.flows, L, strict=True)
        return jnp.stack([flow.generator(t, one, args) for flow, one in pairs])

    def __call__(self, t, L, args=None):
        pairs = zip(self.flows, L, strict=True)
        return jnp.stack([flow(t, one, args) for flow, one in pairs])


class Turned(eqx.Module):
    """The same as rotations: with `y' = -y B(L)` it is `L = y^T L0 y`."""

    pairs: Stacked
    first: Any

    def matrices(self, y):
        return jnp.swapaxes(y, -1, -2) @ self.first @ y

    def __call__(self, t, y, args=None):
        return -y @ self.pairs.generator(t, self.matrices(y), args)

    def watched(self, y):
        """The eigenvalues, and what orthogonal matrices have none of."""
        gap = jnp.swapaxes(y, -1, -2) @ y - jnp.eye(D, dtype=y.dtype)[None]
        return watched(self.matrices(y)) | {"skewness": jnp.max(jnp.abs(gap))}


class Beside(eqx.Module):
    """Flows of states of any shapes, by name, as one field."""

    flows: dict[str, Any]

    def __call__(self, t, y, args=None):
        return {name: flow(t, y[name], args) for name, flow in self.flows.items()}


def watched(L: Any) -> dict[str, Any]:
    """The eigenvalues of symmetric matrices, and traces of powers."""
    square = L @ L
    trace = lambda x: jnp.trace(x, axis1=-2, axis2=-1)
    return {
        "eigenvalues": jnp.linalg.eigvalsh(L),
        "tr L^2": trace(square),
        "tr L^3": trace(square @ L),
    }


def lax_flows(seed: int) -> tuple[Stacked, Any]:
    """Toda with either sign, Brockett's flow, a random pair; and symmetric starts.

    All starts have the same eigenvalues, so that no random gap is too small to sort in
    the time that there is.
    """
    keys = jax.random.split(jax.random.key(seed), 3)
    upper = jnp.triu(jax.random.normal(keys[2], (D, D)), 1)
    flows = (
        toda,
        lax_pair(_below_minus_above),
        double_bracket(jnp.diag(jnp.asarray(TARGET))),
        lax_pair(_Weighted(0.4 * (upper - upper.T))),
    )
    first, second = (_symmetric(key) for key in keys[:2])
    return Stacked(flows), jnp.stack([first, first, second, second])


def _below_minus_above(L):
    return jnp.tril(L, -1) - jnp.triu(L, 1)


class _Weighted(eqx.Module):
    """The entries of L, times those of a skew matrix.

    It is skew to the last digit. Were it so for symmetric L alone, rounding errors of
    the symmetry would feed themselves, until after some thousand steps L is lost.
    """

    weights: Any

    def __call__(self, L):
        return self.weights * (L + L.T) / 2


def _symmetric(key):
    basis, _ = jnp.linalg.qr(jax.random.normal(key, (D, D)))
    L = basis @ jnp.diag(jnp.asarray(EIGENVALUES)) @ basis.T
    return (L + L.T) / 2


def linear_flows(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Brackets with constant matrices, and attention, as products from both sides."""
    keys = iter(jax.random.split(jax.random.key(seed + 1_000_000), 6))
    draw = lambda *shape: jax.random.normal(next(keys), shape)
    A, B, W = draw(6, 6), draw(D, D), draw(D, D)
    turn = lambda x: (x - x.T) / 2
    tokens = draw(6, D)
    square = draw(D, D)
    square = (square + square.T) / 2
    flows: dict[str, Callable[..., Any]] = {
        "any A, B": rectangular_bracket(A, B),
        "skew A, B": rectangular_bracket(turn(A), turn(B)),
        "attention": rectangular_bracket(A=_minus_attention),
        "tokens": rectangular_bracket(B=turn(W)),
        "covariance": lie_bracket(turn(W)),
        "any W": lie_bracket(W),
        "skew + cI": lie_bracket(turn(W) + 2 * jnp.eye(D)),
    }
    starts = {name: tokens for name in ("any A, B", "skew A, B", "attention", "tokens")}
    starts |= {"covariance": tokens.T @ tokens / 6}
    return flows, starts | {"any W": square, "skew + cI": square}


def _minus_attention(H):
    return -jax.nn.softmax(H @ H.T, axis=1)
