"""The sharp cases of attention, each with what generalises it."""

import functools
import itertools

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import tfjax
from tfjax.attention import (
    Causal,
    Window,
    attend,
    kernel_sum,
    log_weights,
    sinkhorn,
)
from tfjax.energies import interaction_energy, log_interaction_energy
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere


X64 = jax.config.jax_enable_x64
in_float64 = pytest.mark.skipif(
    not X64, reason="needs JAX_ENABLE_X64: there is no float64 without it"
)
ways = pytest.mark.parametrize("way", ["eager", "jit", "vmap"])
every_chunk = pytest.mark.parametrize("chunk_size", [None, 2])
seeds = st.integers(0, 2**32 - 1)
patterns = hnp.arrays(bool, 6)


def run(way, function, *arrays):
    """The function, eagerly, under jit, or on the second member of a batch."""
    if way == "eager":
        return function(*arrays)
    if way == "jit":
        return jax.jit(function)(*arrays)
    batch = [jnp.stack([jnp.ones_like(a), a]) for a in arrays]
    return jax.tree.map(lambda out: out[1], jax.jit(jax.vmap(function))(*batch))


def random(*shape, seed=0, dtype=jnp.float32):
    seeds = [*np.atleast_1d(seed), *shape]
    values = np.random.default_rng(seeds).standard_normal(shape)
    return jnp.asarray(values, dtype)


def tokens(n, d, seed=0):
    x = random(n, d, seed=seed)
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def softmax(logits, allowed=True):
    """The masked softmax in numpy's float64, 0 for a row without a permitted key."""
    logits = np.where(allowed, np.asarray(logits, np.float64), -np.inf)
    top = logits.max(axis=1, keepdims=True)
    raw = np.exp(logits - np.where(np.isfinite(top), top, 0))
    total = raw.sum(axis=1, keepdims=True)
    return np.divide(raw, total, out=np.zeros_like(raw), where=total > 0)


def near(actual, expected, atol):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


# --- S01: a row with no permitted key -------------------------------------------------

LOGITS_1 = jnp.asarray([[0.5, -0.2], [1.0, 2.0]], jnp.float32)
MASK_1 = np.array([[True, True], [False, False]])
EYE = jnp.eye(2, dtype=jnp.float32)


@ways
@pytest.mark.parametrize("chunk_size", [None, 1])
def test_S01_a_row_without_a_permitted_key_is_0_with_gradient_0(way, chunk_size):
    def loss(logits):
        kwargs = {"beta": 1.0, "mask": MASK_1, "chunk_size": chunk_size}
        out = attend(logits, EYE, EYE, **kwargs)
        return jnp.sum(out[0] ** 2), out

    gradient, out = run(way, jax.grad(loss, has_aux=True), LOGITS_1)
    near(out[0], [0.668188, 0.331812], 1e-6)
    np.testing.assert_array_equal(out[1], [0, 0])
    slope = 2 * 0.668188 * 0.331812 * (0.668188 - 0.331812)  # 2 w1 w2 (w1 - w2)
    near(gradient[0], [slope, -slope], 2e-6)
    np.testing.assert_array_equal(gradient[1], [0, 0])


@ways
def test_S01_the_weights_of_such_a_row_are_0(way):
    weights = lambda logits: jnp.exp(log_weights(logits, EYE, beta=1.0, mask=MASK_1))
    out = run(way, weights, LOGITS_1)
    near(out[0], [0.668188, 0.331812], 1e-6)
    np.testing.assert_array_equal(out[1], [0, 0])


def test_S01_as_a_field_such_a_token_has_velocity_0():
    x = tokens(2, 2)
    velocity = self_attention(0.0, x, AttentionParams(mask=MASK_1))
    np.testing.assert_array_equal(velocity[1], [0, 0])
    assert np.abs(velocity[0]).max() > 0.1


@functools.cache
def rows_and_gradients(chunk_size):
    q, k, v = random(6, 3), random(5, 3), random(5, 4)

    def loss(q, k, v, mask):
        out = attend(q, k, v, beta=0.7, mask=mask, chunk_size=chunk_size)
        blind = ~jnp.any(mask, axis=1)[:, None]
        sums = kernel_sum(q, k, v, beta=0.7, mask=mask, chunk_size=chunk_size)
        empty = jnp.where(blind, jnp.sin(out + 1) + jnp.sin(sums + 1), 0)
        return jnp.sum(empty), out

    gradient = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    return functools.partial(gradient, q, k, v), softmax(0.7 * q @ k.T), np.asarray(v)


