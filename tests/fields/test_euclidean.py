"""Attention on R^d: identities between its forms, and where its tokens end up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tfjax
from tfjax.fields import (
    AttentionParams,
    displacement_attention,
    euclidean_attention,
    rescaled_attention,
    self_attention,
)
from tfjax.geometry import Sphere


X64 = jax.config.jax_enable_x64


def normal(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def test_euclidean_attention_is_the_mean_of_the_values(tol):
    x, q, k, v = normal(5, 3), normal(2, 3, 3), normal(2, 3, 3, seed=1), normal(2, 3, 3)
    params = AttentionParams(beta=0.7, query=q, key=k, value=v)
    expected = sum(
        softmax(0.7 * (x @ a.T) @ (x @ b.T).T) @ x @ c.T
        for a, b, c in zip(q, k, v, strict=True)
    )
    got = euclidean_attention(0.0, x, params)
    np.testing.assert_allclose(got, expected, atol=10 * tol.identity)


def test_the_tangential_part_on_the_sphere_is_self_attention(tol):
    x = Sphere(3).project(normal(5, 3))
    params = AttentionParams(beta=2.0, value=normal(3, 3, seed=2))
    got = Sphere(3).tangent(x, euclidean_attention(0.0, x, params))
    np.testing.assert_allclose(
        got, self_attention(0.0, x, params), atol=5 * tol.identity
    )


def test_displacements_are_attention_less_the_value_of_the_token_itself(tol):
    x, params = normal(5, 3), AttentionParams(beta=0.7, value=normal(3, 3, seed=2))
    expected = euclidean_attention(0.0, x, params) - x @ np.asarray(params.value).T
    got = displacement_attention(0.0, x, params)
    np.testing.assert_allclose(got, expected, atol=10 * tol.identity)


def test_displacements_do_not_cancel_near_consensus():
    """At distances of 1e-6 the relative error stays that of the distances."""
    dtype = np.float64 if X64 else np.float32
    x = (1 + 2.0**-20 * np.arange(4)[:, None]).astype(dtype)  # exact in float32
    got = displacement_attention(0.0, x, AttentionParams(beta=0.0))
    expected = x.mean(axis=0) - x
    np.testing.assert_allclose(got, expected, rtol=1e-12 if X64 else 1e-6)


@pytest.mark.parametrize(
    "field", [displacement_attention, rescaled_attention, euclidean_attention]
)
def test_a_token_that_sees_none_rests(field):
    pairs = np.array([[True, True, False], [False, False, False], [True, True, True]])
    got = np.asarray(field(0.5, normal(3, 2), AttentionParams(mask=pairs)))
    assert np.all(got[1] == 0)
    assert np.all(np.abs(got[[0, 2]]).max(axis=1) > 1e-3)


@pytest.mark.skipif(not X64, reason="an identity to 1e-8")
@pytest.mark.parametrize("kind", ["identity", "general", "low-rank heads"])
def test_rescaled_tokens_are_the_tokens_in_the_frame_of_V(kind):
    """z = exp(-tV) x, from the same start, to 1e-8."""
    value = 0.5 * normal(2, 2, seed=3)
    params = {
        "identity": AttentionParams(beta=0.3),
        "general": AttentionParams(beta=0.3, value=value),
        "low-rank heads": AttentionParams(
            beta=0.2, query=normal(2, 1, 2), key=normal(2, 1, 2, seed=1), value=value
        ),
    }[kind]
    x0, ts = normal(10, 2, seed=4), np.linspace(0, 2, 5)
    heads = 2 if kind == "low-rank heads" else 1
    options = {"t1": 2.0, "ts": ts, "rtol": 1e-11, "atol": 1e-12}
    xs = tfjax.solve(euclidean_attention, x0, params, **options).ys
    zs = tfjax.solve(rescaled_attention, x0, params, **options).ys
    matrix = np.eye(2) if params.value is None else np.asarray(params.value)
    frames = np.stack([scipy.linalg.expm(-t * heads * matrix) for t in ts])
    expected = np.einsum("tij,tnj->tni", frames, xs)
    error = np.abs(zs - expected).max() / np.abs(expected).max()
    assert error < 1e-8


def limits(value, t1, seed, beta=1.0):
    """Where twenty rescaled tokens of the plane are at t1."""
    params = AttentionParams(beta=beta, value=value)
    x0 = np.random.default_rng(seed).standard_normal((20, 2))
    sol = tfjax.solve(
        rescaled_attention, x0, params, t1=t1, rtol=1e-7, atol=1e-9, max_steps=100_000
    )
    return np.asarray(sol.ys[-1])


def distinct(points, gap):
    """How many groups of points there are, further than `gap` apart."""
    found = []
    for p in points:
        if all(np.linalg.norm(p - q) > gap for q in found):
            found.append(p)
    return len(found)


@pytest.mark.skipif(not X64, reason="the exponents overflow float32")
@pytest.mark.parametrize("seed", range(3))
def test_with_the_identity_the_limits_lie_on_the_boundary_of_a_polygon(seed):
    z = limits(None, 16.0, seed)
    hull = scipy.spatial.ConvexHull(z)
    # Signed distances to the sides: the nearest side of every point goes through it.
    sides = hull.equations[:, :2] @ z.T + hull.equations[:, 2:]
    assert np.abs(sides.max(axis=0)).max() < 1e-5
    assert distinct(z, 1e-3) <= 5


@pytest.mark.skipif(not X64, reason="the exponents overflow float32")
@pytest.mark.parametrize("second", [-0.5, 0.3])
def test_with_one_leading_eigenvalue_the_limits_lie_on_at_most_three_lines(second):
    z = limits(np.diag([1.0, second]), 16.0, 0)
    assert distinct(z[:, :1], 1e-3) <= 3


@pytest.mark.skipif(not X64, reason="the exponents overflow float32")
def test_with_minus_the_identity_the_tokens_themselves_shrink_to_the_origin():
    params = AttentionParams(beta=1.0, value=-np.eye(2))
    x0 = np.random.default_rng(0).standard_normal((20, 2))
    ts = np.array([1.0, 200.0])
    xs = tfjax.solve(
        euclidean_attention, x0, params, t1=200.0, ts=ts, rtol=1e-8, atol=1e-10
    ).ys
    spread = np.abs(xs).max(axis=(1, 2))
    assert spread[1] < 0.15 < spread[0]
    assert np.abs(xs[1].mean(axis=0)).max() < 1e-6


@pytest.mark.usefixtures("unchecked")
def test_what_the_frame_cannot_be_made_of_is_refused_by_name():
    x = normal(5, 3)
    with pytest.raises(
        ValueError, match=r"`value` must have shape \(d, d\), one matri"
    ):
        rescaled_attention(0.0, x, AttentionParams(value=normal(2, 3, 3)))
    with pytest.raises(ValueError, match="`args` must be .* constant in time"):
        rescaled_attention(0.0, x, lambda t: AttentionParams())


def test_the_frame_is_differentiable_in_time_and_V():
    x, value = normal(4, 2), normal(2, 2, seed=5)

    def total(t, value):
        params = AttentionParams(beta=0.5, value=value)
        return jnp.sum(rescaled_attention(t, x, params) ** 2)

    gradients = jax.grad(total, (0, 1))(jnp.asarray(0.7), jnp.asarray(value))
    if X64:
        h = 1e-6
        expected = (total(0.7 + h, value) - total(0.7 - h, value)) / (2 * h)
        assert float(gradients[0]) == pytest.approx(float(expected), rel=1e-6)
    assert np.abs(gradients[1]).max() > 1e-3
