"""Doubly stochastic weights: the sums, the energy that they belong to, gradients."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from tfjax.attention import Causal, TopK, attend_sinkhorn, sinkhorn


X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
in_float64 = pytest.mark.skipif(
    not X64, reason="needs JAX_ENABLE_X64: the claim is one of float64"
)
both_forms = pytest.mark.parametrize("symmetric", [False, True])
seeds = st.integers(0, 2**32 - 1)
EXISTS = np.array([True] * 4 + [False] + [True] * 4 + [False])


def random(*shape, seed=0):
    values = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return jnp.asarray(values, DTYPE)


def tokens(n, d, seed=0):
    x = random(n, d, seed=seed)
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


@functools.cache
def compiled(symmetric, **kwargs):
    return jax.jit(functools.partial(sinkhorn, symmetric=symmetric, **kwargs))


def sums(out):
    weights = np.exp(np.asarray(out.log_weights, np.float64))
    return weights.sum(axis=1), weights.sum(axis=0)


# --- The scaling ----------------------------------------------------------------------


@given(seeds, st.floats(0, 9))
def test_rows_and_columns_of_tokens_on_the_sphere_sum_to_1(seed, beta):
    x = tokens(10, 3, seed=seed)
    out = compiled(True)(jnp.asarray(beta, DTYPE) * x @ x.T)
    assert bool(out.converged)
    for total in sums(out):
        np.testing.assert_allclose(total, 1, rtol=0, atol=1e-12 if X64 else 2e-5)
    weights = np.exp(out.log_weights)
    np.testing.assert_allclose(weights, weights.T, rtol=1e-5)


@in_float64
@pytest.mark.parametrize(("n", "d", "beta"), [(32, 3, 1.0), (20, 2, 4.0), (16, 8, 9.0)])
def test_they_do_at_other_sizes(n, d, beta):
    x = tokens(n, d)
    for total in sums(sinkhorn(beta * x @ x.T, symmetric=True)):
        np.testing.assert_allclose(total, 1, rtol=0, atol=1e-12)


@both_forms
def test_the_weights_are_the_scaling_by_the_potentials(symmetric, tol):
    logits = random(6, 6)
    out = sinkhorn(logits, symmetric=symmetric, tol=10 * tol.identity)
    scaled = (logits + logits.T) / 2 if symmetric else logits
    potentials = out.row_potential[:, None] + out.column_potential[None, :]
    np.testing.assert_allclose(out.log_weights, potentials + scaled, atol=1e-6)
    np.testing.assert_allclose(
        jnp.mean(out.row_potential), jnp.mean(out.column_potential), atol=1e-6
    )
    # What a scaling keeps: the products of weights around a square.
    square = lambda w: w[0, 1] + w[2, 3] - w[0, 3] - w[2, 1]
    np.testing.assert_allclose(square(out.log_weights), square(scaled), atol=1e-5)


def test_both_forms_agree_on_symmetric_logits(tol):
    x = tokens(10, 3)
    logits = 2 * x @ x.T
    one, two = (compiled(symmetric)(logits) for symmetric in (False, True))
    np.testing.assert_allclose(
        one.log_weights, two.log_weights, atol=100 * tol.identity
    )
    np.testing.assert_allclose(
        one.row_potential, two.row_potential, atol=100 * tol.identity
    )


@both_forms
@pytest.mark.parametrize("constant", [3.0, -100.0])
def test_a_constant_in_the_logits_changes_nothing(symmetric, constant, tol):
    logits = random(5, 5)
    kwargs = {"symmetric": symmetric, "tol": 100 * tol.identity}
    want = sinkhorn(logits, **kwargs)
    got = sinkhorn(logits + constant, **kwargs)
    np.testing.assert_allclose(
        np.exp(got.log_weights), np.exp(want.log_weights), atol=500 * tol.identity
    )


@both_forms
def test_absent_tokens_have_neither_row_nor_column(symmetric, tol):
    x = tokens(10, 3)
    dirty = jnp.where(EXISTS[:, None] & EXISTS[None, :], x @ x.T, jnp.nan)
    out = sinkhorn(dirty, mask=EXISTS, symmetric=symmetric)
    want = sinkhorn((x @ x.T)[EXISTS][:, EXISTS], symmetric=symmetric)
    both = np.ix_(EXISTS, EXISTS)
    np.testing.assert_allclose(
        np.exp(out.log_weights)[both], np.exp(want.log_weights), atol=50 * tol.identity
    )
    assert (np.asarray(out.log_weights)[~EXISTS] == -np.inf).all()
    assert (np.asarray(out.log_weights)[:, ~EXISTS] == -np.inf).all()
    assert (np.asarray(out.row_potential)[~EXISTS] == 0).all()
    assert bool(out.converged)
    assert max(float(out.row_error), float(out.column_error)) < 2e-5


def test_a_mask_that_leaves_no_scaling_is_reported():
    out = sinkhorn(
        random(4, 4), mask=Causal(), max_steps=50
    )  # only the identity is left
    assert not bool(out.converged)
    assert int(out.steps) == 50
    out = sinkhorn(random(2, 2), mask=np.array([[True, True], [False, False]]))
    assert not bool(out.converged)
    assert float(out.row_error) == 1.0
    assert np.isfinite(out.row_potential).all()


def test_nan_does_not_converge():
    out = sinkhorn(random(3, 3).at[0, 1].set(jnp.nan))
    assert not bool(out.converged)


# --- Derivatives ----------------------------------------------------------------------


@in_float64
@pytest.mark.parametrize("case", [(32, 3, 1.0), (20, 2, 4.0), (16, 8, 9.0)], ids=str)
def test_sinkhorn_attention_is_the_gradient_of_minus_the_mean_potential(case):
    n, d, beta = case
    x = tokens(n, d)

    def energy(x):
        out = sinkhorn(beta * x @ x.T, symmetric=True, tol=1e-13)
        return -jnp.mean(out.row_potential) / beta

    tangent = lambda v: v - jnp.sum(x * v, axis=1, keepdims=True) * x
    got = tangent(jax.jit(jax.grad(energy))(x))
    drift = attend_sinkhorn(x, x, x, beta=beta, symmetric=True, tol=1e-13)
    want = tangent(drift) / n
    assert np.abs(got - want).max() < 1e-12 * np.abs(want).max()


@functools.cache
def derivatives_of_a_loss(symmetric, absent):
    """Compiled: its value and gradient, and its forward derivative."""
    noise, mask = random(10, 10, seed=5), EXISTS if absent else None

    def loss(logits):
        out = sinkhorn(
            logits, mask=mask, symmetric=symmetric, tol=1e-14, max_steps=20_000
        )
        potentials = out.row_potential @ noise @ out.column_potential
        return jnp.sum(jnp.sin(jnp.exp(out.log_weights) * noise)) + potentials

    forward = lambda logits, direction: jax.jvp(loss, (logits,), (direction,))[1]
    return jax.jit(jax.value_and_grad(loss)), jax.jit(forward)


@in_float64
@both_forms
@pytest.mark.parametrize("absent", [False, True], ids=["all", "some absent"])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_gradients_agree_with_finite_differences(symmetric, absent, scale):
    x = tokens(10, 3)
    noise = random(10, 10, seed=5)
    logits, direction = scale * x @ x.T + 0.1 * noise, random(10, 10, seed=6)
    both, pushed = derivatives_of_a_loss(symmetric, absent)
    step = 1e-3
    at = lambda h: float(both(logits + h * direction)[0])
    difference = lambda h: (at(h) - at(-h)) / (2 * h)
    # Richardson's extrapolation, twice: an error of order h^6.
    d1, d2, d4 = difference(step), difference(2 * step), difference(4 * step)
    once = (4 * d1 - d2) / 3, (4 * d2 - d4) / 3
    numeric = (16 * once[0] - once[1]) / 15
    slope = float(jnp.sum(both(logits)[1] * direction))
    forward = pushed(logits, direction)
    assert abs(slope - numeric) < 1e-8 * max(1.0, abs(numeric))
    assert abs(slope - forward) < 1e-10 * max(1.0, abs(numeric))


@both_forms
@pytest.mark.parametrize("regularisation", [0.5, 0.05, 0.005])
def test_gradients_are_finite_at_small_regularisation(symmetric, regularisation):
    x = tokens(10, 3)

    def loss(x):
        out = sinkhorn(x @ x.T / regularisation, symmetric=symmetric)
        return jnp.sum(jnp.sin(jnp.exp(out.log_weights))) + jnp.sum(out.row_potential)

    assert np.isfinite(jax.jit(jax.grad(loss))(x)).all()


@in_float64
def test_second_derivatives_agree_with_differences_of_first_ones():
    logits, direction = random(4, 4), random(4, 4, seed=1)
    weights = lambda a: jnp.exp(sinkhorn(a, tol=1e-14, symmetric=True).log_weights)
    gradient = jax.jit(jax.grad(lambda a: jnp.sum(jnp.sin(weights(a)))))
    got = jax.jvp(gradient, (logits,), (direction,))[1]
    h = 1e-4
    want = (gradient(logits + h * direction) - gradient(logits - h * direction)) / 2 / h
    np.testing.assert_allclose(got, want, atol=1e-7)


# --- As attention ---------------------------------------------------------------------


def test_attention_is_the_mean_under_the_weights_and_0_where_absent(tol):
    q, k, v = tokens(10, 3), tokens(10, 3, seed=1), random(10, 2)
    dirty = [jnp.where(EXISTS[:, None], a, jnp.nan) for a in (q, k, v)]
    got = attend_sinkhorn(*dirty, beta=2.0, mask=EXISTS)
    weights = jnp.exp(sinkhorn(2 * q @ k.T, mask=EXISTS).log_weights)
    np.testing.assert_allclose(got, weights @ v, atol=20 * tol.identity)
    np.testing.assert_array_equal(got[~EXISTS], 0)

    def total(v, q):
        out = attend_sinkhorn(q, k, v, beta=2.0, mask=EXISTS)
        return jnp.sum(jnp.where(EXISTS[:, None], jnp.sin(out), 0))

    gradients = jax.jit(jax.grad(total, (0, 1)))(dirty[2], dirty[0])
    assert all(np.isfinite(g).all() for g in gradients)
    assert all((np.asarray(g)[~EXISTS] == 0).all() for g in gradients)


def test_attention_is_the_same_under_jit_and_vmap_and_in_half_precision(tol):
    x = tokens(10, 3)
    run = functools.partial(attend_sinkhorn, beta=2.0, symmetric=True)
    want = run(x, x, x)
    np.testing.assert_allclose(jax.jit(run)(x, x, x), want, atol=5 * tol.identity)
    batch = jnp.stack([tokens(10, 3, seed=1), x])
    got = jax.jit(jax.vmap(run))(batch, batch, batch)[1]
    np.testing.assert_allclose(got, want, atol=5 * tol.identity)
    half = run(*[x.astype(jnp.float16)] * 3)
    assert half.dtype == jnp.float16
    np.testing.assert_allclose(half, want, atol=5e-3)


def test_what_has_not_converged_raises_or_is_nan_under_jit():
    x = 3 * random(5, 5)
    run = functools.partial(attend_sinkhorn, beta=5.0, max_steps=1)
    message = "`max_steps` must let Sinkhorn's algorithm converge, but was 1: a row"
    with pytest.raises(ValueError, match=message):
        run(x, -x, x)
    assert np.isnan(jax.jit(run)(x, -x, x)).all()


ERRORS = {
    "rectangle": ({"logits": np.ones((2, 3))}, r"`logits` must have shape \(n, n\)"),
    "mask": ({"mask": np.ones(3, bool)}, r"`mask` must have shape \(2,\) or \(2, 2\)"),
    "top": ({"mask": TopK(1)}, r"`mask` must be known without the scores"),
    "tol of 0": ({"tol": 0.0}, "`tol` must be positive, but was 0"),
    "tol of two": ({"tol": np.ones(2)}, "`tol` must be a scalar"),
    "steps": ({"max_steps": 0}, "`max_steps` must be a positive integer, but was 0"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(**({"logits": np.ones((2, 2))} | change))


@pytest.mark.usefixtures("unchecked")
def test_as_many_queries_as_keys_are_needed():
    with pytest.raises(ValueError, match="`q` must have 3 rows, as many as the keys"):
        attend_sinkhorn(np.ones((2, 2)), np.ones((3, 2)), np.ones((3, 2)))


@pytest.mark.parametrize("constant", [37.0, -1e3])
def test_a_constant_moves_the_potentials_and_nothing_else(constant):
    logits = np.array([[0.0, -2.0], [-2.0, -1.0]], np.float32)
    plain = sinkhorn(logits, symmetric=True)
    moved = sinkhorn(logits + np.float32(constant), symmetric=True)
    np.testing.assert_allclose(
        np.exp(moved.log_weights),
        np.exp(plain.log_weights),
        atol=2.5e-7 * abs(constant),
    )
    shift = np.asarray(plain.row_potential) - np.asarray(moved.row_potential)
    np.testing.assert_allclose(shift, constant / 2, rtol=1e-4)


@pytest.mark.usefixtures("unchecked")
def test_what_is_not_finite_is_blamed_on_the_tokens():
    with pytest.raises(ValueError, match="`q` must be finite"):
        attend_sinkhorn(np.full((2, 2), np.nan), np.eye(2), np.eye(2))
