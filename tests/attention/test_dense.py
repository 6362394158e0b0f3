"""Softmax attention against numpy, its masks, and its numerics at the sharp points."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import Causal, attend, kernel_sum, log_weights


N_Q, N_K, D, D_V = 7, 5, 3, 4


@pytest.fixture(scope="module")
def tokens():
    """Queries, keys and values of shapes (7, 3), (5, 3) and (5, 4)."""
    random = np.random.default_rng(0)
    shapes = ((N_Q, D), (N_K, D), (N_K, D_V))
    dtype = jnp.zeros(()).dtype
    return tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


def pair_mask():
    mask = np.random.default_rng(1).random((N_Q, N_K)) < 0.6
    mask[3], mask[0] = False, True  # one query sees nothing, one sees all
    return mask


def pair_prior():
    prior = np.log(np.random.default_rng(2).random((N_Q, N_K)))
    prior[1, 2] = prior[2, :4] = -np.inf
    return prior


RESTRICTIONS = {
    "none": {},
    "keys": {"mask": np.array([True, False, True, True, False])},
    "pairs": {"mask": pair_mask()},
    "causal": {"mask": np.tril(np.ones((N_Q, N_K), bool))},
    "keys and prior of keys": {
        "mask": np.array([True, False, True, True, True]),
        "log_prior": np.array([0.0, -1.0, 2.0, -np.inf, 0.5]),
    },
    "prior of pairs": {"log_prior": pair_prior()},
    "pairs and prior of keys": {
        "mask": pair_mask(),
        "log_prior": np.array([0.0, -1.0, 2.0, -np.inf, 0.5]),
    },
}
restricted = pytest.mark.parametrize("given", RESTRICTIONS.values(), ids=RESTRICTIONS)


def numpy_weights(q, k, beta, log_prior=None, mask=None):
    """exp(beta <q, k>) pi / Z, row by row; (the weights, the sums before division)."""
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    raw = np.exp(beta * q @ k.T)
    if log_prior is not None:
        raw = raw * np.exp(log_prior)
    if mask is not None:
        raw = raw * mask
    total = raw.sum(axis=1, keepdims=True)
    return np.divide(raw, total, out=np.zeros_like(raw), where=total > 0), raw


@functools.cache
def compiled(function):
    static = "chunk_size" if function is attend else None
    return jax.jit(function, static_argnames=static)


@functools.cache
def value_and_gradients():
    """((a loss, the output of attend), the gradients of the loss), compiled."""

    def loss(operands, mask, chunk_size):
        q, k, v, beta, prior = operands
        out = attend(
            q, k, v, beta=beta, log_prior=prior, mask=mask, chunk_size=chunk_size
        )
        return jnp.sum(jnp.sin(out)), out

    gradient = jax.value_and_grad(loss, has_aux=True)
    return jax.jit(gradient, static_argnames="chunk_size")


def run_attend(tokens, given, chunk_size=None):
    dtype = tokens[0].dtype
    prior = given.get("log_prior")
    prior = prior if prior is None else prior.astype(dtype)
    operands = (*tokens, np.asarray(0.7, dtype), prior)
    return value_and_gradients()(operands, given.get("mask"), chunk_size)


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- Against numpy --------------------------------------------------------------------


@restricted
def test_attend_is_the_softmax_mean_of_the_values(tokens, given, tol):
    q, k, v = tokens
    weights, _ = numpy_weights(q, k, 0.7, **given)
    (_, out), _ = run_attend(tokens, given)
    close(out, weights @ v, tol.identity)


@restricted
def test_log_weights_are_the_logarithms_of_the_softmax(tokens, given, tol):
    q, k, _ = tokens
    weights, _ = numpy_weights(q, k, 0.7, **given)
    with np.errstate(divide="ignore"):
        expected = np.log(weights)
    got = np.asarray(compiled(log_weights)(q, k, beta=0.7, **given))
    np.testing.assert_array_equal(got == -np.inf, weights == 0)
    close(np.exp(got), weights, tol.identity)
    seen = weights > 0
    close(got[seen], expected[seen], 5 * tol.identity)


@pytest.mark.parametrize("name", ["none", "keys", "pairs", "causal"])
def test_kernel_sum_is_attention_without_its_normaliser(tokens, name, tol):
    q, k, v = tokens
    _, raw = numpy_weights(q, k, 0.7, **RESTRICTIONS[name])
    got = compiled(kernel_sum)(q, k, v, beta=0.7, **RESTRICTIONS[name])
    close(got, raw @ v, 2 * tol.identity)


def test_beta_is_one_over_the_root_of_the_width_by_default(tokens, tol):
    q, k, v = tokens
    weights, raw = numpy_weights(q, k, 1 / np.sqrt(D))
    close(compiled(attend)(q, k, v), weights @ v, tol.identity)
    close(jnp.exp(compiled(log_weights)(q, k)), weights, tol.identity)
    close(compiled(kernel_sum)(q, k, v), raw @ v, 2 * tol.identity)


def test_beta_0_is_the_plain_mean_and_a_negative_one_prefers_the_far(tokens, tol):
    q, k, v = tokens
    mean = np.broadcast_to(v.mean(axis=0), (N_Q, D_V))
    close(compiled(attend)(q, k, v, beta=0.0), mean, tol.identity)
    weights, _ = numpy_weights(q, k, -0.7)
    close(compiled(attend)(q, k, v, beta=-0.7), weights @ v, tol.identity)


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("mask", [None, pair_mask()], ids=["no mask", "pairs"])
def test_nan_behind_a_prior_of_zero_reaches_no_value_and_no_gradient(
    tokens, chunk_size, mask
):
    q, k, v = tokens
    prior = np.array([0.0, -1.0, 2.0, -np.inf, 0.5], q.dtype)

    def loss(q, k, v):
        kwargs = {"log_prior": prior, "mask": mask, "chunk_size": chunk_size}
        return jnp.sum(attend(q, k, v, **kwargs) ** 2)

    bad_k, bad_v = k.copy(), v.copy()
    bad_k[3], bad_v[3] = np.nan, np.nan
    clean = jax.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)
    dirty = jax.value_and_grad(loss, argnums=(0, 1, 2))(q, bad_k, bad_v)
    jax.tree.map(np.testing.assert_array_equal, dirty, clean)


def test_a_constant_prior_changes_nothing_and_a_log_prior_of_log_2_counts_twice(
    tokens, tol
):
    q, k, v = tokens
    plain = compiled(attend)(q, k, v, beta=0.7)
    shifted = compiled(attend)(q, k, v, beta=0.7, log_prior=np.full(N_K, 30.0))
    close(shifted, plain, 50 * tol.identity)  # 30 in the logits costs 30 roundings
    twice = compiled(attend)(q, k, v, beta=0.7, log_prior=np.log([2.0, 1, 1, 1, 1]))
    keys, values = np.concatenate([k[:1], k]), np.concatenate([v[:1], v])
    close(twice, attend(q, keys, values, beta=0.7), 2 * tol.identity)


def test_gradients_agree_with_those_of_the_textbook_formula(tokens, tol):
    q, k, v = tokens

    def textbook(q, k, v, beta):
        weights = jnp.exp(beta * jnp.einsum("id,jd->ij", q, k))
        weights = weights / jnp.sum(weights, axis=1, keepdims=True)
        return jnp.sum(jnp.sin(weights @ v))

    ours = lambda q, k, v, beta: jnp.sum(jnp.sin(attend(q, k, v, beta=beta)))
    gradient = lambda f: jax.jit(jax.grad(f, (0, 1, 2, 3)))(q, k, v, 0.7)
    for got, want in zip(gradient(ours), gradient(textbook), strict=True):
        close(got, want, 5 * tol.identity)


# --- By chunks ------------------------------------------------------------------------


@restricted
def test_chunks_give_the_dense_value_and_gradient(tokens, given, tol):
    dense, chunked = (run_attend(tokens, given, chunk) for chunk in (None, 3))
    dense, chunked = jax.tree.leaves(dense), jax.tree.leaves(chunked)
    assert len(tokens[0]) % 3 != 0
    assert len(dense) == (7 if "log_prior" in given else 6)
    for got, want in zip(chunked, dense, strict=True):
        close(got, want, 2 * tol.identity)


@pytest.mark.parametrize("chunk_size", [1, 7, 100])
def test_every_chunk_size_gives_the_same(tokens, chunk_size, tol):
    q, k, v = tokens
    dense = compiled(attend)(q, k, v, beta=0.7)
    got = compiled(attend)(q, k, v, beta=0.7, chunk_size=chunk_size)
    close(got, dense, tol.identity)


def test_the_chunked_kernel_never_holds_all_pairs_not_even_for_its_gradient():
    n, chunk_size = 999, 10
    x = jax.ShapeDtypeStruct((n, 2), jnp.float32)

    def largest_array(chunk_size):
        loss = lambda x: jnp.sum(attend(x, x, x, beta=1.0, chunk_size=chunk_size))
        text = jax.jit(jax.grad(loss)).lower(x).as_text()
        shapes = re.findall(r"tensor<((?:\d+x)+)\w+>", text)
        return max(np.prod([int(s) for s in shape[:-1].split("x")]) for shape in shapes)

    assert largest_array(chunk_size) <= 2 * n * chunk_size
    assert largest_array(None) >= n * n


# --- Masks ----------------------------------------------------------------------------


def test_causal_row_i_is_attention_over_the_first_i_plus_1_tokens(tokens, tol):
    q, k, v = tokens
    q = q[:N_K]
    whole = attend(q, k, v, beta=0.7, mask=Causal()(N_K, N_K))
    for i in range(N_K):
        weights, _ = numpy_weights(q[i : i + 1], k[: i + 1], 0.7)
        close(whole[i : i + 1], weights @ v[: i + 1], tol.identity)


def test_s01_a_row_without_a_permitted_key_gives_0_with_gradient_0():
    logits = jnp.asarray([[0.5, -0.2], [1.0, 2.0]], jnp.float32)
    mask = np.array([[True, True], [False, False]])
    eye = jnp.eye(2, dtype=jnp.float32)
    weights = jnp.exp(log_weights(logits, eye, beta=1.0, mask=mask))
    np.testing.assert_allclose(weights[0], [0.668188, 0.331812], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(weights[1], [0, 0])

    def first_row(logits):
        return jnp.sum(attend(logits, eye, eye, beta=1.0, mask=mask)[0] ** 2)

    out = attend(logits, eye, eye, beta=1.0, mask=mask)
    np.testing.assert_allclose(out[0], [0.668188, 0.331812], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(out[1], [0, 0])
    gradient = np.asarray(jax.jit(jax.grad(first_row))(logits))
    expected = 2 * 0.668188 * 0.331812 * (0.668188 - 0.331812)  # 2 w1 w2 (w1 - w2)
    np.testing.assert_allclose(gradient[0], [expected, -expected], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(gradient[1], [0, 0])


def test_s01_an_empty_row_has_gradient_0_in_every_argument(tokens):
    def second_row(q, k, v, beta):
        mask = np.zeros((N_Q, N_K), bool)
        mask[0] = True
        return jnp.sum(attend(q, k, v, beta=beta, mask=mask)[1:] + 1.0)

    gradients = jax.jit(jax.grad(second_row, (0, 1, 2, 3)))(*tokens, 0.7)
    assert all((np.asarray(g) == 0).all() for g in gradients)


def test_s02_causal_and_padding_together():
    x = jnp.asarray([[9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], jnp.float32)
    exists = np.array([False, True, True, True])
    mask = np.asarray(Causal()(4, 4)) & exists[None, :] & exists[:, None]
    run = lambda x: attend(x, x, x, beta=1.0, mask=mask)
    alone = attend(x[1:], x[1:], x[1:], beta=1.0, mask=Causal()(3, 3))
    np.testing.assert_allclose(run(x)[1:], alone, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(run(x)[0], [0, 0])
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(run(x)[1:] ** 2)))(x)
    np.testing.assert_array_equal(gradient[0], [0, 0])
    assert (np.asarray(gradient[1:]) != 0).any()


def test_s03_padding_behind_a_mask_changes_nothing_and_zeros_without_one_do():
    x = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    padded = np.concatenate([x, np.zeros((3, 3), np.float32)])
    exists = np.array([True] * 4 + [False] * 3)
    run = functools.partial(compiled(attend), beta=1.0)
    alone = run(x, x, x)
    masked = run(padded, padded, padded, mask=exists)
    np.testing.assert_allclose(masked[:4], alone, rtol=0, atol=1e-6)
    unmasked = run(padded, padded, padded)
    assert np.abs(unmasked[:4] - alone).max() > 0.1


@functools.cache
def of_the_first_four(chunk_size):
    """The first four rows of every kernel of x with itself, and a gradient."""

    def loss(x, mask):
        given = {"beta": 1.0, "mask": mask}
        out = attend(x, x, x, chunk_size=chunk_size, **given)[:4]
        weights, sums = log_weights(x, x, **given)[:4], kernel_sum(x, x, x, **given)[:4]
        loss = jnp.sum(out**2) + jnp.sum(sums) + jnp.sum(jnp.exp(weights) ** 2)
        return loss, (out, weights, sums)

    return jax.jit(jax.grad(loss, has_aux=True))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["keys", "pairs", "pairs in chunks"])
def test_s04_garbage_in_padded_rows_does_not_leak(kind, garbage):
    x = np.random.default_rng(4).standard_normal((4, 3)).astype(np.float32)
    padded = np.concatenate([x, np.full((3, 3), garbage, np.float32)])
    exists = np.array([True] * 4 + [False] * 3)
    mask = exists if kind == "keys" else exists[:, None] & exists[None, :]
    chunk_size = 2 if kind == "pairs in chunks" else None
    got, (out, weights, sums) = of_the_first_four(chunk_size)(padded, mask)
    want, alone = of_the_first_four(chunk_size)(x, None)
    close(out, alone[0], 1e-6)
    close(weights[:, :4], alone[1], 2e-6)
    assert (np.asarray(weights[:, 4:]) == -np.inf).all()
    close(sums, alone[2], 2e-6)
    close(got[:4], want, 5e-6)
    np.testing.assert_array_equal(got[4:], np.zeros((3, 3)))


@pytest.mark.parametrize("place", ["key", "value", "query"])
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_nan_in_a_permitted_row_reaches_the_rows_that_see_it_and_only_these(
    tokens, place, chunk_size
):
    operands = dict(zip(("query", "key", "value"), tokens, strict=True))
    operands = {name: array.copy() for name, array in operands.items()}
    operands[place][1, 1] = np.nan
    q, k, v = operands.values()
    mask = pair_mask()
    sees = np.arange(N_Q) == 1 if place == "query" else mask[:, 1]
    assert 0 < sees.sum() < N_Q
    out = np.asarray(
        compiled(attend)(q, k, v, beta=0.7, mask=mask, chunk_size=chunk_size)
    )
    np.testing.assert_array_equal(np.isnan(out).any(axis=1), sees)
    clean = compiled(attend)(*tokens, beta=0.7, mask=mask)
    np.testing.assert_allclose(out[~sees], np.asarray(clean)[~sees], rtol=1e-6)
    if place != "value":
        weights = np.asarray(compiled(log_weights)(q, k, beta=0.7, mask=mask))
        np.testing.assert_array_equal(np.isnan(weights).any(axis=1), sees)
    sums = np.asarray(compiled(kernel_sum)(q, k, v, beta=0.7, mask=mask))
    np.testing.assert_array_equal(np.isnan(sums).any(axis=1), sees)


def test_nan_without_a_mask_is_not_hidden(tokens):
    q, k, v = (array.copy() for array in tokens)
    v[2, 0] = np.nan
    out = np.asarray(compiled(attend)(q, k, v, beta=0.7))
    assert np.isnan(out[:, 0]).all()
    assert np.isfinite(out[:, 1:]).all()


# --- Numerics -------------------------------------------------------------------------


def test_s05_a_row_of_minus_inf_has_log_weights_minus_inf_and_gradient_0(tokens):
    q, k, _ = tokens
    mask = pair_mask()

    def row(q, k, prior):
        out = log_weights(q, k, beta=0.7, log_prior=prior, mask=mask)[3]
        return jnp.sum(out), out

    gradient = jax.jit(jax.grad(row, (0, 1, 2), has_aux=True))
    gradients, out = gradient(q, k, np.zeros(N_K, q.dtype))
    assert (np.asarray(out) == -np.inf).all()
    assert all((np.asarray(g) == 0).all() for g in gradients)


def test_a_prior_of_minus_inf_everywhere_is_a_row_that_sees_nothing(tokens):
    q, k, v = tokens
    prior = np.zeros((N_Q, N_K), q.dtype)
    prior[2] = -np.inf

    def total(q, k, v, prior):
        out = attend(q, k, v, beta=0.7, log_prior=prior)
        return jnp.sum(out), out

    gradient = jax.jit(jax.grad(total, (0, 1, 2, 3), has_aux=True))
    gradients, out = gradient(q, k, v, prior)
    np.testing.assert_array_equal(out[2], np.zeros(D_V))
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][2], np.zeros(D))


@pytest.mark.parametrize("beta", [1e3, 1e6])
def test_s06_a_very_large_beta_picks_the_nearest_key(beta):
    x = jnp.asarray([[1.0, 0.0], [0.6, 0.8]], jnp.float32)
    out = attend(x, x, jnp.eye(2, dtype=jnp.float32), beta=beta)
    np.testing.assert_array_equal(out, np.eye(2))
    weights = jnp.exp(log_weights(x, x, beta=beta))
    np.testing.assert_allclose(jnp.sum(weights, axis=1), [1, 1], rtol=0, atol=1e-6)
    loss = lambda x, beta: jnp.sum(jnp.sin(attend(x, x, x, beta=beta)))
    gradients = jax.jit(jax.grad(loss, (0, 1)))(x, beta)
    assert all(np.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("chunk_size", [None, 1])
def test_s07_a_score_product_that_overflows_float16_does_no_harm(chunk_size):
    q = jnp.full((1, 64), 40.0, jnp.float16)
    k = jnp.stack([jnp.full(64, 40.0, jnp.float16), jnp.full(64, 39.0, jnp.float16)])
    out = attend(q, k, jnp.eye(2, dtype=jnp.float16), chunk_size=chunk_size)
    assert out.dtype == jnp.float16
    np.testing.assert_array_equal(out, [[1.0, 0.0]])
    # The scaled logits are 12800 and 12480: 320 apart.
    np.testing.assert_allclose(log_weights(q, k), [[0.0, -320.0]], rtol=1e-3)


def test_s07_a_score_product_beyond_float32_is_scaled_before_it_is_formed():
    q = jnp.full((1, 1), 1e20, jnp.float32)
    k = jnp.asarray([[1e20], [0.9e20]], jnp.float32)
    out = attend(q, k, jnp.eye(2, dtype=jnp.float32), beta=1e-30)
    np.testing.assert_array_equal(out, [[1.0, 0.0]])


def test_s08_float64_is_computed_in_float64():
    if not jax.config.jax_enable_x64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    x = np.array([[1.0, 2.0], [0.5, -1.0]])
    weights, _ = numpy_weights(x, x, 1 / np.sqrt(2))
    for chunk_size in (None, 1):
        out = attend(x, x, x, chunk_size=chunk_size)
        assert out.dtype == jnp.float64
        assert np.abs(out - weights @ x).max() < 1e-14


@pytest.mark.parametrize(
    ("logits", "expected"), [([0.0, -500.0], 0.0), ([0.0, 0.0], np.log(2))]
)
def test_s09_the_entropy_of_one_hot_weights_is_0_with_gradient_0(logits, expected):
    def entropy(logits):
        log = log_weights(jnp.ones((1, 1), jnp.float32), logits[:, None], beta=1.0)
        return -jnp.sum(jnp.exp(log) * log)

    logits = jnp.asarray(logits, jnp.float32)
    value, gradient = jax.jit(jax.value_and_grad(entropy))(logits)
    assert abs(float(value) - expected) < 1e-6
    np.testing.assert_array_equal(gradient, [0, 0])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("function", [attend, log_weights, kernel_sum])
def test_half_precision_is_computed_in_float32_and_rounded_once(
    tokens, function, dtype
):
    half = [
        jnp.asarray(a, dtype) for a in tokens[: 2 if function is log_weights else 3]
    ]
    out = function(*half, beta=0.7)
    wide = function(*(a.astype(jnp.float32) for a in half), beta=0.7)
    assert (out.dtype, wide.dtype) == (dtype, jnp.float32)
    np.testing.assert_array_equal(out, wide.astype(dtype))


# --- Input ----------------------------------------------------------------------------


ERRORS = {
    "rank of q": (
        {"q": np.ones(D)},
        r"`q` must have shape \(n_q, d_k\), but was of shape \(3,\).",
    ),
    "no keys": (
        {"k": np.ones((0, D)), "v": np.ones((0, D_V))},
        r"`k` must have shape \(n_k, d_k\) with no axis of length 0, "
        r"but was of shape \(0, 3\)",
    ),
    "rank of v": (
        {"v": np.ones(N_K)},
        r"`v` must have shape \(n_k, d_v\), but was of shape \(5,\)",
    ),
    "width of q": (
        {"q": np.ones((2, 4))},
        r"`q` must have shape \(n_q, 3\), as wide as the keys, "
        r"but was of shape \(2, 4\)",
    ),
    "number of values": (
        {"v": np.ones((4, 2))},
        r"`v` must have shape \(5, d_v\), a value for each key, "
        r"but was of shape \(4, 2\)",
    ),
    "beta": ({"beta": np.ones(2)}, r"`beta` must be a scalar, but was of shape \(2,\)"),
    "mask of floats": (
        {"mask": np.ones(N_K)},
        "`mask` must be boolean, but was of dtype float",
    ),
    "mask of a wrong shape": (
        {"mask": np.ones(N_Q, bool)},
        r"`mask` must have shape \(5,\) or \(7, 5\), but was of shape \(7,\)",
    ),
    "prior of a wrong shape": (
        {"log_prior": np.ones((N_K, N_Q))},
        r"`log_prior` must have shape \(5,\) or \(7, 5\), but was of shape \(5, 7\)",
    ),
    "chunk of 0": (
        {"chunk_size": 0},
        "`chunk_size` must be a positive integer, but was 0",
    ),
    "chunk of True": (
        {"chunk_size": True},
        "`chunk_size` must be a positive integer, but was True",
    ),
    "text": ({"q": "query"}, "`q` must be a real array, but was a str: 'query'"),
    "complex": (
        {"v": np.ones((N_K, 2)) * 1j},
        "`v` must be a real array, but was of dtype",
    ),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS)
def test_bad_input_is_refused_by_name(tokens, change, message):
    arguments = dict(zip("qkv", tokens, strict=True)) | change
    with pytest.raises(ValueError, match=message):
        attend(**arguments)


@pytest.mark.usefixtures("unchecked")
def test_integers_are_real_too():
    x = np.array([[1, 0], [0, 1]])
    out = attend(x, x, x, beta=1)
    assert out.dtype == jnp.zeros(()).dtype
    np.testing.assert_array_equal(out, attend(*[x.astype(out.dtype)] * 3, beta=1.0))
