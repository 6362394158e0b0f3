"""Attention by geodesics: what it is on each manifold, transports, masks."""

import functools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import tfjax
from tfjax.fields import AttentionParams, intrinsic_attention, self_attention
from tfjax.geometry import Euclidean, Product, Sphere, Torus


DTYPE = jnp.zeros(()).dtype
X64 = jax.config.jax_enable_x64
N, BETA = 6, 1.5
PRODUCT = Product(Sphere(3), Torus(2))


@functools.cache
def compiled(manifold, value=None):
    return jax.jit(intrinsic_attention(manifold, value))


def run(manifold, x, args=None, value=None):
    args = AttentionParams(beta=BETA) if args is None else args
    return np.asarray(compiled(manifold, value)(0.0, x, args))


def draw(manifold, n=N, seed=0):
    return np.array(manifold.random(jr.key(seed), (n,)))


def softmax(logits, allowed=True):
    weights = np.where(allowed, np.exp(logits.astype(float)), 0.0)
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def close(actual, expected, tol, factor=10):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=factor * tol.identity)


def angles_and_directions(x):
    """theta_ij, and the unit tangent at x_i of the way to x_j (0 for i = j)."""
    products = np.clip(x @ x.T, -1, 1)
    across = x[None, :] - products[:, :, None] * x[:, None]
    size = np.linalg.norm(across, axis=-1, keepdims=True)
    unit = across / np.where(size > 1e-3, size, 1) * (size > 1e-3)
    return np.arctan2(size[..., 0], products) * (size[..., 0] > 1e-3), unit


# --- What it is -----------------------------------------------------------------------


def test_on_the_sphere_each_pair_pulls_with_its_angle_where_sa_has_the_sine(tol):
    x = draw(Sphere(3)).astype(float)
    theta, u = angles_and_directions(x)
    a = softmax(BETA * x @ x.T)[:, :, None]
    args = AttentionParams(beta=BETA)
    x = x.astype(DTYPE)
    intrinsic, extrinsic = run(Sphere(3), x), np.asarray(self_attention(0.0, x, args))
    close(intrinsic, np.sum(a * theta[:, :, None] * u, axis=1), tol)
    close(extrinsic, np.sum(a * np.sin(theta)[:, :, None] * u, axis=1), tol)
    gap = np.sum(a * (theta - np.sin(theta))[:, :, None] * u, axis=1)
    close(intrinsic - extrinsic, gap, tol)
    assert np.abs(gap).max() > 0.05


def test_in_flat_space_tokens_are_pulled_by_the_weighted_differences(tol):
    x = draw(Euclidean(3))
    expected = softmax(BETA * x @ x.T) @ x - x
    close(run(Euclidean(3), x), expected, tol)


def test_on_the_torus_the_shortest_differences_pull(tol):
    theta = draw(Torus(2))
    gaps = theta[None, :] - theta[:, None]
    a = softmax(BETA * np.cos(gaps).sum(axis=-1))[:, :, None]
    expected = np.sum(a * np.angle(np.exp(1j * gaps)), axis=1)
    close(run(Torus(2), theta), expected, tol)


def test_on_a_product_the_factors_share_the_weights(tol):
    z = draw(PRODUCT)
    x, theta = z[:, :3], z[:, 3:]
    gaps = theta[None, :] - theta[:, None]
    a = softmax(BETA * (x @ x.T + np.cos(gaps).sum(axis=-1)))[:, :, None]
    angle, u = angles_and_directions(x.astype(float))
    pulls = [angle[:, :, None] * u, np.angle(np.exp(1j * gaps))]
    expected = np.sum(a * np.concatenate(pulls, axis=-1), axis=1)
    close(run(PRODUCT, z), expected, tol)


def test_off_the_manifold_the_field_is_that_of_the_projections(tol):
    z = draw(PRODUCT)
    away = np.concatenate([2.5 * z[:, :3], z[:, 3:] + 2 * np.pi], axis=1).astype(DTYPE)
    close(run(PRODUCT, away), run(PRODUCT, z), tol)


@pytest.mark.parametrize("manifold", [Sphere(3), PRODUCT, Torus(2)], ids=str)
def test_velocities_are_tangent_and_a_consensus_rests(manifold, tol):
    x = draw(manifold)
    velocity = run(manifold, x)
    close(manifold.tangent(x, velocity), velocity, tol)
    same = np.broadcast_to(x[:1], x.shape)
    close(run(manifold, same), np.zeros_like(x), tol, 1)
    total = lambda x: jnp.sum(compiled(manifold)(0.0, x, None))
    assert np.isfinite(jax.grad(total)(jnp.asarray(same))).all()


