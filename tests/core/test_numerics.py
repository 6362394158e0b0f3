"""Elementary functions: values and derivatives, above all where a series takes over."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax._core import (
    cos_sqrt,
    expm1_over,
    log1p_over,
    matmul,
    normalize,
    normalize_exactly,
    safe_norm,
    sinc_sqrt,
    widen,
)


def cos_sqrt_jet(s):
    r = math.sqrt(s)
    first = -math.sin(r) / (2 * r)
    second = math.sin(r) / (4 * r**3) - math.cos(r) / (4 * s)
    return math.cos(r), first, second


def sinc_sqrt_jet(s):
    r = math.sqrt(s)
    sin, cos = math.sin(r), math.cos(r)
    first = cos / (2 * s) - sin / (2 * r**3)
    second = -sin / (4 * r**3) - 3 * cos / (4 * s**2) + 3 * sin / (4 * r**5)
    return sin / r, first, second


def expm1_over_jet(z):
    e = math.exp(z)
    first = (e * (z - 1) + 1) / z**2
    second = (e * (z**2 - 2 * z + 2) - 2) / z**3
    return math.expm1(z) / z, first, second


def log1p_over_jet(z):
    log = math.log1p(z)
    first = 1 / (z * (1 + z)) - log / z**2
    second = -(1 + 2 * z) / (z * (1 + z)) ** 2 - 1 / (z**2 * (1 + z)) + 2 * log / z**3
    return log / z, first, second


# name: the function, its closed form, where the series ends, the jet at 0, and other
# points. A closed form of a second derivative loses some digits near the small ends.
FUNCTIONS = {
    "cos_sqrt": (cos_sqrt, cos_sqrt_jet, (0.5,), (1, -1 / 2, 1 / 12), (3.0, 9.0)),
    "sinc_sqrt": (sinc_sqrt, sinc_sqrt_jet, (0.5,), (1, -1 / 6, 1 / 60), (3.0, 9.0)),
    "expm1_over": (expm1_over, expm1_over_jet, (-0.1, 0.1), (1, 1 / 2, 1 / 3), (-3, 2)),
    "log1p_over": (
        log1p_over,
        log1p_over_jet,
        (-0.1, 0.1),
        (1, -1 / 2, 2 / 3),
        (-0.7, 2),
    ),
}


@functools.cache
def jet(name):
    f = FUNCTIONS[name][0]
    return jax.jit(lambda s: (f(s), jax.grad(f)(s), jax.grad(jax.grad(f))(s)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_two_derivatives_agree_with_the_closed_form(name, tol):
    _, closed, switches, _, others = FUNCTIONS[name]
    points = [s * (1 + shift) for s in switches for shift in (-1e-6, 1e-6)]
    # Cancellation in the closed forms costs 1e-16 / 0.1^3 in float64, and the formula
    # of the function itself costs the second derivative the same in float32.
    slack = (1.0, 10.0, 1e3)
    for s in (*points, *others):
        for got, want, loss in zip(jet(name)(float(s)), closed(s), slack, strict=True):
            bound = tol.identity * loss
            np.testing.assert_allclose(
                got, want, rtol=bound, atol=bound, err_msg=f"{s}"
            )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_jet_at_0_is_that_of_the_power_series(name, tol):
    expected = FUNCTIONS[name][3]
    np.testing.assert_allclose(jet(name)(0.0), expected, rtol=tol.identity)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_widen_takes_half_precision_to_float32_and_remembers(dtype):
    (a, b), out = widen(jnp.ones(2, dtype), jnp.ones((), dtype))
    assert (a.dtype, b.dtype, out) == (jnp.float32, jnp.float32, dtype)


def test_widen_keeps_what_is_wide():
    (a,), out = widen(jnp.ones(2, jnp.float32))
    assert (a.dtype, out) == (jnp.float32, jnp.float32)
    (a,), out = widen(jnp.ones(2))
    assert a.dtype == out == jnp.zeros(()).dtype


def test_matmul_asks_for_full_precision():
    text = jax.jit(matmul).lower(np.ones((2, 3)), np.ones((3, 2))).as_text()
    assert "precision = [HIGHEST, HIGHEST]" in text


def test_normalize_has_the_projection_over_the_norm_as_derivative(tol):
    x = np.array([1.0, -2.0, 2.0])
    expected = (np.eye(3) - np.outer(x, x) / 9) / 3
    jacobian = jax.jit(jax.jacobian(normalize))(x)
    np.testing.assert_allclose(jacobian, expected, atol=tol.identity)


def test_normalize_has_the_right_second_derivative(tol):
    # Along a tangent direction u at a unit vector x: x + s u over its norm has the
    # second derivative -|u|^2 x at s = 0.
    x, u = np.array([0.6, 0.8]), np.array([-0.8, 0.6])
    along = lambda s: normalize(x + s * u)
    second = jax.jit(jax.jacfwd(jax.jacfwd(along)))(0.0)
    np.testing.assert_allclose(second, -x, atol=2 * tol.identity)


def test_safe_norm_is_the_norm_with_the_unit_vector_as_gradient(tol):
    x = np.array([2.0, -3.0, 6.0])
    value, gradient = jax.jit(jax.value_and_grad(safe_norm))(x)
    np.testing.assert_allclose(value, 7.0, rtol=tol.identity)
    np.testing.assert_allclose(gradient, x / 7, rtol=tol.identity)
    hessian = jax.jit(jax.hessian(safe_norm))(x)
    expected = (np.eye(3) - np.outer(x, x) / 49) / 7
    np.testing.assert_allclose(hessian, expected, atol=tol.identity)


def test_safe_norm_at_0_is_0_with_gradient_0():
    value, gradient = jax.jit(jax.value_and_grad(safe_norm))(np.zeros(3))
    assert float(value) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(3))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_safe_norm_neither_under_nor_overflows(size):
    x = jnp.asarray([3 * size, 4 * size], jnp.float32)
    assert float(jax.jit(safe_norm)(x)) == pytest.approx(5 * size, rel=1e-6)


def test_nan_stays_nan():
    x = jnp.array([jnp.nan, 1.0])
    assert np.isnan(safe_norm(x))
    assert np.isnan(normalize(x)).all()


@pytest.mark.parametrize("d", [2, 3, 64, 768])
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=["spread", "along an axis"])
def test_exact_normalisation_is_off_by_the_rounding_of_the_entries_alone(d, spread):
    x = np.random.default_rng(d).standard_normal((20_000, d)).astype(np.float32)
    x[:, 0] = x[:, 0] if spread == 1.0 else 1.0
    x[:, 1:] *= np.float32(spread)
    length = lambda y: np.linalg.norm(np.asarray(y, np.float64), axis=1)
    eps = np.finfo(np.float32).eps
    assert np.abs(length(jax.jit(normalize_exactly)(x)) - 1).max() < 0.6 * eps
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(normalize_exactly(x)[:, 0])))
    plain = jax.jit(jax.grad(lambda x: jnp.sum(normalize(x)[:, 0])))
    np.testing.assert_allclose(gradient(x), plain(x), rtol=1e-5, atol=1e-6)


def test_exact_normalisation_leaves_zero_where_it_is():
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(normalize_exactly(x)))(
        jnp.zeros(3)
    )
    assert float(value) == 0
    assert np.all(np.asarray(gradient) == 0)
