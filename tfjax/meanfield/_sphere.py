"""The continuity equation on the sphere S^2, in spherical harmonics."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, matmul, must, widen
from ._harmonics import check_degree, degree_of, harmonics, kernel_rule
from ._params import MeanFieldParams, mean_field_args


def sphere_continuity(
    t: Float[ArrayLike, ""] | float,
    coefficients: Float[ArrayLike, " h"],
    args: MeanFieldParams | None = None,
) -> Float[Array, " h"]:
    r"""The mean-field limit of attention on the sphere S^2: a field of densities.

    $$\partial_t \mu = -\mathrm{div}(\mu\, \mathcal X[\mu]) + D\, \Delta \mu, \qquad
      \mathcal X[\mu] = \nabla \frac{Z}{\beta} \ \text{(USA)}, \quad
      \nabla \frac{\log Z}{\beta} \ \text{(SA)}, \quad
      Z(x) = \int e^{\beta \langle x, y \rangle} d\mu(y)$$

    A Galerkin method: of the weak form
    $\frac{d}{dt} \int Y d\mu = \int \langle \nabla Y, \mathcal X \rangle d\mu
      - D\, l(l+1) \int Y d\mu$
    for the real harmonics Y up to degree L. For USA every integral is exact, so that
    the mass is conserved and without noise $dE/dt = \int |\mathcal X|^2 d\mu$, both to
    rounding; for SA the quotient is integrated on the same grid.

    Integrate it by [`solve`][], with an implicit solver such as `diffrax.Kvaerno5()`
    where D L^2 is large. A step costs O(L^4).

    **Arguments:**

    - `t`: time; unused.
    - `coefficients`: $\int Y d\mu$, of shape ((L + 1)^2,), by degree and within a
      degree by order from -l to l, as [`sphere_coefficients`][] gives them; the first
      is the mass.
    - `args`: a [`MeanFieldParams`][]; its defaults where None.

    **Returns:** the rates of change, of the same shape and dtype.

    **Raises:** ValueError where the shape does not fit or a parameter lies outside.

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.meanfield import MeanFieldParams, sphere_continuity
        >>> start = jnp.zeros(25).at[0].set(1.0).at[2].set(0.01)
        >>> args = MeanFieldParams(beta=0.0)  # the mean grows at the rate 2/3
        >>> end = tfjax.solve(sphere_continuity, start, args, t1=1.5).ys[-1]
        >>> round(float(end[2] / start[2]), 2)
        2.72

    Source: arXiv 2312.10794, equations (3.1) and (3.2).
    """
    c, params, dtype = _prepare(coefficients, args)
    degree = degree_of("coefficients", c)
    basis = harmonics(degree)
    weights, values, slopes = (
        jnp.asarray(a, c.dtype) for a in (basis.weights, basis.values, basis.slopes)
    )
    potential, scale = _potential(c, params, degree)
    velocity = matmul(slopes, potential)
    if params.normalized:
        z = scale * c[0] + params.beta * matmul(values, potential)
        velocity = velocity / z[None, :]
    flux = velocity * (weights * matmul(values, c))[None, :]
    rate = matmul(flux[0], slopes[0]) + matmul(flux[1], slopes[1])
    k = jnp.asarray(basis.degrees, c.dtype)
    return (rate - params.diffusivity * k * (k + 1) * c).astype(dtype)


def sphere_energy(
    coefficients: Float[ArrayLike, " h"], args: MeanFieldParams | None = None
) -> Float[Array, ""]:
    r"""The interaction energy of a density on S^2 beyond that of the uniform one.

    $$E_\beta[\mu] - E_\beta[\sigma] = \frac12 \sum_{l \ge 1}
      \frac{\lambda_l(\beta)}{\beta} \sum_m \Bigl( \int Y_{lm} d\mu \Bigr)^2$$

    for a mass of 1; it is never negative, and finite at beta = 0.

    **Arguments:**

    - `coefficients`, `args`: as for [`sphere_continuity`][]; only `beta` is used.

    **Returns:** a scalar, in the dtype of `coefficients`.

    **Raises:** as [`sphere_continuity`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import MeanFieldParams, sphere_energy
        >>> c = jnp.zeros(4).at[0].set(1.0).at[2].set(0.3)
        >>> round(float(sphere_energy(c, MeanFieldParams(beta=0.0))), 4)
        0.015

    Source: arXiv 2312.10794, equation (3.4) and the proof of proposition 3.4.
    """
    c, params, dtype = _prepare(coefficients, args)
    params = MeanFieldParams(params.beta)
    potential, _ = _potential(c, params, degree_of("coefficients", c))
    return (0.5 * jnp.sum(c * potential)).astype(dtype)


def sphere_points(degree: int) -> tuple[Float[Array, "p 3"], Float[Array, " p"]]:
    r"""The grid on which harmonics up to a degree are multiplied.

    **Arguments:**

    - `degree`: L, from 1 to 64.

    **Returns:** points on the sphere, of shape (p, 3), and their weights in the uniform
    probability, of shape (p,).

    **Raises:** ValueError where `degree` lies outside.

    !!! example

        >>> from tfjax.meanfield import sphere_points
        >>> points, weights = sphere_points(4)
        >>> points.shape, round(float(weights.sum()), 6)
        ((91, 3), 1.0)

    Source: S. Orszag, J. Fluid Mech. 49 (1971) 75 (the 3/2 rule).
    """
    basis = harmonics(check_degree(degree))
    return jnp.asarray(basis.points), jnp.asarray(basis.weights)


def sphere_coefficients(
    density: Float[ArrayLike, " p"], degree: int
) -> Float[Array, " h"]:
    r"""The coefficients $\int Y d\mu$ of a density given on the grid.

    **Arguments:**

    - `density`: with respect to the uniform probability (1 is uniform), at
      [`sphere_points`][], of shape (p,).
    - `degree`: L, from 1 to 64.

    **Returns:** the coefficients, of shape ((L + 1)^2,).

    **Raises:** ValueError where the shape does not fit or `degree` lies outside.

    !!! example

        >>> from tfjax.meanfield import sphere_coefficients, sphere_points
        >>> points, _ = sphere_points(2)
        >>> c = sphere_coefficients(1 + points[:, 2], 2)
        >>> [round(abs(float(each)), 3) for each in c[:4]]
        [1.0, 0.0, 0.577, 0.0]

    Source: own.
    """
    basis = harmonics(check_degree(degree))
    density = as_float("density", density)
    if density.shape != basis.weights.shape:
        rule = f"have shape {basis.weights.shape}, one value for each point"
        raise must("density", rule, f"of shape {density.shape}")
    (density,), dtype = widen(density)
    weights, values = (
        jnp.asarray(a, density.dtype) for a in (basis.weights, basis.values)
    )
    return matmul(weights * density, values).astype(dtype)


def sphere_density(coefficients: Float[ArrayLike, " h"]) -> Float[Array, " p"]:
    r"""The density on the grid whose coefficients are given.

    **Arguments:**

    - `coefficients`: as for [`sphere_continuity`][], of shape ((L + 1)^2,).

    **Returns:** the density with respect to the uniform probability at
    `sphere_points(L)`, of shape (p,). Where it is negative, the degree no longer
    carries the density.

    **Raises:** ValueError where the shape does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import sphere_density
        >>> sphere_density(jnp.array([1.0, 0.0, 0.0, 0.0])).tolist()[:2]
        [1.0, 1.0]

    Source: own.
    """
    c = as_float("coefficients", coefficients)
    degree = degree_of("coefficients", c)
    (c,), dtype = widen(c)
    values = jnp.asarray(harmonics(check_degree(degree)).values, c.dtype)
    return matmul(values, c).astype(dtype)


def _prepare(coefficients: Any, args: Any) -> tuple[Any, MeanFieldParams, Any]:
    c = as_float("coefficients", coefficients)
    check_degree(degree_of("coefficients", c))
    (c,), dtype = widen(c)
    return c, mean_field_args(args, c.dtype), dtype


def _potential(c, params, degree):
    """The coefficients of Z / beta, 0 for the mean, and lambda_0."""
    ratios, mean = kernel_ratios(params, degree)
    return jnp.repeat(ratios, np.arange(degree + 1) * 2 + 1) * c, mean


def kernel_ratios(
    params: MeanFieldParams, degree: int
) -> tuple[Float[Array, " k"], Float[Array, ""]]:
    """lambda_l / beta for l = 0, ..., L, with 0 for l = 0; and lambda_0.

    Both are scaled by e^-beta for SA, whose quotient does not see it.
    """
    dtype = params.beta.dtype
    nodes, plain, divided = (jnp.asarray(a, dtype) for a in kernel_rule(degree))
    top = 1.0 if params.normalized else 0.0
    kernel = jnp.exp(params.beta * (nodes - top))
    return matmul(divided, kernel), matmul(plain[0], kernel)
