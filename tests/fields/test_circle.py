"""Angles on the circle: the projected field in d = 2, Kuramoto, what is conserved."""

import functools
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.attention import Causal
from tfjax.diagnostics import order_parameter
from tfjax.energies import interaction_energy, kuramoto_energy
from tfjax.fields import (
    AttentionParams,
    Kuramoto,
    circle_attention as sa,
    kuramoto,
    self_attention,
    unnormalized_circle_attention as usa,
    unnormalized_self_attention,
)
from tfjax.geometry import Sphere, Torus


REFERENCE = np.load(Path(__file__).parents[1] / "reference" / "a06_kuramoto_b0.npz")
DTYPE = jnp.zeros(()).dtype
X64 = jax.config.jax_enable_x64
IN_SPACE = {sa: self_attention, usa: unnormalized_self_attention}

in_float64 = pytest.mark.skipif(not X64, reason="the claim is finer than float32")
both_fields = pytest.mark.parametrize("field", [sa, usa], ids=["SA", "USA"])
every_beta = pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])


@functools.cache
def compiled(field):
    return jax.jit(field)


def run(field, theta, args=None):
    return np.asarray(compiled(field)(0.0, theta, args))


def angles(n, seed=0, spread=np.pi):
    values = np.random.default_rng((seed, n)).uniform(-spread, spread, n)
    return values.astype(DTYPE)


def points(theta):
    return np.stack([np.cos(theta), np.sin(theta)], axis=-1)


def in_space(field, theta, args):
    """theta' = <(-sin, cos), x'> of the projected field on the sphere."""
    velocity = run(IN_SPACE[field], points(theta), args)
    return -np.sin(theta) * velocity[:, 0] + np.cos(theta) * velocity[:, 1]


