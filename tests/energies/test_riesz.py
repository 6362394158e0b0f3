"""Riesz's energies: known minima on the sphere, closed forms on the circle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.energies import riesz_energy
from tfjax.fields import gradient_flow
from tfjax.geometry import Sphere


X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
GOLDEN = (1 + 5**0.5) / 2


def polygon(n):
    angles = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def bipyramid(n):
    """A regular polygon at the equator, and the two poles."""
    equator = np.pad(polygon(n - 2), ((0, 0), (0, 1)))
    return np.concatenate([equator, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])


def icosahedron():
    corners = [(0, a, b * GOLDEN) for a in (-1, 1) for b in (-1, 1)]
    points = np.concatenate([np.roll(corners, k, axis=1) for k in range(3)])
    return points / np.linalg.norm(points[0])


# The minima of Thomson's problem that have a closed form, as they are tabulated.
THOMSON = {
    2: (np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]), 0.5),
    3: (np.pad(polygon(3), ((0, 0), (0, 1))), 1.732050808),
    4: (
        np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / 3**0.5,
        3.674234614,
    ),
    5: (bipyramid(5), 6.474691495),
    6: (bipyramid(6), 9.985281374),
    7: (bipyramid(7), 14.452977414),
    12: (icosahedron(), 49.165253058),
}


@pytest.mark.parametrize("n", THOMSON)
def test_known_minima_of_thomsons_problem(n):
    points, energy = THOMSON[n]
    got = float(riesz_energy(points.astype(DTYPE), 1.0))
    assert got == pytest.approx(energy, abs=6e-10 if X64 else 2e-5)


DESCEND = gradient_flow(lambda x: riesz_energy(x, 1.0), Sphere(3), sign=-1)


@pytest.mark.parametrize("n", [5, 12])
def test_known_minima_are_at_rest(n, tol):
    assert np.abs(jax.jit(DESCEND)(0.0, THOMSON[n][0].astype(DTYPE))).max() < (
        20 * tol.identity
    )


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_closed_forms_of_polygons(n, tol):
    """The product of all |x_i - x_j| is n^(n/2); that of s = 2 is n (n^2 - 1) / 24."""
    points = polygon(n).astype(DTYPE)
    for s, expected in ((0.0, -0.5 * n * np.log(n)), (2.0, n * (n**2 - 1) / 24)):
        got = float(riesz_energy(points, s))
        assert got == pytest.approx(expected, rel=100 * tol.identity, abs=tol.identity)


def test_the_logarithm_is_the_derivative_in_s_at_zero():
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    x = np.random.default_rng(0).standard_normal((6, 3))
    slope = (riesz_energy(x, 1e-6) - 15.0) / 1e-6
    assert float(slope) == pytest.approx(float(riesz_energy(x, 0.0)), rel=1e-5)


def test_a_change_of_unit_scales_the_energy(tol):
    x = np.random.default_rng(1).standard_normal((6, 3)).astype(DTYPE)
    for s in (0.5, 3.0):
        ratio = float(riesz_energy(4 * x, s) / riesz_energy(x, s))
        assert ratio == pytest.approx(4**-s, rel=10 * tol.identity)
    shift = float(riesz_energy(4 * x, 0.0) - riesz_energy(x, 0.0))
    assert shift == pytest.approx(-15 * np.log(4), rel=10 * tol.identity)


@pytest.mark.slow
def test_the_flow_from_random_points_falls_to_the_known_minimum():
    x0 = Sphere(3).random(jax.random.key(0), (5,))
    ts = jnp.linspace(0.0, 200.0, 61)
    sol = tfjax.solve(DESCEND, x0, t1=200.0, ts=ts, manifold=Sphere(3))
    energies = np.asarray(jax.vmap(lambda x: riesz_energy(x, 1.0))(sol.ys))
    assert energies[0] > energies[-1] + 0.5
    assert np.all(np.diff(energies) < (1e-9 if X64 else 1e-4))
    assert energies[-1] == pytest.approx(THOMSON[5][1], abs=1e-8 if X64 else 1e-4)


@pytest.mark.parametrize("s", [0.0, 1.0, 2.5])
def test_points_that_coincide_have_infinite_energy_and_a_finite_gradient(s):
    x = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], DTYPE)
    energy = lambda x: riesz_energy(x, s)
    value, gradient = jax.jit(jax.value_and_grad(energy))(x)
    assert float(energy(x)) == np.inf
    assert float(value) == np.inf
    # Both feel the third point alone, which feels two.
    alone = np.asarray(jax.jit(jax.grad(energy))(x[1:]))
    expected = np.stack([alone[0], alone[0], 2 * alone[1]])
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_points_that_nearly_coincide_have_a_finite_gradient():
    tiny = np.array([0.0, np.finfo(DTYPE).tiny, 1e-30, 1e-15, 1e-6], DTYPE)
    gradient = jax.jit(jax.vmap(jax.grad(lambda x: riesz_energy(x, 2.0))))
    found = np.asarray(gradient(jnp.stack([jnp.zeros(5), tiny], axis=1)[..., None]))
    assert np.isfinite(found).all()
    assert found[-1, 1, 0] == pytest.approx(-2e18, rel=1e-4)


@pytest.mark.parametrize(
    ("x", "s", "text"),
    [
        (np.ones(3), 1.0, r"`x` must have shape \(n, d\), but was of shape \(3,\)"),
        (np.array([[np.nan]]), 1.0, "`x` must be finite, but was"),
        (np.ones((1, 1)), -1.0, "`s` must be finite and not negative, but was -1"),
        (np.ones((1, 1)), np.nan, "`s` must be finite and not negative, but was nan"),
        (np.ones((1, 1)), np.ones(2), r"`s` must be a scalar, but was of shape \(2,\)"),
    ],
)
def test_errors_name_the_argument(x, s, text, unchecked):
    with pytest.raises(ValueError, match=text):
        riesz_energy(x, s)
