"""Covariance matrices: closed forms, scipy, congruence, coinciding eigenvalues."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg

from tfjax.geometry import Euclidean, Product, SymmetricPositiveDefinite


D, COUNT = 4, 6
X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
SPACE = SymmetricPositiveDefinite(D)


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def symmetric(*shape, seed=0):
    a = np.random.default_rng(seed).standard_normal((*shape, D, D))
    return (a + np.swapaxes(a, -1, -2)).astype(DTYPE)


def diagonal(values):
    return np.stack([np.diag(row) for row in values]).astype(DTYPE)


@pytest.fixture(scope="module")
def operands():
    x, y = np.asarray(SPACE.random(jr.key(0), (2, COUNT)))
    return x, y, symmetric(COUNT)


exp, log = jax.jit(SPACE.exp), jax.jit(SPACE.log)
distance, transport = jax.jit(SPACE.distance), jax.jit(SPACE.transport)


def test_matrices_that_commute_have_the_geometry_of_their_logarithms(tol):
    a, b, c = np.random.default_rng(1).standard_normal((3, COUNT, D))
    x, y, v = diagonal(np.exp(a)), diagonal(np.exp(b)), diagonal(c)
    close(exp(x, v), diagonal(np.exp(a + c / np.exp(a))), 50 * tol.identity)
    close(log(x, y), diagonal((b - a) * np.exp(a)), 50 * tol.identity)
    close(distance(x, y), np.linalg.norm(a - b, axis=1), 20 * tol.identity)
    close(transport(x, y, v), diagonal(c * np.exp(b - a)), 50 * tol.identity)


def test_the_operations_are_those_of_matrix_functions_of_scipy(operands, tol):
    # A step of v alone would have an exponential that is too long for float32.
    xs, ys, vs = (np.asarray(a, np.float64) for a in operands)
    for x, y, v in zip(xs, ys, 0.1 * vs, strict=True):
        root = np.real(scipy.linalg.sqrtm(x))
        back = np.linalg.inv(root)
        inner = lambda a, back=back: back @ a @ back
        outer = lambda a, root=root: root @ a @ root
        # One batch for all: the compiled shapes are shared.
        batch = [np.broadcast_to(a, (COUNT, D, D)).astype(DTYPE) for a in (x, y, v)]
        got = exp(batch[0], batch[2])[0]
        close(got, outer(scipy.linalg.expm(inner(v))), 500 * tol.identity)
        got = log(batch[0], batch[1])[0]
        close(got, outer(scipy.linalg.logm(inner(y))), 100 * tol.identity)
        values = scipy.linalg.eigh(y, x, eigvals_only=True)
        got = float(distance(batch[0], batch[1])[0])
        assert got == pytest.approx(
            np.linalg.norm(np.log(values)), rel=50 * tol.identity
        )
        e = np.real(scipy.linalg.sqrtm(y @ np.linalg.inv(x)))
        close(transport(*batch)[0], e @ v @ e.T, 200 * tol.identity)


def test_the_geodesic_ends_where_it_should_and_its_middle_is_the_mean(operands, tol):
    x, y, _ = operands
    close(exp(x, log(x, y)), y, 50 * tol.identity)
    middle = np.asarray(exp(x, 0.5 * log(x, y)), np.float64)
    # The geometric mean solves m x^-1 m = y.
    close(middle @ np.linalg.solve(x, middle), y, 100 * tol.identity)
    close(transport(x, y, log(x, y)), -log(y, x), 200 * tol.identity)


def test_congruences_and_inversion_are_isometries(operands, tol):
    x, y, v = operands
    a = np.random.default_rng(2).standard_normal((D, D)).astype(DTYPE)
    act = lambda m: ((a @ m @ a.T) + (a @ m @ a.T).swapaxes(1, 2)) / 2
    expected = np.asarray(distance(x, y))
    bound = 20 * np.linalg.cond(a) ** 2 * tol.identity
    close(distance(act(x), act(y)), expected, bound)
    close(distance(np.linalg.inv(x), np.linalg.inv(y)), expected, 2e3 * tol.identity)
    close(log(act(x), act(y)), act(np.asarray(log(x, y))), 10 * bound)
    close(
        transport(act(x), act(y), act(v)),
        act(np.asarray(transport(x, y, v))),
        10 * bound,
    )


def test_tiny_and_huge_matrices_keep_their_digits(tol):
    one = np.broadcast_to(np.eye(D), (COUNT, D, D)).astype(DTYPE)
    for power in (-20.0, -8.0, 8.0, 20.0):
        got = distance(one, np.exp(power).astype(DTYPE) * one)
        close(got, np.full(COUNT, 2 * abs(power)), 5 * tol.identity)
    # Integers, so that x + step x is exact; l^-1 x l^-T is not.
    x = 4 * one + np.ones_like(one)
    step = DTYPE.type(2.0**-36 if X64 else 2.0**-16)
    close(distance(x, x + step * x) / np.log1p(step), np.full(COUNT, 2.0), 1e-6)


def test_derivatives_are_finite_where_eigenvalues_coincide(tol):
    # d^2/dt^2 of dist(x, x + t v)^2 at 0 is 2 tr(x^-1 v x^-1 v), at multiples of 1 too.
    v = symmetric(seed=3)
    square = lambda t, x: SPACE.squared_distance(x, x + t * v)
    hessian = jax.jit(jax.hessian(square))
    for x in (2 * np.eye(D, dtype=DTYPE), np.asarray(SPACE.random(jr.key(1)))):
        w = np.linalg.solve(x, v)
        expected = 2 * np.trace(w @ w)
        got = hessian(jnp.zeros((), DTYPE), x)
        assert float(got) == pytest.approx(expected, rel=200 * tol.identity)
        assert not np.asarray(jax.jit(jax.grad(SPACE.distance))(x, x)).any()


def test_the_derivative_of_the_logarithm_is_that_of_daleckii_and_krein(tol):
    values = np.array([0.5, 0.5, 2.0, 7.0])
    q = np.linalg.qr(symmetric(seed=4))[0].astype(np.float64)
    v = symmetric(seed=5).astype(np.float64)
    differences = np.empty((D, D))
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            differences[i, j] = 1 / a if a == b else (np.log(a) - np.log(b)) / (a - b)
    expected = q @ (differences * (q.T @ v @ q)) @ q.T
    x = ((q * values) @ q.T).astype(DTYPE)
    push = lambda x, v: jax.jvp(SPACE.embed, (x,), (v,))[1]
    got = np.asarray(jax.jit(push)(x, v.astype(DTYPE))).reshape(D, D)
    close(got, expected, 100 * tol.identity)


def test_the_embedding_makes_no_distance_longer(operands):
    x, y, _ = operands
    chord = np.linalg.norm(np.asarray(SPACE.embed(x) - SPACE.embed(y)), axis=1)
    assert (chord < np.asarray(distance(x, y))).all()
    one = np.broadcast_to(np.eye(D), x.shape).astype(DTYPE)
    length = np.linalg.norm(SPACE.embed(x), axis=1)
    np.testing.assert_allclose(length, distance(one, x), rtol=1e-5)


def test_the_retraction_is_positive_and_agrees_with_exp_to_second_order(operands):
    x, _, v = operands
    assert (np.linalg.eigvalsh(SPACE.retract(x, 20 * v)) > 0).all()
    assert np.asarray(SPACE.projectable(SPACE.retract(x, v))).all()
    if X64:
        gap = lambda h: np.abs(SPACE.retract(x, h * v) - exp(x, h * v)).max()
        assert np.log2(gap(0.01) / gap(0.005)) == pytest.approx(3, abs=0.2)


def test_what_is_projectable_is_positive_definite():
    given = [np.eye(2), np.zeros((2, 2)), np.diag([1.0, -1]), np.full((2, 2), np.nan)]
    given += [np.array([[1.0, 3], [-3, 1]]), np.array([[1.0, 3], [3, 1]])]
    plane = SymmetricPositiveDefinite(2)
    got = plane.projectable(np.stack(given).astype(DTYPE)).tolist()
    assert got == [True, False, False, False, True, False]
    skewed = np.array([[1.0, 3], [-3, 1]], DTYPE)
    np.testing.assert_array_equal(plane.project(skewed), np.eye(2))


def test_random_covariances_are_those_of_wishart():
    x = np.asarray(SPACE.random(jr.key(2), (20_000,)), np.float64)
    se = 5 / np.sqrt(len(x))
    # Mean 1; variance (1 + [i = j]) / (2 d).
    assert np.abs(x.mean(axis=0) - np.eye(D)).max() < se * np.sqrt(2 / (2 * D))
    expected = (1 + np.eye(D)) / (2 * D)
    assert np.abs(x.var(axis=0) - expected).max() < 4 * se * expected.max()
    np.testing.assert_array_equal(x, np.swapaxes(x, 1, 2))


def test_a_product_writes_covariances_row_by_row(tol):
    normals = Product(Euclidean(2), SymmetricPositiveDefinite(2))
    x, y = np.asarray(normals.random(jr.key(0), (2,)))
    assert x.shape == (6,)
    close(normals.exp(x, normals.log(x, y)), y, 20 * tol.identity)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    with pytest.raises(ValueError, match="`d` must be an integer of at least 1"):
        SymmetricPositiveDefinite(0)
    shape = r"`y` must have shape \(\.\.\., 4, 4\), as points of Symm.*shape \(4, 3\)"
    with pytest.raises(ValueError, match=shape):
        SPACE.distance(np.eye(4), np.ones((4, 3)))
