"""Attention as inference: densities, Tweedie's formula, mixtures, and what breaks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, vonmises_fisher

from tfjax.attention import Causal, TopK, Window, attend, posterior


N_Q, N_K, D, D_V, BETA = 4, 5, 3, 2, 0.8
X64 = jax.config.jax_enable_x64


def random(*shape, seed=0):
    draw = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return draw.astype(jnp.zeros(()).dtype)


Q, K, V = random(N_Q, D), random(N_K, D), random(N_K, D_V)
PRIOR = random(N_Q, N_K, seed=1)
MASK = np.random.default_rng(2).random((N_Q, N_K)) < 0.7
MASK[1] = False  # a query that sees nothing
RESTRICTIONS = {
    "none": {},
    "prior of keys": {"log_prior": PRIOR[0]},
    "prior of pairs": {"log_prior": PRIOR},
    "keys": {"mask": np.array([True, False, True, True, False])},
    "pairs and prior": {"mask": MASK, "log_prior": PRIOR},
    "forbidden": {"log_prior": np.where(MASK, PRIOR, -np.inf)},
    "causal": {"mask": (Causal(), Window(2))},
}
restricted = pytest.mark.parametrize("given", RESTRICTIONS.values(), ids=RESTRICTIONS)


@functools.cache
def compiled(covariance="full"):
    return jax.jit(functools.partial(posterior, covariance=covariance))


def found(q, k, v, covariance="full", **given):
    given.setdefault("beta", BETA)
    if isinstance(given.get("mask"), tuple):
        return jax.jit(lambda *a: posterior(*a, covariance=covariance, **given))(
            q, k, v
        )
    return compiled(covariance)(q, k, v, **given)


def prior_of(log_prior=None, mask=None):
    """Prior probabilities in numpy, normalised over what each query may see."""
    prior = np.zeros((N_Q, N_K)) if log_prior is None else np.asarray(log_prior)
    prior = np.exp(np.broadcast_to(prior, (N_Q, N_K)).astype(np.float64))
    if isinstance(mask, tuple):
        i, j = np.arange(N_Q)[:, None], np.arange(N_K)
        mask = (j <= i) & (abs(i - j) <= 2)
    prior = prior * (True if mask is None else mask)
    total = prior.sum(axis=1, keepdims=True)
    return np.divide(prior, total, out=np.zeros_like(prior), where=total > 0)


def densities(q, k, beta):
    """N(q; k, I / beta) by scipy, of shape (n_q, n_k)."""
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    rows = [multivariate_normal(x, np.eye(len(x)) / beta).pdf(q) for x in k]
    return np.stack(rows, axis=1)


def close(actual, expected, within):
    np.testing.assert_allclose(actual, expected, rtol=within, atol=within)


# --- Against densities ----------------------------------------------------------------


@restricted
def test_T1_it_is_bayes_rule_with_the_densities_of_scipy(given, tol):
    joint = prior_of(**given) * densities(Q, K, BETA)
    evidence = joint.sum(axis=1)
    some = evidence > 0
    weights = np.divide(joint, evidence[:, None], where=some[:, None], out=0 * joint)
    mean = weights @ V
    second = np.einsum("qk,ka,kb->qab", weights, V, V)
    got = found(Q, K, V, **given)
    close(got.weights, weights, tol.identity)
    close(got.mean, mean, tol.identity)
    within = tol.rounding(2)
    close(got.covariance, second - mean[:, :, None] * mean[:, None], within)
    close(got.log_evidence[some], np.log(evidence[some]), tol.rounding(5))
    assert np.all(got.log_evidence[~some] == -np.inf)


def test_T1_plain_attention_is_the_posterior_for_a_prior_that_likes_long_keys(tol):
    prior = 0.5 * BETA * np.sum(K * K, axis=1) + PRIOR[0]
    got = found(Q, K, V, log_prior=prior)
    close(got.mean, attend(Q, K, V, beta=BETA, log_prior=PRIOR[0]), tol.identity)


def test_unit_keys_give_attention_and_a_mixture_of_von_mises_and_fisher(tol):
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
    q, k = unit(Q), unit(K)
    got = found(q, k, V)
    close(got.mean, attend(q, k, V, beta=BETA), tol.identity)
    rows = [vonmises_fisher(np.float64(x), BETA).pdf(np.float64(q)) for x in k]
    joint = np.stack(rows, axis=1)
    weights = joint / joint.sum(axis=1, keepdims=True)
    close(got.weights, weights, tol.rounding(10))


@pytest.mark.parametrize("seed", range(4))
def test_evidence_of_random_mixtures(seed, tol):
    random_ = np.random.default_rng(seed)
    beta, scale = np.exp(random_.normal(size=2))
    q, k = scale * random(N_Q, D, seed=seed), scale * random(N_K, D, seed=seed + 9)
    got = found(q, k, V, beta=beta, log_prior=PRIOR[0])
    logs = np.log(densities(q, k, beta)) + PRIOR[0] - logsumexp(PRIOR[0])
    close(got.log_evidence, logsumexp(logs, axis=1), tol.rounding(20))


# --- Tweedie --------------------------------------------------------------------------


def test_T2_the_mean_is_the_score_and_its_slope_the_covariance(tol):
    @jax.jit
    def both(q):
        one = lambda q: posterior(q[None], K, K, beta=BETA, log_prior=PRIOR[0])
        score = jax.grad(lambda q: one(q).log_evidence[0])(q)
        return one(q), score, jax.jacfwd(lambda q: one(q).mean[0])(q)

    for q in Q:
        got, score, slope = both(q)
        close(got.mean[0] - q, score / BETA, tol.rounding(5))
        close(slope, BETA * got.covariance[0], tol.rounding(5))
        # E|v - q|^2 = |m - q|^2 + tr C.
        squares = np.sum((K - q) ** 2, axis=1) @ np.asarray(got.weights[0])
        apart = np.sum((np.asarray(got.mean[0]) - q) ** 2)
        trace = float(jnp.trace(got.covariance[0]))
        close(squares - apart, trace, tol.rounding(10))


def test_T2_the_slope_of_any_value_is_its_covariance_with_the_keys(tol):
    one = lambda q, v: posterior(q[None], K, v, beta=BETA)
    slope = jax.jit(jax.jacfwd(lambda q: one(q, V).mean[0]))(Q[0])
    both = one(Q[0], np.concatenate([V, K], axis=1)).covariance[0]
    close(slope, BETA * both[:D_V, D_V:], tol.rounding(5))


# --- Covariances ----------------------------------------------------------------------


@restricted
def test_the_diagonal_is_that_of_the_covariance_which_is_positive(given, tol):
    full, diagonal = found(Q, K, V, **given), found(Q, K, V, "diagonal", **given)
    close(diagonal.covariance, jnp.diagonal(full.covariance, 0, 1, 2), tol.identity)
    assert np.linalg.eigvalsh(full.covariance).min() > -tol.identity
    assert found(Q, K, V, "none", **given).covariance is None


def test_far_from_the_origin_nothing_cancels(tol):
    shift = 1000.0
    q, k, v = (a.astype(np.float32) for a in (Q, K, V))
    # Rounded at the place where they are, so that both sides have the same tokens.
    q, k, v = (np.float32(a + np.float32(shift)) for a in (q, k, v))
    near = [np.float32(np.float64(a) - shift) for a in (q, k, v)]
    far, close_by = found(q, k, v), found(*near)
    # Differences of tokens are exact here: they have the same bits.
    close(far.weights, close_by.weights, 1e-6)
    close(far.log_evidence, close_by.log_evidence, 1e-6)
    close(far.covariance, close_by.covariance, 1e-6)


# --- Sharp points ---------------------------------------------------------------------


def loss(q, k, v, beta, prior, mask):
    got = posterior(q, k, v, beta=beta, log_prior=prior, mask=mask)
    log_evidence = jnp.where(got.log_evidence == -jnp.inf, 0.0, got.log_evidence)
    parts = got.weights**2, jnp.sin(got.mean), got.covariance**2, log_evidence
    return sum(jnp.sum(part) for part in parts)


gradients = jax.jit(jax.grad(loss, (0, 1, 2, 3, 4)))


def test_S01_S05_a_query_that_sees_nothing_has_zeros_and_no_gradient():
    beta = jnp.asarray(BETA)
    got = found(Q, K, V, mask=MASK)
    for part in got[:3]:
        np.testing.assert_array_equal(part[1], np.zeros_like(part[1]))
    assert got.log_evidence[1] == -np.inf
    slopes = gradients(Q, K, V, beta, PRIOR, MASK)
    assert all(np.isfinite(slope).all() for slope in slopes)
    np.testing.assert_array_equal(slopes[0][1], np.zeros(D))
    np.testing.assert_array_equal(slopes[4][1], np.zeros(N_K))
    everything = gradients(Q, K, V, beta, np.full_like(PRIOR, -np.inf), MASK)
    assert all(np.all(np.asarray(slope) == 0) for slope in everything)


@pytest.mark.parametrize("how", ["keys", "pairs", "prior"])
def test_S04_what_is_stored_behind_a_mask_does_not_matter(how, tol):
    k, v = K.copy(), V.copy()
    k[2], v[2] = np.nan, np.inf
    keep = np.arange(N_K) != 2
    pairs = np.broadcast_to(keep, (N_Q, N_K))
    prior = np.where(keep, 0, -np.inf).astype(K.dtype)
    given = {"keys": {"mask": keep}, "pairs": {"mask": pairs}}
    given = given.get(how, {"log_prior": prior})
    got, alone = found(Q, k, v, **given), found(Q, K[keep], V[keep])
    close(got.weights[:, keep], alone.weights, tol.rounding(2))
    for one, other in zip(got[1:], alone[1:], strict=True):
        close(one, other, tol.rounding(5))
    slopes = jax.jit(
        jax.grad(lambda *a: jnp.sum(posterior(*a, beta=BETA, **given).mean), (0, 1, 2))
    )(Q, k, v)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_S04_keys_behind_a_mask_may_be_too_long_to_be_squared():
    k = K.copy()
    k[2] = np.sqrt(np.finfo(K.dtype).max)
    pairs = np.broadcast_to(np.arange(N_K) != 2, (N_Q, N_K))
    slopes = gradients(Q, k, V, jnp.asarray(BETA), PRIOR, pairs)
    expected = gradients(Q, K, V, jnp.asarray(BETA), PRIOR, pairs)
    jax.tree.map(np.testing.assert_array_equal, slopes, expected)


def test_a_query_that_sees_nan_is_nan_and_no_other_is():
    k = K.copy()
    k[2] = np.nan
    got = found(Q, k, V, mask=MASK)
    for part in got:
        bad = np.isnan(np.asarray(part)).reshape(N_Q, -1).any(axis=1)
        np.testing.assert_array_equal(bad, MASK[:, 2])


def test_S06_S07_sharp_and_large_scores_are_finite_and_right():
    x = np.array([[1, 0], [0.6, 0.8]], np.float32)
    for beta in (1e3, 1e6):
        got = found(x, x, x, beta=np.float32(beta))
        close(got.weights, np.eye(2), 1e-6)
        close(got.log_evidence, np.log(beta / (4 * np.pi)) * np.ones(2), 1e-5)
    q, k = np.full((1, 64), 40, np.float16), np.full((2, 64), 40, np.float16)
    k[1] = 39
    got = found(q, k, k, beta=1 / 8)
    assert got.mean.dtype == np.float16
    close(got.weights, [[1 / (1 + np.exp(-4.0)), 1 / (1 + np.exp(4.0))]], 1e-3)


def test_gradients_are_those_of_the_difference():
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    mask = np.ones_like(MASK)
    at = (jnp.asarray(Q), jnp.asarray(K), jnp.asarray(V), jnp.asarray(BETA), PRIOR)
    ways = [random(*np.shape(a), seed=7) for a in at]
    value = jax.jit(loss)
    moved = lambda s: [a + s * w for a, w in zip(at, ways, strict=True)]
    expected = (value(*moved(1e-6), mask) - value(*moved(-1e-6), mask)) / 2e-6
    slopes = gradients(*at, mask)
    got = sum(float(jnp.sum(s * w)) for s, w in zip(slopes, ways, strict=True))
    assert got == pytest.approx(float(expected), rel=1e-7)


def test_jit_and_vmap_change_nothing(tol):
    eager = posterior(Q, K, V, beta=BETA, log_prior=PRIOR, mask=MASK)
    jitted = found(Q, K, V, log_prior=PRIOR, mask=MASK)
    jax.tree.map(lambda a, b: close(a, b, tol.rounding(5)), eager, jitted)
    batch = jax.vmap(lambda q: posterior(q, K, V, beta=BETA, log_prior=PRIOR))
    many = batch(np.stack([Q[::-1], Q]))
    one = found(Q, K, V, log_prior=PRIOR)
    jax.tree.map(lambda a, b: close(a[1], b, tol.rounding(5)), many, one)


# --- What it is not -------------------------------------------------------------------


def test_T4_it_is_a_local_mean_and_not_that_of_a_gaussian_process(tol):
    x, at = np.linspace(-2, 2, 6).astype(Q.dtype)[:, None], np.array([[0.3]], Q.dtype)
    y = np.sin(2 * x)
    local = posterior(at, x, y, beta=1.0).mean.item()
    kernel = lambda a, b: np.exp(-0.5 * (a - b.T) ** 2)
    row = kernel(at, x)
    assert local == pytest.approx((row @ y / row.sum()).item(), abs=tol.rounding(2))
    process = (row @ np.linalg.solve(kernel(x, x) + 1e-4 * np.eye(6), y)).item()
    truth = np.sin(0.6)
    assert abs(process - truth) < 0.1 < 0.3 < abs(local - truth)


# --- Input ----------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": 0.0}, "`beta` must be finite and positive, but was 0"),
        ({"beta": -1.0}, "`beta` must be finite and positive, but was -1"),
        ({"beta": np.inf}, "`beta` must be finite and positive"),
        ({"beta": np.ones(2)}, r"`beta` must be a scalar, but was of shape \(2,\)"),
        ({"covariance": "half"}, "`covariance` must be one of 'full', 'diagonal',"),
        ({"mask": TopK(2)}, "`mask` must be known without the scores"),
        ({"mask": np.ones(N_K)}, "`mask` must be boolean"),
        ({"log_prior": np.ones(3)}, r"`log_prior` must have shape \(5,\) or \(4, 5\)"),
        ({"q": np.ones((2, 4))}, "`q` must have shape .* as wide as the keys"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        posterior(**({"q": Q, "k": K, "v": V} | change))


def test_a_precision_that_is_not_positive_is_seen_under_jit():
    with pytest.raises(Exception, match="`beta` must be finite and positive"):
        found(Q, K, V, beta=-1.0)


def test_a_prior_that_is_no_logarithm_of_a_mass_is_refused():
    for value in (np.nan, np.inf):
        prior = np.zeros(N_K, K.dtype)
        prior[1] = value
        with pytest.raises(ValueError, match="`log_prior` must be less than infinity"):
            posterior(Q, K, V, log_prior=prior)
