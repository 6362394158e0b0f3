"""Curvature of a metric that is given as a function of the coordinates."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .._core import as_float, check_shape, matmul, must, require, widen


Metric = Callable[[Array], Array]


def christoffel(metric: Metric, x: Float[ArrayLike, " m"]) -> Float[Array, "m m m"]:
    r"""The Christoffel symbols of the second kind of a metric.

    $$\Gamma^k_{ij} = \tfrac12 g^{kl} (\partial_i g_{jl} + \partial_j g_{il}
    - \partial_l g_{ij})$$

    **Arguments:**

    - `metric`: a function of coordinates (m,) that returns the symmetric positive
      definite matrix (m, m).
    - `x`: the coordinates of a point, of shape (m,).

    **Returns:**

    An array of shape (m, m, m), with the axes (k, i, j).

    **Raises:** ValueError where `x` is no vector, or where the metric is not of shape
    (m, m) or not positive definite at `x` (under jit, a run-time error).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import christoffel
        >>> half_plane = lambda x: jnp.eye(2) / x[1] ** 2
        >>> christoffel(half_plane, jnp.array([0.0, 2.0]))[1].tolist()
        [[0.5, 0.0], [0.0, -0.5]]

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 2, equation
    (10).
    """
    x, finish = _point(metric, x)
    return finish(_christoffel(metric, x))


def riemann(metric: Metric, x: Float[ArrayLike, " m"]) -> Float[Array, "m m m m"]:
    r"""The curvature tensor of a metric, with all indices below.

    $$R_{lkij} = g_{lp} (\partial_i \Gamma^p_{jk} - \partial_j \Gamma^p_{ik}
    + \Gamma^p_{iq} \Gamma^q_{jk} - \Gamma^p_{jq} \Gamma^q_{ik})
    = \langle R(e_i, e_j) e_k, e_l \rangle$$

    **Arguments:**

    - `metric`: a function of coordinates (m,) that returns the symmetric positive
      definite matrix (m, m).
    - `x`: the coordinates of a point, of shape (m,).

    **Returns:**

    An array of shape (m, m, m, m), with the axes (l, k, i, j); on a sphere,
    `R[0, 1, 0, 1]` is positive.

    **Raises:** ValueError as in [`christoffel`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import riemann
        >>> half_plane = lambda x: jnp.eye(2) / x[1] ** 2
        >>> round(float(riemann(half_plane, jnp.array([0.0, 2.0]))[0, 1, 0, 1]), 6)
        -0.0625

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 4, with the
    opposite sign of R(X, Y).
    """
    x, finish = _point(metric, x)
    gamma = _christoffel(metric, x)
    slope = jax.jacfwd(lambda x: _christoffel(metric, x))(x)  # (p, j, k, i)
    product = jnp.einsum("piq,qjk->pkij", gamma, gamma, precision="highest")
    half = jnp.transpose(slope, (0, 2, 3, 1)) + product
    upper = half - jnp.swapaxes(half, 2, 3)
    lower = jnp.einsum("lp,pkij->lkij", metric(x), upper, precision="highest")
    return finish(lower)


def sectional_curvature(
    metric: Metric,
    x: Float[ArrayLike, " m"],
    u: Float[ArrayLike, " m"],
    v: Float[ArrayLike, " m"],
) -> Float[Array, ""]:
    r"""The Gaussian curvature of the surface of geodesics in the plane of two vectors.

    $$K = \frac{\langle R(u, v) v, u \rangle}{|u|^2 |v|^2 - \langle u, v \rangle^2}$$

    **Arguments:**

    - `metric`: a function of coordinates (m,) that returns the symmetric positive
      definite matrix (m, m).
    - `x`: the coordinates of a point, of shape (m,).
    - `u`, `v`: two linearly independent vectors, of shape (m,).

    **Returns:**

    The curvature, a scalar.

    **Raises:** ValueError as in [`christoffel`][], where `u` or `v` is not of the shape
    of `x`, or where they are parallel (under jit, a run-time error).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import sectional_curvature
        >>> half_plane = lambda x: jnp.eye(2) / x[1] ** 2
        >>> x, (u, v) = jnp.array([0.0, 2.0]), jnp.eye(2)
        >>> round(float(sectional_curvature(half_plane, x, u, v)), 6)
        -1.0

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 4, section 3.
    """
    x, u, v = as_float("x", x), as_float("u", u), as_float("v", v)
    for name, vector in (("u", u), ("v", v)):
        if vector.shape != x.shape:
            raise must(
                name, f"have shape {x.shape}, as `x`", f"of shape {vector.shape}"
            )
    (x, u, v), dtype = widen(x, u, v)
    tensor = riemann(metric, x)
    inner = lambda a, b: matmul(matmul(metric(x), b), a)
    area = inner(u, u) * inner(v, v) - inner(u, v) ** 2
    least = 8 * jnp.finfo(x.dtype).eps * inner(u, u) * inner(v, v)
    rule = "be linearly independent of `u`"
    v = require(v, area > least, "v", rule)
    top = jnp.einsum("lkij,l,k,i,j->", tensor, u, v, u, v, precision="highest")
    return require(top / area, area > least, "v", rule).astype(dtype)


def ricci(metric: Metric, x: Float[ArrayLike, " m"]) -> Float[Array, "m m"]:
    r"""The Ricci tensor $R_{kj} = g^{li} R_{lkij}$ of a metric.

    **Arguments:**

    - `metric`: a function of coordinates (m,) that returns the symmetric positive
      definite matrix (m, m).
    - `x`: the coordinates of a point, of shape (m,).

    **Returns:**

    A symmetric matrix of shape (m, m); (m - 1) g on the unit sphere.

    **Raises:** ValueError as in [`christoffel`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import ricci
        >>> half_plane = lambda x: jnp.eye(2) / x[1] ** 2
        >>> ricci(half_plane, jnp.array([0.0, 2.0])).round(6).tolist()
        [[-0.25, 0.0], [0.0, -0.25]]

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 4, section 4,
    without its factor 1 / (m - 1).
    """
    x, finish = _point(metric, x)
    return finish(_ricci(metric, x))


def scalar_curvature(metric: Metric, x: Float[ArrayLike, " m"]) -> Float[Array, ""]:
    r"""The scalar curvature $R = g^{kj} R_{kj}$ of a metric.

    **Arguments:**

    - `metric`: a function of coordinates (m,) that returns the symmetric positive
      definite matrix (m, m).
    - `x`: the coordinates of a point, of shape (m,).

    **Returns:**

    The curvature, a scalar: twice the Gaussian curvature of a surface, and
    m (m - 1) / r^2 on a sphere of dimension m and radius r.

    **Raises:** ValueError as in [`christoffel`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import scalar_curvature
        >>> half_plane = lambda x: jnp.eye(2) / x[1] ** 2
        >>> round(float(scalar_curvature(half_plane, jnp.array([0.0, 2.0]))), 6)
        -2.0

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 4, section 4,
    without its factor 1 / (m (m - 1)).
    """
    x, finish = _point(metric, x)
    solved = jnp.linalg.solve(metric(x), _ricci(metric, x))
    return finish(jnp.trace(solved))


def _point(metric, x):
    """The point in the dtype to compute in, and what checks and rounds a result."""
    x = as_float("x", x)
    check_shape("x", x, 1, "(m,)")
    (x,), dtype = widen(x)
    g, m = metric(x), x.shape[0]
    if jnp.shape(g) != (m, m):
        rule = f"return matrices of shape ({m}, {m})"
        raise must("metric", rule, f"one that returns shape {jnp.shape(g)}")
    # Cholesky's factor is not finite where the matrix is not positive definite.
    fits = jnp.all(jnp.isfinite(jnp.linalg.cholesky(g)))
    rule = "be a point where the metric is positive definite"
    # Of a metric that ignores x, only the check of the result survives compilation.
    finish = lambda result: require(result, fits, "x", rule).astype(dtype)
    return require(x, fits, "x", rule), finish


def _christoffel(metric, x):
    slope = jax.jacfwd(metric)(x)  # (a, b, c) = d g_ab / d x_c
    # Axes (l, i, j): d_i g_jl + d_j g_il - d_l g_ij.
    first = jnp.transpose(slope, (1, 2, 0)) + jnp.transpose(slope, (1, 0, 2))
    first = first - jnp.transpose(slope, (2, 0, 1))
    m = x.shape[0]
    solved = jnp.linalg.solve(metric(x), 0.5 * first.reshape(m, m * m))
    return solved.reshape(m, m, m)


def _ricci(metric, x):
    m = x.shape[0]
    tensor = riemann(metric, x)
    inverse = jnp.linalg.solve(metric(x), jnp.eye(m, dtype=x.dtype))
    return jnp.einsum("li,lkij->kj", inverse, tensor, precision="highest")
