"""Where long-time behaviour changes: thresholds, ranks, limits of the fields."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.attention import Causal, Window, sinkhorn
from tfjax.diagnostics import order_parameter
from tfjax.fields import (
    AttentionParams,
    displacement_attention,
    hardmax_attention,
    self_attention,
    sinkhorn_attention,
    unnormalized_circle_attention,
)
from tfjax.geometry import Sphere


X64 = jax.config.jax_enable_x64
needs_x64 = pytest.mark.skipif(not X64, reason="rates to more digits than float32 has")


# --- Repulsion on the circle: beta < 0 ------------------------------------------------


def triangle(n=33):
    """Three clusters of equal size, at angles of 120 degrees."""
    return 2 * np.pi * (np.arange(n) % 3) / 3


def growth(beta, n=33):
    """The largest growth rate of a perturbation of the triangle, by autodiff."""
    args = AttentionParams(beta=beta)
    field = lambda theta: unnormalized_circle_attention(0.0, theta, args)
    rates = np.linalg.eigvals(np.asarray(jax.jacfwd(field)(jnp.asarray(triangle(n)))))
    rates = np.sort(rates.real)
    # The rotation of the whole, of rate 0, is left out.
    return np.delete(rates, np.argmin(np.abs(rates))).max()


@needs_x64
@pytest.mark.parametrize("beta", [-0.6, -0.65])
def test_three_clusters_are_unstable_above_beta_minus_two_thirds(beta):
    assert growth(beta) > 1e-3


@needs_x64
@pytest.mark.parametrize("beta", [-0.68, -0.75, -2.0])
def test_three_clusters_are_stable_below_beta_minus_two_thirds(beta):
    assert growth(beta) < -1e-3


@needs_x64
def test_the_threshold_of_three_clusters_is_exactly_minus_two_thirds():
    """A root of the growth rate, by bisection on what autodiff gives."""
    low, high = -0.75, -0.6
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if growth(middle, 9) < 0 else (low, middle)
    assert low == pytest.approx(-2 / 3, abs=1e-9)


@needs_x64
@pytest.mark.parametrize(("beta", "stays"), [(-0.6, False), (-0.75, True)])
def test_a_perturbed_triangle_stays_or_leaves_by_the_threshold(beta, stays):
    kick = 1e-3 * np.random.default_rng(0).standard_normal(33)
    sol = tfjax.solve(
        unnormalized_circle_attention,
        triangle() + kick,
        AttentionParams(beta=beta),
        t1=400.0,
        rtol=1e-8,
        atol=1e-10,
        max_steps=100_000,
    )
    end = np.asarray(sol.ys[-1])
    if stays:
        # Every token back at one of three places, 120 degrees apart.
        assert abs(np.exp(3j * end).mean()) == pytest.approx(1, abs=1e-6)
        assert float(order_parameter(end)) < 1e-2
    else:
        assert float(order_parameter(end)) == pytest.approx(1, abs=1e-6)


@needs_x64
@pytest.mark.slow
@pytest.mark.parametrize(("beta", "most"), [(-2.0, 9), (-4.0, 0)])
def test_uniform_starts_need_not_synchronise_when_beta_is_negative(beta, most):
    """Of 12 starts of 33 tokens: about half do at beta = -2, none at beta = -4."""
    theta = np.random.default_rng(3).uniform(-np.pi, np.pi, (12, 33))
    sol = tfjax.solve_ensemble(
        unnormalized_circle_attention,
        theta,
        AttentionParams(beta=beta),
        t1=300.0,
        max_steps=100_000,
    )
    orders = jax.vmap(order_parameter)(sol.ys[:, -1])
    synchronised = int(np.sum(np.asarray(orders) > 0.999))
    assert synchronised <= most
    if beta == -2.0:
        assert synchronised >= 2


# --- Rank -----------------------------------------------------------------------------


def flow(x0, args, t1, ts=None):
    return tfjax.solve(
        self_attention,
        x0,
        args,
        t1=t1,
        ts=ts,
        manifold=Sphere(x0.shape[-1]),
        rtol=1e-9,
        atol=1e-11,
        max_steps=100_000,
    ).ys


def singular_ratio(x, rank=2):
    values = np.linalg.svd(np.asarray(x), compute_uv=False)
    return values[..., rank - 1] / values[..., 0]


@needs_x64
@pytest.mark.parametrize("rank", [2, 3])
def test_a_rank_persists_for_a_suitable_V_at_a_depth_where_the_plain_rank_is_one(rank):
    """V = -1 on `rank` dimensions and -16 on the others: the others die out."""
    x0 = Sphere(6).random(jax.random.key(0), (12,))
    plain = flow(x0, AttentionParams(beta=1.0), 30.0)[-1]
    assert singular_ratio(plain) < 1e-6
    value = -np.diag([1.0] * rank + [16.0] * (6 - rank))
    kept = flow(x0, AttentionParams(beta=8.0, value=value), 30.0)[-1]
    assert singular_ratio(kept, rank) > 0.1
    assert singular_ratio(kept, rank + 1) < 1e-6


@needs_x64
def test_a_windowed_mask_collapses_more_slowly_than_a_full_one():
    """The paired difference of the rates over 16 starts, with its 95 % interval."""
    x0 = Sphere(16).random(jax.random.key(1), (16, 12))
    ts = np.linspace(0.0, 16.0, 9)
    rates = {}
    for name, mask in {"full": None, "window": Window(3)}.items():
        sol = tfjax.solve_ensemble(
            self_attention,
            x0,
            AttentionParams(beta=1.0, mask=mask),
            t1=16.0,
            ts=ts,
            manifold=Sphere(16),
            rtol=1e-9,
            atol=1e-11,
        )
        ratio = singular_ratio(sol.ys)
        rates[name] = -(np.log(ratio[:, -1]) - np.log(ratio[:, 4])) / (ts[-1] - ts[4])
    np.testing.assert_allclose(rates["full"], 1.0, atol=1e-2)
    gap = rates["full"] - rates["window"]
    half = 2.131 * gap.std(ddof=1) / 4  # Student's t with 15 degrees of freedom
    assert gap.mean() - half > 0.1


@needs_x64
def test_the_rate_of_a_window_is_the_spectral_gap_of_its_weights():
    """Near consensus the weights are uniform over the window: v' = (A - 1) v."""
    x0 = Sphere(16).random(jax.random.key(2), (12,))
    ts = np.array([0.0, 20.0, 24.0])
    xs = flow(x0, AttentionParams(beta=1.0, mask=Window(3)), 24.0, ts)
    ratio = singular_ratio(xs)
    band = np.asarray(Window(3)(12, 12), np.float64)
    weights = band / band.sum(axis=1, keepdims=True)
    second = np.sort(np.linalg.eigvals(weights).real)[-2]
    rate = -np.log(ratio[2] / ratio[1]) / 4
    assert rate == pytest.approx(1 - second, rel=0.02)


