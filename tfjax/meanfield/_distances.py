"""Wasserstein distances between measures on the line, the circle, and in space."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, is_concrete, must, require, widen
from ..geometry import AbstractManifold, Euclidean


_TURN = 2 * np.pi


def wasserstein_line(
    x: Float[ArrayLike, " n"],
    y: Float[ArrayLike, " m"],
    order: float | int = 1,
    *,
    x_weights: Float[ArrayLike, " n"] | None = None,
    y_weights: Float[ArrayLike, " m"] | None = None,
) -> Float[Array, ""]:
    r"""The Wasserstein distance between two sets of points on the line, exactly.

    $$W_p^p = \int_0^1 |F^{-1}(u) - G^{-1}(u)|^p\, du$$

    with the quantile functions of the two measures. A density enters as points with its
    values as weights.

    **Arguments:**

    - `x`, `y`: points, of shapes (n,) and (m,).
    - `order`: p, a Python number of at least 1.
    - `x_weights`, `y_weights`: their masses, not negative, of shapes (n,) and (m,);
      brought to total mass 1; equal where None.

    **Returns:** the distance, a scalar. It is differentiable in points, and in weights
    where no two levels of the quantile functions coincide, but not at distance 0.

    **Raises:** ValueError where shapes do not fit, a value is not finite, weights are
    negative or all 0, or `order` is less than 1.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import wasserstein_line
        >>> float(wasserstein_line(jnp.array([0.0, 1.0]), jnp.array([2.0, 4.0])))
        2.5

    Source: C. Villani, Topics in Optimal Transportation, theorem 2.18.
    """
    order = _order(order)
    (points, a), (others, b), dtype = _both(x, y, x_weights, y_weights)
    (p, f), (q, g) = _sorted(points, a), _sorted(others, b)
    cost = _cost(p, f, q, g, jnp.zeros((), p.dtype), order, 0.0)
    return (cost ** (1 / order)).astype(dtype)


def wasserstein_circle(
    x: Float[ArrayLike, " n"],
    y: Float[ArrayLike, " m"],
    order: float | int = 1,
    *,
    x_weights: Float[ArrayLike, " n"] | None = None,
    y_weights: Float[ArrayLike, " m"] | None = None,
) -> Float[Array, ""]:
    r"""The Wasserstein distance between two sets of angles on the circle, exactly.

    $$W_1 = \min_\alpha \int_0^{2\pi} |F - G - \alpha|\, d\theta, \qquad
      W_p^p = \min_\alpha \int_0^1 |F^{-1}(u) - G^{-1}(u - \alpha)|^p\, du$$

    with distribution functions that go on beyond a full turn. The first minimum is at a
    median of F - G; the second function is convex, and its minimum is bracketed to
    rounding. A density at evenly spaced angles enters as these angles, with its values
    as weights.

    **Arguments:**

    - `x`, `y`: angles in radians, of shapes (n,) and (m,); those that differ by full
      turns are the same.
    - `order`, `x_weights`, `y_weights`: as for [`wasserstein_line`][].

    **Returns:** the distance, a scalar in radians; derivatives are as there.

    **Raises:** as [`wasserstein_line`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import wasserstein_circle
        >>> x, y = jnp.array([0.1, 1.0]), jnp.array([6.2, 1.0])
        >>> round(float(wasserstein_circle(x, y)), 4)
        0.0916

    Source: J. Delon, J. Salomon, A. Sobolevski, SIAM J. Appl. Math. 70 (2010) 2239;
    C. Cabrelli, U. Molter, J. Comput. Appl. Math. 57 (1995) 345 (the median).
    """
    order = _order(order)
    (points, a), (others, b), dtype = _both(x, y, x_weights, y_weights)
    points, others = jnp.mod(points, _TURN), jnp.mod(others, _TURN)
    if order == 1:
        return _by_median(points, a, others, b).astype(dtype)
    (p, f), (q, g) = _sorted(points, a), _sorted(others, b)
    fixed = jax.lax.stop_gradient((p, f, q, g))
    shift = _minimum(lambda shift: _cost(*fixed, shift, order, _TURN), p.dtype)
    cost = _cost(p, f, q, g, _kink(shift, f, g), order, _TURN)
    return (cost ** (1 / order)).astype(dtype)


def assignment_distance(
    x: Float[ArrayLike, "n d"],
    y: Float[ArrayLike, "n d"],
    order: float | int = 1,
    *,
    manifold: AbstractManifold | None = None,
) -> float:
    r"""The Wasserstein distance between two sets of as many points, exactly.

    $$W_p^p = \min_\sigma \frac1n \sum_i |x_i - y_{\sigma(i)}|^p$$

    over permutations, by the Hungarian method: O(n^3), on the host, for some thousand
    points; not under jit.

    **Arguments:**

    - `x`, `y`: points, of shape (n, d).
    - `order`: p, a Python number of at least 1.
    - `manifold`: whose geodesic distance is meant; the Euclidean one where None.

    **Returns:** the distance, a Python float.

    **Raises:** ValueError where shapes do not fit, a value is not finite or is traced,
    or `order` is less than 1.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.meanfield import assignment_distance
        >>> round(assignment_distance(jnp.eye(2), jnp.eye(2)[::-1] + 2.0, 2), 4)
        2.8284

    Source: H. Kuhn, Naval Research Logistics Quarterly 2 (1955) 83.
    """
    from scipy.optimize import linear_sum_assignment

    order = _order(order)
    x, y = as_float("x", x), as_float("y", y)
    for name, points in (("x", x), ("y", y)):
        check_shape(name, points, 2, "(n, d)")
        if not is_concrete(points):
            raise must(name, "be concrete (this runs on the host)", "traced")
        require(points, jnp.isfinite(points), name, "be finite")
    if x.shape != y.shape:
        raise must("y", f"have shape {x.shape}, as `x`", f"of shape {y.shape}")
    (x, y), _ = widen(x, y)
    space = Euclidean(x.shape[1]) if manifold is None else manifold
    if not isinstance(space, AbstractManifold) or space.d != x.shape[1]:
        rule = f"be a manifold of points with {x.shape[1]} coordinates, or None"
        raise must("manifold", rule, repr(manifold))
    square = jax.vmap(lambda p: space.squared_distance(p[None, :], y))(x)
    cost = np.maximum(np.asarray(square, np.float64), 0.0) ** (order / 2)
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean() ** (1 / order))


def _order(order: Any) -> float:
    number = isinstance(order, int | float) and not isinstance(order, bool)
    if not (number and 1 <= order < np.inf):
        raise must("order", "be a number of at least 1", repr(order))
    return float(order)


def _both(x, y, x_weights, y_weights):
    """Both measures, as points and masses of sum 1, and the dtype to return."""
    given = []
    for name, points, weights in (("x", x, x_weights), ("y", y, y_weights)):
        points = as_float(name, points)
        check_shape(name, points, 1, "(n,)")
        if is_concrete(points):
            require(points, jnp.isfinite(points), name, "be finite")
        if weights is None:
            weights = jnp.ones_like(points)
        weights = as_float(f"{name}_weights", weights)
        if weights.shape != points.shape:
            rule = f"have shape {points.shape}, one for each point"
            raise must(f"{name}_weights", rule, f"of shape {weights.shape}")
        if is_concrete(weights):
            fits = jnp.isfinite(weights) & (weights >= 0) & (jnp.sum(weights) > 0)
            rule = "be finite, not negative, and not all 0"
            require(weights, fits, f"{name}_weights", rule)
        given += [points, weights]
    dtype = jnp.result_type(given[0], given[2])
    x, a, y, b = (
        each.astype(widen(jnp.zeros((), dtype))[0][0].dtype) for each in given
    )
    return (x, a / jnp.sum(a)), (y, b / jnp.sum(b)), dtype


def _sorted(points, weights):
    """The points in order, and the distribution function just after each."""
    order = jnp.argsort(points)
    levels = jnp.cumsum(weights[order])
    return points[order], levels / levels[-1]


def _quantile(points, levels, u, turn):
    """The quantile function, which goes on by `turn` where u leaves [0, 1)."""
    whole = jnp.floor(u) if turn else jnp.zeros_like(u)
    place = jnp.searchsorted(levels, u - whole, side="left")
    return points[jnp.minimum(place, points.size - 1)] + turn * whole


def _cost(x, f, y, g, shift, order, turn):
    """The integral of |F^-1(u) - G^-1(u - shift)|^p over [0, 1]."""
    # Between these levels both quantile functions are constant.
    ends = jnp.stack([jnp.zeros_like(shift), jnp.ones_like(shift)])
    moved = jnp.mod(g + shift, 1.0) if turn else g
    levels = jnp.sort(jnp.concatenate([ends, f, moved]))
    middle = 0.5 * (levels[1:] + levels[:-1])
    fixed = jax.lax.stop_gradient(middle)
    gap = _quantile(x, f, fixed, turn) - _quantile(y, g, fixed - shift, turn)
    size = jnp.abs(gap)
    return jnp.sum(jnp.diff(levels) * (size if order == 1 else size**order))


def _minimum(cost, dtype):
    """Where a convex function of the shift is least, by golden sections.

    Shifts beyond one turn would carry every point further than half a turn.
    """
    golden = (np.sqrt(5.0) - 1) / 2
    rounds = int(np.ceil(np.log(float(jnp.finfo(dtype).eps)) / np.log(golden)))

    def narrow(_, state):
        low, high = state
        left, right = high - golden * (high - low), low + golden * (high - low)
        keep_left = cost(left) <= cost(right)
        return jnp.where(keep_left, low, left), jnp.where(keep_left, right, high)

    start = (jnp.asarray(-1.0, dtype), jnp.asarray(1.0, dtype))
    low, high = jax.lax.fori_loop(0, rounds, narrow, start)
    return 0.5 * (low + high)


def _kink(shift, f, g):
    """The shift as a difference of two levels: the minimum moves along with these.

    The function is linear between the shifts where levels coincide.
    """
    by_level = jnp.argsort(jnp.mod(g + shift, 1.0))
    moved = jnp.mod(g + shift, 1.0)[by_level]
    above = jnp.searchsorted(moved, jnp.mod(f, 1.0)) % g.size
    pairs = jnp.stack([by_level[above], by_level[above - 1]])
    exact = f[None, :] - g[pairs]
    exact = exact + jnp.round(jax.lax.stop_gradient(shift - exact))
    return exact.ravel()[jnp.argmin(jnp.abs(exact - shift))]


def _by_median(x, a, y, b):
    """W_1 on the circle: the deviation of F - G from its median over the angles."""
    angles = jnp.concatenate([x, y])
    order = jnp.argsort(angles)
    angles = angles[order]
    excess = jnp.cumsum(jnp.concatenate([a, -b])[order])  # F - G after each angle
    widths = jnp.append(jnp.diff(angles), angles[0] + _TURN - angles[-1])
    by_value = jnp.argsort(excess)
    half = 0.5 * jnp.sum(widths)
    place = jnp.searchsorted(jnp.cumsum(widths[by_value]), half)
    median = excess[by_value][jnp.minimum(place, excess.size - 1)]
    return jnp.sum(widths * jnp.abs(excess - median))
