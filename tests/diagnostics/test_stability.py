"""Margins of attention: where a query contracts, sharply, and what is typical."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import attend
from tfjax.diagnostics import attention_lipschitz, stability_margins


def random(*shape, seed=0, scale=1.0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(scale * rng.standard_normal(shape))


def softmax_jacobian(p):
    return np.diag(p) - np.outer(p, p)


def test_the_jacobian_of_softmax_is_at_most_one_half_and_two_points_attain_it():
    rng = np.random.default_rng(0)
    norms = []
    for n in (2, 3, 6):
        signs = np.array(list(itertools.product((-1, 1), repeat=n)))
        for p in rng.dirichlet(np.full(n, 0.5), 300):
            J = softmax_jacobian(p)
            norms.append(np.linalg.norm(J, 2))
            # From inf to 1: a convex function is largest at a corner of the cube.
            assert np.abs(signs @ J).sum(axis=1).max() <= 1 + 1e-12
    assert 0.49 < max(norms) <= 0.5 + 1e-12
    half = softmax_jacobian(np.array([0.5, 0.5, 0.0]))
    assert np.linalg.norm(half, 2) == pytest.approx(0.5, abs=1e-15)


def test_the_jacobian_of_log_softmax_has_norm_root_n_times_that_of_p():
    for seed in range(5):
        p = np.random.default_rng(seed).dirichlet(np.ones(6))
        J = np.eye(6) - np.outer(np.ones(6), p)
        expected = np.sqrt(6) * np.linalg.norm(p)
        assert np.linalg.norm(J, 2) == pytest.approx(expected, rel=1e-12)
        assert 1 - 1e-12 <= expected <= np.sqrt(6)
        largest = np.abs(J).sum(axis=1).max()  # from inf to inf
        assert largest == pytest.approx(2 * (1 - p.min()), rel=1e-12)


@jax.jit
def slope(x, keys, query, key, value, temperature):
    """The largest stretch of a query's image."""
    beta = 1 / (temperature * query.shape[0] ** 0.5)

    def f(x):
        return attend(x[None] @ query.T, keys @ key.T, keys @ value.T, beta=beta)[0]

    return jnp.linalg.norm(jax.jacobian(f)(x), 2)


def test_the_worst_case_is_a_bound_and_two_keys_attain_it(tol):
    ratios = []
    for seed in range(40):
        query, key, value = (random(4, 3, seed=seed + k) for k in (0, 100, 200))
        radius, temperature = 1.5, 0.7
        keys = random(6, 3, seed=seed + 300)
        keys = radius * keys / jnp.linalg.norm(keys, axis=1, keepdims=True)
        margin = stability_margins(
            query, key, value, temperature=temperature, radius=radius
        ).worst_case
        x = random(3, seed=seed + 400, scale=0.1)
        ratios.append(slope(x, keys, query, key, value, temperature) * float(margin))
    assert 0.1 < max(ratios) <= 1
    # Keys at +-R along the leading direction, a query at 0, and V that keeps it.
    query, key = random(4, 3, seed=7), random(4, 3, seed=8)
    left, _, right = np.linalg.svd(key.T @ query)
    value = jnp.asarray(np.outer(left[:, 0], left[:, 0]))
    keys = 1.5 * jnp.stack([left[:, 0], -left[:, 0]])
    margin = stability_margins(query, key, value, radius=1.5).worst_case
    got = slope(jnp.zeros(3), keys, query, key, value, 1.0)
    assert got * float(margin) == pytest.approx(1, rel=20 * tol.identity)


def test_two_keys_have_a_pitchfork_exactly_at_margin_one():
    """x = tanh(beta x): from 1, to 0 up to beta = 1, then to another point."""
    expected = {0.5: 0, 0.9: 0, 1.01: 0.17166, 1.1: 0.50294, 2.0: 0.9575}
    keys, one = jnp.array([[1.0], [-1.0]]), jnp.eye(1)
    for beta, fixed in expected.items():
        step = lambda _, x, beta=beta: attend(x, keys, keys, beta=beta)
        x = jax.lax.fori_loop(0, 4000, step, jnp.ones((1, 1)))
        assert float(x[0, 0]) == pytest.approx(fixed, abs=2e-5)
        margin = stability_margins(one, one, one, temperature=1 / beta).worst_case
        assert (float(margin) >= 1) == (fixed == 0)


@pytest.mark.parametrize("d", [32, 128])
def test_random_weights_break_the_worst_case_and_keep_the_typical_one(d):
    """Variance 1/d and many tokens of LayerNorm: |K'Q| is near sqrt(27/4)."""
    query, key, value = (random(d, d, seed=s, scale=d**-0.5) for s in (1, 2, 3))
    norm = np.linalg.norm(key.T @ query, 2)
    assert norm == pytest.approx(np.sqrt(27 / 4), abs=0.2)
    tokens = random(16 * d, d, seed=4)
    tokens = jnp.sqrt(d) * tokens / jnp.linalg.norm(tokens, axis=1, keepdims=True)
    margins = stability_margins(query, key, value, radius=d**0.5)
    assert float(margins.worst_case) < 0.2 < 1 < float(margins.typical)
    measured = [slope(x, tokens, query, key, value, 1.0) for x in tokens[:4]]
    assert max(measured) < 1
    # Of few keys the covariance is not that of all directions.
    few = [slope(x, tokens[: d // 8], query, key, value, 1.0) for x in tokens[:4]]
    assert max(few) > 1


@pytest.mark.parametrize("radius", [1.0, 4.0])
def test_self_attention_stays_below_its_bound_in_a_ball(radius):
    one, n, d = jnp.eye(2), 3, 2

    def f(x):
        x = x.reshape(n, d)
        return attend(x, x, x, beta=2**-0.5).ravel()

    stretch = jax.jit(jax.vmap(lambda x: jnp.linalg.norm(jax.jacobian(f)(x), 2)))
    x = random(2000, n, d, seed=5)
    x = radius * x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    bound = float(attention_lipschitz(one, one, one, n, radius=radius))
    assert 1 < float(stretch(x.reshape(2000, -1)).max()) < bound


def test_heads_are_taken_one_by_one_and_none_is_the_identity(tol):
    query, key, value = (random(2, 4, 3, seed=s) for s in (1, 2, 3))
    both = stability_margins(query, key, value, radius=2.0)
    for h in range(2):
        alone = stability_margins(query[h], key[h], value[h], radius=2.0)
        np.testing.assert_allclose(both.worst_case[h], alone.worst_case, rtol=1e-5)
        np.testing.assert_allclose(both.typical[h], alone.typical, rtol=1e-5)
    shared = stability_margins(query, key, value[0])
    assert shared.worst_case.shape == (2,)
    plain = stability_margins(None, None, jnp.eye(3))
    assert float(plain.worst_case) == pytest.approx(3**0.5, rel=10 * tol.identity)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stability_margins(None, None, None), "`value` must be given where"),
        (
            lambda: stability_margins(np.eye(2), np.eye(3), None),
            r"`key` must have shape \(m, d\)",
        ),
        (
            lambda: stability_margins(np.ones((2, 3)), np.ones((4, 3)), None),
            r"`key` must have as many rows as `query`, 2, but was of shape \(4, 3\)",
        ),
        (
            lambda: stability_margins(np.ones((2, 4, 3)), np.ones((3, 4, 3)), None),
            "with the d and h of the others",
        ),
        (
            lambda: stability_margins(None, None, np.eye(2), radius=0.0),
            "`radius` must be finite and positive, but was 0",
        ),
        (
            lambda: attention_lipschitz(None, None, np.eye(2), 0),
            "`n` must be a positive integer",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