# --- Limits of attention --------------------------------------------------------------


@pytest.mark.parametrize("beta", [1e3, 1e6])
def test_attention_tends_to_hardmax_away_from_ties(beta):
    x = np.array([[1.0, 0.0], [0.6, 0.8], [-0.2, 1.5], [2.0, -1.0]])
    soft = displacement_attention(0.0, x, AttentionParams(beta=beta))
    hard = hardmax_attention(0.0, x)
    np.testing.assert_allclose(soft, hard, atol=1e-6)
    assert np.abs(hard).max() > 0.1


def test_at_a_tie_hardmax_is_the_mean_of_the_leaders():
    x = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0]])
    got = np.asarray(hardmax_attention(0.0, x))
    np.testing.assert_allclose(got, [[0, 0], [0, 0], [0, 0]], atol=1e-7)
    # Token 0 sees all three at the same score: their mean is itself.
    lone = np.array([[1.0, 0.0], [2.0, 1.0], [2.0, -1.0]])
    np.testing.assert_allclose(hardmax_attention(0.0, lone)[0], [1.0, 0.0], atol=1e-7)


@needs_x64
def test_the_leaders_of_hardmax_rest_and_the_others_end_at_leaders():
    """Discrete hardmax with V = I: tokens end in the hull of the leaders that rest."""
    x0 = np.random.default_rng(0).standard_normal((20, 2))
    sol = tfjax.solve(hardmax_attention, x0, None, t1=40.0, dt0=0.1, solver=dfx.Euler())
    end = np.asarray(sol.ys[-1])
    speed = np.abs(np.asarray(hardmax_attention(0.0, end))).max(axis=1)
    assert speed.max() < 1e-3
    leaders = np.abs(np.asarray(hardmax_attention(0.0, x0))).max(axis=1) == 0
    assert leaders.any()
    np.testing.assert_allclose(end[leaders], x0[leaders], atol=1e-12)


@needs_x64
def test_sinkhorn_attention_is_the_gradient_flow_of_its_potentials():
    """n times the Riemannian gradient of F = -(1/(beta n)) sum_i u_i."""
    n, beta = 10, 2.0
    x = Sphere(3).random(jax.random.key(0), (n,))

    def potential(x):
        scaled = sinkhorn(beta * x @ x.T, symmetric=True)
        return -jnp.sum(scaled.row_potential) / (beta * n)

    expected = n * Sphere(3).tangent(x, jax.grad(potential)(x))
    got = sinkhorn_attention(0.0, x, AttentionParams(beta=beta))
    error = np.abs(got - expected).max() / np.abs(got).max()
    assert error < 1e-12
    weights = np.exp(sinkhorn(beta * x @ x.T, symmetric=True).log_weights)
    assert np.abs(weights.sum(axis=0) - 1).max() < 1e-12
    assert np.abs(weights.sum(axis=1) - 1).max() < 1e-12


def test_the_energy_of_sinkhorn_attention_rises_along_its_flow(tol):
    x0 = Sphere(3).random(jax.random.key(1), (8,))
    beta = 2.0
    ts = np.linspace(0.0, 4.0, 9)
    sol = tfjax.solve(
        sinkhorn_attention,
        x0,
        AttentionParams(beta=beta),
        t1=4.0,
        ts=ts,
        manifold=Sphere(3),
    )

    @jax.jit
    def potential(x):
        return -jnp.mean(sinkhorn(beta * x @ x.T, symmetric=True).row_potential) / beta

    values = np.array([float(potential(x)) for x in sol.ys])
    assert np.all(np.diff(values) > -10 * tol.identity)
    assert values[-1] > values[0] + 0.1


def test_causal_windows_see_only_the_recent_past():
    x = Sphere(3).random(jax.random.key(2), (6,))
    args = AttentionParams(beta=1.0, mask=(Causal(), Window(1)))
    got = self_attention(0.0, x, args)
    alone = self_attention(0.0, x[3:5], AttentionParams(beta=1.0, mask=Causal()))
    np.testing.assert_allclose(got[4], alone[1], atol=1e-6)
    assert np.abs(np.asarray(got[0])).max() < 1e-6
