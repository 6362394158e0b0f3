"""Losses of geometry: 0 at isometries, growing under collapse, finite everywhere."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tfjax.geometry import Sphere, mean_curvature, menger_curvature, pullback_metric
from tfjax.train import (
    curvature_loss,
    distance_variance,
    isometry_loss,
    kinetic_loss,
    layer_norm_tangent,
    mean_curvature_loss,
    pullback_isometry_loss,
)
from tfjax.train._isometry import restricted_moments


N, D = 6, 4
DTYPE = jnp.zeros(()).dtype


def random(*shape, seed=0):
    draws = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return jnp.asarray(draws, DTYPE)


def rotation(d, seed=0):
    return jnp.linalg.qr(random(d, d, seed=seed))[0]


X = random(N, D)
PAIRS = {
    "plain": jax.jit(isometry_loss),
    "scale free": jax.jit(functools.partial(isometry_loss, scale_free=True)),
}
SLOPES = {name: jax.jit(jax.grad(loss)) for name, loss in PAIRS.items()}


# --- Distances ------------------------------------------------------------------------


@pytest.mark.parametrize("form", PAIRS)
def test_rotations_shifts_and_permuted_coordinates_cost_nothing(form, tol):
    turned = X @ rotation(D) + random(1, D, seed=1)
    moves = turned, X[:, ::-1], -X, X
    for y in moves:
        assert float(PAIRS[form](jnp.stack([X, y]))) < tol.identity
    # Exchanged tokens are further or nearer than they were.
    assert float(PAIRS[form](jnp.stack([X, X[::-1]]))) > 0.01


def towards(goal, s):
    return jnp.stack([X, (1 - s) * X + s * goal])


LINE = jnp.outer(X[:, 0], jnp.array([1.0, 2.0, 0.0, 0.0], DTYPE))
CLUSTERS = jnp.where(X[:, :1] > 0, 1.0, -1.0).astype(DTYPE) * jnp.ones((1, D), DTYPE)


@pytest.mark.parametrize(
    ("form", "goal"),
    [
        ("plain", jnp.zeros_like(X)),
        ("plain", LINE),
        ("plain", CLUSTERS),
        ("scale free", LINE),
        ("scale free", CLUSTERS),
    ],
)
def test_it_grows_all_the_way_to_a_point_a_line_or_two_clusters(form, goal):
    path = [float(PAIRS[form](towards(goal, s))) for s in np.linspace(0, 1, 9)[3:]]
    assert np.all(np.diff(path) > 0), path
    assert path[-1] > 0.2
    assert np.isfinite(SLOPES[form](towards(goal, 1.0))).all()


def test_shrinking_costs_the_square_of_a_logarithm_up_to_the_smoothing(tol):
    found = float(PAIRS["plain"](jnp.stack([X, 0.5 * X])))
    assert found == pytest.approx(np.log(2) ** 2, rel=2e-3)
    loss = lambda y, e: float(isometry_loss(jnp.stack([X, y]), smoothing=e))
    ends = [loss(0 * X, e) for e in (1e-1, 1e-2, 1e-3)]
    np.testing.assert_allclose(ends, np.log([1e-1, 1e-2, 1e-3]) ** 2, rtol=0.2)
    # In any unit, and free where scale is.
    both = jnp.stack([X, random(N, D, seed=3)])
    scaled = PAIRS["plain"](1e-6 * both)
    assert float(scaled) == pytest.approx(float(PAIRS["plain"](both)), rel=1e-4)
    assert float(PAIRS["scale free"](jnp.stack([X, 0.01 * X]))) < 10 * tol.identity


def test_a_pair_that_coincides_before_a_layer_does_not_count():
    double = jnp.concatenate([X, X[:1]])
    after = jnp.concatenate([1.5 * X, X[:1] + 0.1])
    loss = lambda hidden: float(PAIRS["plain"](hidden))
    # Without the pair (0, 6), which has no ratio, as a weighted mean by hand.
    pairs = [(i, j) for i in range(7) for j in range(i) if (i, j) != (6, 0)]
    distance = lambda x: np.array([np.linalg.norm(x[i] - x[j]) for i, j in pairs])
    ratios = np.log(distance(np.asarray(after)) / distance(np.asarray(double)))
    assert loss(jnp.stack([double, after])) == pytest.approx(
        np.mean(ratios**2), rel=5e-3
    )


DEGENERATE = {
    "all tokens equal": jnp.ones((3, N, D), DTYPE),
    "all zero": jnp.zeros((3, N, D), DTYPE),
    "two tokens coincide": jnp.stack([X.at[1].set(X[0]), X.at[1].set(X[0]), X]),
    "the second layer is a point": jnp.stack([X, 0 * X, X]),
    "nothing moves": jnp.stack([X, X, X]),
    "one token stays": jnp.stack([X, (2 * X).at[0].set(X[0]), 3 * X]),
    "there and back": jnp.stack([X, 2 * X, X]),
    "tiny": 1e-30 * random(3, N, D),
    "huge": 1e18 * random(3, N, D),
}
OTHERS = {
    "turning": jax.jit(curvature_loss),
    "menger": jax.jit(functools.partial(curvature_loss, kind="menger")),
    "kinetic": jax.jit(kinetic_loss),
}
EVERY = PAIRS | OTHERS
EVERY_SLOPE = SLOPES | {k: jax.jit(jax.grad(v)) for k, v in OTHERS.items()}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("case", DEGENERATE)
def test_values_and_gradients_are_finite_everywhere(name, case):
    if (name, case) == ("menger", "tiny"):
        pytest.skip("its unit is one over a squared length: 1e60")
    hidden = DEGENERATE[case]
    if name == "kinetic" and case == "huge":
        hidden = 1e-3 * hidden
    assert np.isfinite(EVERY[name](hidden))
    assert np.isfinite(EVERY_SLOPE[name](hidden)).all()


# --- The pullback metric --------------------------------------------------------------


@functools.cache
def pulled(probes=4):
    """The loss of x -> x A, compiled once: of n tokens, as one map."""
    loss = lambda a, x, key: pullback_isometry_loss(
        lambda x: x @ a, x, key=key, probes=probes
    )
    return jax.jit(loss)


def test_maps_that_keep_angles_cost_nothing_whatever_the_key(tol):
    moves = lambda x: 3 * x @ rotation(D) + 1, lambda x: x[::-1], lambda x: x[:, ::-1]
    for seed, f in enumerate(moves):
        found = pullback_isometry_loss(f, X, key=jr.key(seed))
        assert abs(float(found)) < 10 * tol.identity


def test_a_collapse_to_rank_r_costs_d_over_r_less_one(tol):
    for r in range(1, D + 1):
        kept = jnp.diag((jnp.arange(D) < r).astype(DTYPE))
        found = float(pulled()(5 * kept, X, jr.key(r)))
        assert found == pytest.approx(D / r - 1, abs=10 * tol.identity)
    # Towards the plane it grows all the way.
    last = lambda s: jnp.diag(jnp.array([1, 1, s, s], DTYPE))
    path = [float(pulled()(last(s), X, jr.key(0))) for s in (1, 0.7, 0.4, 0.1, 0)]
    assert np.all(np.diff(path) > 0), path


def test_the_zero_map_costs_what_rank_one_of_all_numbers_costs():
    value, slope = jax.value_and_grad(pulled())(jnp.zeros((D, D), DTYPE), X, jr.key(0))
    assert float(value) == N * D - 1
    np.testing.assert_array_equal(slope, 0)
    one = lambda x: jnp.zeros_like(x).at[0, 0].set(x[0, 0])
    assert float(pullback_isometry_loss(one, X, key=jr.key(0))) == N * D - 1
    # A factor is free, up to the ends of the dtype.
    a = random(D, D, seed=5)
    values = [float(pulled()(c * a, X, jr.key(0))) for c in (1e-7, 1.0, 1e7)]
    np.testing.assert_allclose(values, values[1], rtol=1e-4)


TANGENTS = {
    "none": None,
    "sphere": Sphere(D).tangent,
    "layer norm": layer_norm_tangent,
}


@pytest.mark.parametrize("name", TANGENTS)
def test_numerator_and_denominator_are_unbiased(name):
    a, tangent = random(D, D, seed=2), TANGENTS[name]
    x = Sphere(D).project(random(1, D, seed=4))
    x = x - jnp.mean(x) if name == "layer norm" else x
    layer = lambda x: jnp.tanh(x @ a)
    run = lambda key: restricted_moments(layer, x, key, 1, tangent)
    each = jax.jit(jax.vmap(run))(jr.split(jr.key(0), 4000))
    metric = pullback_metric(lambda x: layer(x[None])[0], x[0])
    flat = (
        np.eye(D)
        if tangent is None
        else np.asarray(tangent(x * np.ones((D, 1)), np.eye(D)))
    )
    g = flat @ np.asarray(metric, float) @ flat
    for samples, exact in zip(each, (np.trace(g), np.trace(g @ g)), strict=True):
        samples = np.asarray(samples, float)
        error = 5 * samples.std() / np.sqrt(len(samples))
        assert 0 < abs(samples.mean() - exact) < error


def test_the_bias_of_the_ratio_falls_like_one_over_the_probes():
    a = random(D, D, seed=5)
    g = np.asarray(a, float) @ np.asarray(a, float).T
    exact = D * np.trace(g @ g) / np.trace(g) ** 2 - 1
    keys, bias = jr.split(jr.key(0), 20_000), {}
    for probes in (2, 4, 8):
        found = jax.vmap(pulled(probes), (None, None, 0))(a, X[:1], keys)
        samples = np.asarray(found, float)
        bias[probes] = samples.mean() - exact
        assert abs(bias[probes]) > 5 * samples.std() / np.sqrt(len(samples))
    slope = np.polyfit(np.log([*bias]), np.log(np.abs([*bias.values()])), 1)[0]
    assert slope == pytest.approx(-1, abs=0.2), bias


def layer_norm(x, scale=None):
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    y = x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True))
    return y if scale is None else y * scale[None]


def test_layer_norm_has_a_floor_and_its_tangent_space_none(tol):
    d = 8
    x = layer_norm(random(3, d))
    # A rotation of the space across the vector of ones.
    frame = jnp.linalg.qr(
        jnp.concatenate([jnp.ones((d, 1), DTYPE), random(d, d - 1)], 1)
    )[0]
    inner = jnp.eye(d, dtype=DTYPE).at[1:, 1:].set(rotation(d - 1))
    turn = frame @ inner @ frame.T
    layer = lambda x: layer_norm(x @ turn)
    loss = jax.jit(
        lambda key, tangent=None: pullback_isometry_loss(
            layer, x, key=key, probes=8, tangent=tangent
        ),
        static_argnames="tangent",
    )
    for seed in range(3):
        assert abs(float(loss(jr.key(seed), layer_norm_tangent))) < 50 * tol.identity
    metric = np.asarray(pullback_metric(lambda x: layer(x[None])[0], x[0]), float)
    plain = d * np.trace(metric @ metric) / np.trace(metric) ** 2 - 1
    assert plain == pytest.approx(d / (d - 2) - 1, abs=50 * tol.identity)
    many = np.asarray(jax.vmap(loss)(jr.split(jr.key(1), 400)), float)
    assert many.mean() == pytest.approx(plain, abs=0.02)


def test_the_tangent_space_of_a_scaled_layer_norm_is_what_it_reaches(tol):
    scale = jnp.asarray([1.0, -2.0, 0.5, 3.0, 0.1, 1.5], DTYPE)
    z = random(2, 6)
    x = layer_norm(z, scale)
    jacobian = jax.jacfwd(lambda z: layer_norm(z[None], scale)[0])(z[0])
    project = lambda v: layer_norm_tangent(x[0], v, scale)
    along = jax.vmap(project, 1, 1)(jacobian)
    np.testing.assert_allclose(along, jacobian, rtol=0, atol=100 * tol.identity)
    flat = np.asarray(jax.vmap(project)(jnp.eye(6, dtype=DTYPE)))
    np.testing.assert_allclose(flat, flat.T, rtol=0, atol=10 * tol.identity)
    np.testing.assert_allclose(flat @ flat, flat, rtol=0, atol=10 * tol.identity)
    assert np.trace(flat) == pytest.approx(4, abs=1e-4)
    dead = layer_norm_tangent(x, x, jnp.zeros(6, DTYPE))
    assert np.isfinite(dead).all()


# --- Paths ----------------------------------------------------------------------------


def test_turns_are_those_of_plane_geometry(tol):
    for angle in (0.0, 0.3, np.pi / 2, 3.0, np.pi):
        turn = jnp.asarray([[0, 0], [1, 0], [1 + np.cos(angle), np.sin(angle)]], DTYPE)
        found = float(curvature_loss(turn[:, None], smoothing=0.0))
        assert found == pytest.approx(1 - np.cos(angle), abs=tol.identity)
        smoothed = float(OTHERS["turning"](turn[:, None]))
        assert smoothed == pytest.approx(found, rel=3e-4, abs=tol.identity)
    assert float(curvature_loss(X[None] * jnp.ones((2, 1, 1), DTYPE))) == 0


def test_menger_is_the_curvature_of_geometry_squared(tol):
    hidden = random(5, N, D)
    found = curvature_loss(hidden, kind="menger", smoothing=0.0)
    exact = jnp.mean(menger_curvature(hidden[:-2], hidden[1:-1], hidden[2:]) ** 2)
    assert float(found) == pytest.approx(float(exact), rel=20 * tol.identity)
    t = np.linspace(0, 3, 5)
    circle = jnp.asarray(3 * np.stack([np.cos(t), np.sin(t)], -1), DTYPE)[:, None]
    assert float(OTHERS["menger"](circle)) == pytest.approx(1 / 9, rel=1e-3)
    assert float(OTHERS["menger"](2 * circle)) == pytest.approx(1 / 36, rel=1e-3)
    turning = float(OTHERS["turning"](circle))
    assert turning == pytest.approx(1 - np.cos(0.75), rel=1e-3)
    assert float(OTHERS["turning"](2 * circle)) == pytest.approx(turning, rel=1e-5)


def test_a_token_that_stays_costs_nothing_and_the_slope_falls_to_nothing():
    corner = lambda h: jnp.asarray([[0, 0], [1, 0], [1, h]], DTYPE)
    other = jnp.asarray([[0, 0], [1, 0], [2, 0]], DTYPE)
    loss = lambda h: OTHERS["turning"](jnp.stack([corner(h), other], 1))
    assert float(loss(0.0)) == 0
    slopes = [abs(float(jax.grad(loss)(h))) for h in (1e-3, 1e-4, 1e-5, 0.0)]
    assert np.all(np.diff(slopes) < 0), slopes
    assert slopes[-1] == 0


def test_kinetic_energy_is_least_on_a_straight_way_at_constant_speed(tol):
    a, b = X, random(N, D, seed=7)
    line = lambda times: jnp.stack([(1 - t) * a + t * b for t in times])
    least = float(jnp.mean(jnp.sum((b - a) ** 2, axis=-1)))
    even, uneven = line([0, 0.25, 0.5, 0.75, 1]), line([0, 0.1, 0.5, 0.75, 1])
    assert float(kinetic_loss(even)) == pytest.approx(least, rel=10 * tol.identity)
    assert float(kinetic_loss(uneven)) > 1.05 * least
    bent = even.at[2].add(0.1)
    assert float(kinetic_loss(bent)) > least + 0.01


# --- The image of a layer, and a bad example ------------------------------------------


@functools.cache
def bent(name):
    maps = {
        "sphere": lambda x: 2 * x / jnp.linalg.norm(x) + 1,
        "plane": lambda x: jnp.concatenate([x, x @ random(3, 3)]),
        "torus": lambda x: torus(x[:2]),
        "constant": lambda x: jnp.ones_like(x),
        "forgetful": lambda x: jnp.stack([x[0], x[0] ** 2, 0 * x[1]]),
    }
    loss = lambda x, key, probes: mean_curvature_loss(
        maps[name], x, key=key, probes=probes
    )
    return jax.jit(jax.value_and_grad(loss), static_argnums=2)


def torus(x):
    ring = 3 + jnp.cos(x[1])
    return jnp.stack([ring * jnp.cos(x[0]), ring * jnp.sin(x[0]), jnp.sin(x[1])])


POINT = jnp.asarray([0.3, 0.7, -0.4], DTYPE)


def test_mean_curvature_is_that_of_spheres_and_planes(tol):
    for seed in range(3):
        value, slope = bent("sphere")(POINT, jr.key(seed), 4)
        assert float(value) == pytest.approx(0.25, rel=tol.composite)
        # The sphere is as curved everywhere.
        np.testing.assert_allclose(slope, 0, atol=50 * tol.composite)
        assert float(bent("plane")(POINT, jr.key(seed), 4)[0]) < tol.composite


def test_mean_curvature_is_that_of_geometry_but_for_its_bias(tol):
    exact = float(jnp.sum(mean_curvature(torus, POINT[:2]) ** 2)) / 4
    found = float(bent("torus")(POINT, jr.key(0), 500)[0])
    assert found == pytest.approx(exact, rel=0.1)


def test_mean_curvature_is_finite_where_the_rank_is_not_full():
    for name, x in (
        ("constant", POINT),
        ("forgetful", POINT),
        ("forgetful", 0 * POINT),
    ):
        value, slope = bent(name)(x, jr.key(0), 4)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()
    # A parabola at its vertex, of curvature 2.
    value, _ = bent("forgetful")(0 * POINT, jr.key(0), 4)
    assert float(value) == pytest.approx(4, rel=1e-3)


def test_the_variance_of_distances_is_least_at_collapse_and_blind_to_isometries():
    x = random(4, 64, 2)
    turned = jnp.stack([x[0] @ rotation(2, seed=s) for s in range(4)])
    loss = lambda h: float(distance_variance(h[:-1], h[1:]))
    assert loss(jnp.ones((4, 64, 2), DTYPE)) < 1e-20
    # Of unrelated Gaussian tokens in the plane: 4 - pi, halved twice and doubled.
    assert loss(x) == pytest.approx(2 * (2 - np.pi / 2), rel=0.15)
    assert loss(turned) > 0.5 * loss(x)
    assert float(isometry_loss(turned)) < 1e-9
    slope = jax.grad(lambda h: distance_variance(h[:-1], h[1:]))(jnp.ones((4, 64, 2)))
    assert np.isfinite(slope).all()


# --- Doors ----------------------------------------------------------------------------


def test_half_precision_is_computed_in_float32():
    hidden = random(3, N, D).astype(jnp.bfloat16)
    for loss in EVERY.values():
        found = loss(hidden)
        assert found.dtype == jnp.float32
        assert float(found) == pytest.approx(
            float(loss(hidden.astype(jnp.float32))), rel=1e-6
        )


PAIR = jnp.stack([X, X])


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_is_named():
    cases = [
        (lambda: isometry_loss(X), r"`hidden` must have shape \(layers, n, d\), but"),
        (lambda: isometry_loss(X[None]), "with at least 2 layers, but was of shape"),
        (lambda: isometry_loss(PAIR, smoothing=0), "`smoothing` must be positive"),
        (lambda: curvature_loss(PAIR, kind="bent"), "`kind` must be one of 'turn"),
        (lambda: curvature_loss(PAIR, smoothing=-1), "`smoothing` must be at least"),
        (lambda: kinetic_loss(X[None]), "with at least 2 layers"),
        (
            lambda: pullback_isometry_loss(jnp.sin, X[0], key=jr.key(0)),
            r"`x` must have shape \(n, d\), but was of shape \(4,\)",
        ),
        (
            lambda: pullback_isometry_loss(jnp.sin, X, key=jr.key(0), probes=0),
            "`probes` must be a positive integer, but was 0",
        ),
        (
            lambda: mean_curvature_loss(jnp.sin, X, key=jr.key(0), damping=0),
            "`damping` must be positive and finite, but was 0",
        ),
        (lambda: layer_norm_tangent(X[:, :2], X[:, :2]), "d at least 3, but was of"),
        (lambda: layer_norm_tangent(X, X[0]), r"`v` must have shape \(6, 4\), as `x`"),
        (lambda: layer_norm_tangent(X, X, X), r"`scale` must have shape \(4,\), but"),
        (lambda: distance_variance(X, X[0]), r"`b` must have shape \(6, 4\), as `a`"),
    ]
    for call, text in cases:
        with pytest.raises(ValueError, match=text):
            call()
