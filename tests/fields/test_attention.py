"""The attention fields: reference numbers, the energy identities, masks and heads."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import Causal
from tfjax.energies import interaction_energy
from tfjax.fields import (
    AttentionParams,
    self_attention as sa,
    unnormalized_self_attention as usa,
)


REFERENCE = np.load(Path(__file__).parents[1] / "reference" / "fields.npz")
STATES = ("n10_d3_b1", "n16_d8_b2", "n32_d2_b9", "n32_d3_b1", "n32_d3_b4")
CASES = ((32, 3, 1.0), (20, 2, 4.0), (16, 8, 9.0))
X64 = jax.config.jax_enable_x64

in_float64 = pytest.mark.skipif(
    not X64, reason="needs JAX_ENABLE_X64: the claim is 1e-12 of the largest entry"
)
both_fields = pytest.mark.parametrize("field", [sa, usa], ids=["SA", "USA"])
every_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda c: "n={},d={},beta={:g}".format(*c)
)


@functools.cache
def compiled(field):
    return jax.jit(field)


def run(field, x, args=None, t=0.0):
    return np.asarray(compiled(field)(t, x, args))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def random(*shape, seed=0):
    values = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return values.astype(jnp.zeros(()).dtype)


def tokens(n, d, seed=0):
    return unit(random(n, d, seed=seed))


def textbook(x, beta, query=None, key=None, value=None, allowed=None, normalized=True):
    """The field by its formula, one token and one head at a time, in numpy."""
    x = np.asarray(x, np.float64)
    n, d = x.shape
    eye = np.eye(d)
    weights = [eye if w is None else w for w in (query, key, value)]
    heads = max([w.shape[0] for w in weights if w.ndim == 3], default=1)
    out = np.zeros_like(x)
    for q, k, v in zip(
        *(w if w.ndim == 3 else [w] * heads for w in weights), strict=True
    ):
        for i in range(n):
            kernel = np.array(
                [np.exp(beta * (q @ x[i]) @ (k @ x[j])) for j in range(n)]
            )
            if allowed is not None:
                kernel = kernel * allowed[i]
            total = kernel.sum() if normalized else n
            out[i] += sum(kernel[j] * (v @ x[j]) for j in range(n)) / (total or 1)
    return out - np.sum(out * x, axis=1, keepdims=True) * x


def close(actual, expected, tolerance):
    """Equal up to the tolerance times the largest entry."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def bound(beta):
    """1e-12 in float64; in float32 the exponent magnifies the rounding by 1 + beta."""
    return 1e-12 if X64 else 1e-6 * (1 + beta)


# --- Reference numbers ----------------------------------------------------------------


@in_float64
@pytest.mark.parametrize("name", STATES)
def test_sa_and_usa_agree_with_the_reference(name):
    beta, x = REFERENCE[f"{name}/beta"], REFERENCE[f"{name}/X0"]
    params = AttentionParams(beta=beta)
    close(run(sa, x, params), REFERENCE[f"{name}/field_SA"], 1e-12)
    close(run(usa, x, params), REFERENCE[f"{name}/field_USA"], 1e-12)


def qkv():
    names = {"beta": "beta", "query": "Q", "key": "K", "value": "V"}
    return {ours: REFERENCE[f"qkv/{theirs}"] for ours, theirs in names.items()}


@in_float64
def test_general_weights_agree_with_the_reference():
    x, params = REFERENCE["qkv/X0"], AttentionParams(**qkv())
    close(run(sa, x, params), REFERENCE["qkv/field"], 1e-12)
    close(run(usa, x, params), REFERENCE["qkv/field_usa"], 1e-12)


@in_float64
def test_causal_attention_agrees_with_its_formula():
    x, weights = REFERENCE["qkv/X0"], qkv()
    params = AttentionParams(**weights, mask="causal")
    allowed = np.tril(np.ones((len(x), len(x))))
    close(run(sa, x, params), textbook(x, **weights, allowed=allowed), 1e-12)
    expected = textbook(x, **weights, allowed=allowed, normalized=False)
    close(run(usa, x, params), expected, 1e-12)


