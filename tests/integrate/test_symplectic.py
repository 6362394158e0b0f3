"""Solvers of Hamilton's equations: order, structure, and where the energy stays."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import linregress

import tfjax
from tfjax.fields import hamiltonian
from tfjax.integrate import (
    ImplicitMidpoint,
    Leapfrog,
    TaoLeapfrog,
    Yoshida4,
    Yoshida6,
)


# All of them compile solves, and their statements are of float64 above all.
pytestmark = pytest.mark.slow
needs_float64 = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="rounding hides the order in float32"
)
# Solver, order, order of the dense output, and steps from 0 to 2 for the former.
SOLVERS = {
    "Leapfrog": (Leapfrog(), 2, 2, (128, 256, 512)),
    "Yoshida4": (Yoshida4(), 4, 4, (32, 64, 128)),
    "Yoshida6": (Yoshida6(), 6, 4, (24, 32, 48)),
    "ImplicitMidpoint": (ImplicitMidpoint(), 2, 2, (128, 256, 512)),
    "TaoLeapfrog": (TaoLeapfrog(), 2, 2, (256, 512, 1024)),
}
every_solver = pytest.mark.parametrize("name", SOLVERS)
REVERSIBLE = ("Leapfrog", "Yoshida4", "Yoshida6", "ImplicitMidpoint")


def pendulums(t, y, strength):
    """Two pendulums whose mass and gravity change in time."""
    q, p = y
    velocity = (1 + 0.2 * jnp.sin(3 * t)) * p
    return velocity, -strength * (1 + 0.3 * jnp.cos(t)) * jnp.sin(q)


def start(dtype=None):
    return jnp.array([1.0, 0.5], dtype), jnp.array([0.0, 1.0], dtype)


def gap(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(jnp.max(jnp.abs(x - y))) for x, y in pairs)


def solved(name, steps, saveat=None, field=pendulums, y0=None, t1=2.0, **kwargs):
    options = {"solver": SOLVERS[name][0], "dt0": t1 / steps, "saveat": saveat}
    y0 = start() if y0 is None else y0
    return tfjax.solve(field, y0, jnp.asarray(1.5), t1=t1, **options, **kwargs)


TIMES = np.linspace(0.013, 1.987, 57)


@functools.cache
def dense(name, steps):
    """The state at the end and at times between steps, of one dense solve."""
    sol = solved(name, steps, dfx.SaveAt(t1=True, dense=True))
    return [a[-1] for a in sol.ys], jax.vmap(sol.evaluate)(jnp.asarray(TIMES))


@functools.cache
def exact():
    ts = jnp.append(jnp.asarray(TIMES), 2.0)
    kwargs = {"rtol": 1e-13, "atol": 1e-13, "solver": dfx.Dopri8(), "ts": ts}
    ys = tfjax.solve(pendulums, start(), jnp.asarray(1.5), t1=2.0, **kwargs).ys
    return [a[-1] for a in ys], tuple(a[:-1] for a in ys)


def slope(counts, errors):
    assert all(1e-11 <= error <= 1e-3 for error in errors), errors
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


@needs_float64
@every_solver
def test_the_order_is_that_of_the_method_between_steps_too(name):
    _, order, between, counts = SOLVERS[name]
    runs = [dense(name, n) for n in counts]
    ends = [gap(end, exact()[0]) for end, _ in runs]
    assert abs(slope(counts, ends) - order) < 0.2, ends
    middles = [gap(middle, exact()[1]) for _, middle in runs]
    assert abs(slope(counts, middles) - between) < 0.2, middles


def test_the_lengths_of_composed_steps_fulfil_their_order_conditions():
    """sum w = 1; sum w^3 = 0 for order 4; and sum w^5 = 0 for order 6."""
    for solver, powers in ((Leapfrog(), ()), (Yoshida4(), (3,)), (Yoshida6(), (3, 5))):
        w = solver.weights()
        np.testing.assert_array_equal(w, w[::-1])
        assert abs(np.sum(w) - 1) < 1e-15
        assert all(abs(np.sum(w**power)) < 2e-15 for power in powers)


@pytest.mark.parametrize("name", ["Yoshida4", "ImplicitMidpoint", "TaoLeapfrog"])
def test_a_plain_diffeqsolve_gives_the_same_at_times_and_steps(name, tol):
    solver = SOLVERS[name][0]
    saveat = dfx.SaveAt(
        subs={
            "ts": dfx.SubSaveAt(ts=jnp.array([0.0, 0.25, 0.5, 0.6])),
            "steps": dfx.SubSaveAt(steps=True, t0=True),
        }
    )
    plain = dfx.diffeqsolve(
        dfx.ODETerm(pendulums),
        solver,
        0.0,
        1.0,
        0.125,
        start(),
        jnp.asarray(1.5),
        saveat=saveat,
        max_steps=16,
    )
    ours = solved(name, 8, saveat, t1=1.0, max_steps=16)
    assert gap(plain.ys["ts"], ours.ys["ts"]) <= tol.identity
    at_steps = jax.tree.map(lambda a: a[jnp.array([0, 2, 4])], ours.ys["steps"])
    assert gap(jax.tree.map(lambda a: a[:3], ours.ys["ts"]), at_steps) <= tol.identity
    assert jax.tree.leaves(plain.ys)[0].dtype == start()[0].dtype


# --- Structure ------------------------------------------------------------------------


def bent(q, p):
    """A Hamiltonian of two degrees of freedom that is not separable."""
    return jnp.sum((q**2 + 1) * (p**2 + 1)) / 2 + q[0] * q[1] + 0.1 * jnp.sum(p) ** 2


def flat_flow(solver, field, steps, h):
    """Steps as a function of the flat state, doubled where the solver doubles it."""
    term, args = dfx.ODETerm(field), jnp.asarray(1.5)
    doubled = isinstance(solver, TaoLeapfrog)

    def step(i, carry):
        y, state = carry
        t = jnp.asarray(i, h.dtype) * h
        y, _, _, state, _ = solver.step(term, t, t + h, y, args, state, True)
        return y, state

    def flow(z):
        parts = jnp.split(z, 4 if doubled else 2)
        if doubled:  # (q, x), (p, y) are the pairs that belong together
            q, x, p, y = parts
            state = (x, y), field(jnp.zeros_like(h), (q, y), args)
        else:
            q, p = parts
            state = field(jnp.zeros_like(h), (q, p), args)
        (q, p), state = jax.lax.fori_loop(0, steps, step, ((q, p), state))
        return jnp.concatenate([q, state[0][0], p, state[0][1]] if doubled else [q, p])

    return flow


def asymplectic(flow, z):
    """max |J^T Omega J - Omega| of the Jacobian of a map of phase space."""
    J, n = jax.jit(jax.jacfwd(flow))(z), z.size // 2
    omega = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    return np.max(np.abs(np.asarray(J).T @ omega @ np.asarray(J) - omega))


def start_of(solver):
    q, p = start()
    doubled = isinstance(solver, TaoLeapfrog)
    return jnp.concatenate([q, q + 0.01, p, p - 0.01] if doubled else [q, p])


@needs_float64
@every_solver
def test_the_flow_of_a_step_is_symplectic(name):
    solver = SOLVERS[name][0]
    needs_separable = name in ("Leapfrog", "Yoshida4", "Yoshida6")
    field = pendulums if needs_separable else hamiltonian(lambda q, p, a: bent(q, p))
    flow = flat_flow(solver, field, 3, jnp.asarray(0.1))
    assert asymplectic(flow, start_of(solver)) < 1e-12


@needs_float64
def test_a_step_of_euler_is_not_symplectic():
    def euler(z):
        q, p = jnp.split(z, 2)
        dq, dp = pendulums(0.0, (q, p), 1.5)
        return jnp.concatenate([q + 0.1 * dq, p + 0.1 * dp])

    assert asymplectic(euler, jnp.concatenate(start())) > 1e-3


@needs_float64
@pytest.mark.parametrize("name", REVERSIBLE)
def test_going_back_returns_to_the_start(name):
    kwargs = {"solver": SOLVERS[name][0], "dt0": 0.05}
    there = tfjax.solve(pendulums, start(), jnp.asarray(1.5), t1=10.0, **kwargs)
    end = jax.tree.map(lambda a: a[-1], there.ys)
    back = tfjax.solve(pendulums, end, jnp.asarray(1.5), t0=10.0, t1=0.0, **kwargs)
    assert int(back.stats["num_steps"]) == 200
    assert gap(end, start()) > 0.1
    assert gap(jax.tree.map(lambda a: a[-1], back.ys), start()) < 1e-12


def test_tao_turns_the_differences_of_the_copies_by_2_omega_h(tol):
    """Where the velocity is 0 nothing else moves, and the means stay."""
    term = dfx.ODETerm(lambda t, y, args: jax.tree.map(jnp.zeros_like, y))
    (q, p), h, omega = start(), jnp.asarray(0.1), 3.0
    x, y = q + 1, p - 2
    state = (x, y), (jnp.zeros(2), jnp.zeros(2))
    args = (term, 0 * h, h, (q, p), None, state, False)
    (q1, p1), _, _, ((x1, y1), _), _ = TaoLeapfrog(omega).step(*args)
    np.testing.assert_allclose(q1 + x1, q + x, rtol=0, atol=tol.identity)
    angle = 2 * omega * 0.1
    turned = np.exp(-1j * angle) * (-1 + 2j)  # (q - x) + i (p - y)
    found = np.asarray(q1 - x1) + 1j * np.asarray(p1 - y1)
    np.testing.assert_allclose(found, turned, rtol=0, atol=10 * tol.identity)


@needs_float64
def test_tao_returns_to_the_start_in_the_doubled_space():
    field = hamiltonian(lambda q, p, args: bent(q, p))
    h, solver = jnp.asarray(0.01), TaoLeapfrog()
    there, back = (jax.jit(flat_flow(solver, field, 200, s * h)) for s in (1, -1))
    z = start_of(solver)
    assert gap(there(z), z) > 0.1
    assert gap(back(there(z)), z) < 1e-12


# --- Energies -------------------------------------------------------------------------


def pendulum_energy(y):
    q, p = y
    return jnp.sum(0.5 * p**2 - 1.5 * jnp.cos(q))


def pendulum(t, y, args):
    return y[1], -1.5 * jnp.sin(y[0])


def rk4(t, y, h):
    k1 = pendulum(t, y, None)
    move = lambda k, w: jax.tree.map(lambda y, k: y + w * h * k, y, k)
    k2 = pendulum(t, move(k1, 0.5), None)
    k3 = pendulum(t, move(k2, 0.5), None)
    k4 = pendulum(t, move(k3, 1.0), None)
    mean = lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6
    return move(jax.tree.map(mean, k1, k2, k3, k4), 1.0)


BLOCKS, LENGTH = 100, 1000


def energy_errors(one_step, carry, energy):
    """The largest error of the energy in each of 100 blocks of 1000 steps."""
    first = energy(carry)

    def step(carry, _):
        carry = one_step(carry)
        return carry, jnp.abs(energy(carry) / first - 1)

    def block(carry, _):
        carry, errors = jax.lax.scan(step, carry, length=LENGTH)
        return carry, (jnp.mean(errors), jnp.max(errors))

    run = jax.jit(lambda carry: jax.lax.scan(block, carry, length=BLOCKS)[1])
    return [np.asarray(a) for a in run(carry)]


def growth(means):
    """The slope of the error over the blocks, and its standard error."""
    fit = linregress(np.arange(BLOCKS), means)
    return fit.slope, fit.stderr


@needs_float64
@every_solver
def test_the_energy_does_not_drift_over_a_hundred_thousand_steps(name):
    solver, term = SOLVERS[name][0], dfx.ODETerm(pendulum)
    h = jnp.asarray(0.02 if name == "TaoLeapfrog" else 0.1)
    zero = jnp.zeros_like(h)

    def one_step(carry):
        y, state = carry
        y, _, _, state, _ = solver.step(term, zero, h, y, None, state, True)
        return y, state

    y0 = (jnp.array([1.0]), jnp.array([0.0]))
    carry = (y0, solver.init(term, zero, h, y0, None))
    means, largest = energy_errors(one_step, carry, lambda c: pendulum_energy(c[0]))
    rate, error = growth(means)
    assert 1e-9 < means.mean() < 2e-3
    assert abs(rate) < 4 * error
    assert largest[BLOCKS // 2 :].max() < 1.01 * largest[: BLOCKS // 2].max()


def euler(t, y, h):
    return jax.tree.map(lambda y, k: y + h * k, y, pendulum(t, y, None))


@needs_float64
@pytest.mark.parametrize("method", [euler, rk4])
def test_the_energy_drifts_by_runge_kutta(method):
    y0 = (jnp.array([1.0]), jnp.array([0.0]))
    h = jnp.asarray(0.1)
    means, _ = energy_errors(lambda y: method(0.0, y, h), y0, pendulum_energy)
    rate, error = growth(means)
    assert rate > 10 * error
    assert means[-1] > 10 * means[0]
