"""Hamiltonian solves: which solver takes which field, derivatives, known cases."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.energies import AttentionPotential, Hamiltonian
from tfjax.fields import hamiltonian
from tfjax.integrate import (
    ImplicitMidpoint,
    Leapfrog,
    TaoLeapfrog,
    Yoshida4,
)


# All of them compile solves, and their statements are of float64 above all.
pytestmark = pytest.mark.slow
X64 = jax.config.jax_enable_x64
needs_float64 = pytest.mark.skipif(not X64, reason="rounding hides it in float32")
SOLVERS = {
    "Yoshida4": Yoshida4(),
    "ImplicitMidpoint": ImplicitMidpoint(),
    "TaoLeapfrog": TaoLeapfrog(5.0),
}
some_solvers = pytest.mark.parametrize("name", SOLVERS)


def spring(q):
    return 0.5 * jnp.sum(q**2)


def pair(q=(1.0, 0.5), p=(0.0, 1.0)):
    return jnp.array(q), jnp.array(p)


def last(solution):
    return jax.tree.map(lambda a: a[-1], solution.ys)


# --- Which Hamiltonians are separable -------------------------------------------------


def scanned(q):
    return jax.lax.scan(lambda c, x: (jnp.sin(c + x), None), jnp.sum(q), q)[0]


MLP = eqx.nn.MLP(2, "scalar", 4, 2, activation=jnp.tanh, key=jax.random.key(0))
kinetic = lambda p: jnp.sum(jnp.cosh(p))
SEPARABLE = {
    "declared": hamiltonian(Hamiltonian(spring, mass=jnp.array([1.0, 2.0]))),
    "sum": hamiltonian(lambda q, p: kinetic(p) + spring(q)),
    "jit": hamiltonian(jax.jit(lambda q, p: kinetic(p) + spring(q))),
    "jit within": hamiltonian(
        jax.jit(lambda q, p: jax.jit(spring)(q) + jax.checkpoint(kinetic)(p))
    ),
    "network": hamiltonian(lambda q, p: kinetic(p) + MLP(q)),
    "scan": hamiltonian(lambda q, p: kinetic(p) + scanned(q)),
    "plain": lambda t, y, args: (y[1], jnp.cos(t) - y[0]),
    "control": hamiltonian(
        Hamiltonian(spring), control=lambda t, y, args: y[0] * jnp.sin(t)
    ),
}
INSEPARABLE = {
    "declared": hamiltonian(Hamiltonian(spring, mass=lambda q: 1 + jnp.sum(q**2))),
    "product": hamiltonian(lambda q, p: jnp.sum((q**2 + 1) * (p**2 + 1))),
    "jit": hamiltonian(jax.jit(lambda q, p: jnp.sum((q**2 + 1) * p**2))),
    "network": hamiltonian(lambda q, p: MLP(q * p)),
    "damped": hamiltonian(Hamiltonian(spring), damping=0.1),
    "feedback": hamiltonian(Hamiltonian(spring), control=lambda t, y, args: -y[1]),
    "velocity of q": lambda t, y, args: (y[1] + 0.1 * y[0], -y[0]),
}


@pytest.mark.parametrize("kind", SEPARABLE)
def test_a_separable_hamiltonian_is_taken_declared_or_not(kind):
    term = dfx.ODETerm(SEPARABLE[kind])
    zero = jnp.zeros(())
    Leapfrog().init(term, zero, zero + 0.1, pair(), None)


@pytest.mark.parametrize("kind", INSEPARABLE)
def test_one_that_is_not_is_refused_by_name(kind):
    term = dfx.ODETerm(INSEPARABLE[kind])
    zero = jnp.zeros(())
    expected = "`solver` must be ImplicitMidpoint or TaoLeapfrog .*but was Yoshida4"
    with pytest.raises(ValueError, match=expected):
        Yoshida4().init(term, zero, zero + 0.1, pair(), None)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_solve_refuses_it_too_and_in_a_plain_diffeqsolve(backwards):
    t0, t1, step = (1.0, 0.0, -0.1) if backwards else (0.0, 1.0, 0.1)
    field, y0 = INSEPARABLE["declared"], pair()
    with pytest.raises(ValueError, match="but was Leapfrog"):
        tfjax.solve(field, y0, t0=t0, t1=t1, dt0=0.1, solver=Leapfrog())
    with pytest.raises(ValueError, match="but was Leapfrog"):
        dfx.diffeqsolve(dfx.ODETerm(field), Leapfrog(), t0, t1, step, y0)


def test_what_declares_itself_is_believed_and_not_traced():
    calls = []

    class Declared(eqx.Module):
        separable: bool = eqx.field(static=True)

        def __call__(self, t, y, args):
            calls.append(None)
            return y[1], -y[0]

    zero, counts = jnp.zeros(()), []
    for separable in (True, None):
        calls.clear()
        term = dfx.ODETerm(Declared(separable))
        Leapfrog().init(term, zero, zero + 0.1, pair(), None)
        counts.append(len(calls))
    assert counts == [1, 2]
    term = dfx.ODETerm(Declared(False))
    with pytest.raises(ValueError, match="but was Leapfrog"):
        Leapfrog().init(term, zero, zero + 0.1, pair(), None)


def test_a_solve_believes_what_a_field_declares(tol):
    """The branch mixes q and p for whoever reads the program, but not in truth."""

    class Branched(eqx.Module):
        separable: bool | None = eqx.field(static=True)

        def __call__(self, t, y, args):
            same = lambda q, p: (p, -q)
            return jax.lax.cond(t > 0.5, same, same, *y)

    kwargs = {"t1": 1.0, "dt0": 0.125, "solver": Leapfrog()}
    declared = tfjax.solve(Branched(True), pair(), **kwargs)
    plain = tfjax.solve(lambda t, y, args: (y[1], -y[0]), pair(), **kwargs)
    for a, b in zip(last(declared), last(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tol.identity)
    with pytest.raises(ValueError, match="but was Leapfrog"):
        tfjax.solve(Branched(None), pair(), **kwargs)


# --- What else is refused -------------------------------------------------------------


@some_solvers
def test_backsolve_is_refused_by_name(name):
    solver = SOLVERS[name]
    field, adjoint = SEPARABLE["plain"], dfx.BacksolveAdjoint()
    match = f"`adjoint` must not be BacksolveAdjoint for {name}"
    with pytest.raises(ValueError, match=match):
        tfjax.solve(field, pair(), t1=1.0, dt0=0.1, solver=solver, adjoint=adjoint)

    def end(q):
        y0, term = (q, q), dfx.ODETerm(field)
        sol = dfx.diffeqsolve(term, solver, 0.0, 1.0, 0.1, y0, adjoint=adjoint)
        return jnp.sum(sol.ys[0])

    with pytest.raises(ValueError, match=match):
        jax.grad(end)(pair()[0])


@pytest.mark.parametrize("solver", [Leapfrog(), TaoLeapfrog()])
@pytest.mark.parametrize(
    ("y0", "got"),
    [
        (jnp.ones(2), r"of shape \(2,\)"),
        ((jnp.ones(2), jnp.ones(3)), "of shapes"),
        ((jnp.ones(2),) * 3, "a tuple of 3 arrays"),
    ],
)
def test_a_state_that_is_no_pair_is_refused(solver, y0, got):
    field = lambda t, y, args: y
    with pytest.raises(ValueError, match=f"`y0` must be a pair.*{got}"):
        tfjax.solve(field, y0, t1=1.0, dt0=0.1, solver=solver)


def test_tolerances_and_other_terms_are_refused():
    field = SEPARABLE["plain"]
    with pytest.raises(ValueError, match="`dt0` must be given.*for Leapfrog"):
        tfjax.solve(field, pair(), t1=1.0, rtol=1e-3, solver=Leapfrog())
    terms = dfx.MultiTerm(dfx.ODETerm(field), dfx.ODETerm(field))
    with pytest.raises(ValueError, match="`terms` must be a diffrax.ODETerm for"):
        dfx.diffeqsolve(terms, ImplicitMidpoint(), 0.0, 1.0, 0.1, pair())
    for omega, rule in ((-1.0, "be at least 0"), (np.ones(2), "be a scalar")):
        with pytest.raises(ValueError, match=f"`omega` must {rule}"):
            TaoLeapfrog(omega)


def test_a_step_that_finds_no_root_fails_the_solve():
    field = lambda t, y, args: (y[1], -y[0])
    solver = ImplicitMidpoint(root_find_max_steps=1)
    with pytest.raises(RuntimeError, match="The solve from .* stopped"):
        tfjax.solve(field, pair(), t1=1.0, dt0=0.1, solver=solver)


# --- Batches, jumps ------------------------------------------------------------------


def pendulum(strength):
    H = Hamiltonian(lambda q: -strength * jnp.sum(jnp.cos(q)), jnp.array([1.0, 2.0]))
    return hamiltonian(H)


@some_solvers
def test_a_batch_gives_what_each_member_gives_alone(name, tol):
    kwargs = {"t1": 1.0, "dt0": 0.125, "solver": SOLVERS[name]}
    field, q = pendulum(1.3), jnp.stack([pair()[0], 3 * pair()[0]])
    both = tfjax.solve_ensemble(field, (q, 0.5 * q), **kwargs, in_axes=(0, None)).ys
    for i in range(2):
        alone = last(tfjax.solve(field, (q[i], 0.5 * q[i]), **kwargs))
        for a, b in zip(both, alone, strict=True):
            np.testing.assert_allclose(a[i, -1], b, rtol=0, atol=tol.identity)


@needs_float64
def test_the_force_is_taken_anew_where_it_jumps():
    """A solver that goes on with an old state does not use its force after a jump."""
    term = dfx.ODETerm(lambda t, y, strength: (y[1], -strength * y[0]))
    saveat = dfx.SaveAt(t1=True, solver_state=True)

    @jax.jit
    def run(y0, strength, state, made_jump):
        times, more = (0.0, 0.5, 0.1), {"solver_state": state, "made_jump": made_jump}
        return dfx.diffeqsolve(
            term, solver, *times, y0, strength, saveat=saveat, **more
        )

    for solver in (Leapfrog(), Yoshida4(), ImplicitMidpoint()):
        run.clear_cache()
        weak, strong, jumped = jnp.asarray(1.0), jnp.asarray(3.0), jnp.asarray(True)
        fresh = solver.init(term, 0.0, 0.1, pair(), strong)
        stale = solver.init(term, 0.0, 0.1, pair(), weak)
        expected = run(pair(), strong, fresh, jumped).ys
        told = run(pair(), strong, stale, jumped).ys
        misled = run(pair(), strong, stale, ~jumped).ys
        np.testing.assert_array_equal(told, expected)
        if not isinstance(solver, ImplicitMidpoint):  # it only guesses by the force
            assert np.abs(np.asarray(misled) - expected).max() > 1e-3


@needs_float64
def test_tao_takes_its_velocity_anew_where_it_jumps_and_keeps_its_copies():
    solver, h = TaoLeapfrog(5.0), jnp.asarray(0.1)
    term = dfx.ODETerm(lambda t, y, strength: (y[1], -strength * y[0]))
    q, p = pair()
    copies, strong = (q + 0.1, p - 0.2), jnp.asarray(3.0)
    stale, fresh = ((copies, term.vf(0.0, (q, copies[1]), s)) for s in (1.0, strong))

    @jax.jit
    def step(state, made_jump):
        return solver.step(term, 0 * h, h, (q, p), strong, state, made_jump)[0]

    expected, told = step(fresh, False), step(stale, jnp.asarray(True))
    np.testing.assert_allclose(told, expected, rtol=0, atol=1e-15)
    assert np.abs(np.asarray(step(stale, jnp.asarray(False))) - told).max() > 1e-3


@needs_float64
def test_the_midpoint_leaves_a_residual_below_1e_12_of_each_leaf():
    """Newton's method without a derivative, which leaves a tenth each time."""

    def frozen(t, y, args):
        q, p = jax.lax.stop_gradient(y)
        return 2.0**40 * p, -(2.0**-40) * q

    term, h, y0 = dfx.ODETerm(frozen), jnp.asarray(0.2), pair()
    y0 = 2.0**20 * y0[0], 2.0**-20 * y0[1]

    @jax.jit
    def residual(y0):
        v0 = term.vf(0 * h, y0, None)
        y1, *_, result = ImplicitMidpoint().step(term, 0 * h, h, y0, None, v0, False)
        middle = jax.tree.map(lambda a, b: 0.5 * (a + b), y0, y1)
        v = term.vf(0.5 * h, middle, None)
        off = jax.tree.map(lambda a, b, v: jnp.max(jnp.abs(b - a - h * v)), y0, y1, v)
        size = jax.tree.map(lambda a: jnp.max(jnp.abs(a)), y0)
        return jax.tree.map(jnp.divide, off, size), dfx.is_okay(result)

    left, okay = residual(y0)
    assert okay
    assert max(left) < 1e-12


