"""Order parameter, mean phase and energy along a trajectory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.diagnostics import energy_along, mean_phase, order_parameter
from tfjax.energies import interaction_energy


DTYPE = jnp.zeros(()).dtype
order_jet = jax.jit(jax.value_and_grad(order_parameter))
phase_jet = jax.jit(jax.value_and_grad(mean_phase))


def test_s14_the_order_parameter_does_not_see_the_cut(tol):
    theta = np.array([np.pi - 0.1, -np.pi + 0.1], DTYPE)
    value, gradient = order_jet(theta)
    assert float(value) == pytest.approx(np.cos(0.1), abs=1e-6)
    # R = cos(half the gap): the gradient is -sin(0.1)/2 for the one that moves away.
    expected = np.array([1, -1]) * np.sin(0.1) / 2
    np.testing.assert_allclose(gradient, expected, atol=5 * tol.identity)


def test_s14_the_mean_phase_does_not_see_the_cut(tol):
    theta = np.array([np.pi - 0.1, -np.pi + 0.1], DTYPE)
    value, gradient = phase_jet(theta)
    assert abs(float(value)) == pytest.approx(np.pi, abs=1e-6)
    np.testing.assert_allclose(gradient, [0.5, 0.5], rtol=5 * tol.identity)


def test_s14_balanced_angles_have_order_0_with_a_finite_gradient(tol):
    value, gradient = order_jet(np.array([0.0, np.pi], DTYPE))
    assert abs(float(value)) < tol.identity
    assert np.isfinite(gradient).all()
    # Exactly balanced: the gradient is 0.
    points = np.array([[1.0, 0.0], [-1.0, 0.0]], DTYPE)
    value, gradient = order_jet(points)
    assert float(value) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((2, 2)))


def test_the_phase_of_points_that_balance_exactly_is_0():
    # cos and sin of these four cancel in pairs only up to rounding; of none, exactly.
    theta = jnp.zeros(2, DTYPE)
    assert float(mean_phase(theta)) == 0.0
    value, gradient = phase_jet(np.array([0.0, np.pi], DTYPE))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_order_and_phase_are_those_of_the_complex_mean(tol):
    theta = np.random.default_rng(0).uniform(-3, 3, 12)
    mean = np.mean(np.exp(1j * theta))
    value, gradient = order_jet(theta.astype(DTYPE))
    assert float(value) == pytest.approx(abs(mean), abs=5 * tol.identity)
    expected = np.sin(np.angle(mean) - theta) / 12
    np.testing.assert_allclose(gradient, expected, atol=5 * tol.identity)
    value, gradient = phase_jet(theta.astype(DTYPE))
    assert float(value) == pytest.approx(np.angle(mean), abs=5 * tol.identity)
    expected = np.cos(np.angle(mean) - theta) / (12 * abs(mean))
    np.testing.assert_allclose(gradient, expected, atol=10 * tol.identity)


def test_points_have_the_order_of_their_angles_and_any_dimension_will_do(tol):
    theta = np.random.default_rng(1).uniform(-3, 3, 12).astype(DTYPE)
    points = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    assert float(order_parameter(points)) == pytest.approx(
        float(order_parameter(theta)), abs=tol.identity
    )
    x = np.random.default_rng(2).standard_normal((9, 5)).astype(DTYPE)
    expected = np.linalg.norm(x.mean(axis=0))
    assert float(order_parameter(x)) == pytest.approx(expected, rel=5 * tol.identity)


def test_a_turn_of_all_angles_turns_the_phase_and_keeps_the_order(tol):
    theta = np.random.default_rng(3).uniform(-1, 1, 12).astype(DTYPE)
    turned = theta + DTYPE.type(1.5)
    shift = float(phase_jet(turned)[0]) - float(phase_jet(theta)[0])
    assert shift == pytest.approx(1.5, abs=5 * tol.identity)
    change = float(order_jet(turned)[0]) - float(order_jet(theta)[0])
    assert abs(change) < 5 * tol.identity


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("function", [order_parameter, mean_phase])
def test_half_precision_is_computed_in_float32_and_rounded_once(function, dtype):
    theta = jnp.asarray([0.1, 0.7, -0.4], dtype)
    expected = function(theta.astype(jnp.float32)).astype(dtype)
    assert function(theta).dtype == dtype
    assert function(theta) == expected


@pytest.mark.usefixtures("unchecked")
def test_bad_angles_are_refused_by_name():
    message = r"^`theta` must have shape \(n,\) or \(n, d\), with no axis of length 0"
    for bad in (np.ones(()), np.ones((2, 2, 2)), np.ones(0)):
        with pytest.raises(ValueError, match=message):
            order_parameter(bad)
    with pytest.raises(
        ValueError, match=r"^`theta` must have shape \(n,\), but was of"
    ):
        mean_phase(np.ones((3, 2)))


# --- Energy along a trajectory --------------------------------------------------------


def trajectory():
    xs = np.random.default_rng(4).standard_normal((4, 6, 3)).astype(DTYPE)
    return xs / np.linalg.norm(xs, axis=-1, keepdims=True)


@pytest.mark.parametrize("centred", [False, True])
def test_energy_along_is_the_energy_of_each_state(centred, tol):
    xs, b = trajectory(), np.diag([1.0, -2.0, 0.5]).astype(DTYPE)
    got = energy_along(xs, 2.0, bilinear=b, centred=centred)
    each = [interaction_energy(x, 2.0, bilinear=b, centred=centred) for x in xs]
    np.testing.assert_allclose(got, each, rtol=2 * tol.identity)
    plain = energy_along(xs, 2.0)
    each = [interaction_energy(x, 2.0) for x in xs]
    np.testing.assert_allclose(plain, each, rtol=2 * tol.identity)


def test_energy_along_refuses_what_it_cannot_compute():
    xs = trajectory()
    bad = xs.copy()
    bad[2, 1] = np.inf
    with pytest.raises(ValueError, match="^`xs` must be finite, but was"):
        energy_along(bad, 1.0)
    with pytest.raises(RuntimeError, match="`beta` must keep exp"):
        energy_along(xs, 1e4)
    with pytest.raises(RuntimeError, match="`beta` must not be 0 unless"):
        energy_along(xs, 0.0)
    assert energy_along(xs, 0.0, centred=True).shape == (4,)


@pytest.mark.usefixtures("unchecked")
def test_energy_along_wants_a_trajectory():
    message = r"^`xs` must have shape \(t, n, d\), but was of shape \(6, 3\)"
    with pytest.raises(ValueError, match=message):
        energy_along(trajectory()[0], 1.0)
