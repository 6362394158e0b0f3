"""Residual blocks that preserve structure, and those of which it is only said."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.attention import attend
from tfjax.energies import AttentionPotential, Hamiltonian
from tfjax.fields import hamiltonian
from tfjax.integrate import Leapfrog
from tfjax.nn import CouplingBlock, LeapfrogBlock, RotationBlock


X64 = jax.config.jax_enable_x64
needs_float64 = pytest.mark.skipif(not X64, reason="float32 has too few digits for it")
N, D = 5, 3


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape))


Y = random(N, D, seed=1), random(N, D, seed=2)
B, MASS = random(D, D, seed=3) / D**0.5, jnp.array([1.0, 2.0, 0.5])
QUERY, KEY, VALUE = (random(D, D, seed=s) for s in (4, 5, 6))


def attention(x):
    """Ordinary attention, which is the gradient of nothing."""
    query, key, value = (w.astype(x.dtype).T for w in (QUERY, KEY, VALUE))
    return 0.3 * attend(x @ query, x @ key, x @ value)


def force(x):
    """That of the potential of attention: a gradient."""
    return 0.3 * AttentionPotential(1.3, B).with_force(x)[1]


def leapfrog(step=0.125):
    return LeapfrogBlock(AttentionPotential(1.3, B, 3.0), MASS, step=step)


def spectrum(seed, size=D):
    """A function of a condition that returns a matrix for each token."""
    weight = random(size, size, size, seed=seed)
    return lambda c: jnp.einsum("ijk,nk->nij", weight, jnp.tanh(c))


BLOCKS = {
    "leapfrog": leapfrog(),
    "coupling": CouplingBlock(attention, jnp.sin),
    "rotation": RotationBlock(random(D, D, seed=7), step=0.3),
}
every_block = pytest.mark.parametrize("name", BLOCKS)


def state(name):
    return Y[0] if name == "rotation" else Y


def flat(block, state=Y):
    """The block as a map of vectors."""
    vector, tree = jax.flatten_util.ravel_pytree(state)
    return lambda z: jax.flatten_util.ravel_pytree(block(tree(z)))[0], vector


def jacobian(block, state=Y):
    return np.asarray(jax.jit(jax.jacfwd(flat(block, state)[0]))(flat(block, state)[1]))


OMEGA = np.kron(np.array([[0, 1], [-1, 0]]), np.eye(N * D))


def asymplectic(J):
    return np.max(np.abs(J.T @ OMEGA @ J - OMEGA))


def gap(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(jnp.max(jnp.abs(x - y))) for x, y in pairs)


def repeated(block, count):
    """`count` blocks, one after the other."""
    body = lambda y, _: (block(y), None)
    return eqx.filter_jit(lambda y: jax.lax.scan(body, y, length=count)[0])


# --- What they are --------------------------------------------------------------------


def test_a_stack_of_leapfrog_blocks_is_a_solve(tol):
    block, count = leapfrog(), 8
    field = hamiltonian(Hamiltonian(AttentionPotential(1.3, B, 3.0), MASS))
    ys = tfjax.solve(field, Y, t1=1.0, dt0=0.125, solver=Leapfrog()).ys
    expected = jax.tree.map(lambda a: a[-1], ys)
    assert gap(expected, Y) > 0.1
    assert gap(repeated(block, count)(Y), expected) < tol.identity


def test_a_leapfrog_block_is_its_formula(tol):
    q, p = Y
    slope = jax.grad(AttentionPotential(1.3, B, 3.0))
    p = p - 0.0625 * slope(q)
    q = q + 0.125 * p / MASS[None]
    p = p - 0.0625 * slope(q)
    assert gap(leapfrog()(Y), (q, p)) < tol.identity


@pytest.mark.parametrize("name", ["leapfrog", "coupling", "rotation"])
def test_the_inverse_undoes_the_block(name, tol):
    block, y = BLOCKS[name], state(name)
    assert gap(block(y), y) > 0.1
    assert gap(block.inverse(block(y)), y) < 10 * tol.identity
    assert gap(block(block.inverse(y)), y) < 10 * tol.identity


def test_a_rotation_block_is_the_implicit_midpoint_rule(tol):
    """x' = x + h W (x + x') / 2, of which the explicit form is Cayley's."""
    A, x = random(D, D, seed=7), Y[0]
    W = 0.5 * (A - A.T)
    new = BLOCKS["rotation"](x)
    middle = 0.5 * (x + new)
    assert gap(new, x + 0.3 * middle @ W.T) < 10 * tol.identity


