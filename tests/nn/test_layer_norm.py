"""LayerNorm as geometry: a projection onto a sphere, which is no isometry.

The formula alone is in `geometry/test_curvature.py`; this is the layer of the models.
"""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from tfjax.nn._layers import LayerNorm


X64 = jax.config.jax_enable_x64
needs_float64 = pytest.mark.skipif(
    not X64, reason="rounding hides the order in float32"
)
DTYPE = np.float64 if X64 else np.float32
N, D = 5, 8
LAYER = LayerNorm(D, 0.0, dtype=DTYPE)
NORM = jax.jit(lambda x: LAYER(x))
RNG = np.random.default_rng(0)
X = (RNG.standard_normal((N, D)) + 3).astype(DTYPE)
WAYS = RNG.standard_normal((N, D)).astype(DTYPE)
VALUE = RNG.standard_normal((D, D)) / D**0.5


def radius(x):
    """|x - mean| of each token."""
    return np.linalg.norm(x - x.mean(axis=1, keepdims=True), axis=1)


def tangential(x, v):
    """The part of v that is tangent to the sphere of normalised tokens at x."""
    v = v - v.mean(axis=1, keepdims=True)
    return v - np.sum(x * v, axis=1, keepdims=True) / D * x


def attention(x):
    weights = np.exp(x @ x.T / D)
    return weights / weights.sum(axis=1, keepdims=True) @ x @ VALUE.T


# --- The map --------------------------------------------------------------------------


def test_its_singular_values_are_root_d_over_r_and_two_zeros(tol):
    for x, r in zip(X, radius(X), strict=True):
        J = jax.jacfwd(lambda x: NORM(x[None])[0])(x)
        values = np.linalg.svd(np.asarray(J), compute_uv=False)
        expected = [np.sqrt(D) / r] * (D - 2) + [0, 0]
        np.testing.assert_allclose(values, expected, rtol=0, atol=10 * tol.identity)
        # What it forgets: shifts, and lengths.
        for way in (np.ones(D, DTYPE), x - x.mean()):
            np.testing.assert_allclose(J @ way, 0, rtol=0, atol=50 * tol.identity)


def test_it_is_idempotent_and_blind_to_scale_and_shift(tol):
    once = NORM(X)
    assert np.abs(once - X).max() > 1
    np.testing.assert_allclose(radius(np.asarray(once)), np.sqrt(D), rtol=tol.identity)
    for same in (once, 2.5 * X - 7, np.arange(1, N + 1, dtype=DTYPE)[:, None] * X):
        np.testing.assert_allclose(NORM(same), once, rtol=0, atol=20 * tol.identity)
    np.testing.assert_allclose(NORM(-X), -once, rtol=0, atol=10 * tol.identity)


def test_it_does_not_preserve_the_metric_but_multiplies_it_by_d_over_r2(tol):
    v = tangential(np.asarray(NORM(X)), WAYS)
    _, moved = jax.jvp(NORM, (X,), (v,))
    stretch = np.linalg.norm(moved, axis=1) / np.linalg.norm(v, axis=1)
    np.testing.assert_allclose(stretch, np.sqrt(D) / radius(X), rtol=20 * tol.identity)
    # The factor differs from 1, and from token to token: no isometry up to a scale.
    assert np.abs(stretch - 1).min() > 0.01
    assert stretch.max() / stretch.min() > 1.2
    # On its own image it is one, along the sphere.
    _, moved = jax.jvp(NORM, (NORM(X),), (v,))
    np.testing.assert_allclose(moved, v, rtol=0, atol=50 * tol.identity)


# --- Post-norm layers against the flow on the sphere ----------------------------------


def layers(x, h, count):
    """x <- N(x + h f(x)), some times over."""
    for _ in range(count):
        x = np.asarray(NORM(x + h * attention(x)))
    return x


def flow(x, t):
    """x' = P_x f(x), by scipy."""
    field = lambda _, y: tangential(y.reshape(N, D), attention(y.reshape(N, D))).ravel()
    kwargs = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-13}
    return solve_ivp(field, (0, t), x.ravel(), **kwargs).y[:, -1].reshape(N, D)


@needs_float64
def test_a_post_norm_layer_is_a_step_of_the_flow_on_the_sphere_up_to_h2():
    x = np.asarray(NORM(X))
    defects = [
        np.abs(layers(x, h, 1) - flow(x, h)).max() / h**2 for h in (0.04, 0.02, 0.01)
    ]
    # They tend to a constant, at first order: its changes halve.
    first, second = -np.diff(defects)
    assert defects[-1] > 0.05
    assert abs(second) < 0.05 * defects[-1]
    assert first / second == pytest.approx(2, abs=0.3)
    # Without N the residual leaves the sphere, at order h.
    euler = x + 0.01 * attention(x)
    assert np.abs(euler - flow(x, 0.01)).max() > 0.1 * 0.01 > 10 * defects[-1] * 0.01**2


@needs_float64
def test_post_norm_layers_converge_to_it_at_order_one():
    x, t = np.asarray(NORM(X)), 1.0
    end = flow(x, t)
    assert np.abs(end - x).max() > 0.1
    counts = (10, 20, 40, 80)
    errors = [np.abs(layers(x, t / n, n) - end).max() for n in counts]
    orders = -np.diff(np.log2(errors))
    assert np.all((orders > 0.9) & (orders < 1.1)), orders
    assert np.abs(np.diff(orders)).max() < 0.1