def close(actual, expected, tolerance):
    """Equal up to the tolerance times the largest entry."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def bound(beta):
    """1e-12 in float64; in float32 the exponent magnifies the rounding by 1 + beta."""
    return 1e-12 if X64 else 1e-6 * (1 + beta)


# --- Attention ------------------------------------------------------------------------


@every_beta
@both_fields
def test_a06_the_field_is_the_projected_field_of_the_points(field, beta):
    theta = angles(16)
    args = AttentionParams(beta=beta)
    close(run(field, theta, args), in_space(field, theta, args), bound(beta))


@both_fields
@pytest.mark.parametrize("kind", ["exists", "pairs", "causal and exists"])
def test_masks_mean_what_they_mean_for_the_points(field, kind):
    exists = np.arange(16) % 5 != 2
    pairs = np.random.default_rng(4).random((16, 16)) < 0.4
    pairs[3] = False  # sees nothing
    mask = {"exists": exists, "pairs": pairs, "causal and exists": (Causal(), exists)}
    theta, args = angles(16), AttentionParams(beta=1.5, mask=mask[kind])
    velocity = run(field, theta, args)
    close(velocity, in_space(field, theta, args), bound(1.5))
    silent = ~exists if "exists" in kind else np.arange(16) == 3
    np.testing.assert_array_equal(velocity[silent], 0)


@functools.cache
def trajectories(field):
    """A function of beta: the angles, and the points, at the same times."""
    ts = jnp.linspace(0.0, 4.0, 9)
    how = {"t1": 4.0, "ts": ts, "solver": dfx.Dopri8(), "rtol": 1e-10, "atol": 1e-11}
    theta = jnp.asarray(angles(16, seed=1))

    def both(beta):
        args = AttentionParams(beta=beta)
        circle = tfjax.solve(field, theta, args, manifold=Torus(16), **how).ys
        x0 = jnp.asarray(points(theta))
        space = tfjax.solve(IN_SPACE[field], x0, args, manifold=Sphere(2), **how).ys
        return np.asarray(circle), np.asarray(space)

    return both


@in_float64
@every_beta
@both_fields
def test_a06_trajectories_of_angles_are_those_of_the_points(field, beta):
    theta, xs = trajectories(field)(beta)
    assert np.abs(points(theta) - xs).max() < 1e-7
    assert np.abs(xs[-1] - xs[0]).max() > 0.5


@in_float64
@both_fields
def test_next_to_consensus_velocities_keep_their_digits(field):
    offsets = np.random.default_rng(0).standard_normal(6)
    theta = 1 + 1e-9 * offsets
    pull = np.sum(theta[None, :] - theta[:, None], axis=1) / 6  # exact differences
    expected = pull * (np.exp(2.0) if field is usa else 1)
    velocity = run(field, theta, AttentionParams(beta=2.0))
    np.testing.assert_allclose(velocity, expected, rtol=1e-9)


@both_fields
def test_full_turns_change_nothing_and_a_consensus_rests(field, tol):
    theta, args = angles(8), AttentionParams(beta=2.0)
    turned = theta + DTYPE.type(2 * np.pi) * np.arange(-4, 4).astype(DTYPE)
    close(run(field, turned, args), run(field, theta, args), 50 * tol.identity)
    np.testing.assert_array_equal(run(field, np.full(8, 2, DTYPE), args), np.zeros(8))


def test_usa_is_n_times_the_gradient_of_the_interaction_energy():
    theta = jnp.asarray(angles(12))

    def energy(theta):
        x = jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=1)
        return interaction_energy(x, 2.0)

    gradient = np.asarray(jax.jit(jax.grad(energy))(theta))
    close(12 * gradient, run(usa, theta, AttentionParams(beta=2.0)), bound(2))


@both_fields
def test_what_is_stored_in_absent_tokens_does_not_leak(field):
    exists = np.array([True, False, True, True, False, True])
    theta = angles(6)
    theta[1], theta[4] = np.nan, np.inf

    def speed(theta, beta):
        velocity = field(0.0, theta, AttentionParams(beta=beta, mask=exists))
        return jnp.sum(velocity**2), velocity

    gradient, velocity = jax.jit(jax.grad(speed, (0, 1), has_aux=True))(theta, 1.5)
    alone = run(field, theta[exists], AttentionParams(beta=1.5))
    close(np.asarray(velocity)[exists], alone, bound(1.5))
    np.testing.assert_array_equal(np.asarray(velocity)[~exists], 0)
    np.testing.assert_array_equal(np.asarray(gradient[0])[~exists], 0)
    assert np.isfinite(gradient[0]).all()
    assert np.isfinite(gradient[1])


@both_fields
def test_a_pair_that_is_forbidden_does_not_leak_a_nan(field):
    theta = angles(4)
    theta[3] = np.nan
    pairs = np.ones((4, 4), bool)
    pairs[:3, 3] = False
    velocity = run(field, theta, AttentionParams(beta=1.5, mask=pairs))
    share = 1 if field is sa else 3 / 4  # USA divides by n
    alone = run(field, theta[:3], AttentionParams(beta=1.5))
    close(velocity[:3], share * alone, bound(1.5))
    assert np.isnan(velocity[3])


@pytest.mark.usefixtures("unchecked")
@both_fields
def test_what_has_no_meaning_for_angles_is_refused_by_name(field):
    theta = angles(4)
    rule = r" must be None for this field, but was an array of shape \(2, 2\)"
    for name in ("query", "key", "value"):
        with pytest.raises(ValueError, match=f"^`{name}`{rule}"):
            field(0.0, theta, AttentionParams(**{name: jnp.eye(2)}))
    with pytest.raises(ValueError, match="^`chunk_size` must be None for this field"):
        field(0.0, theta, AttentionParams(chunk_size=2))
    with pytest.raises(ValueError, match="^`args` must be of type AttentionParams"):
        field(0.0, theta, Kuramoto())
    with pytest.raises(ValueError, match=r"^`theta` must have shape \(n,\), but was"):
        field(0.0, points(theta))
    with pytest.raises(ValueError, match="^`beta` must be a scalar"):
        field(0.0, theta, AttentionParams(beta=jnp.ones(2)))


def test_usa_refuses_a_beta_whose_exponentials_overflow():
    with pytest.raises(ValueError, match="^`beta` must be so small that exp"):
        usa(0.0, angles(4), AttentionParams(beta=1e4))
    assert np.isfinite(run(sa, angles(4), AttentionParams(beta=1e4))).all()


# --- Kuramoto -------------------------------------------------------------------------


def test_the_mean_field_form_is_the_sum_over_pairs(tol):
    theta, omega = angles(9), angles(9, seed=2)
    pairs = np.sin(theta[None, :] - theta[:, None]).mean(axis=1)
    got = run(kuramoto, theta, Kuramoto(2.5, omega))
    close(got, omega + 2.5 * pairs, 5 * tol.identity)
    close(run(kuramoto, theta), pairs, 5 * tol.identity)


@both_fields
def test_at_beta_0_attention_is_kuramoto_with_coupling_1(field, tol):
    theta = angles(9)
    expected = run(kuramoto, theta, Kuramoto())
    close(run(field, theta, AttentionParams(beta=0.0)), expected, 5 * tol.identity)


def test_the_field_is_omega_plus_n_times_the_gradient_of_the_energy(tol):
    theta, omega = angles(9), angles(9, seed=2)
    gradient = np.asarray(jax.jit(jax.grad(kuramoto_energy))(theta, 2.5))
    got = run(kuramoto, theta, Kuramoto(2.5, omega))
    close(got, omega + 9 * gradient, 5 * tol.identity)


def test_the_energy_is_half_the_coupling_times_the_squared_order_parameter(tol):
    theta = angles(9)
    pairs = np.cos(theta[None, :] - theta[:, None]).sum() * 2.5 / (2 * 81)
    assert float(kuramoto_energy(theta, 2.5)) == pytest.approx(
        pairs, rel=5 * tol.identity
    )
    order = float(order_parameter(theta))
    assert float(kuramoto_energy(theta)) == pytest.approx(
        order**2 / 2, rel=5 * tol.identity
    )


@functools.cache
def followed(n):
    """A function that integrates n oscillators up to t = 3."""

    def run(theta, args):
        ts = jnp.linspace(0.0, 3.0, 31)
        how = {"solver": dfx.Dopri8(), "rtol": 1e-11, "atol": 1e-11}
        sol = tfjax.solve(
            kuramoto, theta, args, t1=3.0, ts=ts, manifold=Torus(n), **how
        )
        return np.asarray(sol.ys)

    return run


def cross_ratios(theta):
    z = np.exp(1j * np.asarray(theta))
    a, b, c, d = z[:, :-3], z[:, 1:-2], z[:, 2:-1], z[:, 3:]
    return (a - c) * (b - d) / ((a - d) * (b - c))


@in_float64
def test_a06_oscillators_of_one_frequency_follow_the_reference():
    theta = followed(16)(jnp.asarray(REFERENCE["theta0"]), Kuramoto())
    ts, reference = REFERENCE["t"], REFERENCE["theta"].T
    np.testing.assert_allclose(ts, np.linspace(0, 3, 31), rtol=1e-12)
    assert np.abs(points(theta) - points(reference)).max() < 1e-7
    orders = [float(order_parameter(theta[k])) for k in (0, 10, 20, 30)]
    expected = [0.14312675, 0.23971257, 0.40647634, 0.64295102]
    np.testing.assert_allclose(orders, expected, rtol=0, atol=1e-7)


@in_float64
def test_a06_cross_ratios_are_conserved():
    theta = followed(16)(jnp.asarray(REFERENCE["theta0"]), Kuramoto())
    ratios = cross_ratios(theta)
    drift = np.abs(ratios / ratios[0] - 1)
    assert drift.max() < 1e-7
    # Not so for oscillators of different frequencies.
    mixed = Kuramoto(frequencies=jnp.linspace(-1.0, 1.0, 16))
    ratios = cross_ratios(followed(16)(jnp.asarray(REFERENCE["theta0"]), mixed))
    assert np.abs(ratios / ratios[0] - 1).max() > 0.1


@in_float64
@pytest.mark.parametrize("coupling", [0.5, 2.0])
def test_the_gap_of_two_equal_oscillators_has_its_closed_form(coupling):
    # phi' = -K sin phi, so tan(phi / 2) decays at the rate K.
    theta = followed(2)(jnp.array([0.2, 2.9]), Kuramoto(coupling, jnp.ones(2)))
    ts = np.linspace(0, 3, 31)
    gap = theta[:, 1] - theta[:, 0]
    expected = np.tan(2.7 / 2) * np.exp(-coupling * ts)
    np.testing.assert_allclose(np.tan(gap / 2), expected, rtol=0, atol=1e-8)
    mean = (np.exp(1j * theta)).sum(axis=1)
    mean /= np.abs(mean)
    np.testing.assert_allclose(mean, np.exp(1j * (1.55 + ts)), atol=1e-8)


@pytest.mark.usefixtures("unchecked")
def test_bad_oscillators_are_refused_by_name():
    theta = angles(4)
    with pytest.raises(ValueError, match=r"^`frequencies` must have shape \(4,\), one"):
        kuramoto(0.0, theta, Kuramoto(frequencies=np.ones(3)))
    with pytest.raises(ValueError, match="^`coupling` must be a scalar"):
        kuramoto(0.0, theta, Kuramoto(coupling=np.ones(2)))
    with pytest.raises(
        ValueError, match="^`args` must be a Kuramoto, a function of time"
    ):
        kuramoto(0.0, theta, AttentionParams())
    with pytest.raises(ValueError, match="^`frequencies` must be a real array"):
        Kuramoto(frequencies="fast")
    with pytest.raises(ValueError, match=r"^`theta` must have shape \(n,\), but was"):
        kuramoto_energy(points(theta))
    with pytest.raises(ValueError, match="^`coupling` must be a scalar"):
        kuramoto_energy(theta, np.ones(2))
