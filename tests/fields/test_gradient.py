"""Gradient flows: which known fields they are, closed forms, and monotone energies."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.energies import interaction_energy, kuramoto_energy
from tfjax.fields import (
    AttentionParams,
    Kuramoto,
    gradient_flow,
    kuramoto,
    unnormalized_self_attention,
)
from tfjax.geometry import Euclidean, Product, Sphere, Torus


DTYPE = jnp.zeros(()).dtype
X64 = jax.config.jax_enable_x64


def random(*shape, seed=0):
    values = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return values.astype(DTYPE)


def tokens(n, d, seed=0):
    x = random(n, d, seed=seed)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def close(actual, expected, tolerance):
    """Equal up to the tolerance times the largest entry."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def bound(beta):
    """1e-12 in float64; in float32 the exponent magnifies the rounding by 1 + beta."""
    return 1e-12 if X64 else 1e-6 * (1 + beta)


@pytest.mark.parametrize(("n", "d", "beta"), [(32, 3, 1.0), (20, 2, 4.0), (16, 8, 9.0)])
def test_n_times_the_flow_of_the_interaction_energy_is_usa(n, d, beta):
    energy = lambda x, beta: interaction_energy(x, beta)
    flow = jax.jit(gradient_flow(energy, Sphere(d)))
    x = tokens(n, d)
    expected = unnormalized_self_attention(0.0, x, AttentionParams(beta=beta))
    close(n * np.asarray(flow(0.0, x, beta)), expected, bound(beta))
    # Off the sphere it is taken at the normalised tokens, as USA is.
    close(n * np.asarray(flow(0.0, 3 * x, beta)), expected, bound(beta))


def test_n_times_the_flow_of_the_kuramoto_energy_is_kuramoto(tol):
    theta = 3 * random(9)
    flow = gradient_flow(kuramoto_energy, Torus(9))
    expected = kuramoto(0.0, theta, Kuramoto(coupling=2.5))
    close(9 * np.asarray(flow(0.0, theta, 2.5)), expected, 5 * tol.identity)
    down = gradient_flow(kuramoto_energy, Torus(9), sign=-1)
    np.testing.assert_array_equal(down(0.0, theta, 2.5), -flow(0.0, theta, 2.5))


def test_without_parameters_the_energy_is_called_with_the_state_alone():
    alone = gradient_flow(lambda x: jnp.sum(x**2), Euclidean(3))
    np.testing.assert_allclose(alone(0.0, np.ones(3, DTYPE)), [2, 2, 2], rtol=1e-6)
    last = gradient_flow(lambda x, args: args["k"] * jnp.sum(x**2), Euclidean(3))
    velocity = last(0.0, np.ones(3, DTYPE), {"k": 0.5})
    np.testing.assert_allclose(velocity, [1, 1, 1], rtol=1e-6)


def test_on_a_product_each_factor_moves_in_its_own_geometry(tol):
    space = Product(Sphere(3), Torus(1))
    energy = lambda x: x[2] + jnp.sin(x[3])
    x = np.array([2.0, 0.0, 0.0, np.pi / 3 + 2 * np.pi], DTYPE)
    velocity = gradient_flow(energy, space)(0.0, x)
    close(velocity, np.array([0, 0, 1, 0.5]), 5 * tol.identity)


# --- The height over the equator: z' = k (1 - z^2), so z = tanh(k t + artanh z_0) -----


def height(x, rate):
    return rate * jnp.sum(x[..., 2])


START, TS = tokens(4, 3), np.linspace(0.0, 2.0, 9).astype(DTYPE)


def heights(rate, ts=TS):
    start = np.arctanh(START[:, 2].astype(float))
    return np.tanh(rate * np.asarray(ts, float)[:, None] + start)


def test_the_descent_from_the_height_follows_its_closed_form():
    flow = gradient_flow(height, Sphere(3), sign=-1)
    how = {"t1": 2.0, "ts": TS, "manifold": Sphere(3)}
    how |= {"rtol": 1e-9 if X64 else 1e-6, "atol": 1e-9 if X64 else 1e-6}
    ys = np.asarray(tfjax.solve(flow, START, 0.8, **how).ys)
    tolerance = 1e-7 if X64 else 1e-4
    np.testing.assert_allclose(ys[..., 2], heights(-0.8), atol=tolerance)
    assert (np.diff(ys[..., 2].sum(axis=1)) < 0).all()  # monotone


def test_new_parameters_trace_nothing_new():
    traces = []

    def counted(x, rate):
        traces.append(None)
        return height(x, rate)

    flow = gradient_flow(counted, Sphere(3))
    ends, counts = [], []
    for rate in (0.5, 1.0, 1.5):
        sol = tfjax.solve(flow, START, rate, t1=0.2, dt0=0.1, solver=dfx.Euler())
        ends.append(float(sol.ys[-1, 0, 2]))
        counts.append(len(traces))
    assert counts[0] == counts[-1] > 0
    assert len(set(ends)) == 3


def test_an_ensemble_over_the_parameters_is_a_loop_over_them():
    flow = gradient_flow(height, Sphere(3))
    rates = np.array([0.3, 0.8], DTYPE)
    sols = tfjax.solve_ensemble(
        flow, START, rates, in_axes=(None, 0), t1=2.0, ts=TS, manifold=Sphere(3)
    )
    tolerance = 1e-5 if X64 else 1e-4
    for rate, ys in zip(rates, sols.ys, strict=True):
        np.testing.assert_allclose(ys[..., 2], heights(rate), atol=tolerance)


def test_the_derivative_by_the_parameters_is_that_of_the_closed_form():
    flow = gradient_flow(height, Sphere(3))

    def end(rate):
        how = {"solver": dfx.Tsit5(), "dt0": 0.05, "manifold": Sphere(3)}
        return jnp.sum(tfjax.solve(flow, START, rate, t1=2.0, **how).ys[-1, :, 2])

    got = float(jax.jit(jax.grad(end))(0.8))
    expected = 2.0 * np.sum(1 - heights(0.8)[-1] ** 2)
    assert got == pytest.approx(expected, rel=1e-6 if X64 else 1e-4)


def test_an_energy_may_have_leaves_of_its_own():
    class Quadratic(eqx.Module):
        matrix: jax.Array

        def __call__(self, x):
            return 0.5 * x @ self.matrix @ x

    flow = gradient_flow(Quadratic(jnp.diag(jnp.array([1.0, 2.0]))), Euclidean(2))
    x = jnp.array([3.0, 5.0])
    np.testing.assert_allclose(flow(0.0, x), [3, 10], rtol=1e-6)
    gradient = eqx.filter_grad(lambda flow: jnp.sum(flow(0.0, x)))(flow)
    np.testing.assert_allclose(gradient.energy.matrix, [[3, 4], [4, 5]], rtol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    with pytest.raises(ValueError, match="^`energy` must be a scalar function of the"):
        gradient_flow(3, Sphere(3))
    with pytest.raises(ValueError, match="^`manifold` must be a manifold of tfjax.geo"):
        gradient_flow(height, "sphere")
    for sign in (0, True, 2.0):
        with pytest.raises(ValueError, match="^`sign` must be 1 or -1, but was"):
            gradient_flow(height, Sphere(3), sign)
    flow = gradient_flow(lambda x: x, Sphere(3))
    message = r"^`energy` must return a scalar, but was an array of shape \(2, 3\)"
    with pytest.raises(ValueError, match=message):
        flow(0.0, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^`x` must have shape \(\.\.\., 3\)"):
        gradient_flow(height, Sphere(3))(0.0, np.ones((2, 4)), 1.0)