def test_query_and_key_act_on_the_embedding_and_heads_are_summed(tol):
    theta = draw(Torus(2))
    points = np.concatenate([np.cos(theta), np.sin(theta)], axis=1)
    q, k = np.random.default_rng(1).standard_normal((2, 2, 3, 4)).astype(DTYPE)
    gaps = np.angle(np.exp(1j * (theta[None, :] - theta[:, None])))
    logits = [BETA * (points @ q[h].T) @ (points @ k[h].T).T for h in range(2)]
    each = [np.sum(softmax(s)[:, :, None] * gaps, axis=1) for s in logits]
    args = AttentionParams(beta=BETA, query=q, key=k)
    close(run(Torus(2), theta, args), sum(each), tol, 50)
    one = AttentionParams(beta=BETA, query=q[0], key=k[0])
    close(run(Torus(2), theta, one), each[0], tol, 50)
    logits = [BETA * (points @ q[0].T) @ (points @ k[h].T).T for h in range(2)]
    each = [np.sum(softmax(s)[:, :, None] * gaps, axis=1) for s in logits]
    shared = AttentionParams(beta=BETA, query=q[0], key=k)
    close(run(Torus(2), theta, shared), sum(each), tol, 50)


# --- Transported vectors --------------------------------------------------------------


def constant(x):
    return jnp.linspace(1.0, 2.0, x.shape[-1])


def axis(x):
    return jnp.array([0.3, -1.0, 2.0])


@pytest.mark.parametrize("manifold", [Euclidean(3), Torus(3)], ids=str)
def test_parallel_vectors_are_kept_in_a_flat_space(manifold, tol):
    x = draw(manifold)
    expected = np.broadcast_to(np.linspace(1, 2, 3), x.shape)
    close(run(manifold, x, value=constant), expected, tol)


def test_on_the_sphere_vectors_are_carried_along_great_circles(tol):
    x = draw(Sphere(3)).astype(float)
    v = np.array([0.3, -1.0, 2.0]) - (x @ np.array([0.3, -1.0, 2.0]))[:, None] * x
    along = (x @ v.T) / (1 + x @ x.T)  # <x_i, v_j> / (1 + <x_i, x_j>)
    moved = v[None] - along[:, :, None] * (x[None, :] + x[:, None])
    expected = np.sum(softmax(BETA * x @ x.T)[:, :, None] * moved, axis=1)
    close(run(Sphere(3), x.astype(DTYPE), value=axis), expected, tol, 20)


@pytest.mark.parametrize("manifold", [Sphere(3), PRODUCT], ids=str)
def test_transport_keeps_the_norm(manifold, tol):
    # Each token sees one other: what it receives is that one's vector, carried.
    x = draw(manifold)
    other = np.roll(np.arange(N), 1)
    pairs = np.zeros((N, N), bool)
    pairs[np.arange(N), other] = True
    value = axis if manifold == Sphere(3) else constant
    got = run(manifold, x, AttentionParams(beta=BETA, mask=pairs), value)
    sent = np.asarray(manifold.tangent(x, np.broadcast_to(value(x[0]), x.shape)))
    norms = np.linalg.norm(sent, axis=1)[other]
    np.testing.assert_allclose(
        np.linalg.norm(got, axis=1), norms, rtol=10 * tol.identity
    )
    close(manifold.tangent(x, got), got, tol)


def test_the_leaves_of_the_value_are_differentiated(tol):
    class Constant(eqx.Module):
        vector: jax.Array

        def __call__(self, x):
            return self.vector

    field = intrinsic_attention(Euclidean(3), Constant(jnp.ones(3)))
    x = draw(Euclidean(3))
    gradient = eqx.filter_grad(lambda field: jnp.sum(field(0.0, x)[:, 0]))(field)
    close(gradient.value.vector, [N, 0, 0], tol)


# --- Masks ----------------------------------------------------------------------------

EXISTS = np.array([True, False, True, True, False, True])