@every_chunk
@given(hnp.arrays(bool, (6, 5)))
def test_S01_holds_for_every_mask(chunk_size, mask):
    compiled, weights, v = rows_and_gradients(chunk_size)
    gradients, out = compiled(mask)
    weights = np.where(mask, weights, 0)
    total = weights.sum(axis=1, keepdims=True)
    near(out, weights @ v / np.where(total == 0, 1, total), 5e-6)
    np.testing.assert_array_equal(out[~mask.any(axis=1)], 0)
    assert all((np.asarray(g) == 0).all() for g in gradients)


# --- S02: two masks that together forbid a whole row ----------------------------------


@ways
@pytest.mark.parametrize("chunk_size", [None, 1, 3])
def test_S02_causal_and_left_padding(way, chunk_size):
    x = jnp.asarray([[9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], jnp.float32)
    exists = np.array([False, True, True, True])

    def loss(x):
        mask = (Causal(), exists)
        out = attend(x, x, x, beta=1.0, mask=mask, chunk_size=chunk_size)
        return jnp.sum(out[1:] ** 2), out

    gradient, out = run(way, jax.grad(loss, has_aux=True), x)
    near(out[1:], attend(x[1:], x[1:], x[1:], beta=1.0, mask=Causal()), 1e-6)
    np.testing.assert_array_equal(out[0], [0, 0])
    np.testing.assert_array_equal(gradient[0], [0, 0])
    assert (np.asarray(gradient[1:]) != 0).any()


@functools.cache
def masked_rows(rule, chunk_size):
    """The rows of existing tokens, and the gradient of a loss of them."""

    def loss(x, exists):
        mask = exists if rule is None else (rule, exists)
        out = attend(x, x, x, beta=1.0, mask=mask, chunk_size=chunk_size)
        out = jnp.where(exists[:, None], out, 0)
        return jnp.sum(out**2), out

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def alone(rule, x, exists):
    """What the existing tokens give in numpy, in their places among all."""
    x = np.where(exists[:, None], np.asarray(x, np.float64), 0)
    n = len(x)
    allowed = exists[None, :] & (True if rule is None else np.asarray(rule(n, n)))
    return np.where(exists[:, None], softmax(x @ x.T, allowed) @ x, 0)


@every_chunk
@given(patterns)
def test_S02_holds_for_every_set_of_absent_tokens(chunk_size, exists):
    x = random(6, 2)
    (_, out), gradient = masked_rows(Causal(), chunk_size)(x, exists)
    near(out, alone(Causal(), x, exists), 2e-6)
    np.testing.assert_array_equal(gradient[~exists], 0)


# --- S03: the amount of padding -------------------------------------------------------


@ways
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_S03_padding_changes_no_velocity(way, chunk_size):
    x = tokens(4, 3)
    padded = jnp.concatenate([x, jnp.zeros((3, 3), x.dtype)])
    mask = np.array([True] * 4 + [False] * 3)
    params = AttentionParams(mask=mask, chunk_size=chunk_size)
    field = lambda x: self_attention(0.0, x, params)
    velocity = run(way, field, padded)
    near(velocity[:4], self_attention(0.0, x), 1e-6)
    np.testing.assert_array_equal(velocity[4:], 0)
    unmasked = self_attention(0.0, padded)
    assert np.abs(unmasked[:4] - velocity[:4]).max() > 0.1


def test_S03_padding_changes_no_trajectory():
    x = tokens(4, 3)
    padded = jnp.concatenate([x, jnp.zeros((3, 3), x.dtype)])
    params = AttentionParams(mask=np.array([True] * 4 + [False] * 3))
    kwargs = {"t1": 0.5, "dt0": 0.1, "manifold": Sphere(3)}
    got = tfjax.solve(self_attention, padded, params, **kwargs).ys[-1]
    want = tfjax.solve(self_attention, x, AttentionParams(), **kwargs).ys[-1]
    near(got[:4], want, 1e-6)
    np.testing.assert_array_equal(got[4:], 0)


@every_chunk
@given(patterns)
def test_S03_holds_for_every_amount_and_place_of_padding(chunk_size, exists):
    x = jnp.where(exists[:, None], random(6, 2), 0)
    (_, out), _ = masked_rows(None, chunk_size)(x, exists)
    near(out, alone(None, x, exists), 2e-6)


# --- S04: garbage in padded slots -----------------------------------------------------

FORMS = {
    "keys": lambda exists: exists,
    "pairs": lambda exists: exists[:, None] & exists[None, :],
    "causal": lambda exists: (Causal(), exists),
    "window": lambda exists: (Window(9), exists),
}


@functools.cache
def of_the_first_four(form, chunk_size):
    """The first four rows of every kernel of x with itself, and a gradient."""

    def loss(x, exists):
        given = {"beta": 1.0, "mask": FORMS[form](exists)}
        chunked = given | {"chunk_size": chunk_size}
        out, sums = attend(x, x, x, **chunked)[:4], kernel_sum(x, x, x, **chunked)[:4]
        weights = log_weights(x, x, **given)[:4]
        loss = jnp.sum(out**2) + jnp.sum(sums) + jnp.sum(jnp.exp(weights) ** 2)
        return loss, (out, weights, sums)

    return jax.jit(jax.grad(loss, has_aux=True))


@every_chunk
@pytest.mark.parametrize("form", FORMS)
def test_S04_garbage_in_padded_rows_does_not_leak(form, chunk_size):
    x = tokens(4, 3)
    compiled, exists = of_the_first_four(form, chunk_size), np.arange(7) < 4
    want, alone = of_the_first_four(form, None)(x, np.ones(4, bool))
    for garbage in (np.nan, np.inf, -np.inf):
        padded = jnp.concatenate([x, jnp.full((3, 3), garbage, x.dtype)])
        got, (out, weights, sums) = compiled(padded, exists)
        near(out, alone[0], 1e-6)
        near(weights[:, :4], alone[1], 2e-6)
        assert (np.asarray(weights[:, 4:]) == -np.inf).all()
        near(sums, alone[2], 5e-6)
        near(got[:4], want, 1e-5)
        np.testing.assert_array_equal(got[4:], 0)


def test_S04_nor_does_it_in_a_field():
    x = tokens(4, 3)
    padded = jnp.concatenate([x, jnp.full((3, 3), jnp.nan, x.dtype)])
    for rule in ("causal", None):
        params = AttentionParams(mask=(rule, np.arange(7) < 4))
        got = self_attention(0.0, padded, params)
        near(got[:4], self_attention(0.0, x, AttentionParams(mask=rule)), 1e-6)
        np.testing.assert_array_equal(got[4:], 0)


@every_chunk
@given(patterns, st.sampled_from([np.nan, np.inf, -np.inf, 1e18]))
def test_S04_holds_wherever_the_garbage_lies(chunk_size, exists, garbage):
    x = random(6, 2)
    dirty = jnp.where(exists[:, None], x, jnp.asarray(garbage, x.dtype))
    clean = masked_rows(Causal(), chunk_size)(x, exists)
    found = masked_rows(Causal(), chunk_size)(dirty, exists)
    jax.tree.map(np.testing.assert_array_equal, found, clean)


# --- S05: the log-normaliser of nothing -----------------------------------------------


@ways
@pytest.mark.parametrize("how", ["mask", "prior"])
def test_S05_log_weights_of_nothing_are_minus_inf_with_gradient_0(way, how):
    prior = np.full(2, -np.inf if how == "prior" else 0, np.float32)
    mask = np.full(2, how == "prior")

    def total(q, k):
        out = log_weights(q, k, beta=0.7, log_prior=prior, mask=mask)
        return jnp.sum(out), out

    gradient = jax.grad(total, (0, 1), has_aux=True)
    gradients, out = run(way, gradient, random(1, 3), random(2, 3))
    assert (np.asarray(out) == -np.inf).all()
    assert all((np.asarray(g) == 0).all() for g in gradients)


@pytest.mark.parametrize("energy", [interaction_energy, log_interaction_energy])
def test_S05_the_energy_of_no_tokens_is_refused_by_name(energy):
    message = r"`x` must have shape \(n, d\) with no axis of length 0"
    with pytest.raises(ValueError, match=message):
        energy(jnp.zeros((0, 3)), 1.0)


@functools.cache
def log_weights_and_gradients():
    def total(q, k, prior, mask):
        out = log_weights(q, k, beta=0.7, log_prior=prior, mask=mask)
        return jnp.sum(jnp.where(out == -jnp.inf, 0, out)), out

    return jax.jit(jax.grad(total, (0, 1), has_aux=True))


@given(hnp.arrays(bool, (6, 5)), hnp.arrays(bool, 5))
def test_S05_holds_for_every_mask_and_prior(mask, possible):
    q, k = random(6, 3), random(5, 3)
    prior = np.where(possible, np.float32(0), np.float32(-np.inf))
    gradients, out = log_weights_and_gradients()(q, k, prior, mask)
    np.testing.assert_array_equal(np.asarray(out) == -np.inf, ~(mask & possible))
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][~(mask & possible).any(axis=1)], 0)
    np.testing.assert_array_equal(gradients[1][~(mask & possible).any(axis=0)], 0)


