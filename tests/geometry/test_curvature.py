"""Curvature: surfaces with closed forms, Gauss' equation, the symmetries of tensors."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tfjax.geometry import (
    christoffel,
    estimate_mean_curvature,
    mean_curvature,
    pullback_metric,
    pullback_moments,
    pullback_product,
    ricci,
    riemann,
    scalar_curvature,
    second_fundamental_form,
    sectional_curvature,
)


# Third derivatives compile for long, and float32 leaves few digits of them.
pytestmark = pytest.mark.slow
X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
# Third derivatives, a few dozen operations apart; in float32 the curvature is what is
# left of terms of size 10.
TOLERANCE = 1e-10 if X64 else 1e-3


def sphere(x, radius=2.0):
    u, v = x
    parts = [jnp.sin(u) * jnp.cos(v), jnp.sin(u) * jnp.sin(v), jnp.cos(u)]
    return radius * jnp.stack(parts)


def torus(x):
    u, v = x
    ring = 3 + jnp.cos(v)
    return jnp.stack([ring * jnp.cos(u), ring * jnp.sin(u), jnp.sin(v)])


def swiss_roll(x):
    t, h = x
    return jnp.stack([t * jnp.cos(t), h, t * jnp.sin(t)])


def three_sphere(x):
    a, b, c = x
    rest = jnp.sin(a) * jnp.sin(b)
    parts = [jnp.cos(a), jnp.sin(a) * jnp.cos(b), rest * jnp.cos(c), rest * jnp.sin(c)]
    return jnp.stack(parts)


# name: the map, the point, the scalar curvature and |H|^2 there.
RING = 3 + np.cos(0.7)
MAPS = {
    "sphere": (sphere, [0.8, 0.4], 0.5, 1.0),
    "torus": (torus, [0.3, 0.7], 2 * np.cos(0.7) / RING, (1 + np.cos(0.7) / RING) ** 2),
    "swiss roll": (swiss_roll, [2.0, 1.0], 0.0, (6 / 5**1.5) ** 2),
    "three-sphere": (three_sphere, [0.9, 1.1, 0.5], 6.0, 9.0),
}
every_map = pytest.mark.parametrize("name", MAPS)


@functools.cache
def measured(name):
    """Intrinsic and extrinsic quantities of a map at its point, compiled once."""
    f, x, *_ = MAPS[name]

    def all_of_them(x):
        metric = lambda x: pullback_metric(f, x)
        return {
            "metric": metric(x),
            "riemann": riemann(metric, x),
            "ricci": ricci(metric, x),
            "scalar": scalar_curvature(metric, x),
            "form": second_fundamental_form(f, x),
            "mean": mean_curvature(f, x),
            "jacobian": jax.jacfwd(f)(x),
        }

    return jax.tree.map(np.asarray, jax.jit(all_of_them)(jnp.asarray(x, DTYPE)))


@every_map
def test_the_scalar_curvature_of_the_pullback_is_the_closed_form(name):
    scalar = measured(name)["scalar"]
    assert float(scalar) == pytest.approx(MAPS[name][2], rel=0, abs=TOLERANCE)


@every_map
def test_scalar_curvature_is_mean_curvature_less_second_form(name):
    # Gauss: R = |H|^2 - |II|^2.
    got = measured(name)
    inverse = np.linalg.inv(got["metric"])
    form = got["form"]
    square = np.einsum("kij,kab,ia,jb->", form, form, inverse, inverse)
    mean = np.sum(got["mean"] ** 2)
    assert mean == pytest.approx(MAPS[name][3], rel=TOLERANCE)
    assert float(got["scalar"]) == pytest.approx(mean - square, rel=0, abs=TOLERANCE)


@every_map
def test_second_form_and_mean_curvature_are_normal(name):
    got = measured(name)
    for normal in (got["form"].reshape(len(got["mean"]), -1), got["mean"]):
        np.testing.assert_allclose(got["jacobian"].T @ normal, 0, atol=TOLERANCE)


@every_map
def test_the_curvature_tensor_is_that_of_gauss(name):
    # <R(e_i, e_j) e_k, e_l> = <II_li, II_kj> - <II_lj, II_ki>
    got = measured(name)
    pairs = np.einsum("ali,akj->lkij", got["form"], got["form"])
    expected = pairs - np.swapaxes(pairs, 2, 3)
    np.testing.assert_allclose(got["riemann"], expected, rtol=0, atol=TOLERANCE)


def test_spheres_are_einstein():
    got = measured("three-sphere")
    np.testing.assert_allclose(got["ricci"], 2 * got["metric"], rtol=0, atol=TOLERANCE)


def bumpy(x):
    """A metric without symmetries."""
    weights = np.random.default_rng(0).standard_normal((3, 3, 3)).astype(DTYPE)
    root = jnp.tensordot(jnp.sin(x), weights, 1) * 0.3 + jnp.eye(3, dtype=DTYPE)
    return root @ root.T


def test_the_curvature_tensor_has_its_symmetries_and_bianchi_holds():
    x = jnp.asarray([0.3, -0.2, 0.5], DTYPE)
    r = np.asarray(jax.jit(lambda x: riemann(bumpy, x))(x))
    assert np.abs(r).max() > 0.1
    for other in (
        -r.transpose(0, 1, 3, 2),
        -r.transpose(1, 0, 2, 3),
        r.transpose(2, 3, 0, 1),
    ):
        np.testing.assert_allclose(r, other, rtol=0, atol=TOLERANCE)
    cyclic = r + r.transpose(0, 2, 3, 1) + r.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(cyclic, 0, atol=TOLERANCE)


def test_the_hyperbolic_half_plane_has_its_symbols_and_curvature_minus_one():
    plane = lambda x: jnp.eye(2, dtype=DTYPE) / x[1] ** 2
    x = jnp.asarray([0.4, 1.7], DTYPE)
    expected = np.array([[[0, -1], [-1, 0]], [[1, 0], [0, -1]]]) / 1.7
    np.testing.assert_allclose(christoffel(plane, x), expected, rtol=0, atol=TOLERANCE)
    u, v = jnp.asarray([1.0, 0.3], DTYPE), jnp.asarray([-0.4, 2.0], DTYPE)
    curvature = sectional_curvature(plane, x, u, v)
    assert float(curvature) == pytest.approx(-1, rel=TOLERANCE)
    assert float(scalar_curvature(plane, x)) == pytest.approx(-2, rel=TOLERANCE)


def layer_norm(x):
    centred = x - jnp.mean(x)
    return np.sqrt(x.size).astype(DTYPE) * centred / jnp.linalg.norm(centred)


def test_layer_norm_stretches_by_one_factor_and_forgets_two_directions(tol):
    # Singular values sqrt(d) / r, d - 2 times, and 0 twice.
    x = np.random.default_rng(0).standard_normal(8).astype(DTYPE)
    r = np.linalg.norm(x - x.mean())
    values = np.linalg.eigvalsh(pullback_metric(layer_norm, x))
    expected = [0, 0] + [8 / r**2] * 6
    np.testing.assert_allclose(values, expected, rtol=0, atol=20 * tol.identity)
    moments = pullback_moments(layer_norm, x, key=jr.key(0), probes=4000)
    # Of a projection P onto d - 2 dimensions: var v^T P v <= 2 (d - 2) 2 / d.
    spread = 5 * np.sqrt(2 * 6 * 2 / 8 / 4000)
    assert float(moments.trace) * r**2 / 8 == pytest.approx(6, abs=spread)
    assert float(moments.square) * (r**2 / 8) ** 2 == pytest.approx(6, abs=spread)


def test_products_with_the_metric_are_those_of_the_dense_one(tol):
    x, v = np.random.default_rng(1).standard_normal((2, 2)).astype(DTYPE)
    expected = np.asarray(pullback_metric(torus, x)) @ v
    got = jax.jit(lambda x, v: pullback_product(torus, x, v))(x, v)
    np.testing.assert_allclose(got, expected, rtol=0, atol=50 * tol.identity)
    # On tokens: the joint map, here a matrix from the right.
    w = np.random.default_rng(2).standard_normal((3, 3)).astype(DTYPE)
    x, v = np.random.default_rng(3).standard_normal((2, 4, 3)).astype(DTYPE)
    got = pullback_product(lambda x: x @ w, x, v)
    np.testing.assert_allclose(got, v @ w @ w.T, rtol=0, atol=50 * tol.identity)


def test_moments_are_unbiased(tol):
    w = np.random.default_rng(4).standard_normal((6, 6)).astype(DTYPE)
    g = np.asarray(w, np.float64) @ np.asarray(w, np.float64).T
    run = lambda key: pullback_moments(lambda x: x @ w, jnp.zeros(6), key=key, probes=1)
    each = jax.jit(jax.vmap(run))(jr.split(jr.key(0), 4000))
    for samples, exact in zip(each, (np.trace(g), np.trace(g @ g)), strict=True):
        samples = np.asarray(samples, np.float64)
        error = 5 * samples.std() / np.sqrt(len(samples))
        assert 0 < abs(samples.mean() - exact) < error


@pytest.mark.parametrize("name", ["torus", "three-sphere"])
def test_the_estimated_mean_curvature_is_unbiased(name):
    # These coordinates are orthogonal, but slanted ones are not.
    f, x, *_ = MAPS[name]
    m = len(x)
    slant = np.eye(m) + 0.5 * np.triu(np.ones((m, m)), 1)
    slanted = lambda y: f(jnp.asarray(slant, DTYPE) @ y)
    y = jnp.asarray(np.linalg.solve(slant, x), DTYPE)
    run = lambda key: estimate_mean_curvature(slanted, y, key=key, probes=1)
    samples = np.asarray(jax.jit(jax.vmap(run))(jr.split(jr.key(1), 2000)), np.float64)
    error = 5 * samples.std(axis=0) / np.sqrt(len(samples)) + TOLERANCE
    assert (np.abs(samples.mean(axis=0) - measured(name)["mean"]) < error).all()


def test_curvature_has_the_derivative_of_its_closed_form():
    # d/dv of 2 cos v / (3 + cos v)
    scalar = lambda x: scalar_curvature(lambda x: pullback_metric(torus, x), x)
    slope = jax.jit(jax.jacfwd(scalar))(jnp.asarray([0.3, 0.7], DTYPE))
    expected = -6 * np.sin(0.7) / RING**2
    np.testing.assert_allclose(slope, [0, expected], rtol=0, atol=10 * TOLERANCE)


def test_half_precision_is_computed_in_float32():
    x = jnp.asarray([0.8, 0.4], jnp.bfloat16)
    got = pullback_metric(sphere, x)
    wide = pullback_metric(sphere, x.astype(jnp.float32))
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got, wide.astype(jnp.bfloat16))


def flat(x):
    return jnp.eye(2, dtype=DTYPE)


def fold(x):
    return x[0] ** 2 * jnp.ones(3, DTYPE)


E1 = np.array([1, 0], DTYPE)
NOWHERE = "`x` must be a point where the metric is positive definite"
DEGENERATE = "`x` must be a point where the Jacobian of `f` has full rank"
PARALLEL = "`v` must be linearly independent of `u`"
# Results that ignore x, so that a check of x alone would be compiled away.
FAULTS = {
    "christoffel": (lambda x: christoffel(lambda x: -flat(x), x), NOWHERE),
    "riemann": (lambda x: riemann(lambda x: -flat(x), x), NOWHERE),
    "ricci": (lambda x: ricci(lambda x: -flat(x), x), NOWHERE),
    "scalar": (lambda x: scalar_curvature(lambda x: -flat(x), x), NOWHERE),
    "sectional": (lambda x: sectional_curvature(flat, x, x, 2 * x), PARALLEL),
    "plane": (lambda x: sectional_curvature(lambda x: -flat(x), x, x, E1), NOWHERE),
    "form": (lambda x: second_fundamental_form(fold, x), DEGENERATE),
    "mean": (lambda x: mean_curvature(fold, x), DEGENERATE),
    "estimate": (lambda x: estimate_mean_curvature(fold, x, key=jr.key(0)), DEGENERATE),
}


@pytest.mark.parametrize("name", FAULTS)
def test_run_time_errors_survive_compilation(name):
    function, text = FAULTS[name]
    x = jnp.ones(2, DTYPE)
    with pytest.raises(ValueError, match=rf"{text}, but was \["):
        function(x)
    with pytest.raises(RuntimeError, match=text):
        jax.block_until_ready(eqx.filter_jit(function)(x))
    # jax.jit has no room for the text in every version of jax.
    with pytest.raises(RuntimeError):
        jax.block_until_ready(jax.jit(function)(x))


def test_the_estimate_tells_a_null_space_that_signs_may_miss():
    # Of J = (1, -1) half of the vectors of signs are orthogonal to the null space.
    valley = lambda x: jnp.stack([x[0] - x[1], (x[0] - x[1]) ** 2])
    x = jnp.zeros(2, DTYPE)
    for seed in range(4):
        with pytest.raises(ValueError, match=DEGENERATE):
            estimate_mean_curvature(valley, x, key=jr.key(seed), probes=1)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    x, key = jnp.ones(2, DTYPE), jr.key(0)
    with pytest.raises(ValueError, match=r"`x` must have shape \(m,\)"):
        christoffel(flat, jnp.ones((2, 2)))
    with pytest.raises(ValueError, match=r"`metric` must return .* \(3, 3\)"):
        riemann(flat, jnp.ones(3))
    with pytest.raises(ValueError, match="`x` must be a point where the metric is pos"):
        ricci(lambda x: -flat(x), x)
    with pytest.raises(ValueError, match=r"`u` must have shape \(2,\), as `x`"):
        sectional_curvature(flat, x, jnp.ones(3), x)
    with pytest.raises(ValueError, match="`v` must be linearly independent of `u`"):
        sectional_curvature(flat, x, x, 2 * x)
    with pytest.raises(ValueError, match=r"`f` must return a vector \(k,\)"):
        pullback_metric(jnp.sum, x)
    with pytest.raises(
        ValueError, match="`x` must be .* Jacobian of `f` has full rank"
    ):
        mean_curvature(lambda x: x[0] * jnp.ones(3, DTYPE), x)
    with pytest.raises(ValueError, match=r"`v` must have shape \(2,\), as `x`"):
        pullback_product(sphere, x, jnp.ones(3))
    with pytest.raises(ValueError, match="`probes` must be a positive integer"):
        pullback_moments(sphere, x, key=key, probes=0)
