"""Stationary states with noise: self-consistency, Kuramoto's order, hysteresis."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import Kuramoto, kuramoto
from tfjax.meanfield import (
    MeanFieldParams,
    circle_continuity,
    circle_modes,
    noise_branch,
    resolution,
    stationary_density,
)
from tfjax.theory import critical_noise, noisy_kuramoto_order, tricritical_beta


X64 = jax.config.jax_enable_x64
N = 96
THETA = jnp.asarray(np.arange(N) * 2 * np.pi / N)
PEAK = jnp.exp(5 * (jnp.cos(THETA) - 1))
UNIFORM = jnp.ones(N)
state = jax.jit(stationary_density)


def order(density):
    return float(circle_modes(density)[1].real)


@pytest.mark.parametrize("diffusivity", [0.2, 0.3, 0.4])
def test_a21_the_order_of_noisy_kuramoto_oscillators(diffusivity):
    """r = I_1(r/D) / I_0(r/D): .87682, .77313, .58971."""
    got = order(state(PEAK, MeanFieldParams(0.0, diffusivity)))
    want = float(noisy_kuramoto_order(diffusivity))
    assert got == pytest.approx(want, abs=1e-12 if X64 else 1e-4)
    table = {0.2: 0.87682, 0.3: 0.77313, 0.4: 0.58971}
    assert got == pytest.approx(table[diffusivity], abs=1e-5 if X64 else 1e-4)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_a_stationary_density_stays(beta, normalized):
    """It solves the continuity equation, has mass 1, and is not the uniform one."""
    noise = 0.9 * float(critical_noise(1, beta, normalized))
    params = MeanFieldParams(beta, noise, normalized)
    density = state(PEAK, params)
    assert float(resolution(density).tail) < 1e-6
    assert float(circle_modes(density)[0].real) == pytest.approx(1.0, abs=1e-6)
    assert order(density) > 0.3
    rate = np.abs(circle_continuity(0.0, density, params))
    assert rate.max() < (1e-6 if X64 else 1e-3) * float(density.max()) * noise


def test_the_flow_tends_to_the_stationary_density():
    params = MeanFieldParams(2.0, 0.5)
    kwargs = {"rtol": 1e-6, "atol": 1e-6, "t1": 60.0, "max_steps": None}
    start = (1 + 0.5 * jnp.cos(THETA)) / (2 * np.pi)
    end = tfjax.solve(circle_continuity, start, params, **kwargs).ys[-1]
    np.testing.assert_allclose(end, state(PEAK, params), atol=1e-4)


@functools.cache
def branches(beta):
    """The order as noise grows from order, and as it falls from none."""
    ratios = np.arange(0.81, 1.4, 0.05)
    noise = jnp.asarray(ratios * float(critical_noise(1, beta)))
    visit = jax.jit(noise_branch)
    up = visit(noise, PEAK, MeanFieldParams(beta))
    down = visit(noise[::-1], UNIFORM, MeanFieldParams(beta))[::-1]
    orders = [np.array([order(each) for each in states]) for states in (up, down)]
    return ratios, *orders


@pytest.mark.parametrize("beta", [1.0, 2.0, 3.0, 5.0])
def test_a21_the_uniform_density_is_left_at_the_critical_noise(beta):
    """D_c = .565159, .795318, 1.31779, 4.86713; found within a step of 5 %."""
    ratios, _, down = branches(beta)
    ordered = down > 0.1
    assert np.all(ordered == (ratios < 1))
    table = {1.0: 0.565159, 2.0: 0.795318, 3.0: 1.31779, 5.0: 4.86713}
    assert float(critical_noise(1, beta)) == pytest.approx(table[beta], rel=1e-5)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_a21_below_the_tricritical_beta_order_sets_in_continuously(beta):
    assert beta < tricritical_beta()
    ratios, up, down = branches(beta)
    np.testing.assert_allclose(up, down, atol=1e-6 if X64 else 5e-3)
    # As a square root: the square of the order falls to 0 about linearly.
    square = up[ratios < 1] ** 2
    assert square[-1] < 0.5 * square[-3]


def test_a21_above_the_tricritical_beta_there_is_hysteresis():
    assert tricritical_beta() < 5.0
    ratios, up, down = branches(5.0)
    both = (ratios > 1) & (up > 0.1)
    assert both.sum() >= 2  # ordered and uniform states are both stable here
    assert up[both].min() > 0.5  # order is lost by a jump
    assert np.all(down[both] < 1e-3)
    np.testing.assert_allclose(up[ratios < 1], down[ratios < 1], atol=1e-3)
    assert up[-1] < 1e-3


def test_the_order_is_differentiable_in_beta_and_in_the_noise():
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")

    @jax.jit
    def value(beta, noise):
        density = stationary_density(PEAK, MeanFieldParams(beta, noise))
        return circle_modes(density)[1].real

    at, step = (jnp.asarray(2.0), jnp.asarray(0.6)), 1e-5
    got = jax.jit(jax.grad(value, (0, 1)))(*at)
    for i in range(2):
        shifted = lambda s, i=i: [v + s * (i == j) for j, v in enumerate(at)]
        up, down = (float(value(*shifted(s))) for s in (step, -step))
        assert float(got[i]) == pytest.approx((up - down) / (2 * step), rel=1e-6)


def test_a21_many_oscillators_have_the_order_of_the_density():
    """4,000 tokens by `solve_sde`, from order, averaged over late times.

    Heun's method has weak order 2 here: Euler's bias would be half of the tolerance.
    """
    diffusivity, n = 0.3, 4000
    noise = lambda t, theta, args: jnp.full_like(theta, np.sqrt(2 * diffusivity))
    late = jnp.linspace(10.0, 80.0, 36)
    kwargs = {"t1": 80.0, "dt0": 0.2, "ts": late, "additive": True}
    kwargs["solver"] = dfx.Heun()
    start = jnp.zeros(n)
    key = jax.random.key(0)
    sol = tfjax.solve_sde(kuramoto, noise, start, Kuramoto(), key=key, **kwargs)
    r = np.abs(np.exp(1j * np.asarray(sol.ys)).mean(axis=1)).mean()
    assert r == pytest.approx(float(noisy_kuramoto_order(diffusivity)), abs=0.01)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: stationary_density(UNIFORM, MeanFieldParams()), "`diffusivity` must"),
        (
            lambda: stationary_density(UNIFORM[None], MeanFieldParams()),
            "`density` must",
        ),
        (
            lambda: noise_branch(jnp.array([1.0, 0.0]), UNIFORM, MeanFieldParams()),
            "`diffusivities` must be finite and positive",
        ),
        (
            lambda: noise_branch(jnp.ones((2, 2)), UNIFORM, MeanFieldParams()),
            "`diffusivities` must have shape",
        ),
    ],
)
def test_the_door_names_the_argument(call, text, unchecked):
    with pytest.raises(ValueError, match=text):
        call()
