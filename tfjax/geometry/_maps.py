"""The geometry of a map: how it stretches, and how its image bends in space."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._core import as_float, check_shape, count, matmul, must, require, widen


Map = Callable[[Array], Array]


def pullback_metric(f: Map, x: Float[ArrayLike, " m"]) -> Float[Array, "m m"]:
    r"""The metric $G = J^\top J$ in which a map is isometric, J its Jacobian.

    The singular values of J are the roots of the eigenvalues of G.

    **Arguments:**

    - `f`: a map from (m,) to (k,).
    - `x`: a point of shape (m,).

    **Returns:**

    A symmetric matrix of shape (m, m).

    **Raises:** ValueError where `x` or `f(x)` is no vector.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import pullback_metric
        >>> polar = lambda x: x[0] * jnp.array([jnp.cos(x[1]), jnp.sin(x[1])])
        >>> pullback_metric(polar, jnp.array([2.0, 0.0])).tolist()
        [[1.0, 0.0], [0.0, 4.0]]

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 1, example 2.5.
    """
    x, dtype = _point(f, x)
    jacobian = jax.jacfwd(f)(x)
    return matmul(jacobian.T, jacobian).astype(dtype)


def second_fundamental_form(f: Map, x: Float[ArrayLike, " m"]) -> Float[Array, "k m m"]:
    r"""The part of the second derivative of an immersion that is normal to its image.

    $$II = (1 - J J^+)\, \partial^2 f$$

    **Arguments:**

    - `f`: a map from (m,) to (k,), whose Jacobian J has rank m at x.
    - `x`: a point of shape (m,).

    **Returns:**

    An array of shape (k, m, m): a normal vector for every pair of coordinates.

    **Raises:** ValueError where `x` or `f(x)` is no vector, or where J is not of full
    rank (under jit, a run-time error).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import second_fundamental_form
        >>> bowl = lambda x: jnp.array([x[0], x[1], 3 * x[0] ** 2 + x[1] ** 2])
        >>> second_fundamental_form(bowl, jnp.zeros(2))[2].tolist()
        [[6.0, 0.0], [0.0, 2.0]]

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 6, section 2.
    """
    x, dtype = _point(f, x)
    return _second_form(f, x)[0].astype(dtype)


def mean_curvature(f: Map, x: Float[ArrayLike, " m"]) -> Float[Array, " k"]:
    r"""The mean curvature vector $H = G^{ij} II_{ij}$ of the image of an immersion.

    It is the sum over an orthonormal basis, without a factor 1/m, so that the scalar
    curvature of G is $|H|^2 - |II|^2$ (Gauss).

    **Arguments:**

    - `f`: a map from (m,) to (k,), whose Jacobian has rank m at x.
    - `x`: a point of shape (m,).

    **Returns:**

    A vector of shape (k,), normal to the image; of length m / r on a sphere of
    dimension m and radius r.

    **Raises:** ValueError as in [`second_fundamental_form`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import mean_curvature
        >>> bowl = lambda x: jnp.array([x[0], x[1], 3 * x[0] ** 2 + x[1] ** 2])
        >>> mean_curvature(bowl, jnp.zeros(2)).tolist()
        [0.0, 0.0, 8.0]

    Source: M. do Carmo, *Riemannian Geometry*, Birkhauser 1992, chapter 6, section 2,
    without its factor 1/m.
    """
    x, dtype = _point(f, x)
    form, metric = _second_form(f, x)
    inverse = jnp.linalg.solve(metric, jnp.eye(x.shape[0], dtype=x.dtype))
    total = jnp.einsum("kij,ij->k", form, inverse, precision="highest")
    return total.astype(dtype)


def pullback_product(
    f: Map, x: Float[ArrayLike, "..."], v: Float[ArrayLike, "..."]
) -> Float[Array, "..."]:
    r"""The product $G v = J^\top J v$ of the pullback metric with a vector.

    It takes one forward and one reverse derivative; no Jacobian is formed.

    **Arguments:**

    - `f`: a map of arrays of any shape, such as a layer on tokens (n, d).
    - `x`: a point, of the shape that `f` takes.
    - `v`: a vector, of the shape of `x`.

    **Returns:**

    A vector of the shape of `x`.

    **Raises:** ValueError where `v` is not of the shape of `x`.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import pullback_product
        >>> pullback_product(lambda x: 3 * x, jnp.ones((2, 2)), jnp.eye(2)).tolist()
        [[9.0, 0.0], [0.0, 9.0]]

    Source: own.
    """
    x, v = as_float("x", x), as_float("v", v)
    if v.shape != x.shape:
        raise must("v", f"have shape {x.shape}, as `x`", f"of shape {v.shape}")
    (x, v), dtype = widen(x, v)
    return _stretch(f, x)(v).astype(dtype)


class PullbackMoments(NamedTuple):
    """Estimates of the first two moments of the squared singular values of a Jacobian.

    - `trace`: of `tr G`, the sum of the squares of the singular values.
    - `square`: of `tr G^2`, the sum of their fourth powers.
    """

    trace: Float[Array, ""]
    square: Float[Array, ""]


def pullback_moments(
    f: Map, x: Float[ArrayLike, "..."], *, key: PRNGKeyArray, probes: int = 4
) -> PullbackMoments:
    r"""Hutchinson's estimates of the traces of the pullback metric and its square.

    $$\mathrm{tr}\, G = E\, v^\top G v, \qquad \mathrm{tr}\, G^2 = E\, |G v|^2$$

    over vectors v of random signs. Both are unbiased, and exact where G is diagonal. A
    map of $N$ numbers is conformal where $N\,\mathrm{tr}\, G^2 = (\mathrm{tr}\, G)^2$.

    **Arguments:**

    - `f`: a map of arrays of any shape, such as a layer on tokens (n, d).
    - `x`: a point, of the shape that `f` takes.
    - `key`: a random key.
    - `probes`: the number of vectors v. Each takes one forward and one reverse
      derivative; no Jacobian is formed.

    **Returns:**

    [`PullbackMoments`][]: the two estimates.

    **Raises:** ValueError where `probes` is not a positive integer.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.geometry import pullback_moments
        >>> key, triple = jax.random.key(0), lambda x: 3 * x
        >>> [float(m) for m in pullback_moments(triple, jnp.ones(4), key=key)]
        [36.0, 324.0]

    Source: M. Hutchinson, *A stochastic estimator of the trace of the influence
    matrix*, Communications in Statistics 19 (1990).
    """
    (x,), dtype = widen(as_float("x", x))
    stretch, signs = _stretch(f, x), _signs(key, x, probes)

    def moments(v):
        product = stretch(v)
        return jnp.sum(v * product), jnp.sum(product**2)

    trace, square = jax.vmap(moments)(signs)
    return PullbackMoments(
        jnp.mean(trace).astype(dtype), jnp.mean(square).astype(dtype)
    )


def estimate_mean_curvature(
    f: Map, x: Float[ArrayLike, "..."], *, key: PRNGKeyArray, probes: int = 4
) -> Float[Array, "..."]:
    r"""An estimate of [`mean_curvature`][] without Jacobian or second derivatives.

    $$H = (1 - J G^{-1} J^\top)\, E\, \partial^2 f [v, G^{-1} v]$$

    over vectors v of random signs; it is unbiased. $G^{-1}$ is applied by conjugate
    gradients on [`pullback_product`][].

    **Arguments:**

    - `f`: an immersion from arrays of any shape to arrays of any shape.
    - `x`: a point, of the shape that `f` takes.
    - `key`: a random key.
    - `probes`: the number of vectors v.

    **Returns:**

    A vector of the shape of `f(x)`.

    **Raises:** ValueError where `probes` is not a positive integer, or where the
    Jacobian is not of full rank, or so nearly not that conjugate gradients leave more
    than sqrt(eps) of a right side (under jit, a run-time error).

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.geometry import estimate_mean_curvature
        >>> bowl = lambda x: jnp.array([x[0], x[1], 3 * x[0] ** 2 + x[1] ** 2])
        >>> estimate_mean_curvature(bowl, jnp.zeros(2), key=jax.random.key(0)).tolist()
        [0.0, 0.0, 8.0]

    Source: own.
    """
    (x,), dtype = widen(as_float("x", x))
    stretch, signs = _stretch(f, x), _signs(key, x, probes)
    tolerance = 4 * float(jnp.finfo(x.dtype).eps)
    solve = lambda b: jax.scipy.sparse.linalg.cg(stretch, b, tol=tolerance)[0]
    push = lambda x, v: jax.jvp(f, (x,), (v,))[1]

    # Signs may all be orthogonal to the null space; a Gaussian vector never is.
    extra = jax.random.normal(jax.random.fold_in(key, 1), (1, *x.shape), x.dtype)
    right = jnp.concatenate([signs, extra])
    solved = jax.vmap(solve)(right)
    left = (jax.vmap(stretch)(solved) - right).reshape(len(right), -1)
    size = jnp.linalg.norm(right.reshape(len(right), -1), axis=-1)
    least = jnp.sqrt(jnp.finfo(x.dtype).eps).astype(x.dtype) * size
    full = jnp.all(jnp.linalg.norm(left, axis=-1) <= least)
    x = _immersed(x, full)

    def second(v, w):
        return jax.jvp(lambda y: push(y, v), (x,), (w,))[1]

    bend = jnp.mean(jax.vmap(second)(signs, solved[:-1]), axis=0)
    (back,) = jax.vjp(f, x)[1](bend)
    return _immersed(bend - push(x, solve(back)), full).astype(dtype)


def _point(f, x):
    x = as_float("x", x)
    check_shape("x", x, 1, "(m,)")
    (x,), dtype = widen(x)
    image = jax.eval_shape(f, x)
    if getattr(image, "ndim", None) != 1:
        got = f"one that returns {getattr(image, 'shape', image)}"
        raise must("f", "return a vector (k,) for a vector (m,)", got)
    return x, dtype


def _second_form(f, x):
    """The second fundamental form and the metric."""
    jacobian = jax.jacfwd(f)(x)
    basis, triangle = jnp.linalg.qr(jacobian)
    size = jnp.abs(jnp.diagonal(triangle))
    least = 8 * jnp.finfo(x.dtype).eps * jnp.max(size)
    full = jnp.all(size > least) & (jacobian.shape[0] >= x.shape[0])
    x = _immersed(x, full)
    second = jax.jacfwd(jax.jacfwd(f))(x)
    along = jnp.einsum("ka,la,lij->kij", basis, basis, second, precision="highest")
    # Where the second derivative ignores x, only this check survives compilation.
    return _immersed(second - along, full), matmul(jacobian.T, jacobian)


def _immersed(value, full):
    rule = "be a point where the Jacobian of `f` has full rank"
    return require(value, full, "x", rule)


def _stretch(f, x):
    """The linear map v -> J^T J v."""
    _, pull = jax.vjp(f, x)
    return lambda v: pull(jax.jvp(f, (x,), (v,))[1])[0]


def _signs(key, x, probes):
    shape = (count("probes", probes), *x.shape)
    return jax.random.rademacher(key, shape, x.dtype)
