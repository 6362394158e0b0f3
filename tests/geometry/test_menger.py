"""Menger curvature: circles, curves, symmetry, and points that coincide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.geometry import menger_curvature


def circle(radius, angles):
    """Points on a tilted circle in R^4 away from the origin."""
    frame = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 2)))[0]
    flat = radius * np.stack([np.cos(angles), np.sin(angles)], -1)
    return jnp.asarray(flat @ frame.T)


@pytest.mark.parametrize("radius", [1e-3, 1.0, 7.0])
def test_it_is_one_over_the_radius_of_a_circle(radius, tol):
    angles = np.array([[0.1, 1.3, 4.0], [0.0, 2.0, 2.2], [5.0, 0.4, 3.3]])
    points = circle(radius, angles.T)
    found = radius * np.asarray(menger_curvature(*points))
    np.testing.assert_allclose(found, 1, rtol=0, atol=tol.identity / 200 + 4e-7)
    for order in ((1, 2, 0), (2, 1, 0), (0, 2, 1)):
        other = radius * np.asarray(menger_curvature(*points[np.array(order)]))
        np.testing.assert_allclose(other, found, rtol=0, atol=tol.identity)


def test_in_float64_a_circle_is_told_to_the_last_digits():
    if not jax.config.jax_enable_x64:
        pytest.skip("float64 only")
    points = circle(3.0, np.array([0.1, 1.3, 4.0]))
    assert abs(3 * float(menger_curvature(*points)) - 1) <= 4 * np.finfo(float).eps


def helix(t):
    return jnp.stack([jnp.cos(t), jnp.sin(t), 0.5 * t], -1)


def test_on_a_helix_its_error_is_of_second_order():
    # The curvature of (cos t, sin t, t / 2) is 1 / (1 + 1 / 4).
    errors = []
    for h in (0.2, 0.1, 0.05):
        path = helix(0.3 + h * jnp.arange(12.0))
        found = jnp.mean(menger_curvature(path[:-2], path[1:-1], path[2:]))
        errors.append(abs(float(found) - 0.8))
    np.testing.assert_allclose(errors, [5.3e-4, 1.3e-4, 3.3e-5], rtol=0.05)
    slope = np.polyfit(np.log([0.2, 0.1, 0.05]), np.log(errors), 1)[0]
    assert slope == pytest.approx(2, abs=0.2)


def test_nearly_straight_and_nearly_coincident_points_keep_their_digits():
    # sin(theta) of a turn of 1e-4; a square root of 1 - cos^2 would leave none.
    theta = 1e-4
    bent = jnp.array([1 + np.cos(theta), np.sin(theta)])
    found = menger_curvature(jnp.zeros(2), jnp.array([1.0, 0.0]), bent)
    assert float(found) == pytest.approx(2 * np.sin(theta / 2), rel=2e-3)
    # Two points close together, far from the third: a circle through all of them.
    points = circle(1.0, np.array([0.0, 1e-3, 3.0]))
    assert float(menger_curvature(*points)) == pytest.approx(1, rel=2e-3)


def test_points_that_coincide_and_lines_have_none_and_no_slope():
    a, b, c = jnp.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
    every = jax.jit(jax.value_and_grad(menger_curvature, argnums=(0, 1, 2)))
    for points in ((a, a, b), (a, b, a), (b, a, a), (a, a, a), (a, b, c)):
        value, slopes = every(*points)
        assert float(value) == pytest.approx(0, abs=1e-7)
        assert np.isfinite(slopes).all()


def test_its_slope_is_that_of_finite_differences():
    a, b, c = np.random.default_rng(1).standard_normal((3, 3))
    slope = np.asarray(jax.grad(menger_curvature, argnums=1)(a, b, c))
    h = 1e-5 if jax.config.jax_enable_x64 else 1e-2
    for k, step in enumerate(h * np.eye(3)):
        up, down = menger_curvature(a, b + step, c), menger_curvature(a, b - step, c)
        assert float(up - down) / (2 * h) == pytest.approx(slope[k], rel=1e-2, abs=1e-3)


def test_half_precision_is_computed_in_float32():
    points = circle(2.0, np.array([0.0, 1.0, 2.0])).astype(jnp.bfloat16)
    found = menger_curvature(*points)
    wide = menger_curvature(*points.astype(jnp.float32))
    assert found.dtype == jnp.bfloat16
    assert found == wide.astype(jnp.bfloat16)


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"`b` must have shape \(2,\), as `a`"):
        menger_curvature(jnp.zeros(2), jnp.zeros(3), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"`a` must have shape \(\.\.\., d\)"):
        menger_curvature(1.0, 1.0, 1.0)