@in_float64
def test_three_heads_agree_with_the_reference():
    # The reference holds a feed-forward term too, P_x(w relu(a x + b)): taken off here.
    part = {k.split("/")[1]: v for k, v in REFERENCE.items() if "multihead" in k}
    x = part["X0"]
    hidden = np.maximum(x @ part["a"].T + part["b"], 0.0) @ part["w"].T
    hidden -= np.sum(hidden * x, axis=1, keepdims=True) * x
    names = {"query": "Q", "key": "K", "value": "V", "beta": "beta"}
    params = AttentionParams(**{ours: part[theirs] for ours, theirs in names.items()})
    close(run(sa, x, params), part["field"] - hidden, 1e-12)


# --- The identities of the interaction energy -----------------------------------------


@functools.cache
def gradient_of_energy(centred=False):
    def energy(x, beta, b):
        return interaction_energy(x, beta, bilinear=b, centred=centred)

    return jax.jit(jax.grad(energy))


def riemannian(x, beta, b=None, centred=False):
    """The gradient of the energy on the product of spheres."""
    b = np.eye(x.shape[1], dtype=x.dtype) if b is None else b
    g = np.asarray(gradient_of_energy(centred)(x, beta, b))
    return g - np.sum(g * x, axis=1, keepdims=True) * x


def rate(gradient, velocity):
    return np.sum(gradient * velocity)


def partition(x, beta, b=None):
    """Z_i = sum_j exp(beta <B x_i, x_j>)."""
    b = np.eye(x.shape[1]) if b is None else b
    return np.exp(beta * (x @ b.T) @ x.T).sum(axis=1)


def symmetric(d, seed=3):
    b = random(d, d, seed=seed)
    return (b + b.T) / (2 * np.sqrt(d)).astype(b.dtype)


@every_case
def test_identity_1_usa_is_n_times_the_gradient_of_the_energy(case):
    n, d, beta = case
    x = tokens(n, d)
    velocity = run(usa, x, AttentionParams(beta=beta))
    close(n * riemannian(x, beta), velocity, bound(beta))


@every_case
def test_identity_1_sa_is_n_squared_times_the_gradient_over_the_partition_function(
    case,
):
    n, d, beta = case
    x = tokens(n, d)
    velocity = run(sa, x, AttentionParams(beta=beta))
    expected = n**2 * riemannian(x, beta) / partition(x, beta)[:, None]
    close(expected, velocity, bound(beta))


@every_case
def test_identity_2_usa_dissipates_the_mean_squared_speed(case):
    n, d, beta = case
    x = tokens(n, d)
    velocity = run(usa, x, AttentionParams(beta=beta))
    expected = np.sum(velocity**2) / n
    assert rate(riemannian(x, beta), velocity) == pytest.approx(
        expected, rel=bound(beta)
    )


@every_case
def test_identity_3_sa_dissipates_the_speeds_weighted_by_the_partition_function(case):
    n, d, beta = case
    x = tokens(n, d)
    velocity = run(sa, x, AttentionParams(beta=beta))
    change = rate(riemannian(x, beta), velocity)
    speeds = np.sum(velocity**2, axis=1)
    expected = np.sum(partition(x, beta) / n * speeds) / n
    assert change == pytest.approx(expected, rel=bound(beta))
    assert np.exp(-beta) * speeds.mean() <= change <= np.exp(beta) * speeds.mean()


