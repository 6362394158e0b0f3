"""`reversible_mode`: the gradient of the default, in the memory of one step."""

import functools
import os
import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import hamiltonian
from tfjax.integrate import (
    ImplicitMidpoint,
    Leapfrog,
    TaoLeapfrog,
    Yoshida4,
    reversible_mode,
)


# All of them compile solves, and their statements are of float64 above all.
pytestmark = pytest.mark.slow
needs_float64 = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="rounding hides the way back in float32"
)
Q = jnp.array([1.0, 0.5])


class Pendulums(eqx.Module):
    """A field with a leaf of its own, beside its parameters."""

    gain: jax.Array

    def __call__(self, t, y, strength):
        q, p = y
        gravity = strength * (1 + 0.3 * jnp.cos(t))
        return (1 + self.gain * jnp.sin(t)) * p, -gravity * jnp.sin(q)


def end(q, strength, gain, adjoint, solver=None, t0=0.0, t1=3.05, **kwargs):
    options = {"solver": Leapfrog() if solver is None else solver, "dt0": 0.1}
    field = Pendulums(jnp.asarray(gain))
    options |= {"t0": t0, "t1": t1, "adjoint": adjoint} | kwargs
    q1, p1 = tfjax.solve(field, (q, 0.3 * q), jnp.asarray(strength), **options).ys
    return jnp.sum(q1[-1] ** 2 + 0.3 * p1[-1])


@functools.cache
def compiled_gradient(solver, adjoint):
    def function(q, s, g, times):
        return end(q, s, g, adjoint, solver, *times)

    return jax.jit(jax.grad(function, (0, 1, 2)))


def gradient(adjoint, solver, t0, t1, q=Q):
    return compiled_gradient(solver, adjoint)(q, 1.3, 0.2, (t0, t1))


REVERSIBLE, LEAPFROG = reversible_mode(), Leapfrog()


@needs_float64
@pytest.mark.parametrize(
    ("solver", "t0", "t1"),
    [
        (LEAPFROG, 0.0, 3.05),  # dt0 does not divide the interval
        (LEAPFROG, 0.0, 0.06),  # nor fit into it
        (Yoshida4(), 3.0, 0.0),
        (ImplicitMidpoint(), 0.0, 3.05),
    ],
)
def test_the_gradient_is_that_of_the_default(solver, t0, t1):
    expected, got = (gradient(adj, solver, t0, t1) for adj in (None, REVERSIBLE))
    for a, b in zip(expected, got, strict=True):
        assert np.abs(a).min() > 1e-4
        np.testing.assert_allclose(a, b, rtol=1e-10)


@functools.cache
def plain_gradient(adjoint):
    """Through a plain diffeqsolve of at most 31 steps, and whether it came to t1."""

    def end(strength, t1):
        term, y0 = dfx.ODETerm(Pendulums(jnp.asarray(0.2))), (Q, 0.3 * Q)
        args = (term, LEAPFROG, 0.0, t1, 0.1, y0, strength)
        more = {"max_steps": 31, "throw": False, "adjoint": adjoint}
        sol = dfx.diffeqsolve(*args, **more)
        return jnp.sum(sol.ys[0]), sol.result

    return eqx.filter_jit(jax.grad(end, has_aux=True))


@needs_float64
@pytest.mark.parametrize("t1", [3.05, 12.05, jnp.inf])
def test_a_plain_diffeqsolve_takes_it_and_max_steps_may_end_it_early(t1):
    """The gradient is that of the steps that were taken; t1 may be infinite."""
    adjoints = (dfx.RecursiveCheckpointAdjoint(), REVERSIBLE)
    (expected, result), (got, same) = (
        plain_gradient(adjoint)(jnp.asarray(1.3), jnp.asarray(t1))
        for adjoint in adjoints
    )
    assert bool(dfx.is_okay(result)) is bool(dfx.is_okay(same)) is (t1 == 3.05)
    assert abs(float(expected)) > 0.1
    assert float(got) == pytest.approx(float(expected), rel=1e-10)


@needs_float64
def test_what_a_field_closes_over_is_differentiated_too():
    def end(strength, adjoint):
        field = lambda t, y, args: (y[1], -strength * y[0])
        options = {"solver": Leapfrog(), "adjoint": adjoint, "dt0": 0.1}
        return jnp.sum(tfjax.solve(field, (Q, Q), t1=1.0, **options).ys[0])

    slope = jax.jit(jax.grad(end), static_argnums=1)
    expected, got = (float(slope(1.3, adjoint)) for adjoint in (None, REVERSIBLE))
    assert abs(expected) > 0.1
    assert got == pytest.approx(expected, rel=1e-10)


@needs_float64
def test_no_time_no_step_and_a_batch():
    same = gradient(REVERSIBLE, LEAPFROG, 1.0, 1.0)
    np.testing.assert_allclose(same[0], 2 * Q + 0.09)
    np.testing.assert_array_equal(same[1], 0.0)
    qs = jnp.stack([Q, 2 * Q])
    one = lambda q: gradient(REVERSIBLE, LEAPFROG, 0.0, 3.05, q)[0]
    both = jax.vmap(one)(qs)
    np.testing.assert_allclose(both[1], one(qs[1]), rtol=1e-12)


