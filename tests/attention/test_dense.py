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
