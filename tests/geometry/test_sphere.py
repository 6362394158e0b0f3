"""The unit sphere: closed forms, identities, and the sharp points."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tfjax.geometry import Sphere


ROWS = 40  # one shape for every batch, so that each operation is compiled once per d


@functools.cache
def op(d, name):
    """An operation of Sphere(d), compiled."""
    return jax.jit(getattr(Sphere(d), name))


class Case:
    """Sphere(d), its compiled operations, and random points and tangent vectors."""

    def __init__(self, d):
        self.d, self.manifold = d, Sphere(d)
        random = np.random.default_rng(d)
        normal = random.standard_normal((4, ROWS, d))
        dtype = jnp.zeros(()).dtype
        unit = lambda a: a / np.linalg.norm(a, axis=-1, keepdims=True)
        x, y = unit(normal[0]), unit(normal[1])
        u, w = (v - np.sum(x * v, axis=-1, keepdims=True) * x for v in normal[2:])
        self.x, self.y, self.u, self.w = (a.astype(dtype) for a in (x, y, unit(u), w))

    def __getattr__(self, name):
        return lambda *args: np.asarray(op(self.d, name)(*args))

    def at(self, angles):
        """The points at these angles from x in the direction u, in float64 first."""
        angles = np.broadcast_to(
            np.asarray(angles, np.float64).reshape(-1, 1), (ROWS, 1)
        )
        points = np.cos(angles) * self.x + np.sin(angles) * self.u
        return points.astype(self.x.dtype)


@pytest.fixture(scope="module", params=(3, 8), ids=lambda d: f"d={d}")
def sphere(request):
    return Case(request.param)


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def inner(a, b):
    return np.sum(a * b, axis=-1)


def norm(a):
    return np.linalg.norm(a, axis=-1)


# --- Closed forms ---------------------------------------------------------------------


def test_exp_is_the_great_circle(sphere, tol):
    angles = np.linspace(0.0, 6.2, ROWS)[:, None].astype(sphere.x.dtype)
    expected = np.cos(angles) * sphere.x + np.sin(angles) * sphere.u
    close(sphere.exp(sphere.x, angles * sphere.u), expected, 2 * tol.identity)


def test_distance_is_the_angle(sphere, tol):
    angles = np.linspace(1e-3, np.pi, ROWS)
    close(sphere.distance(sphere.x, sphere.at(angles)), angles, tol.identity)


def test_squared_distance_is_the_squared_angle(sphere, tol):
    angles = np.linspace(0.0, np.pi, ROWS)  # across the switch to the series, at 0.505
    squared = sphere.squared_distance(sphere.x, sphere.at(angles))
    close(squared, angles**2, 2 * tol.identity)


def test_log_is_the_angle_times_the_direction(sphere, tol):
    angles = np.linspace(0.0, 3.0, ROWS)
    log = sphere.log(sphere.x, sphere.at(angles))
    # Towards the antipode the rounding of y turns the direction: 3 / sin 3 is 21.
    close(log, angles[:, None] * sphere.u, 21 * tol.identity)


def test_the_circle_agrees_with_angles(tol):
    circle = Case(2)
    a, b = np.random.default_rng(0).uniform(-3.1, 3.1, (2, ROWS))
    dtype = circle.x.dtype
    point = lambda t: np.stack([np.cos(t), np.sin(t)], axis=-1).astype(dtype)
    turn = lambda t: np.stack([-np.sin(t), np.cos(t)], axis=-1).astype(dtype)
    gap = np.arctan2(np.sin(b - a), np.cos(b - a))
    x, y = point(a), point(b)
    close(circle.distance(x, y), np.abs(gap), tol.identity)
    close(circle.log(x, y), gap[:, None] * turn(a), 5 * tol.identity)
    close(circle.exp(x, b[:, None].astype(dtype) * turn(a)), point(a + b), tol.identity)
    close(circle.transport(x, y, turn(a)), turn(b), 5 * tol.identity)


def test_project_divides_by_the_norm(sphere, tol):
    far = 7 * sphere.x + sphere.w
    close(sphere.project(far), far / norm(far)[:, None], tol.identity)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_project_neither_under_nor_overflows(size):
    x = jnp.asarray([3 * size, 4 * size], jnp.float32)
    close(op(2, "project")(x), [0.6, 0.8], 1e-6)
    jacobian = jax.jit(jax.jacobian(Sphere(2).project))(x)
    expected = [[0.128, -0.096], [-0.096, 0.072]]
    close(np.asarray(jacobian, np.float64) * size, expected, 1e-6)


# --- Identities -----------------------------------------------------------------------


def test_exp_inverts_log(sphere, tol):
    log = sphere.log(sphere.x, sphere.y)
    close(sphere.exp(sphere.x, log), sphere.y, 2 * tol.identity)


def test_the_norm_of_log_is_the_distance(sphere, tol):
    log = sphere.log(sphere.x, sphere.y)
    close(norm(log), sphere.distance(sphere.x, sphere.y), 2 * tol.identity)


def test_log_is_tangent(sphere, tol):
    log = sphere.log(sphere.x, sphere.y)
    close(inner(sphere.x, log), np.zeros(ROWS), 2 * tol.identity)


def test_transport_is_isometric_and_tangent_at_the_end(sphere, tol):
    x, y = sphere.x, sphere.y
    u, w = sphere.transport(x, y, sphere.u), sphere.transport(x, y, sphere.w)
    close(inner(u, w), inner(sphere.u, sphere.w), 5 * tol.identity)
    close(norm(w), norm(sphere.w), 5 * tol.identity)
    close(inner(y, w), np.zeros(ROWS), 5 * tol.identity)


def test_transport_carries_the_way_out_to_the_way_back(sphere, tol):
    x, y = sphere.x, sphere.y
    moved = sphere.transport(x, y, sphere.log(x, y))
    close(moved, -sphere.log(y, x), 5 * tol.identity)


def test_transport_there_and_back_is_the_identity(sphere, tol):
    x, y = sphere.x, sphere.y
    back = sphere.transport(y, x, sphere.transport(x, y, sphere.w))
    close(back, sphere.w, 5 * tol.identity)


def test_transport_leaves_what_is_across_the_way():
    x, y, z = np.eye(3)
    close(op(3, "transport")(x, y, z), z, 1e-15)
    close(op(3, "transport")(x, y, y), -x, 1e-15)


def test_tangent_is_an_orthogonal_projection(sphere, tol):
    x, y = sphere.x, sphere.y
    once = sphere.tangent(x, y)
    close(inner(x, once), np.zeros(ROWS), tol.identity)
    close(sphere.tangent(x, once), once, tol.identity)
    close(inner(y - once, sphere.w), np.zeros(ROWS), 5 * tol.identity)


def test_exp_ignores_what_is_not_tangent(sphere, tol):
    x, w = sphere.x, sphere.w
    close(sphere.exp(x, w + 2 * x), sphere.exp(x, w), 5 * tol.identity)


def test_a_geodesic_starts_with_its_velocity(sphere, tol):
    along = lambda x, v: jax.jvp(
        lambda s: sphere.manifold.exp(x, s * v), (jnp.zeros(()),), (jnp.ones(()),)
    )
    start, velocity = jax.jit(along)(sphere.x, sphere.w)
    close(start, sphere.x, tol.identity)
    close(velocity, sphere.w, tol.identity)


def test_a_geodesic_may_be_walked_in_two_parts(sphere, tol):
    x, v = sphere.x, 2 * sphere.u
    halfway = sphere.exp(x, 0.5 * v)
    rest = sphere.transport(x, halfway, 0.5 * v)
    close(sphere.exp(halfway, rest), sphere.exp(x, v), 2 * tol.identity)


def test_retract_agrees_with_exp_to_second_order(sphere):
    steps = np.array([0.125, 0.0625, 0.03125], sphere.x.dtype)
    gaps = [
        norm(
            sphere.retract(sphere.x, h * sphere.u) - sphere.exp(sphere.x, h * sphere.u)
        )
        for h in steps
    ]
    gaps = np.mean(gaps, axis=1)
    assert abs(np.polyfit(np.log(steps), np.log(gaps), 1)[0] - 3.0) < 0.2
    # tan(angle) = h, so that the angle is h - h^3/3 + ...
    close(gaps, steps - np.arctan(steps), 2e-7)


def test_retract_is_the_projection_of_the_step(sphere, tol):
    x, w = sphere.x, sphere.w
    close(sphere.retract(x, w), sphere.project(x + w), tol.identity)


@given(st.floats(0.0, np.pi), st.floats(-3.2, 3.2), st.floats(0.0, 1.0))
def test_exp_inverts_log_at_every_angle_even_next_to_0_and_pi(angle, turn, height):
    dtype = jnp.zeros(()).dtype
    tolerance = 2e-15 if dtype == jnp.float64 else 1e-6
    side = np.sqrt(1 - height**2)
    x = np.array([side, height, 0.0])
    a, b = np.array([-height, side, 0.0]), np.array([0.0, 0.0, 1.0])
    y = np.cos(angle) * x + np.sin(angle) * (np.cos(turn) * a + np.sin(turn) * b)
    x, y = x.astype(dtype), y.astype(dtype)
    there = op(3, "log")(x, y)
    close(op(3, "exp")(x, there), y, tolerance)
    close(op(3, "distance")(x, y), angle, tolerance)
    close(np.linalg.norm(there), angle, tolerance)
    close(op(3, "squared_distance")(x, y), angle**2, 2 * tolerance)


# --- Near coincidence -----------------------------------------------------------------


def test_s11_no_distance_of_a_point_to_itself_is_nan():
    x = np.random.default_rng(11).standard_normal((2000, 3)).astype(np.float32)
    x = x / norm(x)[:, None]
    distance = np.asarray(op(3, "distance")(x, x))
    assert not np.isnan(distance).any()
    assert distance.max() < 1e-6


def test_s11_a_short_distance_keeps_its_digits():
    a = np.array([1.0, 0.0, 0.0], np.float32)
    b = np.array([np.cos(1e-4), np.sin(1e-4), 0.0], np.float32)
    assert float(op(3, "distance")(a, b)) == pytest.approx(1e-4, rel=1e-6)
    np.testing.assert_allclose(op(3, "log")(a, b), [0, 1e-4, 0], rtol=1e-6, atol=1e-11)


def test_s11_the_gradient_of_a_distance_to_itself_is_zero():
    y = jnp.asarray(np.array([1.0, 2.0, 3.0]) / np.sqrt(14.0), jnp.float32)
    at_both = jax.jit(jax.grad(lambda y: Sphere(3).distance(y, y)))(y)
    at_one = jax.jit(jax.grad(Sphere(3).distance))(y, y)
    np.testing.assert_array_equal(at_both, np.zeros(3))
    np.testing.assert_array_equal(at_one, np.zeros(3))


def test_s12_a_short_step_keeps_its_digits():
    p, v = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], np.float32)
    exp = lambda size: np.asarray(op(3, "exp")(p, np.float32(size) * v))
    np.testing.assert_allclose(exp(0.01), [0.00999983, 0, 0.99995], rtol=0, atol=1e-7)
    for size in (0.01, 1e-3, 1e-8, 0.0):
        assert abs(np.linalg.norm(exp(size).astype(np.float64)) - 1) < 2e-7
        np.testing.assert_allclose(exp(size)[0], np.sin(size), rtol=1e-6)
    np.testing.assert_array_equal(exp(0.0), p)


@functools.cache
def jets_along_a_geodesic():
    """s -> the squared distance from x to exp_x(s u), and two derivatives."""

    def along(s, x, u):
        return Sphere(3).squared_distance(x, Sphere(3).exp(x, s * u))

    first = jax.grad(along)
    return jax.jit(lambda *a: (along(*a), first(*a), jax.grad(first)(*a)))


# The series of the squared distance ends at chord 1/2, angle 0.5054.
@pytest.mark.parametrize("s", [0.0, 1e-4, 0.3, 0.505, 0.506, 1.5, 2.5])
def test_squared_distance_along_a_geodesic_is_s_squared_with_its_derivatives(s, tol):
    x, u = Case(3).x[0], Case(3).u[0]
    value, first, second = jets_along_a_geodesic()(s, x, u)
    close(value, s**2, 2 * tol.identity)
    close(first, 2 * s, 5 * tol.identity)
    close(second, 2.0, 20 * tol.identity)


def test_squared_distance_at_coincidence_is_0_with_gradient_0_and_hessian_2(tol):
    x = Case(3).x[0]
    squared = Sphere(3).squared_distance
    gradient = jax.grad(squared, 1)
    jet = lambda x, y: (squared(x, y), gradient(x, y), jax.jacfwd(gradient, 1)(x, y))
    value, first, second = jax.jit(jet)(x, x)
    assert float(value) == 0.0
    np.testing.assert_array_equal(first, np.zeros(3))
    # Where the gradient is 0, the Hessian on the sphere is that in space, projected.
    across = np.eye(3) - np.outer(x, x)
    close(across @ second @ across, 2 * across, 5 * tol.identity)


def test_squared_distance_next_to_coincidence_has_hessian_2():
    x = jnp.asarray([1.0, 0.0, 0.0], jnp.float32)
    y = jnp.asarray([1.0, 1e-25, 0.0], jnp.float32)
    hessian = jax.jit(jax.jacfwd(jax.grad(Sphere(3).squared_distance, 1), 1))(x, y)
    close(hessian[1:, 1:], 2 * np.eye(2), 1e-6)


def test_log_and_exp_at_coincidence_have_the_projection_as_derivative(tol):
    x = Case(3).x[0]
    jacobian = lambda f: jax.jit(jax.jacobian(f, 1))
    np.testing.assert_array_equal(op(3, "log")(x, x), np.zeros(3))
    projection = np.eye(3) - np.outer(x, x)
    close(jacobian(Sphere(3).log)(x, x), projection, 2 * tol.identity)
    close(jacobian(Sphere(3).exp)(x, np.zeros_like(x)), projection, 2 * tol.identity)


# --- Near the antipode and at the origin ----------------------------------------------


def test_exp_reaches_the_exact_antipode_that_log_points_to(sphere, tol):
    x = sphere.x
    there = sphere.log(x, -x)
    close(norm(there), np.full(ROWS, np.pi), tol.identity)
    close(sphere.exp(x, there), -x, tol.identity)
    close(sphere.distance(x, -x), np.full(ROWS, np.pi), tol.identity)


@pytest.mark.parametrize("gap", [1e-3, 1e-6])
def test_log_next_to_the_antipode_has_the_right_direction(gap):
    x = np.array([1.0, 0.0, 0.0], np.float32)
    y = np.array([-1.0, 0.6 * gap, 0.8 * gap], np.float32)
    expected = (np.pi - gap) * np.array([0.0, 0.6, 0.8])
    close(op(3, "log")(x, y), expected, 1e-6)
    close(op(3, "distance")(x, y), np.pi - gap, 1e-6)


def test_transport_next_to_the_antipode_turns_the_way_and_keeps_the_rest(sphere, tol):
    angle = np.pi - 1e-3
    x, u, y = sphere.x, sphere.u, sphere.at(angle)
    along = inner(sphere.w, u)[:, None]
    turned = -np.sin(angle) * x + np.cos(angle) * u
    expected = sphere.w + along * (turned - u)
    # The way itself is known to the rounding of y over the gap of 1e-3.
    close(sphere.transport(x, y, sphere.w), expected, 4e3 * tol.identity)


def test_transport_to_the_antipode_is_isometric_and_flips_the_way(sphere, tol):
    x, w = sphere.x, sphere.w
    moved = sphere.transport(x, -x, w)
    close(norm(moved), norm(w), 5 * tol.identity)
    close(inner(x, moved), np.zeros(ROWS), 5 * tol.identity)
    way = sphere.log(x, -x)
    close(sphere.transport(x, -x, way), -way, 5 * tol.identity)


@functools.cache
def gradients_of_everything():
    def everything(x, y, v):
        s = Sphere(3)
        vectors = s.log(x, y) + s.transport(x, y, v)
        return jnp.sum(vectors) + s.distance(x, y) + s.squared_distance(x, y)

    return jax.jit(jax.grad(everything, (0, 1, 2)))


@pytest.mark.parametrize("sign", [1, -1], ids=["coincidence", "antipode"])
def test_no_derivative_is_nan_at(sign):
    x, v = Case(3).x[0], Case(3).u[0]
    gradients = gradients_of_everything()(x, sign * x, v)
    assert all(np.isfinite(g).all() for g in gradients)


def test_s10_a_zero_row_is_left_at_0_with_gradient_0():
    x = jnp.asarray([[0.0, 0.0], [3.0, 4.0]], jnp.float32)
    project = jax.vmap(Sphere(2).project)
    np.testing.assert_allclose(project(x), [[0, 0], [0.6, 0.8]], rtol=0, atol=1e-7)
    gradient = np.asarray(jax.grad(lambda x: jnp.sum(project(x)))(x))
    np.testing.assert_allclose(gradient[1], [0.032, -0.024], rtol=0, atol=1e-7)
    np.testing.assert_array_equal(gradient[0], np.zeros(2))


def test_projectable_refuses_the_origin_and_what_is_not_finite():
    x = jnp.array(
        [[0.0, 0.0], [jnp.nan, 1.0], [1.0, -jnp.inf], [1e-20, 0.0], [2.0, 1.0]]
    )
    expected = [False, False, False, True, True]
    assert Sphere(2).projectable(x).tolist() == expected


# --- Random points --------------------------------------------------------------------


def test_random_points_have_the_moments_of_the_uniform_distribution(sphere):
    d, n = sphere.d, 20_000
    x = np.asarray(sphere.manifold.random(jr.key(5), (n,)), np.float64)
    np.testing.assert_allclose(norm(x), 1.0, rtol=0, atol=1e-6)

    def within_5_standard_errors(samples, expected):
        error = samples.std(axis=0, ddof=1) / np.sqrt(n)
        assert (np.abs(samples.mean(axis=0) - expected) < 5 * error).all()

    within_5_standard_errors(x, 0.0)
    within_5_standard_errors(x**2, 1 / d)
    within_5_standard_errors(x[:, 0] * x[:, 1], 0.0)
    within_5_standard_errors(x**4, 3 / (d * (d + 2)))


def test_random_takes_shape_and_dtype_and_repeats_with_its_key():
    draw = lambda seed: Sphere(3).random(jr.key(seed), (2, 5), dtype=jnp.bfloat16)
    assert (draw(1).shape, draw(1).dtype) == ((2, 5, 3), jnp.bfloat16)
    np.testing.assert_array_equal(draw(1), draw(1))
    assert not np.array_equal(draw(1), draw(2))
    point = Sphere(3).random(jr.key(1))
    assert (point.shape, point.dtype) == ((3,), jnp.zeros(()).dtype)


# --- Input ----------------------------------------------------------------------------


def test_one_point_meets_a_batch(sphere):
    x, ys = sphere.x[0], sphere.y
    everywhere = np.broadcast_to(x, ys.shape)
    np.testing.assert_array_equal(
        sphere.distance(x, ys), sphere.distance(everywhere, ys)
    )


def test_integers_are_points_too():
    x, y = jnp.array([1, 0]), np.array([0, 1])
    assert float(Sphere(2).distance(x, y)) == pytest.approx(np.pi / 2)
    assert Sphere(2).project(jnp.array([3, 4])).dtype == jnp.zeros(()).dtype


@pytest.mark.parametrize("d", [1, 0, -3])
def test_a_dimension_below_2_is_refused_by_name(d):
    message = f"^`d` must be an integer of at least 2, but was {d}.$"
    with pytest.raises(ValueError, match=message):
        Sphere(d)


def test_true_is_no_dimension():
    message = "^`d` must be an integer of at least 2, but was True.$"
    with pytest.raises(ValueError, match=message):
        Sphere(True)


def test_bad_points_are_refused_by_name():
    x, wide = np.eye(3)[0], np.ones((2, 4))
    message = (
        r"`y` must have shape \(\.\.\., 3\), as points of Sphere\(d=3\), "
        r"but was of shape \(2, 4\)"
    )
    with pytest.raises(ValueError, match=message):
        Sphere(3).log(x, wide)
    with pytest.raises(ValueError, match=r"`x` must have shape .* of shape \(\)"):
        Sphere(3).project(1.0)
    with pytest.raises(
        ValueError, match="`v` must be a real array, but was of dtype bool"
    ):
        Sphere(3).exp(x, x > 0)
    with pytest.raises(
        ValueError, match="`v` must be a real array, but was a str: 'up'"
    ):
        Sphere(3).exp(x, "up")


def test_arguments_go_by_name_and_none_too_many_or_too_few():
    x, y, z = jnp.eye(3)
    np.testing.assert_array_equal(Sphere(3).log(y=y, x=x), Sphere(3).log(x, y))
    with pytest.raises(TypeError, match="too many positional arguments"):
        Sphere(3).log(x, y, z)
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        Sphere(3).log(x)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        Sphere(3).log(x, y, x=x)