@pytest.mark.parametrize("value", [None, axis], ids=["log", "transport"])
def test_absent_tokens_neither_see_nor_are_seen_and_a_nan_there_does_not_leak(
    value, tol
):
    x = draw(Sphere(3))
    x[1], x[4] = np.nan, np.inf
    field = intrinsic_attention(Sphere(3), value)

    def speed(x, beta):
        velocity = field(0.0, x, AttentionParams(beta=beta, mask=EXISTS))
        return jnp.sum(velocity**2), velocity

    gradient, velocity = jax.jit(jax.grad(speed, (0, 1), has_aux=True))(x, BETA)
    velocity = np.asarray(velocity)
    close(velocity[EXISTS], run(Sphere(3), x[EXISTS], value=value), tol)
    np.testing.assert_array_equal(velocity[~EXISTS], 0)
    np.testing.assert_array_equal(np.asarray(gradient[0])[~EXISTS], 0)
    assert np.isfinite(gradient[0]).all()
    assert np.isfinite(gradient[1])


def test_a_pair_that_is_forbidden_does_not_leak_a_nan(tol):
    x = draw(Sphere(3))
    x[5] = np.nan
    pairs = np.ones((N, N), bool)
    pairs[:5, 5] = False
    field = intrinsic_attention(Sphere(3))

    def total(x):
        velocity = field(0.0, x, AttentionParams(beta=BETA, mask=pairs))
        return jnp.sum(velocity[:5]), velocity

    gradient, velocity = jax.jit(jax.grad(total, has_aux=True))(x)
    close(np.asarray(velocity)[:5], run(Sphere(3), x[:5]), tol)
    assert np.isnan(np.asarray(velocity)[5]).all()
    assert np.isfinite(np.asarray(gradient)[:5]).all()


def test_pairs_restrict_the_softmax_and_who_sees_none_rests(tol):
    x = draw(Euclidean(3))
    pairs = np.random.default_rng(4).random((N, N)) < 0.5
    pairs[2] = False
    a = softmax(BETA * x @ x.T, pairs)
    expected = a @ x - a.sum(axis=1, keepdims=True) * x
    got = run(Euclidean(3), x, AttentionParams(beta=BETA, mask=pairs))
    close(got, expected, tol)
    np.testing.assert_array_equal(got[2], 0)
    got = run(Euclidean(3), x, AttentionParams(beta=BETA, mask="causal"))
    a = softmax(BETA * x @ x.T, np.tril(np.ones((N, N), bool)))
    close(got, a @ x - x, tol)


def test_solve_keeps_tokens_on_the_product_and_leaves_absent_rows_alone():
    z = draw(PRODUCT)
    z[1], z[4] = np.nan, 7.0
    args = AttentionParams(beta=BETA, mask=EXISTS)
    how = {"t1": 2.0, "dt0": 0.1, "solver": dfx.Heun(), "manifold": PRODUCT}
    end = np.asarray(tfjax.solve(intrinsic_attention(PRODUCT), z, args, **how).ys[-1])
    np.testing.assert_array_equal(end[~EXISTS], z[~EXISTS])
    norms = np.linalg.norm(end[EXISTS][:, :3], axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-6)
    assert np.abs(end[EXISTS] - z[EXISTS]).max() > 0.1


# --- Errors ---------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    field, x = intrinsic_attention(Torus(2)), draw(Torus(2))
    with pytest.raises(ValueError, match="^`manifold` must be a manifold of tfjax.geo"):
        intrinsic_attention("torus")
    with pytest.raises(ValueError, match="^`value` must be a function of a point or"):
        intrinsic_attention(Torus(2), np.eye(2))
    with pytest.raises(ValueError, match="^`value` must be None for this field, but w"):
        field(0.0, x, AttentionParams(value=np.eye(2)))
    with pytest.raises(ValueError, match="^`chunk_size` must be None for this field"):
        field(0.0, x, AttentionParams(chunk_size=2))
    rule = r"^`query` must have shape \(d_k, m\) or \(h, d_k, m\) with m = 4, but was"
    with pytest.raises(ValueError, match=rule):
        field(0.0, x, AttentionParams(query=np.eye(2)))
    with pytest.raises(ValueError, match=r"^`query` must map to the same d_k as key"):
        field(0.0, x, AttentionParams(query=np.ones((3, 4))))
    heads = AttentionParams(query=np.ones((2, 3, 4)), key=np.ones((3, 3, 4)))
    with pytest.raises(ValueError, match="^`args` must have as many heads in query"):
        field(0.0, x, heads)
    with pytest.raises(ValueError, match=r"^`x` must have shape \(n, d\), but was"):
        field(0.0, x[0])
    with pytest.raises(ValueError, match=r"^`x` must have shape \(\.\.\., 2\), as"):
        field(0.0, np.ones((3, 3)))
    bad = intrinsic_attention(Torus(2), lambda x: x[0])
    with pytest.raises(ValueError, match=r"^`value` must return a vector of shape"):
        bad(0.0, x)