# --- S06: a very large beta -----------------------------------------------------------

PAIR = jnp.asarray([[1.0, 0.0], [0.6, 0.8]], jnp.float32)


@ways
@pytest.mark.parametrize("chunk_size", [None, 1])
def test_S06_a_very_large_beta_picks_the_nearest_key(way, chunk_size):
    def loss(x, beta):
        kwargs = {"beta": beta, "chunk_size": chunk_size}
        weights = attend(x, x, EYE, **kwargs)
        total = jnp.sum(jnp.sin(attend(x, x, x, **kwargs)))
        return total, (weights, jnp.exp(log_weights(x, x, beta=beta)))

    gradient = jax.grad(loss, (0, 1), has_aux=True)
    for beta in (1.0, 1e3, 1e6):
        gradients, both = run(way, gradient, PAIR, jnp.asarray(beta, jnp.float32))
        for weights in both:
            near(jnp.sum(weights, axis=1), [1, 1], 1e-6)
            near(weights, softmax(beta * np.asarray(PAIR @ PAIR.T)), 1e-6)
        if beta > 1:
            np.testing.assert_array_equal(both[0], np.eye(2))
        assert all(np.isfinite(g).all() for g in gradients)


@ways
@pytest.mark.parametrize(("beta", "within"), [(1e3, 1e-3), (1e6, 1e-5)])
def test_S06_the_energy_tends_to_a_half(way, beta, within):
    value_and_grad = jax.value_and_grad(log_interaction_energy, argnums=(0, 1))
    beta = jnp.asarray(beta, jnp.float32)
    energy, gradients = run(way, value_and_grad, PAIR, beta)
    without_mean = float(energy) + np.log(4) / (2 * float(beta))  # ours has 1 / n^2
    near(without_mean, 0.5, within)
    assert all(np.isfinite(g).all() for g in gradients)


