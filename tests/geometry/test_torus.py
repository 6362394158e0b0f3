"""The flat torus: what every operation is there, and the cut at pi."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tfjax.geometry import Torus


SPACE = Torus(2)
DTYPE = jnp.zeros(()).dtype
PI = DTYPE.type(np.pi)


def wrapped(angles):
    """In (-pi, pi], by complex numbers in float64."""
    angle = np.angle(np.exp(1j * np.asarray(angles, np.float64)))
    return np.where(angle == -np.pi, np.pi, angle)


@pytest.fixture(scope="module")
def angles():
    x, y = np.random.default_rng(0).uniform(-np.pi, np.pi, (2, 40, 2)).astype(DTYPE)
    v = np.random.default_rng(1).standard_normal((40, 2)).astype(DTYPE)
    return x, y, 3 * v


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_geodesics_are_wrapped_lines(angles, tol):
    x, y, v = angles
    close(SPACE.exp(x, v), wrapped(x + v), 2 * tol.identity)
    close(SPACE.retract(x, v), wrapped(x + v), 2 * tol.identity)
    close(SPACE.log(x, y), wrapped(y - x), 2 * tol.identity)
    close(SPACE.exp(x, SPACE.log(x, y)), y, 2 * tol.identity)


def test_the_distance_is_the_norm_of_the_shortest_differences(angles, tol):
    x, y, _ = angles
    turns = 2 * np.pi * np.stack(np.meshgrid(*[[-1, 0, 1]] * 2), axis=-1).reshape(-1, 2)
    images = np.asarray(y, np.float64)[:, None] + turns[None]
    expected = np.linalg.norm(images - x[:, None], axis=-1).min(axis=1)
    close(SPACE.distance(x, y), expected, 2 * tol.identity)
    close(SPACE.squared_distance(x, y), expected**2, 5 * tol.identity)


def test_every_vector_is_tangent_and_transport_is_trivial(angles):
    x, y, v = angles
    np.testing.assert_array_equal(SPACE.tangent(x, v), v)
    np.testing.assert_array_equal(SPACE.transport(x, y, v), v)


def test_the_embedding_has_the_cosines_of_the_differences_as_products(angles, tol):
    x, y, _ = angles
    products = np.sum(np.asarray(SPACE.embed(x)) * np.asarray(SPACE.embed(y)), axis=-1)
    close(products, np.cos(x - y).sum(axis=-1), 2 * tol.identity)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_project_keeps_what_lies_in_the_half_open_interval_and_wraps_the_rest(dtype):
    if dtype == np.float64 and DTYPE != jnp.float64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    pi = dtype(np.pi)
    inside = np.array([-3.0, -1e-30, 0.0, 1.0, pi], dtype)
    kept = np.concatenate([inside, [np.nextafter(-pi, dtype(0))]])
    np.testing.assert_array_equal(Torus(6).project(kept), kept)
    outside = np.array([3 * pi, -3 * pi, 100, -1e4, np.nextafter(pi, dtype(9))], dtype)
    got = np.asarray(Torus(5).project(outside))
    assert ((got > -pi) & (got <= pi)).all()
    # To a unit in the last place: 2 pi as one number of the dtype would not do.
    turns = np.exp(1j * outside.astype(float))
    close(np.exp(1j * got.astype(float)), turns, np.finfo(dtype).eps)
    # In float32, -pi is a number a little below, which is wrapped to one below pi.
    assert float(Torus(1).project(np.array([-pi]))[0]) == pytest.approx(np.pi, rel=1e-7)


@pytest.mark.parametrize("turns", [0, 1, -7])
def test_the_derivative_of_wrapping_is_1(turns):
    x = jnp.asarray([0.3, -2.9]) + 2 * jnp.pi * turns
    jacobian = jax.jit(jax.jacobian(SPACE.project))(x)
    close(jacobian, np.eye(2), 1e-6)


def test_distances_at_coincidence_have_finite_derivatives():
    x = jnp.asarray([0.5, PI])
    np.testing.assert_array_equal(jax.jit(jax.grad(SPACE.distance))(x, x), np.zeros(2))
    hessian = jax.jit(jax.hessian(SPACE.squared_distance))(x, x)
    np.testing.assert_array_equal(hessian, 2 * np.eye(2))


def test_across_the_cut_the_short_way_is_taken_with_its_gradient(tol):
    x, y = jnp.asarray([PI - 0.1, 0.0]), jnp.asarray([0.2 - PI, 0.4])
    close(SPACE.log(x, y), [0.3, 0.4], 2 * tol.identity)
    value, gradient = jax.jit(jax.value_and_grad(SPACE.distance))(x, y)
    close(value, 0.5, 2 * tol.identity)
    close(gradient, [-0.6, -0.8], 2 * tol.identity)


def test_opposite_angles_have_distance_pi_and_take_the_positive_way():
    x, y = np.array([[0, 1]], DTYPE), np.array([[PI, 1]], DTYPE)
    for a, b in ((x, y), (y, x)):
        np.testing.assert_allclose(SPACE.log(a, b), [[PI, 0]], rtol=1e-7)
        np.testing.assert_allclose(SPACE.distance(a, b), [PI], rtol=1e-7)


def test_random_angles_are_uniform():
    x = np.asarray(SPACE.random(jr.key(3), (20_000,)), np.float64)
    assert (np.abs(x) <= np.pi + 1e-6).all()
    for k in (1, 2, 3):  # the characters of the circle have mean 0, variance 1/2
        for values in (np.cos(k * x), np.sin(k * x)):
            assert (np.abs(values.mean(axis=0)) < 5 * np.sqrt(0.5 / len(x))).all()


def test_projectable_says_what_is_finite():
    x = jnp.array([[0.0, 100.0], [1.0, jnp.nan], [jnp.inf, 0.0]])
    assert SPACE.projectable(x).tolist() == [True, False, False]


def test_the_errors_name_the_argument():
    with pytest.raises(
        ValueError, match="`d` must be an integer of at least 1, but was 0"
    ):
        Torus(0)
    shape = r"`v` must have shape \(\.\.\., 2\), as points of Torus\(d=2\)"
    with pytest.raises(ValueError, match=shape):
        SPACE.exp(np.zeros(2), np.zeros(3))
