"""Rotation matrices: closed forms, logarithms against scipy, and the sharp points."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
from scipy.spatial.transform import Rotation

from tfjax import solve
from tfjax.geometry import (
    Euclidean,
    Product,
    SpecialOrthogonal,
    cayley,
    cayley_inverse,
    rotation_exp,
    rotation_log,
)


X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
DIMENSIONS = (2, 3, 4, 5, 6)
every_dimension = pytest.mark.parametrize("d", DIMENSIONS)

log = jax.jit(rotation_log)
exp = jax.jit(rotation_exp)


def points(d, count=20, seed=0):
    return np.asarray(SpecialOrthogonal(d).random(jr.key(seed), (count,)))


def skew(d, *shape, seed=0):
    a = np.random.default_rng((seed, d)).standard_normal((*shape, d, d))
    return (a - np.swapaxes(a, -1, -2)).astype(DTYPE)


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@every_dimension
def test_the_logarithm_is_that_of_scipy(d, tol):
    x = points(d)
    expected = np.stack([scipy.linalg.logm(np.asarray(r, np.float64)) for r in x])
    # An error of the entries is enlarged by 1 / (pi - the largest angle).
    angles = np.linalg.norm(expected, 2, axis=(1, 2))
    error = np.abs(np.asarray(log(x)) - expected.real).max(axis=(1, 2))
    assert (error * (np.pi - angles)).max() < 5 * tol.identity
    close(exp(log(x)), x, 50 * tol.identity)


@every_dimension
def test_the_exponential_is_that_of_scipy_and_a_rotation(d, tol):
    a = 2 * skew(d, 20)
    expected = np.stack([scipy.linalg.expm(np.asarray(k, np.float64)) for k in a])
    close(exp(a), expected, 10 * tol.identity)


def test_the_logarithm_of_small_angles_keeps_its_digits(tol):
    for d in (3, 4):
        a = skew(d)
        x, small = points(d, 1)[0], np.asarray(1e-4, DTYPE)
        # y - x is known exactly here; its logarithm must not go through 1 + gap.
        y = x + x @ a * small
        distance = float(jax.jit(SpecialOrthogonal(d).distance)(x, y)) / 1e-4
        gap = np.float64(x).T @ (np.float64(y) - np.float64(x))
        expected = np.linalg.norm(gap - gap.T) / 2e-4
        assert distance == pytest.approx(expected, rel=max(1e-6, tol.identity))


def test_half_turns_of_the_plane_and_of_space_have_a_logarithm(tol):
    axis = np.array([2.0, -1.0, 2.0]) / 3
    half = 2 * np.outer(axis, axis) - np.eye(3)
    turns = [-np.eye(2), half, np.diag([-1.0, -1, 1]), np.diag([1.0, -1, -1])]
    for turn in turns:
        a = log(turn.astype(DTYPE))
        assert np.linalg.norm(a) == pytest.approx(np.pi * np.sqrt(2), rel=1e-6)
        close(exp(a), turn, 5 * tol.identity)


def turn(d, angles, seed=0):
    """A rotation by these angles, in planes that a seed decides."""
    a = np.zeros((d, d))
    for i, angle in enumerate(angles):
        a[2 * i + 1, 2 * i], a[2 * i, 2 * i + 1] = angle, -angle
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]
    return (q @ scipy.linalg.expm(a) @ q.T).astype(DTYPE)


# Of angles that are all but pi, the planes are known to rounding / their difference.
HALF_TURNS = {
    "two of four reversed": (4, [np.pi, 0.0]),
    "four of four reversed": (4, [np.pi, np.pi]),
    "two of five reversed": (5, [np.pi, 0.0]),
    "four of five reversed": (5, [np.pi, np.pi]),
    "a half turn and another": (5, [np.pi, 1.0]),
    "all but two half turns": (4, [np.pi - 1e-8, np.pi - 3e-8]),
    "one sense": (4, [np.pi - 1e-8, np.pi - 1e-8]),
    "all but a half turn, and one": (6, [np.pi - 1e-7, np.pi, 0.7]),
}


@pytest.mark.parametrize("name", HALF_TURNS)
def test_half_turns_of_four_dimensions_and_more_have_a_shortest_logarithm(name, tol):
    d, angles = HALF_TURNS[name]
    r = np.stack([turn(d, angles, seed) for seed in range(5)])
    a = np.asarray(log(r))
    close(a, -np.swapaxes(a, 1, 2), tol.identity)
    length = np.sqrt(2) * np.linalg.norm(angles)
    close(np.linalg.norm(a, axis=(1, 2)), length, 10 * tol.identity)
    exact = np.stack([scipy.linalg.expm(np.asarray(k, np.float64)) for k in a])
    close(exact, r, 10 * tol.identity)


def test_reversed_coordinates_are_far_apart(tol):
    one = np.eye(4, dtype=DTYPE)
    signs = np.array([[-1, -1, 1, 1], [-1, 1, 1, -1], [-1, -1, -1, -1]], DTYPE)
    got = jax.vmap(lambda s: SpecialOrthogonal(4).distance(one, jnp.diag(s)))(signs)
    np.testing.assert_allclose(got / np.pi, [2**0.5, 2**0.5, 2], rtol=5 * tol.identity)


def test_a_batch_of_near_far_and_half_turns_is_that_of_each(tol):
    angles = [[1e-3, 0.0], [2.0, 1.0], [np.pi, 0.3], [np.pi, np.pi], [0.0, 0.0]]
    r = np.stack([turn(4, pair, seed) for seed, pair in enumerate(angles)])
    each = np.stack([log(rotation) for rotation in r])
    close(jax.jit(jax.vmap(rotation_log))(r), each, 5 * tol.identity)
    pull = jax.jit(jax.vmap(jax.grad(lambda r: jnp.sum(rotation_log(r) ** 2))))
    assert np.isfinite(pull(r)).all()
    # |log r|^2 moves by 2 <log r, k> along r e^{t k}, also in the planes of angle pi
    # where the logarithm that is taken goes on.
    k = skew(4)
    moved = np.sum(np.asarray(pull(r)) * (r @ k), axis=(1, 2))
    close(moved, 2 * np.sum(each * k, axis=(1, 2)), 200 * tol.identity)


@pytest.mark.skipif(not X64, reason="a finite difference needs float64")
@pytest.mark.parametrize("angles", [[2.0, 1.0], [3.1, 0.2], [1e-2, 0.0]])
def test_the_derivative_away_from_half_turns_is_the_finite_difference(angles):
    r, k = turn(4, angles), skew(4)
    _, slope = jax.jvp(log, (r,), (r @ k,))
    ahead, behind = (log(r @ scipy.linalg.expm(h * k)) for h in (1e-5, -1e-5))
    close(slope, (ahead - behind) / 2e-5, 1e-6)


def test_rotations_of_space_are_those_of_rotation_vectors(tol):
    w = np.random.default_rng(0).standard_normal((30, 3))
    w *= np.linspace(1e-3, 3.1, 30)[:, None] / np.linalg.norm(w, axis=1)[:, None]
    x = Rotation.from_rotvec(w).as_matrix().astype(DTYPE)
    a = np.asarray(log(x))
    close(np.stack([a[:, 2, 1], a[:, 0, 2], a[:, 1, 0]], 1), w, 10 * tol.identity)
    angle = SpecialOrthogonal(3).distance(np.broadcast_to(np.eye(3), x.shape), x)
    close(angle, np.sqrt(2) * np.linalg.norm(w, axis=1), 10 * tol.identity)


@every_dimension
def test_the_projection_is_the_nearest_rotation(d, tol):
    x = np.random.default_rng(d).standard_normal((30, d, d)).astype(DTYPE)
    assert (np.linalg.det(x) < 0).any()
    got = np.asarray(SpecialOrthogonal(d).project(x), np.float64)
    close(got @ np.swapaxes(got, 1, 2), np.broadcast_to(np.eye(d), x.shape), 2e-6)
    np.testing.assert_allclose(np.linalg.det(got), 1, rtol=2e-6)
    for matrix, r in zip(np.asarray(x, np.float64), got, strict=True):
        u, s, v = np.linalg.svd(matrix)
        s[-1] *= np.sign(np.linalg.det(matrix))
        # Von Neumann: the largest inner product with a rotation.
        assert np.sum(matrix * r) == pytest.approx(s.sum(), rel=20 * tol.identity)


def test_the_derivative_of_the_projection_at_rotations_is_the_tangential_part(tol):
    # All singular values coincide there: those of singular vectors do not exist.
    for d in (3, 4):
        space, x = SpecialOrthogonal(d), points(d, 1)[0]
        v = np.random.default_rng(d).standard_normal((d, d)).astype(DTYPE)
        push = jax.jit(lambda x, v, m=space: jax.jvp(m.project, (x,), (v,))[1])
        close(push(x, v), space.tangent(x, v), 10 * tol.identity)
        pull = jax.jit(lambda x, v, m=space: jax.vjp(m.project, x)[1](v)[0])
        close(pull(x, v), space.tangent(x, v), 10 * tol.identity)


def test_the_projection_has_second_derivatives_at_rotations():
    # project(x + t v) = x (1 + t k - t^2 (k s + s k) / 2 + t^2 k^2 / 2 + ...), with
    # x^T v = k + s, k skew and s symmetric.
    d, x = 3, points(3, 1)[0]
    v = np.random.default_rng(0).standard_normal((d, d)).astype(DTYPE)
    k, s = (x.T @ v - v.T @ x) / 2, (x.T @ v + v.T @ x) / 2
    curve = lambda t: SpecialOrthogonal(d).project(x + t * v)
    zero = jnp.zeros((), DTYPE)
    expected = x @ (k @ k - k @ s - s @ k)
    for second in (jax.jacfwd(jax.jacrev(curve)), jax.jacfwd(jax.jacfwd(curve))):
        close(jax.jit(second)(zero), expected, 2e-5 if not X64 else 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 4])
def test_squared_distance_at_coincidence_has_the_hessian_of_the_metric(d, tol):
    space, x, a = SpecialOrthogonal(d), points(d, 1)[0], skew(d)
    square = lambda t: space.squared_distance(x, space.exp(x, t * x @ a))
    hessian = jax.jit(jax.hessian(square))(jnp.zeros((), DTYPE))
    assert float(hessian) == pytest.approx(2 * np.sum(a**2), rel=30 * tol.identity)
    assert not np.asarray(jax.jit(jax.grad(space.distance))(x, x)).any()


def test_the_sharp_points_of_projection_are_told():
    space = SpecialOrthogonal(3)
    nan = np.full((3, 3), np.nan)
    given = [np.eye(3), np.zeros((3, 3)), np.diag([1.0, 1, -1]), nan]
    given += [np.diag([3.0, 2, -1]), np.diag([1.0, 1, 0]), np.diag([1.0, 0, 0])]
    got = space.projectable(np.stack(given).astype(DTYPE)).tolist()
    assert got == [True, False, False, False, True, True, False]
    gradient = jax.grad(lambda x: space.project(x)[0, 1])(jnp.zeros((3, 3)))
    assert not np.asarray(gradient).any()


def test_uniform_rotations_have_the_moments_of_haar():
    x = points(4, 20_000, seed=3).astype(np.float64)
    se = 5 / np.sqrt(len(x))
    np.testing.assert_allclose(np.linalg.det(x), 1, rtol=1e-5)
    assert np.abs(x.mean(axis=0)).max() < se * 0.5
    # E x_ij^2 = 1/d and E (tr x)^2 = 1; the standard deviations are below 0.5 and 1.5.
    assert np.abs((x**2).mean(axis=0) - 0.25).max() < se * 0.5
    trace = np.trace(x, axis1=1, axis2=2)
    assert abs((trace**2).mean() - 1) < se * 1.5


def test_transport_keeps_products_and_is_parallel(tol):
    # The derivative of the transported field along the geodesic is normal to SO(d).
    space, x = SpecialOrthogonal(4), points(4, 1)[0]
    u, v = x @ (0.3 * skew(4, seed=1)), x @ skew(4, seed=2)
    move = lambda t: space.transport(x, space.exp(x, t * u), v)
    t = jnp.asarray(0.5, DTYPE)
    there, rate = jax.jvp(move, (t,), (jnp.ones_like(t),))
    y = space.exp(x, t * u)
    close(space.tangent(y, there), there, 20 * tol.identity)
    close(space.tangent(y, rate), np.zeros((4, 4)), 50 * tol.identity)
    assert np.linalg.norm(there) == pytest.approx(np.linalg.norm(v), rel=1e-6)
    speed = space.transport(x, y, u)
    close(speed, jax.jvp(lambda t: space.exp(x, t * u), (t,), (t / t,))[1], 1e-5)


@every_dimension
def test_cayley_maps_have_their_inverse_and_agree_with_exp_to_second_order(d, tol):
    a = skew(d, 5)
    r = np.asarray(cayley(a), np.float64)
    close(r @ np.swapaxes(r, 1, 2), np.broadcast_to(np.eye(d), r.shape), 2e-6)
    close(cayley_inverse(cayley(a)), a, 100 * tol.identity)
    if X64:
        gap = lambda h: np.abs(np.asarray(cayley(h * a) - exp(h * a))).max()
        assert np.log2(gap(0.05) / gap(0.025)) == pytest.approx(3, abs=0.2)


def test_a_product_writes_rotations_row_by_row(tol):
    motions = Product(SpecialOrthogonal(3), Euclidean(3))
    assert (motions.d, motions.point_shape) == (12, (12,))
    x, y = np.asarray(motions.random(jr.key(0), (2,)))
    r, s = x[:9].reshape(3, 3), y[:9].reshape(3, 3)
    expected = np.asarray(SpecialOrthogonal(3).log(r, s)).ravel()
    close(motions.log(x, y)[:9], expected, tol.identity)
    close(motions.exp(x, motions.log(x, y)), y, 20 * tol.identity)
    square = SpecialOrthogonal(3).squared_distance(r, s) + np.sum((x - y)[9:] ** 2)
    close(motions.squared_distance(x, y), square, 50 * tol.identity)


def test_a_flow_of_rotations_stays_there_and_is_the_exponential(tol):
    x, a = points(3, 2), skew(3)
    field = lambda t, x, args: x @ args
    y = solve(field, x, a, t1=1.0, manifold=SpecialOrthogonal(3)).ys[-1]
    close(y, x @ np.asarray(exp(a)), 2e-5)
    close(
        y @ y.mT, np.broadcast_to(np.eye(3), y.shape), 4 * float(jnp.finfo(DTYPE).eps)
    )


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    with pytest.raises(ValueError, match="`d` must be an integer of at least 2"):
        SpecialOrthogonal(1)
    shape = r"`y` must have shape \(\.\.\., 3, 3\), as points of Spec.*shape \(3,\)"
    with pytest.raises(ValueError, match=shape):
        SpecialOrthogonal(3).log(np.eye(3), np.ones(3))
    with pytest.raises(ValueError, match=r"`y0` must have shape \(\.\.\., 3, 3\)"):
        solve(lambda t, x, a: x, np.ones(3), t1=1.0, manifold=SpecialOrthogonal(3))
    zero = np.zeros((2, 3, 3))
    with pytest.raises(ValueError, match="`y0` must be finite, and have one nearest"):
        solve(lambda t, x, a: x, zero, t1=1.0, manifold=SpecialOrthogonal(3))
    for function, name in ((rotation_exp, "a"), (rotation_log, "r"), (cayley, "a")):
        with pytest.raises(
            ValueError, match=rf"`{name}` must have shape \(\.\.\., d, d"
        ):
            function(np.ones((2, 3)))
    with pytest.raises(
        ValueError, match="`r` must be rotations without an angle of pi"
    ):
        cayley_inverse(np.diag([-1.0, -1.0]))