@every_case
def test_identity_5_sa_is_a_gradient_in_the_modified_metric_iff_v_is_a_symmetric_qk(
    case,
):
    n, d, beta = case
    x, b = tokens(n, d), symmetric(d)
    other = random(n, d, seed=5)
    other -= np.sum(other * x, axis=1, keepdims=True) * x
    derivative = rate(riemannian(x, beta, b), other)

    def in_the_metric(velocity, b):
        weights = partition(x, beta, b) / n**2
        return np.sum(weights[:, None] * velocity * other)

    # V = B = Q^T K with Q = B and K the identity.
    velocity = run(sa, x, AttentionParams(beta=beta, query=b, value=b))
    scale = np.abs(
        partition(x, beta, b) / n**2 * np.sum(velocity * other, axis=1)
    ).sum()
    assert abs(in_the_metric(velocity, b) - derivative) < bound(beta) * scale
    # Not so for another V, nor for a B that is not symmetric.
    velocity = run(sa, x, AttentionParams(beta=beta, query=b))
    assert abs(in_the_metric(velocity, b) - derivative) > 1e-3 * scale
    skewed = b + random(d, d, seed=6)
    velocity = run(sa, x, AttentionParams(beta=beta, query=skewed, value=skewed))
    derivative = rate(riemannian(x, beta, skewed), other)
    assert abs(in_the_metric(velocity, skewed) - derivative) > 1e-3 * scale


@every_case
@pytest.mark.parametrize("sign", [1, -1])
def test_identity_6_symmetric_weights_raise_the_energy_and_their_negative_lowers_it(
    case, sign
):
    n, d, beta = case
    x, b = tokens(n, d), symmetric(d)
    gradient = riemannian(x, beta, b)
    params = AttentionParams(beta=beta, query=b, value=sign * b)
    velocity = run(sa, x, params)
    expected = np.sum(partition(x, beta, b) / n * np.sum(velocity**2, axis=1)) / n
    assert rate(gradient, velocity) == pytest.approx(sign * expected, rel=bound(beta))
    velocity = run(usa, x, params)
    expected = np.sum(velocity**2) / n
    assert rate(gradient, velocity) == pytest.approx(sign * expected, rel=bound(beta))


@every_case
def test_identity_7_the_rate_of_the_energy_for_general_weights(case):
    n, d, beta = case
    x = tokens(n, d)
    q, k, v = (random(d, d, seed=s) / np.sqrt(d).astype(x.dtype) for s in (7, 8, 9))
    velocity = run(sa, x, AttentionParams(beta=beta, query=q, key=k, value=v))
    b = q.T @ k
    kernel = np.exp(beta * x @ b @ x.T)
    g = (kernel @ x @ b.T + kernel.T @ x @ b) / (2 * n**2)
    g -= np.sum(g * x, axis=1, keepdims=True) * x
    scale = np.abs(g * velocity).sum()
    change = rate(riemannian(x, beta, b), velocity)
    assert abs(change - rate(g, velocity)) < bound(beta) * scale


@pytest.mark.parametrize(("n", "d"), [case[:2] for case in CASES])
@both_fields
def test_identity_8_at_beta_0_the_energy_is_half_the_squared_mean(field, n, d):
    x = tokens(n, d)
    velocity = run(field, x, AttentionParams(beta=0.0))
    mean = x.mean(axis=0)
    expected = mean - x @ mean[:, None] * x
    close(velocity, expected, bound(0.0))
    change = rate(riemannian(x, 0.0, centred=True), velocity)
    assert change == pytest.approx(np.sum(velocity**2) / n, rel=bound(0.0))


@every_case
def test_identity_11_the_height_over_a_hemisphere(case):
    n, d, beta = case
    x = tokens(n, d)
    w = unit(random(d, seed=11))
    velocity = run(sa, x, AttentionParams(beta=beta))
    kernel = np.exp(beta * x @ x.T)
    heights = x @ w
    pull = heights[None, :] - (x @ x.T) * heights[:, None]
    expected = np.sum(kernel * pull, axis=1) / kernel.sum(axis=1)
    close(velocity @ w, expected, bound(beta))


# --- Weights and heads ----------------------------------------------------------------


def weights(h, d_k, d, seed=1):
    shape = (d_k, d) if h is None else (h, d_k, d)
    square = (d, d) if h is None else (h, d, d)
    return {
        "query": random(*shape, seed=seed),
        "key": random(*shape, seed=seed + 1),
        "value": random(*square, seed=seed + 2),
    }