# --- Residuals conserve energy: where it is true --------------------------------------


@needs_float64
def test_a_leapfrog_block_is_symplectic_by_attention_of_any_weights():
    J = jacobian(leapfrog())
    assert np.max(np.abs(J - np.eye(2 * N * D))) > 0.1
    assert asymplectic(J) < 1e-12


@needs_float64
@pytest.mark.slow
def test_its_energy_errs_by_the_square_of_the_step_and_does_not_drift():
    H = leapfrog().hamiltonian

    @jax.jit
    def errors(h, y):
        block = leapfrog(h)

        def move(y, _):
            y = block(y)
            return y, H(*y) - H(*y0)

        return jax.lax.scan(move, y, length=4000)[1]

    y0 = Y
    halves = []
    for h, every in ((0.1, 1), (0.05, 2), (0.025, 4)):
        error = np.abs(np.asarray(errors(jnp.asarray(h), y0)))
        # The first 100 units of time for the order, all steps for the drift.
        halves.append((error[: 1000 * every].max(), error[:2000].max(), error.max()))
    sizes = [first for first, _, _ in halves]
    orders = np.log2(sizes[:-1]) - np.log2(sizes[1:])
    np.testing.assert_allclose(orders, 2, atol=0.2)
    for _, early, whole in halves:
        assert whole < 1.2 * early


def lengths(x):
    return np.sum(np.asarray(x, np.float64) ** 2, axis=1)


def test_a_rotation_block_keeps_the_length_of_each_token_through_ten_thousand():
    x = Y[0]
    found = repeated(BLOCKS["rotation"], 10_000)(x)
    assert gap(found, x) > 0.1
    rounding = 10_000 * float(jnp.finfo(x.dtype).eps)
    np.testing.assert_allclose(lengths(found), lengths(x), rtol=rounding)


def test_halves_that_turn_each_other_keep_their_lengths_and_have_an_inverse(tol):
    """A generator that depends on the state, through the half that stands still."""
    first, second = (RotationBlock(spectrum(s), step=0.5) for s in (8, 9))
    q, p = Y
    q1 = first(q, p)
    p1 = second(p, q1)
    assert gap((q1, p1), Y) > 0.1
    for old, new in ((q, q1), (p, p1)):
        np.testing.assert_allclose(lengths(new), lengths(old), rtol=10 * tol.identity)
    p0 = second.inverse(p1, q1)
    assert gap((first.inverse(q1, p0), p0), Y) < 10 * tol.identity


@needs_float64
def test_coupling_is_symplectic_where_its_functions_are_gradients():
    potential = jax.grad(lambda q: jnp.sum(jnp.sin(q @ B)))
    J = jacobian(CouplingBlock(force, potential))
    assert np.max(np.abs(J - np.eye(2 * N * D))) > 0.1
    assert asymplectic(J) < 1e-12


# --- And where it is not --------------------------------------------------------------


@needs_float64
def test_coupling_by_attention_keeps_volume_and_has_an_inverse_but_is_not_symplectic():
    block = CouplingBlock(attention, attention)
    J = jacobian(block)
    assert np.linalg.det(J) == pytest.approx(1, abs=1e-12)
    assert gap(block.inverse(block(Y)), Y) < 1e-12
    assert asymplectic(J) > 0.1
    # The force of the potential beside it: both properties, and symplectic too.
    J = jacobian(CouplingBlock(force, force))
    assert np.linalg.det(J) == pytest.approx(1, abs=1e-12)
    assert asymplectic(J) < 1e-12


def test_a_residual_multiplies_the_energy_of_an_oscillator_by_1_plus_h2(tol):
    h, count = 0.1, 100
    y = jnp.array([1.0, 0.5])
    residual = lambda y: y + h * jnp.stack([y[1], -y[0]])
    ratio = float(jnp.sum(repeated(residual, count)(y) ** 2) / jnp.sum(y**2))
    assert ratio == pytest.approx(1.01**100, rel=100 * tol.identity)
    assert ratio == pytest.approx(2.7048138294215, rel=100 * tol.identity)
    block = LeapfrogBlock(lambda q: 0.5 * jnp.sum(q**2), step=h)
    q, p = repeated(block, count)((y[:1], y[1:]))
    assert abs(float(q[0] ** 2 + p[0] ** 2) / 1.25 - 1) < h**2


