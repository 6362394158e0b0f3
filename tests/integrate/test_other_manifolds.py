"""Solving on the torus and on products: angles that cross the cut at pi."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.geometry import Product, Sphere, Torus


DTYPE = jnp.zeros(()).dtype
X64 = jax.config.jax_enable_x64
OMEGA = np.array([1.3, -2.5])
TS = np.linspace(0.0, 20.0, 999).astype(DTYPE)
START = np.array([3.0, -3.1], DTYPE)
TOLERANCE = 1e-7 if X64 else 1e-3


def oscillators(t, theta, args):
    """theta' = omega - sin theta, for two angles that turn for ever."""
    return args - jnp.sin(theta)


def exact(ts):
    """The angles by their closed form: tan(theta / 2) moves on a Moebius circle."""
    rate = np.sqrt(OMEGA**2 - 1)
    phase = np.arctan((OMEGA * np.tan(START.astype(float) / 2) - 1) / rate)
    turned = np.tan(np.asarray(ts, float)[:, None] * rate / 2 + phase)
    return 2 * np.arctan((1 + rate * turned) / OMEGA)


TURN = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 0]], DTYPE)
SPACE = Product(Sphere(3), Torus(2))


def both(t, x, args):
    """A rotation of the sphere, and the oscillators."""
    return jnp.concatenate([TURN @ x[:3], oscillators(t, x[3:], args)])


@functools.cache
def solved():
    x0 = np.concatenate([[2.0, 0.0, 0.0], START]).astype(DTYPE)  # projected first
    return tfjax.solve(
        both,
        x0,
        jnp.asarray(OMEGA, DTYPE),
        t1=20.0,
        saveat=dfx.SaveAt(ts=jnp.asarray(TS), dense=True),
        manifold=SPACE,
        rtol=1e-9 if X64 else 1e-6,
        atol=1e-9 if X64 else 1e-6,
    )


def same_angles(actual, expected):
    gap = np.angle(np.exp(1j * (np.asarray(actual, float) - expected)))
    np.testing.assert_allclose(gap, np.zeros_like(gap), atol=TOLERANCE)


def test_saved_angles_that_cross_the_cut_between_steps_are_right_and_wrapped():
    sol = solved()
    assert int(sol.stats["num_steps"]) < len(TS)  # most saved times lie inside steps
    ys = np.asarray(sol.ys[:, 3:])
    same_angles(ys, exact(TS))
    assert ((ys > -DTYPE.type(np.pi)) & (ys <= DTYPE.type(np.pi))).all()
    crossings = np.abs(np.diff(ys, axis=0)) > np.pi
    assert (crossings.sum(axis=0) >= [2, 6]).all()


def test_dense_output_that_crosses_the_cut_is_right():
    ts = np.random.default_rng(0).uniform(0, 20, 200).astype(DTYPE)
    same_angles(jax.vmap(solved().evaluate)(ts)[:, 3:], exact(ts))


def test_the_other_factor_moves_by_its_own_geometry():
    ts, xs = TS.astype(float), np.asarray(solved().ys[:, :3], np.float64)
    circle = np.stack([np.cos(ts), np.sin(ts), 0 * ts], axis=1)
    np.testing.assert_allclose(xs, circle, atol=TOLERANCE)
    norms = np.linalg.norm(xs, axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-14 if X64 else 2e-6)


def test_a_torus_is_solved_alone_too():
    how = {"t1": 20.0, "rtol": 1e-6, "atol": 1e-6, "manifold": Torus(2)}
    end = tfjax.solve(oscillators, START, jnp.asarray(OMEGA, DTYPE), **how).ys
    gap = np.angle(np.exp(1j * (np.asarray(end, float) - exact(TS[-1:]))))
    assert np.abs(gap).max() < 2e-3


def test_points_of_another_width_are_refused_by_name():
    message = r"`y0` must have shape \(\.\.\., 3\), as points of Torus\(d=3\)"
    with pytest.raises(ValueError, match=message):
        tfjax.solve(oscillators, START, 1.0, t1=1.0, manifold=Torus(3))
