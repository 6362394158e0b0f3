"""`reduce_to_span`: the same dynamics in few dimensions."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfjax
from tfjax.fields import AttentionParams, self_attention, unnormalized_self_attention
from tfjax.geometry import Sphere
from tfjax.integrate import reduce_to_span


X64 = jax.config.jax_enable_x64
N, D = 5, 24


def run(x0, args, field=self_attention, **kwargs):
    kwargs = {"t1": 2.0, "dt0": 0.125, "manifold": Sphere(x0.shape[-1])} | kwargs
    return tfjax.solve(field, x0, args, **kwargs).ys[-1]


def reduced(x0, args, field=self_attention, **kwargs):
    coordinates, basis = reduce_to_span(x0)
    return run(coordinates, args, field, **kwargs) @ basis


@pytest.fixture(scope="module")
def tokens():
    return Sphere(D).random(jax.random.key(0), (N,))


PARAMS = {
    "plain": AttentionParams(beta=3.0),
    "causal": AttentionParams(beta=3.0, mask="causal"),
    "padded": AttentionParams(beta=3.0, mask=jnp.arange(N) < 4),
}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("plain", self_attention),
        ("causal", unnormalized_self_attention),
        ("padded", self_attention),
    ],
)
def test_a33_reduced_run_is_the_full_run(tokens, field, name, tol):
    full = run(tokens, PARAMS[name], field)
    found = reduced(tokens, PARAMS[name], field)
    np.testing.assert_allclose(found, full, atol=tol.identity)


def test_a33_adaptive_steps_agree_to_the_tolerance(tokens):
    """The error norm is a mean over entries, of which there are fewer."""
    kwargs = {"dt0": None, "rtol": 1e-6, "atol": 1e-6}
    full = run(tokens, PARAMS["plain"], **kwargs)
    found = reduced(tokens, PARAMS["plain"], **kwargs)
    np.testing.assert_allclose(found, full, atol=1e-5)


def test_multiples_of_the_identity_are_admitted(tokens, tol):
    make = lambda d: AttentionParams(beta=1.0, query=2 * jnp.eye(d), value=-jnp.eye(d))
    coordinates, basis = reduce_to_span(tokens)
    found = run(coordinates, make(N)) @ basis
    np.testing.assert_allclose(found, run(tokens, make(D)), atol=tol.identity)


@settings(max_examples=8)
@given(seed=st.integers(0, 999), rank=st.integers(1, N))
def test_any_set_of_any_rank_is_rebuilt_by_an_orthonormal_basis(seed, rank):
    atol = 1e-12 if X64 else 5e-6
    one, two = jax.random.split(jax.random.key(seed))
    weights = jax.random.normal(one, (N, N)).at[:, rank:].set(0.0)
    x = weights @ jax.random.normal(two, (N, D))
    coordinates, basis = reduce_to_span(x)
    assert coordinates.shape == (N, N)
    scale = float(jnp.max(jnp.abs(x)))
    np.testing.assert_allclose(coordinates @ basis, x, atol=atol * scale)
    np.testing.assert_allclose(basis @ basis.T, np.eye(N), atol=atol)


def test_dependent_tokens_run_correctly(tokens, tol):
    x0 = tokens.at[3].set(tokens[0]).at[4].set(-tokens[1])
    full = run(x0, PARAMS["plain"])
    found = reduced(x0, PARAMS["plain"])
    np.testing.assert_allclose(found, full, atol=tol.identity)


def test_enough_tokens_are_left_as_they_are(tokens):
    x = tokens.T[:, :N]
    coordinates, basis = reduce_to_span(x)
    np.testing.assert_array_equal(coordinates, x)
    np.testing.assert_array_equal(basis, np.eye(N))


def test_under_jit_and_vmap(tokens, tol):
    many = Sphere(D).random(jax.random.key(1), (3, N))
    coordinates, basis = jax.jit(jax.vmap(reduce_to_span))(many)
    rebuilt = jnp.einsum("bnr,brd->bnd", coordinates, basis)
    np.testing.assert_allclose(rebuilt, many, atol=tol.identity)
    assert basis.shape == (3, N, D)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_dtype_is_kept(tokens, dtype):
    coordinates, basis = reduce_to_span(tokens.astype(dtype))
    assert coordinates.dtype == basis.dtype == jnp.dtype(dtype)


def test_gradient_is_that_of_the_full_run(tokens):
    weights = jax.random.normal(jax.random.key(2), (N, D))

    def loss(x0, solve):
        kwargs = {"dt0": 0.5, "solver": dfx.Euler()}
        return jnp.sum(weights * solve(x0, PARAMS["plain"], **kwargs))

    full, found = (jax.grad(loss)(tokens, solve) for solve in (run, reduced))
    np.testing.assert_allclose(found, full, atol=1e-10 if X64 else 1e-4)


def test_gradient_at_dependent_tokens_is_an_error_and_not_nan(tokens):
    x0 = tokens.at[3].set(tokens[0])
    gradient = eqx.filter_jit(jax.grad(lambda x: jnp.sum(reduce_to_span(x)[0] ** 3)))
    with pytest.raises(RuntimeError, match="`x` must be linearly independent tokens"):
        gradient(x0).block_until_ready()
    assert np.all(np.isfinite(gradient(tokens)))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("x", "text"),
    [
        (jnp.ones(3), r"`x` must have shape \(n, d\), but was of shape \(3,\)"),
        (jnp.ones((0, 3)), r"`x` must have shape \(n, d\) with no axis of length 0"),
        (jnp.full((2, 3), jnp.nan), "`x` must be finite"),
        ("tokens", "`x` must be a real array"),
    ],
)
def test_bad_tokens_are_named(x, text):
    with pytest.raises(ValueError, match=text):
        reduce_to_span(x)
