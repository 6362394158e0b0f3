"""Manifolds as values, with the operations that flows on them need.

- `Sphere(d)`: the unit sphere of R^d.
- `Euclidean(d)`: flat space.
- `AbstractManifold`: what every manifold offers.
"""

from ._base import AbstractManifold as AbstractManifold
from ._euclidean import Euclidean as Euclidean
from ._sphere import Sphere as Sphere
