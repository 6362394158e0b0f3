"""A solve in two parts is the solve in one."""

import diffrax as dfx
import jax
import numpy as np
import pytest

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere


SPHERE = Sphere(3)


def run(x0, t0, t1, **kwargs):
    args = AttentionParams(beta=4.0)
    return tfjax.solve(self_attention, x0, args, t0=t0, t1=t1, **kwargs).ys[-1]


def difference(**kwargs):
    x0 = SPHERE.random(jax.random.key(0), (16,))
    whole = run(x0, 0.0, 2.0, **kwargs)
    parts = run(run(x0, 0.0, 1.0, **kwargs), 1.0, 2.0, **kwargs)
    return np.max(np.abs(whole - parts)), whole.dtype


@pytest.mark.parametrize("dt0", [0.125, 0.1])
def test_constant_steps_give_the_same_bits_without_a_manifold(dt0):
    assert difference(dt0=dt0)[0] == 0


@pytest.mark.parametrize("dt0", [0.125, 0.1])
def test_constant_steps_agree_to_rounding_on_the_sphere(dt0):
    """The state that goes on is projected once more, which moves it by rounding."""
    found, dtype = difference(dt0=dt0, manifold=SPHERE)
    assert found < 16 * np.finfo(dtype).eps


@pytest.mark.parametrize("manifold", [SPHERE, None])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-6])
def test_adaptive_steps_agree_to_the_tolerance(manifold, tolerance):
    kwargs = {"rtol": tolerance, "atol": tolerance, "manifold": manifold}
    assert difference(**kwargs)[0] < 10 * tolerance


def test_a_controller_with_a_memory_agrees_to_the_tolerance():
    controller = dfx.PIDController(rtol=1e-6, atol=1e-6, pcoeff=0.3, icoeff=0.4)
    kwargs = {"stepsize_controller": controller, "manifold": SPHERE}
    assert difference(**kwargs)[0] < 1e-5


def test_a_record_at_an_intermediate_time_serves_as_well():
    x0 = SPHERE.random(jax.random.key(0), (16,))
    args, ts = AttentionParams(beta=4.0), np.array([0.7, 2.0])
    sol = tfjax.solve(self_attention, x0, args, t1=2.0, ts=ts, manifold=SPHERE)
    rest = run(sol.ys[0], 0.7, 2.0, manifold=SPHERE)
    np.testing.assert_allclose(rest, sol.ys[1], atol=1e-5)
