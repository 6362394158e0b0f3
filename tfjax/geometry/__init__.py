"""Manifolds as values, with the operations that flows on them need.

- `Sphere(d)`: the unit sphere of R^d.
- `Euclidean(d)`: flat space.
- `Torus(d)`: d angles.
- `Product(M1, M2, ...)`: points of several manifolds, one after the other.
- `AbstractManifold`: what every manifold offers.
"""

from ._base import AbstractManifold as AbstractManifold
from ._euclidean import Euclidean as Euclidean
from ._product import Product as Product
from ._sphere import Sphere as Sphere
from ._torus import Torus as Torus
