"""Manifolds as values, with the operations that flows on them need.

- `Sphere(d)`: the unit sphere of R^d.
- `Euclidean(d)`: flat space.
- `Torus(d)`: d angles.
- `SpecialOrthogonal(d)`: the rotations of R^d, as matrices.
- `SymmetricPositiveDefinite(d)`: covariance matrices, with the affine-invariant metric.
- `Product(M1, M2, ...)`: points of several manifolds, one after the other.
- `AbstractManifold`: what every manifold offers.
- `rotation_exp`, `rotation_log`, `cayley`, `cayley_inverse`: between skew matrices and
  rotations.
- `pullback_metric`, `second_fundamental_form`, `mean_curvature`: how a map stretches,
  and how its image bends; `pullback_product`, `pullback_moments` (`PullbackMoments`)
  and `estimate_mean_curvature` form no Jacobian.
- `menger_curvature`: of the circle through three points.
- `christoffel`, `riemann`, `sectional_curvature`, `ricci`, `scalar_curvature`: of a
  metric that is a function of coordinates.
"""

from ._base import AbstractManifold as AbstractManifold
from ._curvature import (
    christoffel as christoffel,
    ricci as ricci,
    riemann as riemann,
    scalar_curvature as scalar_curvature,
    sectional_curvature as sectional_curvature,
)
from ._euclidean import Euclidean as Euclidean
from ._maps import (
    PullbackMoments as PullbackMoments,
    estimate_mean_curvature as estimate_mean_curvature,
    mean_curvature as mean_curvature,
    pullback_metric as pullback_metric,
    pullback_moments as pullback_moments,
    pullback_product as pullback_product,
    second_fundamental_form as second_fundamental_form,
)
from ._menger import menger_curvature as menger_curvature
from ._product import Product as Product
from ._rotations import (
    cayley as cayley,
    cayley_inverse as cayley_inverse,
    rotation_exp as rotation_exp,
    rotation_log as rotation_log,
)
from ._special_orthogonal import SpecialOrthogonal as SpecialOrthogonal
from ._sphere import Sphere as Sphere
from ._symmetric_positive_definite import (
    SymmetricPositiveDefinite as SymmetricPositiveDefinite,
)
from ._torus import Torus as Torus