def test_S06_the_energy_without_the_logarithm_raises():
    with pytest.raises(ValueError, match="use `log_interaction_energy`"):
        interaction_energy(PAIR, 1e3)


@functools.cache
def at_any_beta():
    def both(x, beta):
        return attend(x, x, x, beta=beta), jnp.exp(log_weights(x, x, beta=beta))

    gradient = jax.grad(lambda x, beta: jnp.sum(jnp.sin(both(x, beta)[0])), (0, 1))
    return jax.jit(lambda x, beta: (both(x, beta), gradient(x, beta)))


@given(seeds, st.floats(-6, 6), st.sampled_from([-1.0, 1.0]))
def test_S06_holds_for_every_size_and_sign_of_beta(seed, exponent, sign):
    x = tokens(6, 3, seed=seed)
    beta = jnp.asarray(sign * 10**exponent, jnp.float32)
    (out, weights), gradients = at_any_beta()(x, beta)
    near(jnp.sum(weights, axis=1), np.ones(6), 1e-6)
    assert (np.linalg.norm(out, axis=1) <= 1 + 1e-6).all()
    assert all(np.isfinite(g).all() for g in gradients)


# --- S07: a score product that overflows before it is scaled --------------------------


@ways
@pytest.mark.parametrize("chunk_size", [None, 1])
def test_S07_a_score_product_that_overflows_float16_does_no_harm(way, chunk_size):
    q = jnp.full((1, 64), 40.0, jnp.float16)
    k = jnp.stack([jnp.full(64, 40.0, jnp.float16), jnp.full(64, 39.0, jnp.float16)])
    eye = jnp.eye(2, dtype=jnp.float16)
    out = run(way, lambda q, k: attend(q, k, eye, chunk_size=chunk_size), q, k)
    assert out.dtype == jnp.float16
    np.testing.assert_array_equal(out, [[1.0, 0.0]])
    # The scaled logits are 12800 and 12480: 320 apart.
    np.testing.assert_allclose(run(way, log_weights, q, k), [[0, -320]], rtol=1e-3)


