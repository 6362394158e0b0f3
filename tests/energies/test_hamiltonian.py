"""Hamiltonians, and the potential whose force is attention, both ways."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.attention import attend, log_sum_exp
from tfjax.energies import AttentionPotential, Hamiltonian


def random(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape))


N, D = 8, 3
Q, P, B = random(N, D, seed=1), random(N, D, seed=2), random(D, D, seed=3) / D**0.5
M = B @ B.T + jnp.eye(D)
BETA = 1.3
PARTS = ("energy", "gradient", "both")


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_the_potential_is_that_of_its_formula(chunk_size, tol):
    q, b = np.asarray(Q, np.float64), np.asarray(B, np.float64)
    logits = BETA * (q @ b.T) @ q.T
    expected = -np.sum(np.log(np.sum(np.exp(logits), axis=1))) / (2 * BETA)
    expected += 0.25 * np.sum(q**2)
    got = AttentionPotential(BETA, B, 0.5, chunk_size)(Q)
    assert float(got) == pytest.approx(expected, rel=10 * tol.identity)


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_the_force_has_a_query_and_a_key_term(chunk_size, tol):
    q, b = np.asarray(Q, np.float64), np.asarray(B, np.float64)
    weights = np.exp(BETA * (q @ b.T) @ q.T)
    weights /= weights.sum(axis=1, keepdims=True)
    query, key = 0.5 * weights @ q @ b, 0.5 * weights.T @ q @ b.T
    energy, force = AttentionPotential(BETA, B, 0.5, chunk_size).with_force(Q)
    assert min(np.abs(query).max(), np.abs(key).max()) > 0.1
    np.testing.assert_allclose(
        force, query + key - 0.5 * q, rtol=0, atol=20 * tol.identity
    )
    alone = float(AttentionPotential(BETA, B, 0.5, chunk_size)(Q))
    assert float(energy) == pytest.approx(alone, rel=10 * tol.identity)


def asymmetry(field):
    J = np.asarray(jax.jacfwd(field)(Q)).reshape(N * D, N * D)
    return np.linalg.norm(J - J.T) / np.linalg.norm(J)


def test_attention_is_no_gradient_and_the_force_of_its_potential_is_one(tol):
    query, key, value = (random(D, D, seed=s) for s in (4, 5, 6))
    attention = lambda x: attend(x @ query.T, x @ key.T, x @ value.T, beta=1.0)
    assert asymmetry(attention) > 0.5
    one_way = lambda x: attend(x @ B.T, x, x @ B, beta=BETA)  # the query term alone
    assert asymmetry(one_way) > 0.1
    force = lambda x: AttentionPotential(BETA, B).with_force(x)[1]
    assert asymmetry(force) < 10 * tol.identity


@pytest.mark.parametrize("step", [1.0, 0.1, 0.02])
def test_steps_along_the_force_lower_the_potential_without_exception(step):
    """As in an Energy Transformer: of normalised tokens, with steps of any length."""
    potential = AttentionPotential(BETA, B)

    def move(x, _):
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        size = jnp.sqrt(jnp.mean(centred**2, axis=1, keepdims=True))
        energy, force = potential.with_force(centred / size)
        return x + step * force, energy

    energies = np.asarray(jax.lax.scan(move, Q, length=300)[1])
    assert energies[0] - energies[-1] > 0.5
    assert np.all(np.diff(energies) <= 1e-6 * np.abs(energies[0]))


def test_the_potential_is_bounded_below_by_enough_confinement_and_not_by_less():
    """One token at R and the others at R / (1 + sqrt(n)) are the worst."""
    direction = jnp.array([1.0, 0.0, 0.0])[None]
    radii = jnp.full((N, 1), 1 / (1 + N**0.5)).at[0].set(1.0)
    threshold = (1 + N**0.5) / 2
    far = lambda c, r: float(
        AttentionPotential(BETA, confinement=c)(r * radii * direction)
    )
    assert far(1.05 * threshold, 100.0) > far(1.05 * threshold, 10.0) > 0
    assert far(0.95 * threshold, 100.0) < far(0.95 * threshold, 10.0) < 0


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_the_gradient_of_log_sum_exp_is_attention(chunk_size, tol):
    total = lambda q: jnp.sum(log_sum_exp(q, P, beta=BETA, chunk_size=chunk_size))
    expected = BETA * attend(Q, P, P, beta=BETA)
    np.testing.assert_allclose(jax.grad(total)(Q), expected, atol=10 * tol.identity)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_log_sum_exp_has_the_derivatives_of_its_formula(which, tol):
    """First and second ones, in both modes, by queries, keys and both."""
    ours = lambda q, k: jnp.sum(jnp.sin(log_sum_exp(q, k, beta=BETA)))
    formula = lambda q, k: jnp.sum(jnp.sin(jax.nn.logsumexp(BETA * q @ k.T, axis=1)))
    pair = Q[:4], P[:3]
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        found, expected = (derivative(f, which)(*pair) for f in (ours, formula))
        leaves = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        for a, b in leaves:
            assert np.abs(b).max() > 0.01
            np.testing.assert_allclose(a, b, rtol=0, atol=20 * tol.identity)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_log_sum_exp_of_infinite_logits_is_infinite(sign):
    big = jnp.full((2, 1), 1e30, jnp.float32)
    np.testing.assert_array_equal(log_sum_exp(sign * big, big, beta=1.0), sign * np.inf)
    value, _ = jax.jvp(lambda q: log_sum_exp(q, big, beta=1.0), (sign * big,), (big,))
    np.testing.assert_array_equal(value, sign * np.inf)


# --- Energy and force from one pass ---------------------------------------------------


@functools.cache
def compiled(what, n, chunk_size):
    """The program of the energy, of its gradient or of both, for n tokens."""
    potential = AttentionPotential(BETA, confinement=0.5, chunk_size=chunk_size)
    functions = {
        "energy": potential,
        "gradient": jax.grad(potential.__call__),
        "both": potential.with_force,
    }
    q = jax.ShapeDtypeStruct((n, D), Q.dtype)
    return jax.jit(lambda q: functions[what](q)).lower(q).compile()


@pytest.mark.parametrize("chunk_size", [None, 64])
def test_energy_and_force_take_no_more_products_than_the_force(chunk_size):
    """Dense 3 products: the logits, and a term each of queries and keys."""

    def count(what, pattern):
        return len(re.findall(pattern, compiled(what, 512, chunk_size).as_text()))

    loops, products = r" while\(", r" dot\("
    if chunk_size is None:
        assert [count(w, products) for w in PARTS] == [1, 3, 3]
    else:
        # The backward pass makes the logits of a chunk anew: one more product.
        assert [count(w, products) for w in PARTS] == [1, 4, 4]
        assert [count(w, loops) for w in PARTS] == [1, 2, 2]
    flops = [compiled(w, 512, chunk_size).cost_analysis()["flops"] for w in PARTS]
    assert flops[2] < 1.05 * flops[1] < 0.9 * (flops[0] + flops[1])


def test_the_memory_of_energy_and_force_by_chunks_is_linear_in_the_tokens():
    size = lambda n, chunk_size: (
        compiled("both", n, chunk_size).memory_analysis().temp_size_in_bytes
    )
    assert size(2048, 64) < 2.2 * size(1024, 64)
    assert size(2048, None) > 3.8 * size(1024, None)
    assert size(2048, 64) < 0.25 * size(2048, None)


@pytest.mark.slow
def test_energy_and_force_by_chunks_are_those_of_all_pairs_at_once(tol):
    q = random(37, D, seed=9)
    whole = AttentionPotential(BETA, B, 0.5).with_force(q)
    for chunk_size in (1, 5, 36, 64):
        parts = AttentionPotential(BETA, B, 0.5, chunk_size).with_force(q)
        assert float(parts[0]) == pytest.approx(float(whole[0]), rel=tol.identity)
        np.testing.assert_allclose(parts[1], whole[1], rtol=0, atol=5 * tol.identity)


def test_log_sum_exp_does_not_overflow():
    assert float(log_sum_exp(jnp.ones((1, 1)), jnp.full((2, 1), 1e4), beta=1.0)[0]) == (
        pytest.approx(1e4 + np.log(2), rel=1e-6)
    )


# --- Hamiltonians ---------------------------------------------------------------------


KINETIC = {
    "1": (None, lambda p: np.sum(p * p)),
    "scalar": (2.0, lambda p: np.sum(p * p) / 2),
    "diagonal": (np.array([1.0, 2.0, 4.0]), lambda p: np.sum(p * p / [1, 2, 4])),
    "matrix": (M, lambda p: np.sum(p * np.linalg.solve(np.asarray(M), p.T).T)),
    "a matrix a token": (
        M[None] * jnp.arange(1.0, N + 1)[:, None, None],
        lambda p: sum(
            row @ np.linalg.solve(np.asarray(M) * (i + 1), row)
            for i, row in enumerate(p)
        ),
    ),
    "of q": (
        lambda q: 1 + jnp.sum(q * q),
        lambda p: np.sum(p * p) / (1 + np.sum(np.asarray(Q) ** 2)),
    ),
}


@pytest.mark.parametrize("name", KINETIC)
def test_the_kinetic_energy_is_half_p_inverse_mass_p(name, tol):
    mass, twice = KINETIC[name]
    H = Hamiltonian(lambda q: jnp.sum(q**4), mass)
    expected = 0.5 * twice(np.asarray(P)) + np.sum(np.asarray(Q) ** 4)
    assert float(H(Q, P)) == pytest.approx(float(expected), rel=10 * tol.identity)
    assert H.separable is (name != "of q")


def test_another_kinetic_energy_stands_in_for_the_mass(tol):
    H = Hamiltonian(jnp.sum, kinetic=lambda p: jnp.sum(jnp.cosh(p)))
    expected = np.sum(np.asarray(Q)) + np.sum(np.cosh(np.asarray(P)))
    assert float(H(Q, P)) == pytest.approx(float(expected), rel=10 * tol.identity)
    assert H.separable


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hamiltonian(1.0), "`potential` must be a scalar function of q"),
        (lambda: Hamiltonian(jnp.sum, kinetic=1.0), "`kinetic` must be a scalar func"),
        (lambda: Hamiltonian(jnp.sum, 0.0), "`mass` must be finite and positive"),
        (lambda: Hamiltonian(jnp.sum, -M), "`mass` must be finite and positive"),
        (lambda: Hamiltonian(jnp.sum, np.nan), "`mass` must be finite and positive"),
        (
            lambda: Hamiltonian(jnp.sum, [[1, 2], [2, 1]]),
            "`mass` must be finite and",
        ),
        (lambda: Hamiltonian(jnp.sum, [[1, 1], [0, 1]]), "symmetric where it is a mat"),
        (lambda: Hamiltonian(jnp.sum, 1.0, jnp.sum), "`mass` must be None where kin"),
        (lambda: Hamiltonian(jnp.sum, jnp.eye(2))(Q, P), "`mass` must be a scalar, or"),
        (lambda: Hamiltonian(lambda q: q)(Q, P), "`potential` must return a scalar"),
        (lambda: Hamiltonian(jnp.sum)(Q, P[0]), r"`p` must have the shape \(8, 3\)"),
        (lambda: AttentionPotential(0.0), "`beta` must be finite and not 0"),
        (lambda: AttentionPotential(jnp.ones(2))(Q), "`beta` must be a scalar"),
        (lambda: AttentionPotential(1.0, jnp.eye(2))(Q), "`bilinear` must have shape"),
        (lambda: AttentionPotential(1.0)(Q[0]), r"`q` must have shape \(n, d\)"),
    ],
)
def test_bad_input_is_named(make, message, unchecked):
    with pytest.raises(ValueError, match=message):
        make()
