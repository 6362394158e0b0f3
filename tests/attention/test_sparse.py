"""Attention to few keys: what is dropped, and the limit of infinite beta."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from tfjax.attention import (
    Causal,
    TopK,
    Window,
    attend,
    attend_hardmax,
    kernel_sum,
    log_weights,
)


N, D = 8, 3
X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
seeds = st.integers(0, 2**32 - 1)


def random(*shape, seed=0):
    seeds = [*np.atleast_1d(seed), *shape]
    values = np.random.default_rng(seeds).standard_normal(shape)
    return jnp.asarray(values, DTYPE)


def tokens(n, d, seed=0):
    x = random(n, d, seed=seed)
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


# --- TopK and Window ------------------------------------------------------------------


@functools.cache
def full_and_part(mask):
    def run(q, k, v, beta):
        weights = jnp.exp(log_weights(q, k, beta=beta))
        part = jnp.exp(log_weights(q, k, beta=beta, mask=mask))
        dropped = jnp.sum(jnp.where(part > 0, 0, weights), axis=1)
        kwargs = {"beta": beta, "mask": mask, "chunk_size": 3}
        return attend(q, k, v, beta=beta), attend(q, k, v, **kwargs), dropped

    return jax.jit(run)


@pytest.mark.parametrize("mask", [TopK(3), Window(2), (TopK(2), Window(3))], ids=str)
@given(seeds, st.floats(0, 20))
def test_the_error_is_at_most_twice_the_dropped_mass_times_the_largest_value(
    mask, seed, beta
):
    q, k, v = (random(N, D, seed=(seed, i)) for i in range(3))
    full, part, dropped = full_and_part(mask)(q, k, v, jnp.asarray(beta, DTYPE))
    radius = np.linalg.norm(v, axis=1).max()
    error = np.linalg.norm(full - part, axis=1)
    # The weights are as good as the logits, and those are computed twice.
    logits = 1 + beta * float(np.abs(q @ k.T).max())
    rounding = 8 * float(jnp.finfo(DTYPE).eps) * logits * radius
    assert (error <= 2 * dropped * radius + rounding).all()


@pytest.mark.parametrize("top", [N, N + 1, 1000])
def test_top_k_of_all_keys_is_the_dense_kernel(top, tol):
    q, k, v = (random(N, D, seed=i) for i in range(3))
    for function in (attend, kernel_sum):
        want = function(q, k, v)
        np.testing.assert_array_equal(function(q, k, v, mask=TopK(top)), want)
    np.testing.assert_array_equal(log_weights(q, k, mask=TopK(top)), log_weights(q, k))


def test_top_k_sees_the_k_highest_scores_that_are_permitted(tol):
    q, k, v = (random(N, D, seed=i) for i in range(3))
    exists = np.arange(N) != 5
    weights = np.exp(log_weights(q, k, mask=(Causal(), exists)))
    for i, row in enumerate(weights):
        row[np.argsort(row)[:-3]] = 0
        weights[i] = row / row.sum()
    mask = (exists, TopK(3), Causal())
    np.testing.assert_allclose(
        np.exp(log_weights(q, k, mask=mask)), weights, atol=tol.identity
    )
    np.testing.assert_allclose(
        attend(q, k, v, mask=mask), weights @ v, atol=3 * tol.identity
    )


@pytest.mark.parametrize("beta", [1.0, 0.0])
def test_of_equal_scores_top_k_takes_the_key_of_the_lower_index(beta):
    q, k = jnp.ones((2, 1), DTYPE), jnp.asarray([[1], [2], [1], [2], [1.0]], DTYPE)
    weights = np.exp(log_weights(q, k, beta=beta, mask=TopK(3)))[0]
    seen = [0, 1, 3] if beta else [0, 1, 2]
    np.testing.assert_array_equal(np.flatnonzero(weights), seen)
    v = jnp.eye(5, dtype=DTYPE)
    out = attend(q, k, v, beta=beta, mask=TopK(3))
    np.testing.assert_array_equal(np.flatnonzero(out[0]), seen)


def test_the_gradient_of_top_k_is_that_of_the_kernel_of_what_it_picked(tol):
    q, k, v = (random(N, D, seed=i) for i in range(3))
    picked = np.asarray(log_weights(q, k, mask=TopK(3))) > -np.inf
    total = lambda q, k, v, mask: jnp.sum(jnp.sin(attend(q, k, v, mask=mask)))
    gradient = jax.jit(jax.grad(total, (0, 1, 2)))
    got, want = gradient(q, k, v, TopK(3)), gradient(q, k, v, picked)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=5 * tol.identity)


def test_nan_reaches_the_queries_of_top_k_that_might_see_it_and_no_others():
    q, k, v = (random(N, D, seed=i) for i in range(3))
    mask = (Causal(), TopK(2))
    dirty = attend(q, k.at[5, 0].set(jnp.nan), v, mask=mask)
    assert np.isnan(dirty[5:]).all()
    np.testing.assert_array_equal(dirty[:5], attend(q, k, v, mask=mask)[:5])


# --- Hardmax --------------------------------------------------------------------------


PAIR = ((1.0, 0.0), (0.6, 0.8))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("beta", [1e3, 1e6])
def test_S06_hardmax_is_the_limit_of_large_beta(beta, dtype):
    if dtype == "float64" and not X64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    x = jnp.asarray(PAIR, dtype)
    limit = attend_hardmax(x, x, x)
    assert limit.dtype == dtype
    assert np.abs(attend(x, x, x, beta=beta) - limit).max() < 1e-6
    np.testing.assert_array_equal(limit, x)


@functools.cache
def hard_and_soft(beta):
    def run(q, k, v, mask):
        soft = attend(q, k, v, beta=beta, mask=mask)
        return attend_hardmax(q, k, v, mask=mask), soft

    return jax.jit(run)


@pytest.mark.parametrize("beta", [1e3, 1e6])
@given(seeds)
def test_hardmax_is_the_limit_wherever_the_maximum_is_alone(beta, seed):
    q, k = tokens(N, D, seed=(seed, 0)), tokens(N, D, seed=(seed, 1))
    v = random(N, D, seed=(seed, 2))
    mask = np.random.default_rng(seed).random((N, N)) < 0.7
    scores = np.sort(np.where(mask, np.asarray(q @ k.T), -np.inf), axis=1)
    with np.errstate(invalid="ignore"):
        clear = ~(scores[:, -1] - scores[:, -2] < 20 / beta + 1e-5)
    hard, soft = hard_and_soft(beta)(q, k, v, mask)
    np.testing.assert_allclose(hard[clear], soft[clear], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(hard[~mask.any(axis=1)], 0)


def test_ties_are_averaged_though_rounding_tells_them_apart():
    # The keys are one vector turned about the query: their scores are equal.
    angles = np.linspace(0, 2 * np.pi, 7)[:-1]
    turned = np.stack([np.full(6, 0.3), np.cos(angles), np.sin(angles)], axis=1)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    k = jnp.asarray(turned @ basis, DTYPE)
    q = jnp.asarray(np.array([[2.0, 0, 0]]) @ basis, DTYPE)
    v = random(6, 2)
    assert len(set(np.asarray(q @ k.T)[0].tolist())) > 1
    eps = float(jnp.finfo(DTYPE).eps)
    got = attend_hardmax(q, k, v)
    np.testing.assert_allclose(got[0], v.mean(axis=0), rtol=0, atol=8 * eps)
    # Beyond the tolerance the highest is alone; a larger tolerance takes it back.
    k = k.at[2].multiply(1 + 100 * eps)
    np.testing.assert_array_equal(attend_hardmax(q, k, v)[0], v[2])
    got = attend_hardmax(q, k, v, tolerance=1e3 * eps)
    np.testing.assert_allclose(got[0], v.mean(axis=0), rtol=0, atol=8 * eps)


def test_the_gradient_of_hardmax_is_that_of_the_averaging(tol):
    x, v = tokens(N, D), random(N, D)
    x = x.at[4].set(x[2])  # keys 2 and 4 tie
    total = lambda q, k, v: jnp.sum(jnp.sin(attend_hardmax(q, k, v, mask=Causal())))
    gradients = jax.jit(jax.grad(total, (0, 1, 2)))(x, x, v)
    np.testing.assert_array_equal(gradients[0], 0)
    np.testing.assert_array_equal(gradients[1], 0)
    weights = np.eye(N)
    weights[4] = 0.5 * (np.eye(N)[2] + np.eye(N)[4])
    want = weights.T @ np.cos(weights @ np.asarray(v))
    np.testing.assert_allclose(gradients[2], want, atol=3 * tol.identity)


def test_hardmax_hides_no_nan_and_lets_none_leak():
    x, v = tokens(N, D), random(N, D)
    exists = np.arange(N) < 6
    dirty = x.at[6:].set(jnp.nan)
    out = attend_hardmax(x, dirty, v.at[6:].set(jnp.inf), mask=exists)
    np.testing.assert_array_equal(out, attend_hardmax(x, x, v, mask=exists))
    assert np.isnan(attend_hardmax(dirty, x, v)[6:]).all()
    out = attend_hardmax(x, x.at[3].set(jnp.nan), v, mask=Causal())
    np.testing.assert_array_equal(np.isnan(out).any(axis=1), np.arange(N) >= 3)


def test_hardmax_is_the_same_under_jit_and_vmap_and_in_half_precision():
    x, v = tokens(N, D), random(N, D)
    want = attend_hardmax(x, x, v)
    np.testing.assert_array_equal(jax.jit(attend_hardmax)(x, x, v), want)
    batch = [jnp.stack([a[::-1], a]) for a in (x, x, v)]
    np.testing.assert_array_equal(jax.vmap(attend_hardmax)(*batch)[1], want)
    half = [a.astype(jnp.bfloat16) for a in (x, x, v)]
    out = attend_hardmax(*half)
    assert out.dtype == jnp.bfloat16
    wide = attend_hardmax(*(a.astype(jnp.float32) for a in half))
    np.testing.assert_array_equal(out, wide.astype(jnp.bfloat16))


@pytest.mark.usefixtures("unchecked")
def test_a_bad_tolerance_is_refused():
    x = tokens(N, D)
    with pytest.raises(ValueError, match="`tolerance` must be at least 0, but was -1"):
        attend_hardmax(x, x, x, tolerance=-1.0)
    with pytest.raises(ValueError, match="`tolerance` must be a scalar"):
        attend_hardmax(x, x, x, tolerance=jnp.ones(2))