# Prints by how many kilobytes the resident memory rises in a gradient: of 100 and of
# 2000 steps by `reversible_mode`, then by the default, whose checkpoints are allotted
# by `max_steps`. A state has 0.8 megabytes in float64.
MEMORY = """
import re
import jax, jax.numpy as jnp
from pathlib import Path
import tfjax
from tfjax.integrate import Leapfrog, reversible_mode

def resident(which):
    status = Path("/proc/self/status").read_text()
    return int(re.search(which + r":\\s+(\\d+) kB", status).group(1))

def end(q, t1, adjoint, max_steps):
    field = lambda t, y, args: (y[1], -y[0])
    options = {"solver": Leapfrog(), "dt0": 1 / 128, "max_steps": max_steps}
    sol = tfjax.solve(field, (q, q), t1=t1, adjoint=adjoint, **options)
    return jnp.sum(sol.ys[0])

for adjoint in (reversible_mode(), None):
    for steps in (100, 2000):
        bound = steps + 1 if adjoint is None else None
        function = lambda q, t1: end(q, t1, adjoint, bound)
        q, t1 = jnp.ones(50_000), jnp.asarray(steps / 128)
        program = jax.jit(jax.grad(function)).lower(q, t1).compile()
        Path("/proc/self/clear_refs").write_text("5")  # the mark starts from here
        before = resident("VmRSS")
        program(q, t1).block_until_ready()
        print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
def test_resident_memory_does_not_grow_with_the_number_of_steps():
    done = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    few, many, default_few, default_many = map(int, done.stdout.split())
    state = 2 * 50_000 * jnp.zeros(()).dtype.itemsize / 1024
    assert many < few + 16_000  # of threads and allocators, not of 1900 states
    assert default_many > default_few + 40 * state  # of 49 checkpoints more


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": TaoLeapfrog()}, "`adjoint` must not be reversible_mode.*Tao"),
        ({"solver": dfx.Heun()}, "`adjoint` must not be reversible_mode.*Heun"),
        ({"saveat": dfx.SaveAt(steps=True)}, "`saveat` must record the state at t1"),
        ({"ts": [0.5, 1.0]}, "`saveat` must record the state at t1"),
        ({"event": dfx.Event(lambda t, y, *args, **kw: t > 1)}, "`event` must be None"),
    ],
)
def test_what_it_cannot_do_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        end(Q, 1.3, 0.2, reversible_mode(), **options)


def test_times_are_refused_not_given_a_gradient_of_zero():
    with pytest.raises(Exception, match=r"reversible_mode\(\): t0, t1, dt0"):
        jax.grad(lambda t1: end(Q, 1.3, 0.2, reversible_mode(), t1=t1))(3.0)


def test_forward_mode_names_the_adjoint_that_offers_it():
    with pytest.raises(ValueError, match=r"forward_mode\(\).*but was Reversible"):
        jax.jvp(lambda q: end(q, 1.3, 0.2, reversible_mode()), (Q,), (Q,))


# What a second derivative may be taken by: of the end as a function of one number.
TWICE = {
    "state": lambda k: end(k * Q, 1.3, 0.2, reversible_mode()),
    "args": lambda k: end(Q, k, 0.2, reversible_mode()),
    "leaf": lambda k: end(Q, 1.3, k, reversible_mode()),
    "closure": lambda k: closed(k, tfjax.solve),
    "diffeqsolve": lambda k: closed(k, plain),
    "diffeqsolve, state": lambda k: closed(1.3, plain, k),
}


def closed(k, solve, scale=1.0):
    """Of a field that closes over k, and whose end is linear in the last state."""
    field = lambda t, y, args: (y[1], -k * y[0] ** 3)
    options = {"solver": Leapfrog(), "adjoint": reversible_mode(), "dt0": 0.1}
    return jnp.sum(solve(field, (scale * Q, Q), t1=1.0, **options).ys[0])


def plain(field, y0, t1, solver, dt0, adjoint):
    term = dfx.ODETerm(field)
    return dfx.diffeqsolve(term, solver, 0.0, t1, dt0, y0, adjoint=adjoint)


@pytest.mark.parametrize("by", TWICE)
@pytest.mark.parametrize("outer", [jax.jacfwd, jax.grad])
def test_second_derivatives_are_refused_by_name(by, outer):
    message = r"`adjoint` must be tfjax.integrate.second_order\(\) for second deriv.*"
    with pytest.raises(ValueError, match=message + "but was Reversible"):
        jax.jit(outer(jax.grad(TWICE[by])))(jnp.asarray(1.3))


def test_a_hamiltonian_with_leaves_is_differentiated(tol):
    """Through H itself, against the default, in one step of a spring."""

    def end(stiffness, adjoint):
        H = lambda q, p, k: jnp.sum(0.5 * p**2 + 0.5 * k * q**2)
        options = {"solver": Leapfrog(), "adjoint": adjoint, "t1": 0.1, "dt0": 0.1}
        sol = tfjax.solve(hamiltonian(H), (Q, 0 * Q), stiffness, **options)
        return sol.ys[0][-1, 0]

    got = jax.jit(jax.grad(lambda k: end(k, REVERSIBLE)))(jnp.asarray(2.0))
    assert float(got) == pytest.approx(-0.005, rel=10 * tol.identity)  # -h^2 q / 2
