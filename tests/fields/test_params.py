"""Parameters that depend on time, and which tokens parameters say exist."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import (
    NGPT,
    AttentionParams,
    BlockParams,
    FeedForward,
    MixNorm,
    NormalizedParams,
    PiecewiseConstant,
    PreNorm,
    Sum,
    circle_attention,
    feed_forward,
    intrinsic_attention,
    kuramoto,
    normalized_attention,
    present_tokens,
    self_attention,
    unnormalized_self_attention,
)
from tfjax.geometry import Sphere, Torus


def tokens(n=4, d=3):
    x = np.random.default_rng(1).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


LAYERS = PiecewiseConstant(
    np.array([0.0, 1.0, 2.5]),
    AttentionParams(beta=2.0, value=np.random.default_rng(2).normal(size=(3, 3, 3))),
)


@pytest.mark.parametrize(
    ("t", "layer"), [(-1.0, 0), (0.0, 0), (0.99, 0), (1.0, 1), (2.5, 2), (9.0, 2)]
)
def test_the_layer_is_the_last_one_that_has_begun(t, layer):
    assert float(LAYERS(t).beta) == 2.0
    np.testing.assert_array_equal(LAYERS(t).value, LAYERS.params.value[layer])
    jitted = jax.jit(lambda t: LAYERS(t).value)(t)
    np.testing.assert_array_equal(jitted, LAYERS(t).value)


@pytest.mark.parametrize("field", [self_attention, unnormalized_self_attention])
def test_a_field_takes_its_parameters_at_its_time(field):
    for t in (0.5, 1.5):
        got = field(t, tokens(), LAYERS)
        np.testing.assert_array_equal(got, field(t, tokens(), LAYERS(t)))
        by_function = field(t, tokens(), lambda t: AttentionParams(beta=1.0 + t))
        expected = field(t, tokens(), AttentionParams(beta=1.0 + t))
        np.testing.assert_array_equal(by_function, expected)


def test_angles_and_geodesics_take_parameters_at_their_time_too():
    theta = np.array([0.1, 0.5, 2.0])
    vary = lambda t: AttentionParams(beta=1.0 + t)
    got = circle_attention(0.5, theta, vary)
    np.testing.assert_array_equal(got, circle_attention(0.5, theta, vary(0.5)))
    field = intrinsic_attention(Sphere(3))
    got = field(0.5, tokens(), vary)
    np.testing.assert_array_equal(got, field(0.5, tokens(), vary(0.5)))


def test_a_solve_through_layers_is_a_solve_of_each_in_turn(tol):
    options = {"manifold": Sphere(3)}
    if jax.config.jax_enable_x64:
        options |= {"rtol": 1e-10, "atol": 1e-10}
    whole = tfjax.solve(self_attention, tokens(), LAYERS, t1=4.0, **options)
    x = tokens()
    ends = (0.0, 1.0, 2.5, 4.0)
    for t0, t1 in zip(ends, ends[1:], strict=False):
        layer = LAYERS(t0)
        x = tfjax.solve(self_attention, x, layer, t0=t0, t1=t1, **options).ys[-1]
    np.testing.assert_allclose(whole.ys[-1], x, atol=tol.composite)


def test_a_layer_a_step_of_euler_is_a_transformer(tol):
    layers = PiecewiseConstant(np.arange(3.0), LAYERS.params)
    sol = tfjax.solve(
        self_attention, tokens(), layers, t1=3.0, dt0=1.0, solver=dfx.Euler()
    )
    x = tokens()
    for k in range(3):
        x = x + np.asarray(self_attention(0.0, x, layers(float(k))))
    np.testing.assert_allclose(sol.ys[-1], x, atol=10 * tol.identity)


@pytest.mark.slow
def test_the_gradient_reaches_every_layer():
    def loss(value):
        layers = PiecewiseConstant(LAYERS.starts, AttentionParams(value=value))
        sol = tfjax.solve(
            self_attention, tokens(), layers, t1=3.0, dt0=0.5, solver=dfx.Heun()
        )
        return jnp.sum(sol.ys[-1][:, 0])

    gradient = np.asarray(jax.grad(loss)(LAYERS.params.value))
    assert np.all(np.abs(gradient).max(axis=(1, 2)) > 1e-4)


@pytest.mark.usefixtures("unchecked")
def test_layers_that_do_not_fit_are_refused_by_name():
    wrong = PiecewiseConstant(np.arange(2.0), AttentionParams(value=np.ones((3, 3, 3))))
    message = "`params` must hold arrays with a leading axis of length 2, a layer each"
    with pytest.raises(ValueError, match=message):
        wrong(0.0)
    with pytest.raises(ValueError, match=r"`starts` must have shape \(l,\)"):
        PiecewiseConstant(1.0, AttentionParams())(0.0)
    with pytest.raises(ValueError, match="`starts` must be increasing"):
        PiecewiseConstant(np.array([0.0, 0.0]), AttentionParams())(0.0)


@pytest.mark.usefixtures("unchecked")
def test_a_function_that_returns_something_else_is_refused_by_name():
    message = "`args` must be of type AttentionParams, .*, but was a function that ret"
    with pytest.raises(ValueError, match=message):
        self_attention(0.0, tokens(), lambda t: 1.0)
    with pytest.raises(ValueError, match=message + "urned an array"):
        self_attention(0.0, tokens(), lambda t: jnp.ones(()))


EXISTS = np.array([True, True, True, False])


@pytest.mark.parametrize(
    "args",
    [
        AttentionParams(mask=EXISTS),
        AttentionParams(mask=(EXISTS, "causal")),
        BlockParams(AttentionParams(mask=EXISTS)),
        NormalizedParams(AttentionParams(mask=EXISTS)),
        PiecewiseConstant(np.zeros(1), AttentionParams(beta=[1.0], mask=EXISTS)),
        lambda t: AttentionParams(beta=t, mask=EXISTS),
    ],
    ids=["plain", "tuple", "block", "normalized", "layers", "function"],
)
def test_the_tokens_that_exist_are_read_from_any_parameters(args):
    np.testing.assert_array_equal(present_tokens(args, 0.0, 4), EXISTS)


@pytest.mark.parametrize(
    "args",
    [None, 1.0, {"mask": EXISTS}, AttentionParams(), lambda t: t, lambda a, b: a],
    ids=["none", "number", "dict", "no mask", "another function", "two arguments"],
)
def test_without_such_a_mask_every_token_exists(args):
    assert present_tokens(args, 0.0, 4) is None


@pytest.mark.parametrize(
    "args",
    [
        PiecewiseConstant(np.zeros(1), AttentionParams(beta=[1.0], mask=EXISTS)),
        lambda t: AttentionParams(beta=1.0 + 0 * t, mask=EXISTS),
    ],
    ids=["layers", "function"],
)
def test_a_solve_leaves_absent_rows_alone_whoever_holds_the_mask(args, tol):
    x = np.vstack([tokens(3), np.full((1, 3), np.nan)])
    options = {"t1": 1.0, "dt0": 0.25, "solver": dfx.Heun(), "manifold": Sphere(3)}
    sol = tfjax.solve(self_attention, x, args, **options)
    alone = tfjax.solve(self_attention, x[:3], AttentionParams(beta=1.0), **options)
    np.testing.assert_allclose(sol.ys[-1][:3], alone.ys[-1], atol=5 * tol.identity)
    assert np.all(np.isnan(np.asarray(sol.ys[-1][3])))


def test_a_mask_of_angles_passes_the_door():
    theta = np.array([0.1, 0.5, 2.0])
    args = AttentionParams(mask=np.array([True, True, False]))
    sol = tfjax.solve(circle_attention, theta, args, t1=1.0)
    alone = tfjax.solve(circle_attention, theta[:2], AttentionParams(), t1=1.0)
    np.testing.assert_allclose(sol.ys[-1][:2], alone.ys[-1], atol=1e-4)
    assert float(sol.ys[-1][2]) == float(np.asarray(theta, sol.ys.dtype)[2])


@pytest.mark.usefixtures("unchecked")
def test_zero_is_a_point_of_the_torus_and_no_error_says_otherwise():
    with pytest.raises(ValueError, match="`y0` must be finite, but was nan"):
        tfjax.solve(kuramoto, np.array([np.nan, 0.0]), t1=1.0, manifold=Torus(2))
    with pytest.raises(ValueError, match="`y0` must be finite, with no zero row"):
        tfjax.solve(self_attention, np.zeros((2, 3)), t1=1.0, manifold=Sphere(3))


def test_layers_that_do_not_follow_each_other_are_refused_by_a_solve():
    value = np.stack([np.eye(3)] * 2)
    layers = PiecewiseConstant(np.array([1.0, 0.0]), AttentionParams(value=value))
    with pytest.raises(ValueError, match="`starts` must be increasing, but was"):
        tfjax.solve(self_attention, tokens(), layers, t1=1.0)
    message = "`starts` must be increasing"
    with pytest.raises(RuntimeError, match=message):
        eqx.filter_jit(lambda s: tfjax.solve(self_attention, tokens(), s, t1=1.0).ys)(
            layers
        )


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: self_attention(0.0, tokens(), AttentionParams),
            "`args` must be of type AttentionParams, .*, but was the class AttentionPa",
        ),
        (
            lambda: NormalizedParams(scheme="post"),
            "`scheme` must be of type AbstractNormalization, but was a str",
        ),
        (
            lambda: NormalizedParams(scheme=PreNorm),
            "`scheme` must be of type .*, but was the class PreNorm",
        ),
        (
            lambda: NormalizedParams(PreNorm()),
            "`attention` must be of type AttentionParams, but was a PreNorm",
        ),
        (
            lambda: BlockParams(feed_forward=3),
            "`feed_forward` must be of type FeedForward, but was a int",
        ),
        (
            lambda: FeedForward(np.eye(2), np.eye(2), activation="relu"),
            "`activation` must be a function, but was 'relu'",
        ),
        (
            lambda: feed_forward(
                0.0,
                np.ones((3, 2)),
                FeedForward(np.eye(2), np.eye(2), activation=jnp.sum),
            ),
            r"`activation` must keep the shape \(3, 2\) of its argument",
        ),
        (
            lambda: normalized_attention(
                0.0, tokens(), NormalizedParams(scheme=NGPT(np.ones(3)))
            ),
            r"`alpha` must be a scalar, but was of shape \(3,\)",
        ),
        (
            lambda: normalized_attention(
                0.0, tokens(), NormalizedParams(scheme=MixNorm(np.ones(3)))
            ),
            r"`switch` must be a scalar, but was of shape \(3,\)",
        ),
        (
            lambda: Sum(lambda t, x, args: x, lambda t, x, args: x[0])(0.0, tokens()),
            "`fields` must return velocities of one shape",
        ),
        (
            lambda: tfjax.solve(lambda t, y, args: y[0], tokens(), t1=1.0),
            r"`field` must return a velocity of the state's shape \(4, 3\)",
        ),
        (
            lambda: self_attention(0.0, tokens(), AttentionParams(beta=np.nan)),
            "`beta` must be finite, but was nan",
        ),
    ],
)
def test_parts_of_another_kind_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
