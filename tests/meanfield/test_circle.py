"""The continuity equation on the circle: growth, conservation, energy, resolution."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.energies import interaction_energy
from tfjax.fields import (
    AttentionParams,
    circle_attention,
    unnormalized_circle_attention,
)
from tfjax.meanfield import (
    MeanFieldParams,
    circle_continuity,
    circle_energy,
    circle_modes,
    circle_velocity,
    resolution,
    resolution_lost,
)
from tfjax.theory import circle_growth_rate, critical_noise


X64 = jax.config.jax_enable_x64
N = 64
THETA = np.arange(N) * 2 * np.pi / N
UNIFORM = jnp.full(N, 1 / (2 * np.pi))
DENSITY = jnp.asarray(
    (1 + 0.3 * np.cos(THETA) + 0.2 * np.sin(2 * THETA)) / (2 * np.pi), UNIFORM.dtype
)
both = pytest.mark.parametrize("normalized", [False, True])
rate = jax.jit(lambda density, params: circle_continuity(0.0, density, params))


def mass(density):
    return 2 * np.pi * np.asarray(density).mean(axis=-1)


@both
@pytest.mark.parametrize(
    ("beta", "k"), [(0.0, 1), (1.0, 1), (5.0, 3), (7.0, 4), (9.0, 4)]
)
def test_a15_waves_on_the_uniform_density_grow_at_their_rates(beta, k, normalized, tol):
    """k^2 I_k(beta)/beta, divided by I_0 for SA."""
    params = MeanFieldParams(beta, normalized=normalized)
    wave = jnp.asarray(np.cos(k * THETA), UNIFORM.dtype)
    _, got = jax.jvp(lambda density: rate(density, params), (UNIFORM,), (wave,))
    want = float(circle_growth_rate(k, beta, normalized=normalized))
    np.testing.assert_allclose(got / want, wave, atol=50 * tol.identity)


def test_a15_a_small_wave_grows_at_its_rate_through_solve():
    beta, k, size = 5.0, 3, 1e-4
    wave = jnp.asarray(size * np.cos(k * THETA), UNIFORM.dtype)
    kwargs = {"t1": 0.05, "rtol": 1e-6, "atol": 1e-9}
    params = MeanFieldParams(beta)
    end = tfjax.solve(circle_continuity, UNIFORM + wave, params, **kwargs).ys[-1]
    growth = np.log(abs(complex(circle_modes(end)[k])) / (np.pi * size)) / 0.05
    want = float(circle_growth_rate(k, beta))
    assert want == pytest.approx(18.59607, rel=1e-5)
    assert growth == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize("k", [1, 2])
def test_noise_stops_a_wave_at_the_critical_diffusivity(k, tol):
    params = MeanFieldParams(2.0, critical_noise(k, 2.0))
    wave = jnp.asarray(np.cos(k * THETA), UNIFORM.dtype)
    _, got = jax.jvp(lambda density: rate(density, params), (UNIFORM,), (wave,))
    np.testing.assert_allclose(got, 0.0, atol=50 * tol.identity)


@both
def test_the_velocity_is_that_of_tokens_with_this_density(normalized, tol):
    """Tokens at the angles, where the density counts how many there are of each."""
    counts = np.arange(N) % 3 + 1
    theta = jnp.asarray(np.repeat(THETA, counts), UNIFORM.dtype)
    density = jnp.asarray(counts / counts.sum() * N / (2 * np.pi), UNIFORM.dtype)
    field = circle_attention if normalized else unnormalized_circle_attention
    tokens = np.asarray(field(0.0, theta, AttentionParams(beta=3.0)))
    got = circle_velocity(density, MeanFieldParams(3.0, normalized=normalized))
    firsts = np.cumsum(counts) - counts
    np.testing.assert_allclose(got, tokens[firsts], atol=50 * tol.identity)


def test_the_energy_is_that_of_tokens_with_this_density(tol):
    counts = np.arange(N) % 3 + 1
    theta = np.repeat(THETA, counts)
    points = jnp.asarray(np.stack([np.cos(theta), np.sin(theta)], 1), UNIFORM.dtype)
    density = jnp.asarray(counts / counts.sum() * N / (2 * np.pi), UNIFORM.dtype)
    for beta in (0.0, 3.0):
        want = float(interaction_energy(points, beta, centred=True))
        got = float(circle_energy(density, MeanFieldParams(beta)))
        assert got == pytest.approx(want, abs=20 * tol.identity)


@both
def test_the_energy_rises_by_the_square_of_the_velocity(normalized, tol):
    """dE/dt = int |X|^2 dmu for USA, int Z |X|^2 dmu for SA."""
    params = MeanFieldParams(2.0, normalized=normalized)
    energy = lambda density: circle_energy(density, params)
    _, got = jax.jvp(energy, (DENSITY,), (rate(DENSITY, params),))
    velocity = np.asarray(circle_velocity(DENSITY, params))
    pull = np.asarray(circle_velocity(DENSITY, MeanFieldParams(2.0)))
    want = mass(velocity * pull * np.asarray(DENSITY))
    assert float(got) > 0.01
    assert float(got) == pytest.approx(want, rel=50 * tol.identity)


def test_the_identity_holds_for_a_density_that_is_not_resolved(tol):
    """What is cut away is cut away from both sides: no mode is aliased."""
    rough = jnp.asarray(np.random.default_rng(0).uniform(0, 1, N), UNIFORM.dtype)
    rough = rough / mass(rough)
    low = np.arange(N // 2 + 1) <= 21
    cut = lambda values: np.fft.irfft(np.where(low, np.fft.rfft(values), 0), N)
    params = MeanFieldParams(20.0)
    energy = lambda density: circle_energy(density, params)
    _, got = jax.jvp(energy, (rough,), (rate(rough, params),))
    velocity = cut(np.asarray(circle_velocity(rough, params), np.float64))
    want = mass(velocity**2 * cut(np.asarray(rough, np.float64)))
    assert float(got) == pytest.approx(want, rel=100 * tol.identity)


@functools.cache
def noisy(implicit):
    """With noise: the explicit and an implicit solver."""
    solver = dfx.Kvaerno5() if implicit else dfx.Tsit5()
    tolerance = 1e-8 if X64 else 1e-5
    params, times = MeanFieldParams(2.0, 0.5), jnp.linspace(0.0, 3.0, 4)
    kwargs = {"rtol": tolerance, "atol": tolerance, "solver": solver}
    return tfjax.solve(circle_continuity, DENSITY, params, t1=3.0, ts=times, **kwargs)


def test_the_mass_is_conserved_along_a_solve(tol):
    drift = np.abs(mass(noisy(False).ys) - mass(DENSITY))
    assert drift.max() < (1e-12 if X64 else 2e-6)


def test_an_implicit_solver_takes_longer_steps_to_the_same_density():
    if not X64:
        pytest.skip("float32 rounding in the Jacobian decides about the steps")
    np.testing.assert_allclose(noisy(True).ys, noisy(False).ys, atol=1e-6)
    explicit, implicit = (int(noisy(i).stats["num_steps"]) for i in (False, True))
    assert implicit < explicit / 3


def test_a_density_that_concentrates_ends_the_solve_when_resolution_is_lost():
    limit = 1e-2
    kwargs = {"t1": 50.0, "event": resolution_lost(limit)}
    params = MeanFieldParams(2.0)
    sol = tfjax.solve(circle_continuity, DENSITY, params, **kwargs)
    assert bool(dfx.is_event(sol.result))
    assert 0 < float(sol.ts[-1]) < 5
    assert limit < float(resolution(sol.ys[-1]).tail) < 10 * limit
    kwargs["t1"] = 0.5 * float(sol.ts[-1])
    sol = tfjax.solve(circle_continuity, DENSITY, params, **kwargs)
    assert not bool(dfx.is_event(sol.result))


def test_resolution_reads_the_spectrum_and_the_minimum(tol):
    wave = np.cos(18 * THETA)  # of the modes up to 21, the upper third begins at 15
    density = jnp.asarray(1 + 0.2 * np.cos(THETA) + 1e-3 * wave, UNIFORM.dtype)
    minimum, tail = resolution(density)
    assert float(tail) == pytest.approx(5e-4, abs=tol.identity)
    assert float(minimum) == pytest.approx(float(density.min()), rel=tol.identity)
    assert float(resolution(density - 0.9).minimum) < 0


@pytest.mark.skipif(not X64, reason="float32 has no digits for a difference")
def test_the_flow_of_densities_is_differentiable():
    """The gradient in the first density of a functional of the last."""
    weight = jnp.asarray(np.sin(THETA) + np.cos(3 * THETA))
    kwargs = {"t1": 0.5, "dt0": 0.05, "solver": dfx.Tsit5()}

    @jax.jit
    def functional(density, beta):
        params = MeanFieldParams(beta)
        end = tfjax.solve(circle_continuity, density, params, **kwargs).ys[-1]
        return jnp.sum(weight * end) + jnp.sum(end**2)

    beta, step = jnp.asarray(2.0), 1e-5
    gradient = jax.jit(jax.grad(functional, (0, 1)))(DENSITY, beta)
    direction = jnp.asarray(np.random.default_rng(1).normal(size=N))
    up, down = (functional(DENSITY + s * direction, beta) for s in (step, -step))
    want = float(up - down) / (2 * step)
    assert float(jnp.sum(gradient[0] * direction)) == pytest.approx(want, rel=1e-6)
    up, down = (functional(DENSITY, beta + s) for s in (step, -step))
    assert float(gradient[1]) == pytest.approx(float(up - down) / (2 * step), rel=1e-6)


def test_densities_turn_with_the_circle_and_batches_are_loops(tol):
    params = MeanFieldParams(2.0, 0.1, normalized=True)
    turned = rate(jnp.roll(DENSITY, 5), params)
    np.testing.assert_allclose(
        turned, jnp.roll(rate(DENSITY, params), 5), atol=20 * tol.identity
    )
    eager = circle_continuity(0.0, DENSITY, params)
    batch = jax.vmap(lambda density: rate(density, params))(
        jnp.stack([DENSITY, UNIFORM])
    )
    np.testing.assert_allclose(batch[0], eager, atol=20 * tol.identity)
    np.testing.assert_allclose(batch[1], 0.0, atol=20 * tol.identity)


def test_half_precision_is_rounded_once():
    params = MeanFieldParams(2.0)
    half = DENSITY.astype(jnp.bfloat16)
    got = circle_continuity(0.0, half, params)
    wide = circle_continuity(0.0, half.astype(jnp.float32), params)
    np.testing.assert_array_equal(got, wide.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: circle_continuity(0.0, jnp.ones(9)), "`density` must .* n even"),
        (lambda: circle_modes(jnp.ones((8, 8))), "`density` must have shape"),
        (lambda: circle_velocity(UNIFORM, AttentionParams()), "`args` must be a Mean"),
        (lambda: circle_energy(UNIFORM, MeanFieldParams(-1.0)), "`beta` must be fin"),
        (lambda: circle_velocity(UNIFORM, MeanFieldParams(1e4)), "`beta` must keep"),
        (
            lambda: circle_velocity(UNIFORM, MeanFieldParams(1.0, jnp.ones(2))),
            "`diffusivity` must be a scalar",
        ),
        (
            lambda: circle_velocity(UNIFORM, MeanFieldParams(1.0, -1.0)),
            "`diffusivity` must be finite and not negative",
        ),
        (lambda: resolution_lost(2.0), "`limit` must lie between 0 and 1"),
    ],
)
def test_the_door_names_the_argument(call, text, unchecked):
    with pytest.raises(ValueError, match=text):
        call()