@both_fields
@pytest.mark.parametrize("d_k", [1, 2, 7], ids=lambda d: f"d_k={d}")
def test_weights_of_any_rank_follow_the_formula(field, d_k):
    x, given = tokens(6, 4), weights(None, d_k, 4)
    expected = textbook(x, 0.3, **given, normalized=field is sa)
    close(run(field, x, AttentionParams(beta=0.3, **given)), expected, bound(3))


@both_fields
def test_several_heads_are_the_sum_of_single_heads(field):
    x, given = tokens(6, 4), weights(3, 2, 4)
    whole = run(field, x, AttentionParams(beta=0.3, **given))
    each = [{name: w[h] for name, w in given.items()} for h in range(3)]
    parts = [run(field, x, AttentionParams(beta=0.3, **one)) for one in each]
    close(whole, sum(parts), bound(3))
    close(whole, textbook(x, 0.3, **given, normalized=field is sa), bound(3))


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_heads_may_share_the_weights_that_have_no_head_axis(name):
    x, given = tokens(6, 4), weights(3, 4, 4)
    shared = {n: w if n == name else w[0] for n, w in given.items()}
    got = run(sa, x, AttentionParams(beta=0.3, **shared))
    close(got, textbook(x, 0.3, **shared), bound(3))
    alone = {name: given[name]}
    got = run(sa, x, AttentionParams(beta=0.3, **alone))
    close(got, textbook(x, 0.3, **alone), bound(3))


@both_fields
def test_the_defaults_are_beta_1_and_the_identity(field):
    x = tokens(6, 4)
    expected = textbook(x, 1.0, normalized=field is sa)
    close(run(field, x), expected, bound(1))
    close(run(field, x, AttentionParams()), expected, bound(1))
    eye = np.eye(4, dtype=x.dtype)
    params = AttentionParams(query=eye, key=eye, value=eye)
    close(run(field, x, params), expected, bound(1))


def test_chunks_give_the_same_velocity():
    x, given = tokens(7, 4), weights(2, 2, 4)
    exists = np.array([True] * 5 + [False] * 2)
    for mask in (None, ("causal", exists)):
        dense = AttentionParams(beta=0.3, **given, mask=mask)
        chunked = AttentionParams(beta=0.3, **given, mask=mask, chunk_size=3)
        close(run(sa, x, chunked), run(sa, x, dense), bound(3))


# --- On and off the sphere ------------------------------------------------------------


@both_fields
def test_velocities_are_tangent(field):
    x = tokens(6, 4)
    velocity = run(field, x, AttentionParams(beta=2.0, **weights(2, 2, 4)))
    scale = np.abs(velocity).max()
    inner = np.sum(x * velocity, axis=1)
    np.testing.assert_allclose(inner, np.zeros(6), atol=scale * 5 * bound(0))


@both_fields
def test_off_the_sphere_the_field_is_that_of_the_normalised_tokens(field):
    x = tokens(6, 4)
    params = AttentionParams(beta=2.0, value=-np.eye(4, dtype=x.dtype))
    lengths = np.linspace(0.1, 3.0, 6).astype(x.dtype)[:, None]
    expected = run(field, x, params)
    close(run(field, lengths * x, params), expected, bound(2))
    # So |x| is constant along the flow: <c x, v> = 0, where P_{cx} would not give 0.
    inner = np.sum(lengths * x * expected, axis=1)
    np.testing.assert_allclose(inner, np.zeros(6), atol=10 * bound(2))


@both_fields
def test_a_consensus_and_balanced_tokens_rest(field):
    one = np.broadcast_to(tokens(1, 4), (6, 4))
    np.testing.assert_allclose(run(field, one), np.zeros((6, 4)), atol=5 * bound(0))
    angles = 2 * np.pi * np.arange(5) / 5
    polygon = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(one.dtype)
    np.testing.assert_allclose(run(field, polygon), np.zeros((5, 2)), atol=5 * bound(0))