def test_a_residual_of_a_skew_matrix_lengthens_what_it_moves(tol):
    A, h, x = random(D, D, seed=7), 0.3, Y[0]
    W = 0.5 * (A - A.T)
    expected = 1 + h**2 * lengths(x @ W.T) / lengths(x)
    np.testing.assert_allclose(
        lengths(x + h * x @ W.T) / lengths(x), expected, rtol=10 * tol.identity
    )
    assert expected.min() > 1.01
    turned = lengths(BLOCKS["rotation"](x)) / lengths(x)
    np.testing.assert_allclose(turned, 1, rtol=10 * tol.identity)


# --- As modules -----------------------------------------------------------------------


@needs_float64
@every_block
def test_the_gradient_through_a_stack_is_the_finite_difference(name):
    """For the state and every leaf: the step, and what the potential holds."""
    floats, rest = eqx.partition(BLOCKS[name], eqx.is_inexact_array)

    @jax.jit
    def end(floats, y):
        last = repeated(eqx.combine(floats, rest), 3)(y)
        return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(last))

    at = floats, state(name)
    gradient = jax.tree.leaves(jax.jit(jax.grad(end, (0, 1)))(*at))
    leaves, tree = jax.tree.flatten(at)
    assert len(leaves) == {"leapfrog": 7, "coupling": 2, "rotation": 3}[name]
    for k, leaf in enumerate(leaves):
        way, h = random(*leaf.shape, seed=20 + k), 1e-5
        shifted = lambda s, k=k, way=way: jax.tree.unflatten(
            tree, [a + s * way if i == k else a for i, a in enumerate(leaves)]
        )
        expected = float(end(*shifted(h)) - end(*shifted(-h))) / (2 * h)
        assert abs(expected) > 1e-3
        found = float(jnp.sum(gradient[k] * way))
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-9)


@every_block
def test_jit_gives_what_eager_gives_and_a_batch_what_a_loop_gives(name, tol):
    block, y = BLOCKS[name], state(name)
    eager = block(y)
    assert gap(eqx.filter_jit(block)(y), eager) < 10 * tol.identity
    less = jax.tree.map(lambda a: 0.5 * a, y)
    stacked = lambda a, b: jax.tree.map(lambda *leaves: jnp.stack(leaves), a, b)
    mapped = jax.vmap(block)(stacked(y, less))
    assert gap(mapped, stacked(eager, block(less))) < 10 * tol.identity


@every_block
def test_half_precision_is_computed_in_float32_and_rounded_once(name):
    half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), state(name))
    single = jax.tree.map(lambda a: a.astype(jnp.float32), half)
    found, wide = BLOCKS[name](half), BLOCKS[name](single)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wide), strict=True):
        assert (a.dtype, b.dtype) == (jnp.bfloat16, jnp.float32)
        np.testing.assert_array_equal(a, b.astype(jnp.bfloat16))


SPRING = lambda q: 0.5 * jnp.sum(q**2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LeapfrogBlock(1.0), "`potential` must be a scalar function of q"),
        (lambda: LeapfrogBlock(SPRING, lambda q: q), "`mass` must be no function of q"),
        (lambda: LeapfrogBlock(SPRING, -1.0), "`mass` must be finite and positive"),
        (lambda: LeapfrogBlock(SPRING, step=Y[0]), "`step` must be a scalar"),
        (lambda: LeapfrogBlock(SPRING, step=np.nan), "`step` must be finite"),
        (lambda: LeapfrogBlock(SPRING)(Y[0]), r"`y` must be a pair \(q, p\), but"),
        (lambda: LeapfrogBlock(SPRING)((Y[0], Y[1][0])), "`y` must be a pair"),
        (lambda: CouplingBlock(1.0, jnp.sin), "`f` must be a function"),
        (lambda: CouplingBlock(jnp.sin, None), "`g` must be a function"),
        (lambda: CouplingBlock(jnp.sum, jnp.sin)(Y), "`f` must return an array of sh"),
        (lambda: RotationBlock(Y[0]), r"`generator` must have shape \(d, d\), or be"),
        (lambda: RotationBlock(B)(Y[0][0]), r"`x` must have shape \(n, d\)"),
        (lambda: RotationBlock(B)(Y[0], Y[1]), "`context` must be None"),
        (lambda: RotationBlock(jnp.sin)(Y[0], Y[1]), "`generator` must give a matrix"),
        (lambda: RotationBlock(jnp.eye(2))(Y[0]), "`generator` must give a matrix"),
    ],
)
def test_bad_input_is_named(make, message, unchecked):
    with pytest.raises(ValueError, match=message):
        make()
