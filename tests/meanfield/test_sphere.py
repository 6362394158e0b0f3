"""The continuity equation on S^2: harmonics, growth, mass, energy, tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import AttentionParams, self_attention, unnormalized_self_attention
from tfjax.meanfield import (
    MeanFieldParams,
    sphere_coefficients,
    sphere_continuity,
    sphere_density,
    sphere_energy,
    sphere_points,
)
from tfjax.meanfield._harmonics import harmonics
from tfjax.theory import sphere_growth_rate, uniform_energy


L = 8
UNIFORM = jnp.zeros((L + 1) ** 2).at[0].set(1.0)
POINTS, WEIGHTS = sphere_points(L)
both = pytest.mark.parametrize("normalized", [False, True])
rate = jax.jit(lambda c, params: sphere_continuity(0.0, c, params))


@pytest.fixture(scope="module")
def start():
    """A smooth density without symmetry, of mass 1."""
    x = np.asarray(POINTS, np.float64)
    values = np.exp(x @ [0.3, -0.2, 0.4]) + 0.3 * x[:, 0] * x[:, 1]
    c = sphere_coefficients(jnp.asarray(values, POINTS.dtype), L)
    return c / c[0]


def test_the_harmonics_are_orthonormal_and_so_are_their_slopes():
    """int Y Y' = 1, int <grad Y, grad Y'> = l(l + 1), 0 between different ones."""
    basis = harmonics(L)
    values = basis.values.T @ (basis.weights[:, None] * basis.values)
    np.testing.assert_allclose(values, np.eye(values.shape[0]), atol=1e-13)
    slopes = sum(s.T @ (basis.weights[:, None] * s) for s in basis.slopes)
    want = np.diag(basis.degrees * (basis.degrees + 1.0))
    np.testing.assert_allclose(slopes, want, atol=1e-11)


def test_the_sum_over_a_degree_is_a_legendre_polynomial():
    """The addition theorem: sum_m Y_lm(x) Y_lm(y) = (2 l + 1) P_l(<x, y>)."""
    basis = harmonics(L)
    inner = basis.points[:40] @ basis.points[40:80].T
    for k in range(L + 1):
        y = basis.values[:, basis.degrees == k]
        want = (2 * k + 1) * np.polynomial.legendre.legval(inner, np.eye(L + 1)[k])
        np.testing.assert_allclose(y[:40] @ y[40:80].T, want, atol=1e-12)


def test_analysis_undoes_synthesis(start, tol):
    back = sphere_coefficients(sphere_density(start), L)
    np.testing.assert_allclose(back, start, atol=20 * tol.identity)


@both
@pytest.mark.parametrize("beta", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_harmonics_on_the_uniform_density_grow_at_their_rates(beta, k, normalized, tol):
    """k (k + 1) lambda_k / beta, divided by lambda_0 for SA; for every order."""
    params = MeanFieldParams(beta, 0.3, normalized=normalized)
    wave = jnp.zeros_like(UNIFORM).at[k * k : (k + 1) ** 2].set(0.7)
    _, got = jax.jvp(lambda c: rate(c, params), (UNIFORM,), (wave,))
    want = float(sphere_growth_rate(k, 3, beta, normalized)) - 0.3 * k * (k + 1)
    np.testing.assert_allclose(got, want * wave, atol=200 * tol.identity)


@both
def test_the_velocity_is_that_of_tokens(start, normalized, tol):
    """d/dt int Y dmu = int <grad Y, X> dmu, with X from weighted tokens on the grid."""
    params = MeanFieldParams(2.0, normalized=normalized)
    x, w = np.asarray(POINTS, np.float64), np.asarray(WEIGHTS, np.float64)
    mu = w * np.asarray(sphere_density(start), np.float64)
    kernel = np.exp(2.0 * x @ x.T) * mu
    velocity = kernel @ x
    if normalized:
        velocity = velocity / kernel.sum(1, keepdims=True)
    # The coordinates are the harmonics of degree 1: grad x_i = e_i - x_i x.
    velocity -= np.sum(velocity * x, axis=1, keepdims=True) * x
    want = mu @ velocity
    got = np.asarray(rate(start, params))[[3, 1, 2]] / np.sqrt(3)
    np.testing.assert_allclose(got, want, atol=100 * tol.identity)


@both
def test_mass_is_kept_and_the_energy_rises_by_the_square_of_the_velocity(
    start, normalized, tol
):
    params = MeanFieldParams(2.0, normalized=normalized)
    change = rate(start, params)
    assert float(change[0]) == 0.0
    energy, got = jax.jvp(lambda c: sphere_energy(c, params), (start,), (change,))
    x, w = np.asarray(POINTS, np.float64), np.asarray(WEIGHTS, np.float64)
    mu = w * np.asarray(sphere_density(start), np.float64)
    kernel = np.exp(2.0 * x @ x.T)
    z = kernel @ mu
    assert float(energy) == pytest.approx(
        mu @ z / 4 - float(uniform_energy(3, 2.0)), rel=2e3 * tol.identity
    )
    pull = (kernel * mu) @ x
    pull -= np.sum(pull * x, axis=1, keepdims=True) * x
    square = np.sum(pull**2, axis=1) / (z if normalized else 1.0)
    assert float(got) > 0.01
    assert float(got) == pytest.approx(mu @ square, rel=2e3 * tol.identity)


def test_a_solve_keeps_the_mass_and_raises_the_energy(start):
    params, times = MeanFieldParams(2.0), jnp.linspace(0.0, 0.5, 5)
    ys = tfjax.solve(sphere_continuity, start, params, t1=0.5, ts=times).ys
    np.testing.assert_array_equal(ys[:, 0], 1.0)
    energies = [float(sphere_energy(c, params)) for c in ys]
    assert np.all(np.diff(energies) > 1e-3)


def test_many_tokens_move_as_their_density():
    """The velocity of the mean of 4,000 tokens that are drawn from the density."""
    slope = 0.6
    u = np.random.default_rng(0).uniform(size=(2, 4000))
    z = (np.sqrt((1 - slope) ** 2 + 4 * slope * u[0]) - 1) / slope  # 1 + slope z
    rho, phi = np.sqrt(1 - z**2), 2 * np.pi * u[1]
    x = jnp.asarray(np.stack([rho * np.cos(phi), rho * np.sin(phi), z], 1))
    c = UNIFORM.at[2].set(slope / np.sqrt(3))
    for field, normalized in (
        (unnormalized_self_attention, False),
        (self_attention, True),
    ):
        velocity = np.asarray(field(0.0, x, AttentionParams(beta=1.0)))[:, 2]
        got = float(rate(c, MeanFieldParams(1.0, normalized=normalized))[2])
        error = velocity.mean() - got / np.sqrt(3)
        # Both tokens of a pair are drawn: hence the factor 2.
        assert abs(error) < 5 * 2 * velocity.std() / np.sqrt(4000)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sphere_density(jnp.ones(5)), r"`coefficients` must have shape"),
        (lambda: sphere_continuity(0.0, jnp.ones((4, 4))), "`coefficients` must"),
        (lambda: sphere_energy(UNIFORM, AttentionParams()), "`args` must be a Mean"),
        (lambda: sphere_points(0), "`degree` must be a positive integer"),
        (lambda: sphere_points(65), "`degree` must be at most 64"),
        (lambda: sphere_coefficients(jnp.ones(3), 2), "`density` must have shape"),
    ],
)
def test_the_door_names_the_argument(call, text, unchecked):
    with pytest.raises(ValueError, match=text):
        call()
