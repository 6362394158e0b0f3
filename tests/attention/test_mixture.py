"""Heads as experts: one softmax over the keys of all, and Bayes' rule over heads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal

from tfjax.attention import attend, mixture, posterior


H, N_Q, N_K, D, D_V = 3, 4, 5, 3, 2
BETA = np.array([0.5, 0.8, 1.3])


def random(*shape, seed=0):
    draw = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return draw.astype(jnp.zeros(()).dtype)


Q, K, V = random(H, N_Q, D), random(H, N_K, D), random(H, N_K, D_V)
PRIOR, HEADS = random(H, N_K, seed=1), random(H, seed=1)
MASK = np.random.default_rng(2).random((N_Q, N_K)) < 0.7
MASK[1] = False  # a query that sees nothing


@functools.cache
def compiled(covariance):
    return jax.jit(functools.partial(mixture, covariance=covariance))


def found(q=Q, k=K, v=V, covariance="full", **given):
    given = {"beta": BETA.astype(Q.dtype), "log_prior": PRIOR} | given
    return compiled(covariance)(q, k, v, head_log_prior=HEADS, **given)


def close(actual, expected, within):
    np.testing.assert_allclose(actual, expected, rtol=within, atol=within)


def density(x, mean, beta):
    return multivariate_normal(mean, np.eye(D) / beta).logpdf(np.float64(x))


def test_T3_the_gate_is_one_softmax_over_the_keys_of_all_heads(tol):
    logits = np.einsum("hqd,hkd->qhk", Q, K) - 0.5 * np.sum(K * K, axis=-1)
    prior = PRIOR - logsumexp(PRIOR, axis=1, keepdims=True) + HEADS[:, None]
    joint = softmax(BETA[:, None] * logits + prior, axis=(1, 2))
    got = found()
    close(got.gate, joint.sum(axis=2).T, tol.rounding(2))
    close(got.gate[..., None] * got.weights, joint.transpose(1, 0, 2), tol.identity)
    mean = np.einsum("qhk,hkv->qv", joint, V)
    close(got.mean, mean, tol.rounding(2))
    second = np.einsum("qhk,hka,hkb->qab", joint, V, V)
    covariance = second - mean[:, :, None] * mean[:, None]
    close(got.covariance, covariance, tol.rounding(5))
    diagonal = found(covariance="diagonal").covariance
    close(diagonal, np.diagonal(covariance, 0, 1, 2), tol.rounding(5))
    assert found(covariance="none").covariance is None
    # The sum of heads, which does not look at evidence, is another thing.
    plain = np.mean(np.einsum("hqk,hkv->hqv", got.weights, V), axis=0)
    assert np.abs(plain - mean).max() > 0.1


def test_T3_it_is_attention_over_all_keys_where_these_have_one_length(tol):
    k = K / np.linalg.norm(K, axis=-1, keepdims=True)
    q = np.broadcast_to(Q[:1], Q.shape)  # one query for all heads
    got = compiled("none")(q, k, V, beta=BETA[0], head_log_prior=HEADS)
    flat = [a.reshape(H * N_K, -1) for a in (k, V)]
    bias = np.repeat(HEADS, N_K)
    close(got.mean, attend(Q[0], *flat, beta=BETA[0], log_prior=bias), tol.identity)


def test_evidence_is_the_joint_density_of_all_queries_by_scipy(tol):
    prior = PRIOR - logsumexp(PRIOR, axis=1, keepdims=True)
    heads = HEADS - logsumexp(HEADS)
    background = np.stack([density(Q[h], np.zeros(D), BETA[h]) for h in range(H)])
    logs = np.empty((H, N_Q))
    for h in range(H):
        each = [density(Q[h], k, BETA[h]) for k in K[h]]
        own = logsumexp(np.stack(each, axis=1) + prior[h], axis=1)
        others = background.sum(axis=0) - background[h]
        logs[h] = heads[h] + own + others
    got = found()
    close(got.log_evidence, logsumexp(logs, axis=0), tol.rounding(20))
    close(got.gate, softmax(logs, axis=0), tol.rounding(5))


def test_one_head_is_its_posterior(tol):
    got = compiled("full")(Q[:1], K[:1], V[:1], beta=0.8, mask=MASK)
    alone = posterior(Q[0], K[0], V[0], beta=0.8, mask=MASK)
    close(got.gate[0], MASK.any(axis=1), tol.identity)
    close(got.weights[0], alone.weights, tol.identity)
    for one, other in zip(got[2:], alone[1:], strict=True):
        close(one, other, tol.rounding(5))


@functools.cache
def gradients():
    def loss(q, k, v, beta, prior, heads, mask):
        given = {"beta": beta, "log_prior": prior, "head_log_prior": heads}
        got = mixture(q, k, v, mask=mask, **given)
        log_evidence = jnp.where(got.log_evidence == -jnp.inf, 0.0, got.log_evidence)
        parts = got.gate**2, jnp.sin(got.mean), got.covariance**2, log_evidence
        return sum(jnp.sum(part) for part in parts)

    return jax.jit(jax.value_and_grad(loss, range(6)))


def test_what_is_forbidden_has_no_part_and_no_gradient():
    heads, prior, beta = HEADS.copy(), PRIOR.copy(), BETA.astype(Q.dtype)
    heads[2], prior[1] = -np.inf, -np.inf  # one by itself, one for want of keys
    k = K.copy()
    k[1, 3] = np.nan
    got = compiled("full")(
        Q, k, V, beta=beta, log_prior=prior, head_log_prior=heads, mask=MASK
    )
    np.testing.assert_array_equal(got.gate[0], MASK.any(axis=1))
    assert np.all(got.gate[1:] == 0)
    assert got.log_evidence[1] == -np.inf
    assert np.isfinite(np.delete(got.log_evidence, 1)).all()
    assert np.all(got.mean[1] == 0)
    assert np.all(got.covariance[1] == 0)
    _, slopes = gradients()(Q, k, V, beta, prior, heads, MASK)
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert np.all(slopes[0][:, 1] == 0)
    nothing = gradients()(Q, k, V, beta, prior, np.full_like(heads, -np.inf), MASK)[1]
    assert all(np.all(np.asarray(slope) == 0) for slope in nothing)


def test_a_query_that_is_nan_spoils_its_token_only():
    q = Q.copy()
    q[1, 2] = np.nan
    got = found(q, mask=np.arange(N_K) < 4)
    for part in got[2:]:
        bad = np.isnan(np.asarray(part)).reshape(N_Q, -1).any(axis=1)
        np.testing.assert_array_equal(bad, np.arange(N_Q) == 2)


def test_gradients_are_those_of_the_difference():
    if not jax.config.jax_enable_x64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    at = Q, K, V, BETA, PRIOR, HEADS
    ways = [random(*a.shape, seed=7) for a in at]
    moved = lambda s: [a + s * w for a, w in zip(at, ways, strict=True)]
    up, down = (gradients()(*moved(s), MASK)[0] for s in (1e-6, -1e-6))
    slopes = gradients()(*at, MASK)[1]
    got = sum(float(jnp.sum(s * w)) for s, w in zip(slopes, ways, strict=True))
    assert got == pytest.approx(float(up - down) / 2e-6, rel=1e-7)


def test_jit_vmap_and_half_precision(tol):
    given = {"beta": BETA.astype(Q.dtype), "log_prior": PRIOR, "head_log_prior": HEADS}
    one = found()
    eager = mixture(Q, K, V, **given)
    many = jax.vmap(lambda q: mixture(q, K, V, **given))(np.stack([Q[::-1], Q]))
    for other in (eager, jax.tree.map(lambda a: a[1], many)):
        jax.tree.map(lambda a, b: close(a, b, tol.rounding(10)), other, one)
    half = [a.astype(np.float16) for a in (Q, K, V)]
    got = mixture(*half, beta=0.5)
    wide = mixture(*(a.astype(np.float32) for a in half), beta=0.5)
    for a, b in zip(got, wide, strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float16))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": Q[0]}, r"`q` must have shape \(h, n_q, d_k\), but was of shape"),
        ({"k": K[:2]}, r"`k` must have 3 heads, as `q` has, but was of shape"),
        ({"v": V[:2]}, r"`v` must have 3 heads, as `q` has, but was of shape"),
        ({"beta": np.ones(2)}, r"`beta` must be a scalar or have shape \(3,\)"),
        ({"beta": [1.0, 1.0, -1.0]}, "`beta` must be finite and positive"),
        ({"log_prior": PRIOR[0]}, r"`log_prior` must have shape \(3, 5\) or \(3, 4, 5"),
        ({"head_log_prior": [0.0]}, r"`head_log_prior` must have shape \(3,\)"),
        ({"covariance": None}, "`covariance` must be one of 'full'"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        mixture(**({"q": Q, "k": K, "v": V} | change))


@pytest.mark.parametrize("mask", [None, np.arange(N_K) > 0], ids=["all", "masked"])
def test_a_head_that_is_forbidden_may_be_nan(mask, tol):
    k, v = K.copy(), V.copy()
    k[1], v[1] = np.nan, np.nan
    prior = np.array([0.0, -np.inf, 0.5], K.dtype)
    run = jax.jit(lambda k, v: mixture(Q, k, v, head_log_prior=prior, mask=mask))
    got, clean = run(k, v), run(K, V)
    for part in ("gate", "mean", "covariance", "log_evidence"):
        a, b = getattr(got, part), getattr(clean, part)
        np.testing.assert_allclose(a, b, rtol=0, atol=tol.rounding(10))
    slope = jax.grad(lambda v: jnp.sum(run(k, v).mean))(jnp.asarray(v))
    assert np.isfinite(np.asarray(slope)[[0, 2]]).all()
