"""Manifolds as values, with the operations that flows on them need.

- `Sphere(d)`: the unit sphere of R^d.
- `Euclidean(d)`: flat space.
- `Torus(d)`: d angles.
- `SpecialOrthogonal(d)`: the rotations of R^d, as matrices.
- `Product(M1, M2, ...)`: points of several manifolds, one after the other.
- `AbstractManifold`: what every manifold offers.
- `rotation_exp`, `rotation_log`, `cayley`, `cayley_inverse`: between skew matrices and
  rotations.
"""

from ._base import AbstractManifold as AbstractManifold
from ._euclidean import Euclidean as Euclidean
from ._product import Product as Product
from ._rotations import (
    cayley as cayley,
    cayley_inverse as cayley_inverse,
    rotation_exp as rotation_exp,
    rotation_log as rotation_log,
)
from ._special_orthogonal import SpecialOrthogonal as SpecialOrthogonal
from ._sphere import Sphere as Sphere
from ._torus import Torus as Torus
