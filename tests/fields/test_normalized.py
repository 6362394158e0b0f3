"""The schemes of normalisation, against the laws by which clusters form under them."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import (
    NGPT,
    AttentionParams,
    LNScaling,
    MixNorm,
    NormalizedParams,
    PeriNorm,
    PostNorm,
    PreNorm,
    euclidean_attention,
    normalized_attention,
    self_attention,
)


X64 = jax.config.jax_enable_x64
needs_x64 = pytest.mark.skipif(not X64, reason="variances below float32's rounding")


def cap(n=10, d=3, sigma=0.1):
    """Unit vectors in a cap around a pole."""
    x = sigma * np.random.default_rng(0).standard_normal((n, d))
    x[:, -1] += 1
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def variance(xs):
    """The variance of the directions, at every time."""
    theta = xs / np.linalg.norm(xs, axis=-1, keepdims=True)
    gap = theta - theta.mean(axis=1, keepdims=True)
    return np.sum(gap**2, axis=-1).mean(axis=1)


def follow(scheme, t1, x0=None, beta=1.0, **options):
    ts = np.linspace(0, t1, 101)
    sol = tfjax.solve(
        normalized_attention,
        cap() if x0 is None else x0,
        NormalizedParams(AttentionParams(beta=beta), scheme),
        t1=t1,
        ts=ts,
        rtol=1e-10,
        atol=1e-12,
        **options,
    )
    return ts, np.asarray(sol.ys)


def slope(clock, values):
    """The slope of log(values) in `clock`, over the second half."""
    half = len(clock) // 2
    return np.polyfit(clock[half:], np.log(values[half:]), 1)[0]


# arXiv 2510.22026: the clock in which log Var falls, and how fast.
LAWS = {
    "post": (PostNorm(), 8.0, lambda t: t, -2.0),
    "nGPT": (NGPT(), 8.0, lambda t: t, -2.0),
    "nGPT of half the length": (NGPT(0.5), 8.0, lambda t: t, -1.0),
    "pre": (PreNorm(), 100.0, lambda t: np.log(t + 1), -2.0),
    "peri": (PeriNorm(), 100.0, lambda t: np.log(t + 1), -2.0),
    "LN-scaling": (LNScaling(), 20.0, lambda t: np.sqrt(t + 1), -4.0),
}


@needs_x64
@pytest.mark.parametrize("name", LAWS)
def test_the_variance_falls_by_the_law_of_the_scheme(name):
    scheme, t1, clock, rate = LAWS[name]
    ts, xs = follow(scheme, t1)
    assert slope(clock(ts), variance(xs)) == pytest.approx(rate, rel=0.01)


@needs_x64
def test_an_ngpt_step_that_shrinks_slows_the_law_down():
    alpha = lambda t: 1 / (t + 1)
    ts, xs = follow(NGPT(alpha), 20.0)
    rate = slope(np.log(ts + 1), variance(xs))
    assert rate == pytest.approx(-2.0, rel=0.01)


@needs_x64
def test_the_variance_under_mix_norm_falls_by_both_laws_in_turn():
    ts, xs = follow(MixNorm(4.0), 40.0)
    var, early = variance(xs), ts <= 4
    first = np.polyfit(ts[early][2:], np.log(var[early][2:]), 1)[0]
    assert first == pytest.approx(-2.0, rel=0.01)
    # From the switch on the radius grows from 1: the clock of Pre-LN starts there.
    late = ts >= 22
    second = np.polyfit(np.log(ts[late] - 4 + 1), np.log(var[late]), 1)[0]
    assert second == pytest.approx(-2.0, rel=0.01)


@needs_x64
@pytest.mark.parametrize("scheme", [PreNorm(), PeriNorm()], ids=["pre", "peri"])
def test_the_radius_grows_linearly_where_the_residual_is_not_normalised(scheme):
    _, xs = follow(scheme, 100.0)
    radii = np.linalg.norm(xs[-1], axis=1)
    np.testing.assert_allclose(radii, 101.0, rtol=1e-3)


@pytest.mark.parametrize("scheme", [PostNorm(), NGPT(), LNScaling()], ids=str)
def test_the_radius_is_constant_under_the_other_schemes(scheme):
    x0 = cap() * np.linspace(0.5, 2.0, 10)[:, None]
    sol = tfjax.solve(
        normalized_attention,
        x0,
        NormalizedParams(scheme=scheme),
        t1=2.0,
        rtol=1e-9 if X64 else 1e-6,
        atol=1e-9 if X64 else 1e-6,
    )
    before, after = np.linalg.norm(x0, axis=1), np.linalg.norm(sol.ys[-1], axis=1)
    np.testing.assert_allclose(after, before, rtol=1e-8 if X64 else 1e-5)


def test_post_norm_on_the_sphere_is_self_attention(tol):
    params = AttentionParams(beta=2.0, value=np.diag([1.0, -0.5, 0.3]))
    got = normalized_attention(0.0, cap(), NormalizedParams(params, PostNorm()))
    expected = self_attention(0.0, cap(), params)
    np.testing.assert_allclose(got, expected, atol=tol.identity)


def test_pre_norm_adds_the_attention_of_the_directions_as_it_is(tol):
    params = AttentionParams(beta=2.0, value=np.diag([1.0, -0.5, 0.3]))
    got = normalized_attention(0.0, 3 * cap(), NormalizedParams(params, PreNorm()))
    expected = euclidean_attention(0.0, cap(), params)
    np.testing.assert_allclose(got, expected, atol=tol.identity)


@pytest.mark.parametrize("scheme", [PeriNorm(), NGPT()], ids=["peri", "nGPT"])
def test_a_token_that_sees_none_rests_with_a_finite_gradient(scheme):
    pairs = np.array([[True, True, True], [False, False, False], [True, True, True]])
    params = NormalizedParams(AttentionParams(mask=pairs), scheme)
    x = cap(3)
    got = normalized_attention(0.0, x, params)
    assert np.all(np.asarray(got)[1] == 0)
    gradient = jax.grad(lambda x: jnp.sum(normalized_attention(0.0, x, params) ** 2))(x)
    assert np.all(np.isfinite(gradient))


@needs_x64
def test_a_solve_with_steps_of_the_layers_is_a_post_norm_transformer():
    """Euler's method with a step of 1 and a projection is add-and-normalise."""
    from tfjax.geometry import Sphere

    sol = tfjax.solve(
        normalized_attention,
        cap(),
        NormalizedParams(AttentionParams(beta=1.0), PostNorm()),
        t1=2.0,
        dt0=1.0,
        solver=dfx.Euler(),
        manifold=Sphere(3),
    )
    x = cap()
    for _ in range(2):
        logits = x @ x.T
        weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        drift = weights @ x
        x = x + drift - np.sum(drift * x, axis=1, keepdims=True) * x
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(sol.ys[-1], x, atol=1e-12)
