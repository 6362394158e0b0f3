"""Stationary states on S^2 with noise: Langevin's order, the flow, hysteresis."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.meanfield import (
    MeanFieldParams,
    resolution_lost,
    sphere_coefficients,
    sphere_continuity,
    sphere_density,
    sphere_noise_branch,
    sphere_points,
    sphere_resolution,
    sphere_stationary,
)
from tfjax.theory import critical_noise, tricritical_beta


X64 = jax.config.jax_enable_x64
L = 16
UNIFORM = jnp.zeros((L + 1) ** 2).at[0].set(1.0)
POINTS, _ = sphere_points(L)
PEAK = sphere_coefficients(jnp.exp(3 * (POINTS[:, 2] - 1)), L)
state = jax.jit(sphere_stationary)
rate = jax.jit(lambda c, params: sphere_continuity(0.0, c, params))


def order(c):
    """The mean height."""
    return float(c[2]) / np.sqrt(3)


@pytest.mark.parametrize("diffusivity", [0.2, 0.3])
def test_the_order_without_attention_is_langevins(diffusivity):
    """At beta = 0 the density is that of Fisher, with r = coth(r/D) - D/r."""
    c = state(PEAK, MeanFieldParams(0.0, diffusivity))
    r = order(c)
    assert r > 0.3
    kappa = r / diffusivity
    langevin = 1 / np.tanh(kappa) - 1 / kappa
    assert r == pytest.approx(langevin, abs=1e-12 if X64 else 1e-4)
    fisher = np.exp(kappa * np.asarray(POINTS, np.float64)[:, 2])
    fisher *= kappa / np.sinh(kappa)
    want = sphere_coefficients(jnp.asarray(fisher, c.dtype), L)
    np.testing.assert_allclose(c, want, atol=1e-6 if X64 else 1e-4)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("beta", [1.0, 1.7])
def test_a_stationary_density_on_the_sphere_stays(beta, normalized):
    """It solves the continuity equation, has mass 1, and is not the uniform one."""
    noise = 0.93 * float(critical_noise(1, beta, normalized, d=3))
    params = MeanFieldParams(beta, noise, normalized)
    c = state(PEAK, params)
    minimum, tail = sphere_resolution(c)
    assert float(tail) < 1e-4
    assert float(minimum) > 0
    assert float(c[0]) == 1.0
    assert order(c) > 0.3
    # Beside rounding, what the degrees do not carry.
    rates = np.abs(rate(c, params))
    rounding = 1e-12 if X64 else 1e-5
    assert rates.max() < (float(tail) + rounding) * noise * L * (L + 1)


def test_the_flow_on_the_sphere_tends_to_the_stationary_density():
    params = MeanFieldParams(1.0, 0.3)
    kwargs = {"rtol": 1e-6, "atol": 1e-6, "t1": 80.0, "max_steps": None}
    start = UNIFORM.at[2].set(0.3).at[6].set(0.1)
    end = tfjax.solve(sphere_continuity, start, params, **kwargs).ys[-1]
    want = state(PEAK, params)
    assert order(want) > 0.5
    np.testing.assert_allclose(end, want, atol=1e-4)


@functools.cache
def branches(beta):
    """The order as noise grows from order, and as it falls from none."""
    ratios = np.arange(0.91, 1.15, 0.02)
    noise = jnp.asarray(ratios * float(critical_noise(1, beta, d=3)))
    visit = jax.jit(sphere_noise_branch)
    up = visit(noise, PEAK, MeanFieldParams(beta))
    down = visit(noise[::-1], UNIFORM, MeanFieldParams(beta))[::-1]
    return ratios, *(np.array([order(c) for c in states]) for states in (up, down))


@pytest.mark.parametrize("beta", [0.0, 1.5, 3.0])
def test_there_is_hysteresis_on_the_sphere_above_the_tricritical_beta(beta):
    """The critical noise is lambda_1 / beta; lambda_2 / lambda_1 is 1/3 at 1.81."""
    ratios, up, down = branches(beta)
    assert np.all((down > 0.05) == (ratios < 1))
    if beta < tricritical_beta(3):
        np.testing.assert_allclose(up, down, atol=1e-6 if X64 else 1e-2)
    else:
        both = (ratios > 1) & (up > 0.1)
        assert both.any()
        assert up[both].min() > 0.3  # order is lost by a jump
        assert np.all(down[both] < 1e-3)
        assert up[-1] < 1e-3


def test_the_order_on_the_sphere_is_differentiable_in_the_noise():
    """By Langevin's equation r = A(r/D): r' = -A' r / D^2 / (1 - A' / D)."""
    value = lambda noise: sphere_stationary(PEAK, MeanFieldParams(0.0, noise))[2]
    noise = jnp.asarray(0.25)
    r, got = order(state(PEAK, MeanFieldParams(0.0, noise))), jax.jit(jax.grad(value))
    kappa = r / 0.25
    slope = 1 / kappa**2 - 1 / np.sinh(kappa) ** 2
    want = -slope * r / 0.25**2 / (1 - slope / 0.25)
    assert float(got(noise)) / np.sqrt(3) == pytest.approx(want, rel=1e-5)


def test_sphere_resolution_reads_the_degrees_and_the_minimum(tol):
    """All the mass at a point has every degree at 1; a rotation changes nothing."""
    point = jnp.zeros_like(UNIFORM)
    for k in range(L + 1):
        point = point.at[k * k + k].set(np.sqrt(2 * k + 1))
    assert float(sphere_resolution(point).tail) == pytest.approx(1, abs=tol.identity)
    # Of the degrees up to 16 the upper third begins at 11.
    for k, want in ((10, 0.0), (11, 0.1), (16, 0.1)):
        orders = np.arange(2 * k + 1) - 3.0
        wave = 0.1 * orders * np.sqrt((2 * k + 1) / np.sum(orders**2))
        c = UNIFORM.at[k * k : (k + 1) ** 2].set(jnp.asarray(wave, UNIFORM.dtype))
        minimum, tail = sphere_resolution(2 * c)
        assert float(tail) == pytest.approx(want, abs=tol.identity)
        assert float(minimum) == pytest.approx(float(sphere_density(c).min()), rel=1e-5)


def test_a_density_on_the_sphere_ends_the_solve_when_resolution_is_lost():
    start, params = UNIFORM.at[2].set(0.3), MeanFieldParams(1.0)
    kwargs = {"t1": 20.0, "event": resolution_lost(1e-2, sphere_resolution)}
    sol = tfjax.solve(sphere_continuity, start, params, **kwargs)
    assert bool(dfx.is_event(sol.result))
    assert 0.5 < float(sol.ts[-1]) < 10
    assert 1e-2 < float(sphere_resolution(sol.ys[-1]).tail) < 0.1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sphere_stationary(UNIFORM, MeanFieldParams()), "`diffusivity` must"),
        (
            lambda: sphere_stationary(jnp.ones(5), MeanFieldParams(1.0, 1.0)),
            "`guess` must have shape",
        ),
        (
            lambda: sphere_stationary(0 * UNIFORM, MeanFieldParams(1.0, 1.0)),
            "`guess` must be finite, its first entry",
        ),
        (
            lambda: sphere_noise_branch(jnp.zeros(1), UNIFORM, MeanFieldParams()),
            "`diffusivities` must be finite and positive",
        ),
        (lambda: sphere_resolution(jnp.ones(3)), "`coefficients` must have shape"),
    ],
)
def test_the_door_names_the_argument(call, text, unchecked):
    with pytest.raises(ValueError, match=text):
        call()
