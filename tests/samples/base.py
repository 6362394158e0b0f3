"""What a sample is, and the arrays that samples are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


N, D = 5, 3
DTYPE = jnp.zeros(()).dtype
PERMUTATION = np.array([3, 0, 4, 1, 2])


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(DTYPE)


def points(*shape, seed=0):
    x = random(*shape, seed=seed)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def tokens(seed=0):
    return points(N, D, seed=seed)


ROTATION = np.linalg.qr(random(D, D, seed=9))[0].astype(DTYPE)


def beta_of(params):
    return params["beta"] if isinstance(params, dict) else params.beta


@dataclass(frozen=True)
class Sample:
    """One way to call a function of a state: its parameters, and what it respects.

    `rotate` and `permute` change the parameters along with the state, where the
    function respects that; None where it does not.
    """

    call: Callable[[Any, Any], Any]  # (state, params) -> a velocity or an energy
    params: Any
    vector: bool  # whether the result turns and permutes with x; else it is invariant
    rotate: Callable[[Any, Any], Any] | None = lambda params, r: params
    permute: Callable[[Any, Any], Any] | None = lambda params, order: params
    state: Callable[[int], Any] = tokens  # seed -> state
    # A rotation of the state, and of a velocity at it.
    turn: Callable[[Any, Any], Any] = lambda x, r: x @ r.T
    turn_velocity: Callable[[Any, Any], Any] = lambda v, r: v @ r.T
    scalar: Callable[[Any], Any] = beta_of  # the parameter to sweep over


def rotated(weights, r, sides="both"):
    """A matrix, or one a head, after a change of coordinates x -> R x."""
    if weights is None:
        return None
    return (r @ weights if sides == "both" else weights) @ r.T


def permuted(tree, order):
    """Masks of tokens and of pairs, after a permutation of the tokens."""
    one = lambda m: m[order] if m.ndim == 1 else m[order][:, order]
    return jax.tree.map(one, tree)


def with_scalar(sample, value):
    """The parameters of a sample with another value of the one swept over."""
    return eqx.tree_at(sample.scalar, sample.params, value)