@both_fields
def test_time_does_not_enter(field):
    x = tokens(6, 4)
    np.testing.assert_array_equal(run(field, x, t=7.5), run(field, x))


# --- Masks ----------------------------------------------------------------------------

EXISTS = np.array([True, True, False, True, False, True])
PAIRS = np.random.default_rng(4).random((6, 6)) < 0.6
PAIRS[0] = False  # sees nothing


@both_fields
def test_causal_tokens_move_as_if_the_later_ones_were_not_there(field):
    x, given = tokens(6, 4), weights(2, 2, 4)
    whole = run(field, x, AttentionParams(beta=0.3, **given, mask="causal"))
    for i in range(6):
        alone = textbook(x[: i + 1], 0.3, **given, normalized=field is sa)[i]
        share = 1.0 if field is sa else (i + 1) / 6  # USA divides by n
        np.testing.assert_allclose(whole[i], share * alone, atol=20 * bound(3))


def test_the_first_causal_token_rests():
    params = AttentionParams(beta=2.0, mask="causal")
    np.testing.assert_allclose(run(sa, tokens(6, 4), params)[0], 0, atol=bound(2))


@both_fields
def test_a_mask_of_pairs_follows_the_formula_and_a_token_that_sees_nothing_rests(field):
    x = tokens(6, 4)
    velocity = run(field, x, AttentionParams(beta=2.0, mask=PAIRS))
    expected = textbook(x, 2.0, allowed=PAIRS, normalized=field is sa)
    close(velocity, expected, bound(2))
    np.testing.assert_array_equal(velocity[0], np.zeros(4))


@both_fields
@pytest.mark.parametrize("mask", [EXISTS, (EXISTS, "causal"), (PAIRS, EXISTS)], ids=str)
def test_absent_tokens_rest_and_the_others_move_as_if_they_were_not_there(field, mask):
    x = tokens(6, 4)
    velocity = run(field, x, AttentionParams(beta=2.0, mask=mask))
    np.testing.assert_array_equal(velocity[~EXISTS], np.zeros((2, 4)))
    allowed = np.ones((6, 6), bool)
    if isinstance(mask, tuple):
        allowed = PAIRS if mask[0] is PAIRS else np.tril(allowed)
    expected = textbook(
        x[EXISTS],
        2.0,
        allowed=allowed[np.ix_(EXISTS, EXISTS)],
        normalized=field is sa,
    )
    close(velocity[EXISTS], expected, bound(2))


@functools.cache
def velocity_and_gradients(field):
    def loss(x, floats, mask):
        velocity = field(0.0, x, AttentionParams(*floats, mask=mask))
        return jnp.sum(velocity * random(6, 4, seed=9)), velocity

    return jax.jit(jax.grad(loss, (0, 1), has_aux=True))


@both_fields
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 0.0])
@pytest.mark.parametrize("mask", [(EXISTS,), (EXISTS, Causal())], ids=["all", "causal"])
def test_s04_garbage_in_absent_rows_leaks_into_no_velocity_and_no_gradient(
    field, garbage, mask
):
    x, given = tokens(6, 4), weights(2, 2, 4)
    floats = (np.asarray(0.3, x.dtype), *given.values())
    dirty = np.where(EXISTS[:, None], x, garbage).astype(x.dtype)
    clean, got = (velocity_and_gradients(field)(s, floats, mask) for s in (x, dirty))
    np.testing.assert_array_equal(got[0][0][~EXISTS], np.zeros((2, 4)))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(clean), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()


