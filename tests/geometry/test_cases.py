"""Sharp cases of geometry, each named by its id: S10, S11, S12, S30."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from tfjax.geometry import Sphere
from tfjax.geometry._spectral import exp_of_symmetric, log_of_positive


DTYPES = ["float32", "float64"] if jax.config.jax_enable_x64 else ["float32"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
wrapped = pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])


# --- S10: normalising a zero vector ---------------------------------------------------


def total(row):
    return jnp.sum(Sphere(row.shape[-1]).project(row))


@wrapped
@every_dtype
def test_S10_a_zero_row_normalises_to_zero_with_a_finite_gradient(dtype, wrap):
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]], dtype)
    value = wrap(Sphere(2).project)(x)
    np.testing.assert_allclose(value, [[0, 0], [0.6, 0.8]], atol=1e-6)
    gradient = wrap(jax.vmap(jax.grad(total)))(x)
    np.testing.assert_allclose(gradient, [[0, 0], [0.032, -0.024]], atol=1e-6)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 3, 5)])
def test_S10_zero_points_of_any_shape_have_zero_gradient(shape):
    x = jnp.zeros(shape)
    gradient = jax.jit(jax.grad(total))(x)
    assert np.all(np.asarray(gradient) == 0)
    assert np.all(np.asarray(jax.jit(jax.hessian(total))(x)) == 0)


project = jax.jit(Sphere(3).project)
gradients_of_rows = jax.jit(jax.vmap(jax.grad(total)))


@given(
    hnp.arrays(
        np.float32,
        (4, 3),
        elements=st.sampled_from([0.0, 1e-30, -1e-12, 1.0, -3.0, 1e18]),
    )
)
def test_S10_every_row_is_of_unit_length_or_zero_and_moves_across_itself(x):
    value = np.asarray(project(x), np.float64)
    zero = np.all(x == 0, axis=1)
    np.testing.assert_allclose(np.linalg.norm(value, axis=1), 1.0 - zero, atol=1e-6)
    # The gradient of a function of the direction is orthogonal to the direction.
    gradient = np.asarray(gradients_of_rows(x), np.float64)
    assert np.all(np.isfinite(gradient))
    size = np.linalg.norm(gradient, axis=1)
    assert np.all(np.abs(np.sum(gradient * value, axis=1)) <= 1e-5 * size + 1e-30)


# --- S11: the distance near 0 ---------------------------------------------------------


@wrapped
@every_dtype
def test_S11_a_point_is_at_distance_zero_from_itself(dtype, wrap):
    x = Sphere(3).random(jax.random.key(0), (2000,), dtype=dtype)
    distance = np.asarray(wrap(Sphere(3).distance)(x, x))
    assert np.all(distance < 1e-6)


@wrapped
@every_dtype
def test_S11_a_short_distance_keeps_its_digits(dtype, wrap):
    e1 = jnp.array([1.0, 0.0, 0.0], dtype)
    near = jnp.array([np.cos(1e-4), np.sin(1e-4), 0.0], dtype)
    assert float(wrap(Sphere(3).distance)(e1, near)) == pytest.approx(1e-4, rel=1e-2)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@every_dtype
def test_S11_the_gradient_at_coincidence_is_zero(dtype, batch):
    y = jnp.array(
        np.broadcast_to(np.array([1, 2, 3]) / np.sqrt(14), (*batch, 3)), dtype
    )
    gradient = jax.grad(lambda x: jnp.sum(Sphere(3).distance(x, y)))(y)
    assert np.all(np.asarray(gradient) == 0)


distance_and_slope = jax.jit(jax.value_and_grad(Sphere(4).distance))


@given(st.floats(1e-6, np.pi - 1e-3), st.integers(0, 100))
def test_S11_the_distance_is_the_angle_and_has_slope_one_at_most(angle, seed):
    x, u = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 2)))[0].T
    x, y = np.float32(x), np.float32(np.cos(angle) * x + np.sin(angle) * u)
    distance, gradient = distance_and_slope(x, y)
    assert float(distance) == pytest.approx(angle, abs=5e-7)
    along = Sphere(4).tangent(x, gradient)
    assert np.linalg.norm(along) <= 1 + 1e-5


# --- S12: the exponential of a short step ---------------------------------------------

POLE = np.array([0.0, 0.0, 1.0])


@wrapped
@every_dtype
def test_S12_a_short_step_is_exact(dtype, wrap):
    v = jnp.array([0.01, 0.0, 0.0], dtype)
    got = wrap(Sphere(3).exp)(jnp.asarray(POLE, dtype), v)
    np.testing.assert_allclose(got, [0.00999983, 0.0, 0.99995], atol=1e-7)


@pytest.mark.parametrize("length", [1e-3, 1e-8, 0.0])
@every_dtype
def test_S12_the_result_is_a_unit_vector_and_no_step_is_no_move(dtype, length):
    v = jnp.array([[length, 0, 0], [0, -length, 0]], dtype)
    x = jnp.asarray(np.stack([POLE, POLE]), dtype)
    got = np.asarray(jax.vmap(Sphere(3).exp)(x, v), np.float64)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=2e-7)
    if length == 0:
        np.testing.assert_array_equal(got, x)
    else:
        np.testing.assert_allclose(got[0, 0], np.sin(length), rtol=1e-6)


exp, log = jax.jit(Sphere(5).exp), jax.jit(Sphere(5).log)


@given(st.floats(-12, 0.4), st.integers(0, 100))
def test_S12_a_step_of_any_length_goes_as_far_as_it_is_long(exponent, seed):
    length = 10.0**exponent
    x, u = np.linalg.qr(np.random.default_rng(seed).standard_normal((5, 2)))[0].T
    x, v = np.float32(x), np.float32(length * u)
    end = exp(x, v)
    assert np.linalg.norm(np.asarray(end, np.float64)) == pytest.approx(1, abs=2e-7)
    expected = np.cos(length) * x + np.sin(length) * u
    np.testing.assert_allclose(end, expected, atol=5e-7)
    back = log(x, end)
    np.testing.assert_allclose(back, v, atol=1e-6)


# --- S30: spectral functions where eigenvalues coincide -------------------------------


def logarithm(a):
    return log_of_positive(a, a - jnp.eye(a.shape[-1], dtype=a.dtype))


def corner_of_exp(a):
    return exp_of_symmetric(a)[0, 0]


def trace_of_root(a):
    return jnp.trace(exp_of_symmetric(0.5 * logarithm(a)))


def entropy(rho):
    return -jnp.trace(jnp.matmul(rho, logarithm(rho), precision="highest"))


N = 3
ONE = np.eye(N)
# name: the function, the point, its value and its gradient there.
SPECTRAL = {
    "exp": (corner_of_exp, ONE, np.e, np.e * np.diag([1.0, 0, 0])),
    "root": (trace_of_root, ONE, N, ONE / 2),
    "entropy": (entropy, ONE / N, np.log(N), (np.log(N) - 1) * ONE),
}


@pytest.mark.parametrize("name", SPECTRAL)
@wrapped
@every_dtype
def test_S30_equal_eigenvalues_have_value_and_gradient(dtype, wrap, name):
    function, point, value, slope = SPECTRAL[name]
    got, gradient = wrap(jax.value_and_grad(function))(jnp.asarray(point, dtype))
    accuracy = 20 * float(jnp.finfo(dtype).eps)
    assert float(got) == pytest.approx(value, rel=accuracy)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=accuracy)
