"""The feed-forward layer, alone and in a Transformer block."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import (
    AttentionParams,
    BlockParams,
    FeedForward,
    feed_forward,
    self_attention,
    transformer_block,
)
from tfjax.geometry import Sphere


REFERENCE = Path(__file__).parents[1] / "reference" / "traj_multihead_ffn.npz"
X64 = jax.config.jax_enable_x64


@pytest.fixture(scope="module")
def reference():
    """Three heads and a feed-forward layer, integrated without jax."""
    with np.load(REFERENCE) as file:
        return {name: file[name] for name in file}


@pytest.fixture(scope="module")
def params(reference):
    attention = AttentionParams(
        beta=reference["beta"],
        query=reference["Q"],
        key=reference["K"],
        value=reference["V"],
    )
    layer = FeedForward(w=reference["w"], a=reference["a"], b=reference["b"])
    return BlockParams(attention, layer)


def test_the_block_is_the_reference_field(reference, params):
    got = transformer_block(0.0, reference["X0"], params)
    largest = np.abs(reference["field"]).max()
    error = np.abs(np.asarray(got) - reference["field"]).max() / largest
    assert error < (1e-12 if X64 else 1e-6)


@pytest.mark.skipif(not X64, reason="the reference is precise to 1e-8")
def test_the_block_follows_the_reference_trajectory(reference, params):
    ts, xs = reference["t"], reference["X"]
    sol = tfjax.solve(
        transformer_block,
        reference["X0"],
        params,
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(4),
        rtol=1e-12,  # the kinks of ReLU cost the solver its order
        atol=1e-12,
    )
    expected = xs / np.linalg.norm(xs, axis=-1, keepdims=True)
    error = np.abs(np.asarray(sol.ys) - expected).max(axis=(1, 2))
    assert error.max() < 1e-7
    assert ts[-1] <= 10


def test_without_a_feed_forward_layer_the_block_is_self_attention(reference, params):
    alone = transformer_block(0.0, reference["X0"], BlockParams(params.attention))
    expected = self_attention(0.0, reference["X0"], params.attention)
    np.testing.assert_array_equal(alone, expected)
    plain = transformer_block(0.0, reference["X0"])
    np.testing.assert_array_equal(plain, self_attention(0.0, reference["X0"]))


def test_an_absent_token_rests_though_its_feed_forward_layer_would_move_it(params):
    x = np.full((3, 4), np.nan)
    x[:2] = np.eye(4)[:2]
    exists = np.array([True, True, False])
    masked = BlockParams(AttentionParams(mask=exists), params.feed_forward)
    got = np.asarray(transformer_block(0.0, x, masked))
    assert np.all(got[2] == 0)
    expected = transformer_block(
        0.0, x[:2], BlockParams(feed_forward=params.feed_forward)
    )
    np.testing.assert_allclose(got[:2], expected, rtol=1e-6)


def test_the_neural_ode_with_a_linear_layer_grows_exponentially(tol):
    layer = FeedForward(w=2 * jnp.eye(2), a=0.25 * jnp.eye(2), activation=lambda z: z)
    x0 = np.array([[1.0, -2.0], [0.5, 3.0]])
    sol = tfjax.solve(feed_forward, x0, layer, t1=2.0, rtol=1e-9 if X64 else 1e-6)
    np.testing.assert_allclose(sol.ys[-1], np.exp(1.0) * x0, rtol=tol.composite)


def test_points_move_independently_of_each_other(params):
    x = np.random.default_rng(0).standard_normal((3, 4))
    together = feed_forward(0.0, x, params.feed_forward)
    for row, velocity in zip(x, together, strict=True):
        alone = feed_forward(0.0, row, params.feed_forward)
        np.testing.assert_allclose(alone, velocity, rtol=1e-5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": np.ones((4, 5))}, r"`w` must have shape \(d, m\) with d = 3, m = 2"),
        ({"w": np.ones((2, 2))}, r"`w` must .*, but was of shape \(2, 2\)"),
        ({"a": np.ones((2, 4))}, r"`a` must have shape \(m, d\) with d = 3, m = 2"),
        ({"b": np.ones(3)}, r"`b` must have shape \(m,\) with d = 3, m = 2"),
        ({"a": np.ones(())}, r"`w` must have shape \(d, m\) with d = 3, m = 0"),
    ],
)
def test_matrices_that_do_not_fit_are_refused_by_name(change, message):
    shapes = {"w": np.ones((3, 2)), "a": np.ones((2, 3)), "b": np.ones(2)} | change
    with pytest.raises(ValueError, match=message):
        feed_forward(0.0, np.ones((5, 3)), FeedForward(**shapes))


@pytest.mark.usefixtures("unchecked")
def test_parameters_of_another_kind_are_refused_by_name():
    message = "`args` must be a FeedForward, .*, but was AttentionParams"
    with pytest.raises(ValueError, match=message):
        feed_forward(0.0, np.ones((5, 3)), AttentionParams())
    message = "`args` must be of type BlockParams, .*, but was AttentionParams"
    with pytest.raises(ValueError, match=message):
        transformer_block(0.0, np.ones((5, 3)), AttentionParams())
    with pytest.raises(ValueError, match="`w` must be a real array"):
        FeedForward(w="w", a=np.eye(2))