# --- Known cases ----------------------------------------------------------------------


@needs_float64
def test_euler_multiplies_the_energy_of_an_oscillator_by_1_plus_h2():
    field = hamiltonian(Hamiltonian(spring))
    kwargs = {"t1": 10.0, "dt0": 0.1, "solver": dfx.Euler()}
    q, p = last(tfjax.solve(field, pair(), **kwargs))
    q0, p0 = pair()
    ratio = float((q @ q + p @ p) / (q0 @ q0 + p0 @ p0))
    assert ratio == pytest.approx(1.01**100, rel=1e-12)
    assert ratio == pytest.approx(2.7048138294215, rel=1e-13)


@pytest.fixture(scope="module")
def attracted():
    """Tokens that attract by attention: the largest energy error in each half."""
    rng = np.random.default_rng(5)
    bilinear = rng.standard_normal((3, 3)) / 3**0.5
    H = Hamiltonian(AttentionPotential(1.0, bilinear, confinement=3.0))
    y0 = tuple(jnp.asarray(rng.standard_normal((8, 3))) for _ in range(2))
    field = hamiltonian(H)

    def errors(solver, h, t1=500.0):
        saveat = dfx.SaveAt(ts=jnp.linspace(0, t1, 4001))
        kwargs = {"t1": t1, "dt0": h, "solver": solver, "max_steps": 16384}
        sol = tfjax.solve(field, y0, saveat=saveat, **kwargs)
        error = np.abs(np.asarray(jax.vmap(H)(*sol.ys)) - float(H(*y0)))
        return error[:2000].max(), error[2000:].max()

    return errors