@ways
@pytest.mark.parametrize("chunk_size", [None, 1])
def test_S07_nor_one_beyond_float32_that_beta_brings_back(way, chunk_size):
    q = jnp.full((3, 4), 1e20, jnp.float32)
    k = jnp.stack([q[0], 0.9 * q[0]])
    kwargs = {"beta": 1e-30, "chunk_size": chunk_size}
    out = run(way, lambda q, k: attend(q, k, EYE, **kwargs)[:1], q, k)
    np.testing.assert_array_equal(out, [[1.0, 0.0]])


@given(st.floats(1, 60), st.floats(0.0, 1.0))
def test_S07_holds_for_every_size_of_float16_entries(size, ratio):
    entries = np.float16([size, size * ratio])
    q = np.full((1, 64), entries[0])
    k = np.stack([np.full(64, entry) for entry in entries])
    logits = 64**-0.5 * q.astype(np.float64) @ k.astype(np.float64).T
    eye = np.eye(2, dtype=np.float16)
    near(compiled_attend()(q, k, eye), softmax(logits), 2e-3)


@functools.cache
def compiled_attend():
    return jax.jit(attend, static_argnames="chunk_size")


# --- S08: float64 stays float64 -------------------------------------------------------


@in_float64
@ways
@pytest.mark.parametrize("chunk_size", [None, 1])
def test_S08_float64_is_computed_in_float64(way, chunk_size):
    x = jnp.asarray([[1.0, 2.0], [0.5, -1.0]])
    out = run(way, lambda x: attend(x, x, x, chunk_size=chunk_size), x)
    assert out.dtype == jnp.float64
    expected = softmax(np.asarray(x @ x.T) / np.sqrt(2)) @ np.asarray(x)
    assert np.abs(out - expected).max() < 1e-14


@in_float64
@every_chunk
@given(seeds)
def test_S08_holds_for_every_input(chunk_size, seed):
    q, k, v = (random(6, 3, seed=(seed, i), dtype=jnp.float64) for i in range(3))
    out = compiled_attend()(q, k, v, chunk_size=chunk_size)
    assert out.dtype == jnp.float64
    expected = softmax(np.asarray(q) @ np.asarray(k).T / np.sqrt(3)) @ np.asarray(v)
    assert np.abs(out - expected).max() < 1e-14


# --- S09: the entropy of one-hot weights ----------------------------------------------


def entropy(logits):
    one = jnp.ones((1, 1), logits.dtype)
    log = log_weights(one, logits[:, None], beta=1.0)
    return -jnp.sum(jnp.exp(log) * log)


@ways
@pytest.mark.parametrize(
    ("logits", "expected"), [((0.0, -500.0), 0.0), ((0.0, 0.0), 0.693147)]
)
def test_S09_the_entropy_of_one_hot_weights_is_0_with_gradient_0(way, logits, expected):
    logits = jnp.asarray(logits, jnp.float32)
    value, gradient = run(way, jax.value_and_grad(entropy), logits)
    near(value, expected, 1e-6)
    near(gradient, [0, 0], 0)


@functools.cache
def entropy_and_gradient():
    return jax.jit(jax.value_and_grad(entropy))


@given(hnp.arrays(np.float32, 4, elements=st.floats(-1e4, 1e4, width=32)))
def test_S09_holds_for_all_logits(logits):
    value, gradient = entropy_and_gradient()(logits)
    weights = softmax(logits[None])[0]
    seen = weights[weights > 0]
    near(value, -np.sum(seen * np.log(seen)), 2e-5)
    assert np.isfinite(gradient).all()


