"""Manifolds as values, with the operations that flows on them need."""

from ._base import AbstractManifold as AbstractManifold
from ._euclidean import Euclidean as Euclidean
from ._sphere import Sphere as Sphere
