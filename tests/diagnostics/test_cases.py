"""Sharp cases of observables, each named by its id: S14."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from tfjax.diagnostics import mean_phase, order_parameter


DTYPES = ["float32", "float64"] if jax.config.jax_enable_x64 else ["float32"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
wrapped = pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])


def around(a, b=0.0):
    """The difference of two angles, in [-pi, pi)."""
    return (a - b + np.pi) % (2 * np.pi) - np.pi


@wrapped
@every_dtype
def test_S14_the_mean_direction_across_the_cut(dtype, wrap):
    theta = jnp.array([np.pi - 0.1, -np.pi + 0.1], dtype)
    assert float(wrap(order_parameter)(theta)) == pytest.approx(0.995004, abs=1e-6)
    phase = float(wrap(mean_phase)(theta))
    assert around(phase, np.pi) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 8])
@every_dtype
def test_S14_balanced_angles_have_order_zero_and_a_finite_gradient(dtype, n):
    theta = jnp.asarray(2 * np.pi * np.arange(n) / n, dtype)
    value, gradient = jax.value_and_grad(order_parameter)(theta)
    assert float(value) == pytest.approx(0, abs=1e-6)
    assert np.all(np.isfinite(gradient))


def test_S14_a_batch_gives_what_each_gives():
    theta = np.array([[np.pi - 0.1, 0.1 - np.pi], [0.0, np.pi], [0.3, 0.5]])
    got = jax.vmap(order_parameter)(theta)
    each = [float(order_parameter(row)) for row in theta]
    np.testing.assert_allclose(got, each, atol=1e-6)


order, phase_of = jax.jit(order_parameter), jax.jit(mean_phase)
angles = hnp.arrays(np.float64, 5, elements=st.floats(-np.pi, np.pi))


@given(angles, st.floats(-20, 20))
def test_S14_a_common_shift_turns_the_phase_and_leaves_the_order(theta, shift):
    r, shifted = float(order(theta)), float(order(theta + shift))
    assert shifted == pytest.approx(r, abs=1e-5)
    assert r == pytest.approx(abs(np.exp(1j * theta).mean()), abs=1e-5)
    if r > 1e-2:
        turned = float(phase_of(theta + shift)) - float(phase_of(theta))
        assert around(turned, shift) == pytest.approx(0, abs=1e-3)
