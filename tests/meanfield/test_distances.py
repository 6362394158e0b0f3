"""Wasserstein distances, against scipy, optimal assignments and linear programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog
from scipy.stats import wasserstein_distance

from tfjax.geometry import Sphere
from tfjax.meanfield import assignment_distance, wasserstein_circle, wasserstein_line


X64 = jax.config.jax_enable_x64
DTYPE = np.float64 if X64 else np.float32
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=9).astype(DTYPE), RNG.normal(size=7).astype(DTYPE) + 1
A, B = RNG.uniform(size=9).astype(DTYPE), RNG.uniform(size=7).astype(DTYPE)
ANGLES = RNG.uniform(0, 2 * np.pi, (2, 30)).astype(DTYPE)
CLOSE = 1e-11 if X64 else 2e-5


def arc(x, y):
    gap = np.abs(np.float64(x)[:, None] - np.float64(y)[None, :]) % (2 * np.pi)
    return np.minimum(gap, 2 * np.pi - gap)


def by_linear_program(cost, a, b):
    n, m = cost.shape
    sums = [np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))]
    masses = np.concatenate([a / a.sum(), b / b.sum()])
    return linprog(cost.ravel(), A_eq=np.concatenate(sums), b_eq=masses).fun


def by_assignment(cost):
    rows, columns = linear_sum_assignment(cost)
    return cost[rows, columns].mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_on_the_line_it_is_scipys(weighted):
    a, b = (A, B) if weighted else (None, None)
    got = float(wasserstein_line(X, Y, x_weights=a, y_weights=b))
    assert got == pytest.approx(wasserstein_distance(X, Y, a, b), abs=CLOSE)


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_on_the_line_every_order_is_the_linear_program(order):
    cost = np.abs(np.float64(X)[:, None] - Y[None, :]) ** order
    want = by_linear_program(cost, np.float64(A), np.float64(B)) ** (1 / order)
    got = float(wasserstein_line(X, Y, order, x_weights=A, y_weights=B))
    assert got == pytest.approx(want, abs=CLOSE)


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_on_the_circle_it_is_the_best_assignment(order):
    x, y = ANGLES
    want = by_assignment(arc(x, y) ** order) ** (1 / order)
    assert float(wasserstein_circle(x, y, order)) == pytest.approx(want, abs=CLOSE)
    turned = wasserstein_circle(x + 7.0, y + 7.0 - 4 * np.pi, order)
    assert float(turned) == pytest.approx(want, abs=10 * CLOSE)


@pytest.mark.parametrize("order", [1, 2])
def test_on_the_circle_masses_are_those_of_the_linear_program(order):
    x, y = ANGLES[0, :9], ANGLES[1, :7]
    cost = arc(x, y) ** order
    want = by_linear_program(cost, np.float64(A), np.float64(B)) ** (1 / order)
    got = float(wasserstein_circle(x, y, order, x_weights=A, y_weights=B))
    assert got == pytest.approx(want, abs=CLOSE)


@pytest.mark.parametrize("order", [1, 2])
def test_a_turned_density_is_as_far_as_it_was_turned(order):
    """A narrow density on a grid, turned by a sixteenth across the angle 0."""
    theta = jnp.asarray(np.arange(64) * 2 * np.pi / 64, DTYPE)
    density = jnp.exp(20 * (jnp.cos(theta) - 1))
    kwargs = {"x_weights": density, "y_weights": jnp.roll(density, -4)}
    got = float(wasserstein_circle(theta, theta, order, **kwargs))
    assert got == pytest.approx(np.pi / 8, rel=1e-6 if X64 else 1e-3)


def test_an_eighth_of_the_mass_from_the_uniform_density_to_a_wave():
    """W_1 of (1 + a cos) / 2 pi to the uniform: 2 a/pi, the integral of |a sin|/2pi."""
    theta = jnp.asarray((np.arange(4096) + 0.5) * 2 * np.pi / 4096, DTYPE)
    wave = 1 + 0.3 * jnp.cos(theta)
    got = float(wasserstein_circle(theta, theta, x_weights=wave))
    assert got == pytest.approx(0.6 / np.pi, rel=1e-5 if X64 else 1e-3)


@pytest.mark.parametrize("distance", [wasserstein_line, wasserstein_circle])
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_are_finite_differences(distance, order):
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    y = jnp.asarray(ANGLES[1, :7])

    @jax.jit
    def both(x, a):
        return distance(x, y, order, x_weights=a, y_weights=B)

    at = (jnp.asarray(ANGLES[0, :9]), jnp.asarray(A))
    gradients = jax.grad(both, (0, 1))(*at)
    for i in range(2):
        direction = jnp.asarray(RNG.normal(size=9))
        shifted = lambda s, i=i, d=direction: [
            v + s * d if i == j else v for j, v in enumerate(at)
        ]
        up, down = (float(both(*shifted(s))) for s in (1e-6, -1e-6))
        got = float(jnp.sum(gradients[i] * direction))
        assert got == pytest.approx((up - down) / 2e-6, rel=1e-5)


def test_batches_are_loops():
    batch = jax.jit(jax.vmap(lambda x, y: wasserstein_circle(x, y, 2)))
    x, y = ANGLES.reshape(2, 3, 10)
    loop = [float(wasserstein_circle(a, b, 2)) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(batch(x, y), loop, atol=CLOSE)


def test_an_assignment_on_the_line_is_the_distance_there():
    x, y = RNG.normal(size=(2, 20)).astype(DTYPE)
    for order in (1, 2):
        got = assignment_distance(x[:, None], y[:, None], order)
        want = float(wasserstein_line(x, y, order))
        assert got == pytest.approx(want, abs=CLOSE)
    want = wasserstein_distance(x, y)
    assert assignment_distance(x[:, None], y[:, None]) == pytest.approx(want, abs=CLOSE)


def test_an_assignment_on_the_circle_is_the_distance_there():
    x, y = ANGLES
    points = [np.stack([np.cos(a), np.sin(a)], axis=1) for a in (x, y)]
    got = assignment_distance(*points, 2, manifold=Sphere(2))
    want = float(wasserstein_circle(x, y, 2))
    assert got == pytest.approx(want, abs=1e-6 if X64 else 1e-3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: wasserstein_line(X, Y, 0.5), "`order` must be a number"),
        (lambda: wasserstein_circle(X, Y, np.inf), "`order` must be a number"),
        (lambda: wasserstein_line(X[None], Y), "`x` must have shape"),
        (lambda: wasserstein_line(X, Y * np.nan), "`y` must be finite"),
        (lambda: wasserstein_line(X, Y, x_weights=B), "`x_weights` must have shape"),
        (lambda: wasserstein_line(X, Y, y_weights=-B), "`y_weights` must be finite, n"),
        (lambda: assignment_distance(X[:, None], Y[:, None]), "`y` must have shape"),
        (
            lambda: assignment_distance(X[:, None], X[:, None], manifold=Sphere(3)),
            "`manifold` must be",
        ),
        (
            lambda: jax.jit(lambda x: assignment_distance(x, x))(X[:, None]),
            "`x` must be concrete",
        ),
    ],
)
def test_the_door_names_the_argument(call, text, unchecked):
    with pytest.raises(ValueError, match=text):
        call()