# --- S28: Sinkhorn with small regularisation ------------------------------------------


def plan(cost, regularisation, symmetric):
    return jnp.exp(sinkhorn(-cost / regularisation, symmetric=symmetric).log_weights)


both_forms = pytest.mark.parametrize("symmetric", [False, True])
COSTS = {
    0.005: (((1, 2), (2, 1)), np.eye(2), 1e-6),
    0.5: (((0, 1), (1, 0.5)), ((0.817574, 0.182426), (0.182426, 0.817574)), 1e-5),
}


@ways
@both_forms
@pytest.mark.parametrize("regularisation", COSTS)
def test_S28_the_plan_is_right_at_every_regularisation(way, symmetric, regularisation):
    cost, expected, within = COSTS[regularisation]

    def loss(cost):
        out = plan(cost, regularisation, symmetric)
        return jnp.sum(jnp.sin(out)), out

    cost = jnp.asarray(cost, jnp.float32)
    gradient, out = run(way, jax.grad(loss, has_aux=True), cost)
    near(out, expected, within)
    assert np.isfinite(gradient).all()
    near(plan(cost + 3, regularisation, symmetric), out, 1e-5)


@functools.cache
def compiled_plan(symmetric):
    return jax.jit(functools.partial(plan, symmetric=symmetric))


@both_forms
@given(seeds, st.floats(0.005, 2.0), st.floats(-5, 5))
def test_S28_holds_for_every_2_by_2_cost(symmetric, seed, regularisation, constant):
    cost = random(2, 2, seed=seed)
    cost = 0.5 * (cost + cost.T)
    got = compiled_plan(symmetric)(cost + np.float32(constant), regularisation)
    # a / (1 - a) = sqrt(K_00 K_11 / (K_01 K_10)) for K = exp(-cost / regularisation)
    c = np.asarray(cost, np.float64)
    odds = 0.5 * (c[0, 1] + c[1, 0] - c[0, 0] - c[1, 1]) / regularisation
    a = 0.5 * (1 + np.tanh(odds / 2))
    # A cost is rounded at 5 + its size, and so is what it is divided by.
    within = 2e-6 + 5e-6 / regularisation
    near(got, [[a, 1 - a], [1 - a, a]], within)


# --- S29: Sinkhorn stops before it converges ------------------------------------------

LIMITS = (1, 4, 20, 1000)
TINY = 1e-12  # below rounding: none of them stops early


@functools.cache
def scaled(max_steps, symmetric):
    return jax.jit(
        functools.partial(sinkhorn, tol=TINY, max_steps=max_steps, symmetric=symmetric)
    )


def residual(out):
    weights = np.exp(np.asarray(out.log_weights, np.float64))
    sums = np.concatenate([weights.sum(axis=0), weights.sum(axis=1)])
    return np.abs(sums - 1).max()


@ways
def test_S29_the_sums_are_within_the_tolerance_or_it_says_so(way):
    for seed in (0, 3):  # the second one needs more than 1000 steps
        logits = 5 * random(5, 5, seed=seed)
        out = run(way, functools.partial(sinkhorn, tol=1e-5), logits)
        error = max(float(out.row_error), float(out.column_error))
        near(error, residual(out), 3e-6)
        assert bool(out.converged) == (error <= 1e-5)


@both_forms
@given(seeds)
def test_S29_more_steps_never_raise_the_residual(symmetric, seed):
    logits = 5 * random(5, 5, seed=seed)
    outs = [scaled(limit, symmetric)(logits) for limit in LIMITS]
    errors = [max(float(out.row_error), float(out.column_error)) for out in outs]
    assert all(after <= before for before, after in itertools.pairwise(errors))
    for limit, out, error in zip(LIMITS, outs, errors, strict=True):
        assert bool(out.converged) == (error <= TINY)
        assert int(out.steps) <= limit
        near(error, residual(out), 3e-6)


def test_S29_what_was_found_before_a_bad_step_is_kept():
    logits = 5 * random(5, 5, seed=104)  # the third step goes from 0.311 to 0.317
    two, three = (sinkhorn(logits, symmetric=True, max_steps=m) for m in (2, 3))
    np.testing.assert_array_equal(three.log_weights, two.log_weights)
    near(three.row_error, residual(three), 1e-6)
    assert int(three.steps) == 3
