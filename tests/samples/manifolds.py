"""Samples of the manifolds: each with another one, and an isometry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.random as jr
import numpy as np

from tfjax import geometry
from tfjax.geometry import (
    Euclidean,
    Product,
    SpecialOrthogonal,
    Sphere,
    SymmetricPositiveDefinite,
    Torus,
)

from .base import DTYPE, ROTATION, D, random


@dataclass(frozen=True)
class ManifoldSample:
    """A manifold, how to make it again and another one, and one of its isometries."""

    make: Callable[[], geometry.AbstractManifold]
    other: geometry.AbstractManifold
    # The isometry, of any array that `project` takes, and its derivative, of vectors.
    move: Callable[[Any], Any]
    push: Callable[[Any], Any]
    isometric: bool = True  # whether its embedding is
    condition: float = 1.0  # by how much the rounding of these points grows

    @property
    def manifold(self):
        return self.make()

    def points(self, count, seed):
        return np.asarray(self.manifold.random(jr.key(seed), (count,)))

    def vectors(self, count, seed):
        return random(count, *self.manifold.point_shape, seed=seed)


def turn(a):
    return np.asarray(a) @ ROTATION.T


# A shift, and a reflection that exchanges the angles.
SHIFT = np.array([2.0, -0.7], DTYPE)


def reflect(a):
    return np.asarray(a)[..., ::-1] * np.array([1, -1], DTYPE)


def blocks(first, second):
    """Acts on the first three coordinates, and on the other two."""

    def act(a):
        a = np.asarray(a)
        return np.concatenate([first(a[..., :D]), second(a[..., D:])], axis=-1)

    return act


# From four dimensions on, a method of its own makes logarithms.
TURN = np.linalg.qr(random(D + 1, D + 1, seed=8))[0].astype(DTYPE)


def turn_both_sides(a):
    return TURN @ np.asarray(a) @ TURN


def congruent(a):
    return ROTATION @ np.asarray(a) @ ROTATION.T


MANIFOLDS = {
    "Sphere": ManifoldSample(lambda: Sphere(D), Sphere(D + 1), turn, turn),
    "Euclidean": ManifoldSample(lambda: Euclidean(D), Euclidean(D + 1), turn, turn),
    "Torus": ManifoldSample(
        lambda: Torus(2), Torus(3), lambda a: reflect(a) + SHIFT, reflect
    ),
    "SpecialOrthogonal": ManifoldSample(
        lambda: SpecialOrthogonal(D + 1),
        SpecialOrthogonal(D),
        turn_both_sides,
        turn_both_sides,
        condition=1 / (np.pi - 3.114),  # the largest angle between the points
    ),
    "SymmetricPositiveDefinite": ManifoldSample(
        lambda: SymmetricPositiveDefinite(D),
        SymmetricPositiveDefinite(D + 1),
        congruent,
        congruent,
        isometric=False,
    ),
    "Product": ManifoldSample(
        lambda: Product(Sphere(D), Product(Torus(2))),
        Product(Torus(2), Sphere(D)),
        blocks(turn, lambda a: reflect(a) + SHIFT),
        blocks(turn, reflect),
    ),
}