@both_fields
def test_s03_padding_behind_a_mask_changes_no_step_and_zeros_without_one_do(field):
    x = tokens(4, 3).astype(np.float32)
    padded = np.concatenate([x, np.zeros((3, 3), np.float32)])
    exists = np.array([True] * 4 + [False] * 3)

    def five_steps(x, args):
        for _ in range(5):
            x = x + np.float32(0.1) * run(field, x, args)
            length = np.linalg.norm(x, axis=1, keepdims=True)
            x = np.divide(x, length, out=np.zeros_like(x), where=length > 0)
        return x

    masked = AttentionParams(beta=1.0, mask=exists)
    plain = AttentionParams(beta=1.0)
    velocity = run(field, padded, masked)
    np.testing.assert_allclose(velocity[:4], run(field, x, plain), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(velocity[4:], np.zeros((3, 3)))
    end = five_steps(padded, masked)
    np.testing.assert_allclose(end[:4], five_steps(x, plain), rtol=0, atol=1e-6)
    assert np.abs(run(field, padded, plain)[:4] - velocity[:4]).max() > 0.1


def test_s02_causal_and_padding_together():
    x = np.array([[9, 9], [1, 0], [0, 1], [1, 1]], np.float32)
    mask = ("causal", np.array([False, True, True, True]))
    velocity = run(sa, x, AttentionParams(beta=1.0, mask=mask))
    alone = run(sa, x[1:], AttentionParams(beta=1.0, mask="causal"))
    np.testing.assert_allclose(velocity[1:], alone, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(velocity[0], [0, 0])


@both_fields
def test_with_no_token_there_is_no_motion(field):
    params = AttentionParams(mask=np.zeros(6, bool))
    np.testing.assert_array_equal(run(field, tokens(6, 4), params), np.zeros((6, 4)))


@both_fields
def test_nan_in_a_token_reaches_the_tokens_that_see_it_and_only_these(field):
    x = tokens(6, 4)
    x[2, 1] = np.nan
    velocity = run(field, x, AttentionParams(mask="causal"))
    np.testing.assert_array_equal(np.isnan(velocity).any(axis=1), np.arange(6) >= 2)


# --- Overflow -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "fits"), [("float16", 10.0), ("bfloat16", 87.0), ("float32", 87.0)]
)
def test_usa_raises_naming_beta_where_the_exponential_leaves_the_dtype(dtype, fits):
    x = jnp.asarray([[1.0, 0.0], [0.8, 0.6]], dtype)
    assert np.isfinite(usa(0.0, x, AttentionParams(beta=fits))).all()
    message = (
        r"^`beta` must be so small that exp\(beta <Q x_i, K x_j>\) lies within its "
        r"dtype, but was 120.$"
    )
    with pytest.raises(ValueError, match=message):
        usa(0.0, x, AttentionParams(beta=120.0))
    assert np.isfinite(sa(0.0, x, AttentionParams(beta=120.0))).all()


# --- Input ----------------------------------------------------------------------------


def four(*shape):
    return np.ones(shape)


ERRORS = {
    "beta": ({"beta": four(2)}, r"`beta` must be a scalar, but was of shape \(2,\)"),
    "query": (
        {"query": four(2, 3)},
        r"`query` must have shape \(d_k, d\) or \(h, d_k, d\) with d = 4, "
        r"but was of shape \(2, 3\)",
    ),
    "key": ({"key": four(4)}, r"`key` must have shape .*, but was of shape \(4,\)"),
    "value": (
        {"value": four(3, 4)},
        r"`value` must have shape \(d, d\) or \(h, d, d\) with d = 4, "
        r"but was of shape \(3, 4\)",
    ),
    "heads": (
        {"query": four(2, 4, 4), "value": four(3, 4, 4)},
        "`args` must have as many heads in query, key and value, "
        "but was {'query': 2, 'value': 3}",
    ),
    "ranks": (
        {"query": four(2, 4), "key": four(3, 4)},
        r"`query` must map to the same d_k as key \(3\), but was a map to 2 dimensions",
    ),
    "query alone": (
        {"query": four(2, 4)},
        r"`query` must map to the same d_k as key \(4\), but was a map to 2 dimensions",
    ),
    "mask": (
        {"mask": np.ones(5, bool)},
        r"`mask` must have shape \(6,\) or \(6, 6\) for 6 tokens, "
        r"but was of shape \(5,\)",
    ),
}


@both_fields
@pytest.mark.parametrize(("given", "message"), ERRORS.values(), ids=ERRORS)
def test_parameters_that_do_not_fit_are_refused_by_name(field, given, message):
    params = AttentionParams(**given)
    with pytest.raises(ValueError, match=message):
        field(0.0, tokens(6, 4), params)


@pytest.mark.usefixtures("unchecked")
@both_fields
def test_tokens_and_args_of_the_wrong_kind_are_refused_by_name(field):
    with pytest.raises(
        ValueError, match=r"`x` must have shape \(n, d\), but was of shape"
    ):
        field(0.0, np.ones(3))
    with pytest.raises(
        ValueError, match=r"no axis of length 0, but was of shape \(0, 3\)"
    ):
        field(0.0, np.ones((0, 3)))
    with pytest.raises(ValueError, match="`x` must be a real array"):
        field(0.0, "tokens")
    message = "`args` must be of type AttentionParams, .* or None, but was dict"
    with pytest.raises(ValueError, match=message):
        field(0.0, np.eye(3), {"beta": 1.0})
    with pytest.raises(ValueError, match="`args` must be .*, but was an array"):
        field(0.0, np.eye(3), jnp.ones(()))


def test_usa_by_chunks_is_usa(tol):
    whole = usa(0.0, tokens(6, 4), AttentionParams(beta=2.0))
    chunked = usa(0.0, tokens(6, 4), AttentionParams(beta=2.0, chunk_size=2))
    np.testing.assert_allclose(chunked, whole, atol=5 * tol.identity)


@pytest.mark.usefixtures("unchecked")
@both_fields
def test_integers_are_real_too(field):
    x, beta = np.array([[1, 0], [0, 1]]), 2
    got = field(0, x, AttentionParams(beta=beta))
    assert got.dtype == jnp.zeros(()).dtype
    expected = field(0.0, x.astype(got.dtype), AttentionParams(beta=2.0))
    np.testing.assert_array_equal(got, expected)


# --- AttentionParams ------------------------------------------------------------------


def test_the_parameters_are_a_tree_of_their_arrays():
    params = AttentionParams(beta=2.0, value=np.eye(3), mask="causal", chunk_size=2)
    leaves = jax.tree.leaves(params)
    assert [leaf.shape for leaf in leaves] == [(), (3, 3)]
    assert isinstance(params.mask, Causal)
    assert [p.shape for p in jax.tree.leaves(AttentionParams())] == [()]


def test_masks_of_every_kind_are_kept():
    params = AttentionParams(mask=("causal", EXISTS, None))
    causal, exists, nothing = params.mask
    assert isinstance(causal, Causal)
    assert exists.dtype == bool
    assert nothing is None


@pytest.mark.usefixtures("unchecked")
def test_bad_parameters_are_refused_when_they_are_made():
    message = (
        '`mask` must be None, "causal", boolean, a mask module, or a tuple of these, '
        "but was 'casual'"
    )
    with pytest.raises(ValueError, match=message):
        AttentionParams(mask="casual")
    with pytest.raises(
        ValueError, match="`mask` must be boolean, but was of dtype int"
    ):
        AttentionParams(mask=("causal", np.array([1, 0])))
    with pytest.raises(
        ValueError, match="`value` must be a real array, but was of dtype"
    ):
        AttentionParams(value=np.eye(2) * 1j)
    with pytest.raises(ValueError, match="`beta` must be a real array, but was a str"):
        AttentionParams(beta="hot")


@pytest.mark.usefixtures("unchecked")
def test_no_heads_at_all_are_refused():
    none = AttentionParams(query=np.zeros((0, 3, 3)))
    with pytest.raises(ValueError, match=r"`query` must have shape .* \(0, 3, 3\)"):
        sa(0.0, np.eye(3), none)
