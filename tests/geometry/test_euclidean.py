"""Flat space: what every operation is there."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tfjax.geometry import Euclidean


SPACE = Euclidean(3)


@pytest.fixture(scope="module")
def points():
    normal = np.random.default_rng(0).standard_normal((3, 10, 3))
    return normal.astype(jnp.zeros(()).dtype)


def test_geodesics_are_straight_lines(points):
    x, y, v = points
    np.testing.assert_array_equal(SPACE.exp(x, v), x + v)
    np.testing.assert_array_equal(SPACE.retract(x, v), x + v)
    np.testing.assert_array_equal(SPACE.log(x, y), y - x)


def test_every_point_and_every_vector_belongs(points):
    x, y, v = points
    np.testing.assert_array_equal(SPACE.project(x), x)
    np.testing.assert_array_equal(SPACE.tangent(x, v), v)
    np.testing.assert_array_equal(SPACE.transport(x, y, v), v)


def test_the_distance_is_the_norm_of_the_difference(points, tol):
    x, y, _ = points
    expected = np.linalg.norm(x - y, axis=-1)
    np.testing.assert_allclose(SPACE.distance(x, y), expected, rtol=tol.identity)
    squared = SPACE.squared_distance(x, y)
    np.testing.assert_allclose(squared, expected**2, rtol=2 * tol.identity)


def test_distances_at_coincidence_have_finite_derivatives(points):
    x = points[0, 0]
    np.testing.assert_array_equal(jax.jit(jax.grad(SPACE.distance))(x, x), np.zeros(3))
    hessian = jax.jit(jax.hessian(SPACE.squared_distance))(x, x)
    np.testing.assert_array_equal(hessian, 2 * np.eye(3))


def test_a_long_distance_does_not_overflow():
    x = np.array([3e30, 0.0, 4e30], np.float32)
    distance = float(SPACE.distance(x, np.zeros_like(x)))
    assert distance == pytest.approx(5e30, rel=1e-6)


def test_random_points_are_standard_normal():
    x = np.asarray(SPACE.random(jr.key(3), (20_000,)), np.float64)
    error = 1 / np.sqrt(len(x))
    assert (np.abs(x.mean(axis=0)) < 5 * error).all()
    assert (np.abs((x**2).mean(axis=0) - 1) < 5 * np.sqrt(2) * error).all()


def test_projectable_says_what_is_finite():
    x = jnp.array([[0.0, 0, 0], [1.0, jnp.nan, 0], [jnp.inf, 0, 0]])
    assert SPACE.projectable(x).tolist() == [True, False, False]


def test_the_errors_name_the_argument():
    with pytest.raises(
        ValueError, match="`d` must be an integer of at least 1, but was 0"
    ):
        Euclidean(0)
    shape = r"`v` must have shape \(\.\.\., 3\), as points of Euclidean\(d=3\)"
    with pytest.raises(ValueError, match=shape):
        SPACE.exp(np.zeros(3), np.zeros(2))