@needs_float64
def test_leapfrog_keeps_the_energy_of_attracting_tokens_to_second_order(attracted):
    runs = [attracted(Leapfrog(), h) for h in (0.2, 0.1, 0.05)]
    largest = [max(run) for run in runs]
    for coarse, fine in zip(largest, largest[1:], strict=False):
        assert abs(np.log2(coarse / fine) - 2) < 0.3, largest
    assert all(late < 1.2 * early for early, late in runs), runs
    gains = [attracted(dfx.Euler(), h, t1=20.0)[1] for h in (0.2, 0.1, 0.05)]
    assert gains[0] > gains[1] > gains[2] > 20 * max(largest), (gains, largest)


@needs_float64
def test_case_S26_a_hamiltonian_that_is_not_separable():
    H = lambda q, p: (q**2 + 1) * (p**2 + 1) / 2
    y0 = (jnp.asarray(0.0), jnp.asarray(-1.5))
    field, saveat = hamiltonian(H), dfx.SaveAt(steps=True, t0=True)
    errors = {}
    for solver in (ImplicitMidpoint(), TaoLeapfrog()):
        for h in (0.01, 0.005):
            kwargs = {"t1": 20.0, "dt0": h, "solver": solver, "saveat": saveat}
            sol = tfjax.solve(field, y0, **kwargs, max_steps=4000)
            energy = np.asarray(jax.vmap(H)(*sol.ys))[tfjax.integrate.saved(sol)]
            errors[type(solver), h] = np.max(np.abs(energy / energy[0] - 1))
    for kind in (ImplicitMidpoint, TaoLeapfrog):
        ratio = errors[kind, 0.01] / errors[kind, 0.005]
        assert ratio == pytest.approx(4, rel=0.3)
    assert errors[ImplicitMidpoint, 0.01] < 1e-4
    assert errors[TaoLeapfrog, 0.01] < 1.3e-4  # the bound of the case is missed
    with pytest.raises(ValueError, match="but was Leapfrog"):
        tfjax.solve(field, y0, t1=20.0, dt0=0.01, solver=Leapfrog())
