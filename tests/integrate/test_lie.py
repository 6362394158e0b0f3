"""Solvers that act by groups: order, what they keep to rounding, what they refuse."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tfjax
from tfjax.fields import double_bracket, lie_bracket, toda
from tfjax.geometry import SpecialOrthogonal, Sphere
from tfjax.integrate import RKMK4, Isospectral, LieEuler, LieMidpoint


X64 = jax.config.jax_enable_x64
needs_float64 = pytest.mark.skipif(not X64, reason="rounding hides it in float32")
# Solver, order, and steps from 0 to 1.
SOLVERS = {
    "LieEuler": (LieEuler(), 1, (2048, 4096, 8192)),
    "LieMidpoint": (LieMidpoint(), 2, (64, 128, 256)),
    "RKMK4": (RKMK4(), 4, (16, 32, 64)),
    "Isospectral": (Isospectral(), 2, (128, 256, 512)),
}
ROTATING = ("LieEuler", "LieMidpoint", "RKMK4")
every_solver = pytest.mark.parametrize("name", SOLVERS)


def random(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape))


M, N = random(3, 3, seed=1), random(3, 3, seed=2)
SYMMETRIC = M + M.T
TURN = 0.5 * (N - N.T)


def ambient(t, y, rate):
    """A field with parts along the rotations and across, which changes in time."""
    return rate * (jnp.cos(2 * t + 0.5) * M @ y @ N + y @ SYMMETRIC)


def spun(t, L, rate):
    """The generator of a pair that neither ends nor repeats itself."""
    return rate * (jnp.cos(2 * t + 0.5) * TURN + 0.3 * (M @ L - L @ M.T) @ TURN)


class Pair:
    """A field of one's own that names its generator, which changes in time."""

    def generator(self, t, L, args):
        B = spun(t, L, args)
        return 0.5 * (B - B.T)

    def __call__(self, t, L, args):
        B = self.generator(t, L, args)
        return B @ L - L @ B


PAIR = Pair()
ROTATION = SpecialOrthogonal(3).random(jax.random.key(0))
RATE = jnp.asarray(0.8)


def problem(name):
    """The field and the first state."""
    return (PAIR, SYMMETRIC) if name == "Isospectral" else (ambient, ROTATION)


def solved(name, *, t1=1.0, rate=RATE, field=None, y0=None, **kwargs):
    own_field, own_y0 = problem(name)
    field, y0 = own_field if field is None else field, own_y0 if y0 is None else y0
    kwargs = {"solver": SOLVERS[name][0], "max_steps": 16384} | kwargs
    return tfjax.solve(field, y0, rate, t1=t1, **kwargs)


TIMES = jnp.linspace(0.013, 0.987, 11)


@functools.cache
def exact(name):
    """By a method of high order: the end, and times between."""
    manifold = None if name == "Isospectral" else SpecialOrthogonal(3)
    ys = solved(
        name,
        ts=jnp.append(TIMES, 1.0),
        solver=dfx.Dopri8(),
        manifold=manifold,
        rtol=1e-13,
        atol=1e-13,
    ).ys
    return np.asarray(ys)


@functools.cache
def run(name, steps):
    return np.asarray(solved(name, ts=jnp.append(TIMES, 1.0), dt0=1 / steps).ys)


def gap(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def slope(counts, errors):
    assert all(1e-11 <= error <= 1e-3 for error in errors), errors
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


def eigenvalues(L):
    return np.linalg.eigvalsh(np.asarray(L))


def skewness(y):
    """How far matrices are from being orthogonal."""
    y = np.asarray(y)
    return gap(
        np.swapaxes(y, -1, -2) @ y, np.broadcast_to(np.eye(y.shape[-1]), y.shape)
    )


# --- Order ----------------------------------------------------------------------------


@needs_float64
@every_solver
def test_the_order_is_that_of_the_method_between_steps_too(name):
    _, order, counts = SOLVERS[name]
    runs = [run(name, n) for n in counts]
    ends = [gap(ys[-1], exact(name)[-1]) for ys in runs]
    assert abs(slope(counts, ends) - order) < 0.2, ends
    middles = [gap(ys[:-1], exact(name)[:-1]) for ys in runs]
    assert abs(slope(counts, middles) - order) < 0.2, middles


@needs_float64
def test_rotations_of_higher_dimension_have_the_order_too():
    """Where the exponential is not the closed form; a stack of two rotations."""
    y0 = SpecialOrthogonal(4).random(jax.random.key(1), (2,))
    A, S = random(4, 4, seed=3), random(4, 4, seed=4)
    field = lambda t, y, args: args * (A @ y @ S + jnp.cos(t) * y @ S)
    kwargs = {"field": field, "y0": y0, "rate": jnp.asarray(0.2)}
    runs = [solved("RKMK4", dt0=1 / n, **kwargs).ys[-1] for n in (8, 16, 32)]
    first, second = gap(runs[0], runs[1]), gap(runs[1], runs[2])
    assert abs(np.log2(first / second) - 4) < 0.4
    assert second < 1e-4
    assert skewness(runs[-1]) < 1e-13


@needs_float64
@pytest.mark.parametrize("name", ["RKMK4", "Isospectral"])
def test_going_back_in_time_runs_the_same_clock(name):
    """The field depends on time: from the exact end the start is met by the order."""
    end = jnp.asarray(exact(name)[-1])
    errors = [
        gap(solved(name, y0=end, t0=1.0, t1=0.0, dt0=1 / n).ys[-1], problem(name)[1])
        for n in SOLVERS[name][2][:2]
    ]
    assert abs(np.log2(errors[0] / errors[1]) - SOLVERS[name][1]) < 0.3, errors


@functools.cache
def one_step(name):
    """A step as a function of h: the state and the rate in time at both its ends."""
    solver, (field, y0) = SOLVERS[name][0], problem(name)
    term = dfx.ODETerm(field)

    @jax.jit
    def ends(h):
        t0, t1 = 0 * h, h
        state = solver.init(term, t0, t1, y0, RATE)
        y1, _, info, _, _ = solver.step(term, t0, t1, y0, RATE, state, False)
        path = solver.interpolation_cls(t0=t0, t1=t1, **info)
        points = ((t0, y0), (t1, y1))
        return [(path.derivative(t), y, field(t, y, RATE)) for t, y in points]

    return ends


def tangential(y, v):
    a = np.asarray(y.T @ v)
    return np.asarray(y) @ (0.5 * (a - a.T))


@needs_float64
def test_the_dense_output_of_isospectral_leaves_along_the_field():
    (rate, _, velocity), _ = one_step("Isospectral")(jnp.asarray(0.1))
    np.testing.assert_allclose(rate, velocity, rtol=0, atol=1e-12)


@needs_float64
def test_the_dense_output_of_rkmk4_leaves_and_arrives_along_the_field():
    """It arrives to order 5 in h: to order 3 without the second commutator."""
    arrived = []
    for h in (0.05, 0.025, 0.0125):
        leaves, arrives = one_step("RKMK4")(jnp.asarray(h))
        assert gap(leaves[0], tangential(*leaves[1:])) < 1e-13
        arrived.append(gap(arrives[0], tangential(*arrives[1:])))
    for coarse, fine in zip(arrived, arrived[1:], strict=False):
        assert abs(np.log2(coarse / fine) - 5) < 0.3, arrived


@needs_float64
def test_rkmk4_takes_its_velocity_anew_where_it_jumps():
    term, h = dfx.ODETerm(ambient), jnp.asarray(0.1)
    fresh, stale = (term.vf(0 * h, ROTATION, s * RATE) for s in (1, 2))

    @jax.jit
    def step(state, made_jump):
        return RKMK4().step(term, 0 * h, h, ROTATION, RATE, state, made_jump)[0]

    expected, told = step(fresh, False), step(stale, jnp.asarray(True))
    assert gap(told, expected) < 1e-15
    assert gap(step(stale, jnp.asarray(False)), told) > 1e-3


# --- What is kept ---------------------------------------------------------------------


@needs_float64
@pytest.mark.parametrize("name", ROTATING)
def test_rotations_stay_so_over_ten_thousand_steps_and_between(name):
    # The program is that of the order, whose times lie between the steps.
    ts = jnp.append(1000 * TIMES, 1000.0)
    ys = solved(name, t1=1000.0, ts=ts, dt0=0.1).ys
    assert skewness(ys) < 3e-15  # without a polish it grows to 2e-14
    assert gap(np.linalg.det(ys), 1.0) < 1e-13
    assert gap(ys[-1], ROTATION) > 0.1


@needs_float64
def test_eigenvalues_stay_over_ten_thousand_steps_and_between():
    ts = jnp.append(1000 * TIMES, 1000.0)
    ys = solved("Isospectral", t1=1000.0, ts=ts, dt0=0.1).ys
    assert gap(ys[-1], ys[-2]) > 0.1  # it still moves
    assert gap(eigenvalues(ys), eigenvalues(SYMMETRIC)) < 1e-12


@needs_float64
@pytest.mark.parametrize("kind", ["turning", "batch", "sheared"])
def test_eigenvalues_stay_where_the_generator_never_changes(kind):
    """The same rounding in ten thousand steps; a generator that is not skew too."""
    W = N if kind == "sheared" else TURN
    y0 = SYMMETRIC if kind != "batch" else jnp.stack([SYMMETRIC, M + 5 * jnp.eye(3)])
    steps = 1000 if kind == "sheared" else 10_000
    kwargs = {"field": lie_bracket(W), "t1": 0.001 * steps, "dt0": 0.001}
    end = np.asarray(solved("Isospectral", y0=y0, **kwargs).ys[-1])
    assert gap(end, y0) > 0.1
    sort = lambda L: np.sort_complex(np.linalg.eigvals(np.asarray(L)))
    assert gap(sort(end), sort(y0)) < 2e-13


@needs_float64
def test_a_runge_kutta_method_does_not_keep_eigenvalues():
    """Heun's drift by h = 1/20 and 1/40, where ours is rounding."""
    drift = lambda L: gap(eigenvalues(L), eigenvalues(SYMMETRIC))
    errors = []
    for n in (20, 40):
        heun = drift(solved("Isospectral", solver=dfx.Heun(), dt0=1 / n).ys[-1])
        assert heun > 1e-5
        assert drift(run("Isospectral", n)) < 1e-13
        errors.append(gap(run("Isospectral", n)[-1], exact("Isospectral")[-1]))
    assert 3.5 < errors[0] / errors[1] < 4.5


@needs_float64
def test_a_constant_generator_is_met_exactly_whatever_the_matrix():
    W = random(3, 3, seed=5)
    end = solved("Isospectral", field=lie_bracket(W), y0=M, dt0=0.25).ys[-1]
    expected = scipy.linalg.expm(-W) @ M @ scipy.linalg.expm(W)
    assert gap(end, expected) < 1e-12 * np.abs(expected).max()
    assert abs(np.linalg.norm(end) / np.linalg.norm(M) - 1) > 0.1


@needs_float64
def test_the_double_bracket_sorts_the_eigenvalues_to_rounding():
    sort = double_bracket(jnp.diag(jnp.array([2.0, 3.0, 1.0])))
    kwargs = {"y0": SYMMETRIC, "t1": 40.0, "dt0": 0.05}
    end = solved("Isospectral", field=sort, **kwargs).ys[-1]
    assert gap(end, np.diag(eigenvalues(SYMMETRIC)[np.array([1, 2, 0])])) < 1e-11


# --- Use ------------------------------------------------------------------------------


@every_solver
def test_a_plain_diffeqsolve_gives_the_same_between_steps_too(name, tol):
    field, y0 = problem(name)
    steps = SOLVERS[name][2][0]
    plain = dfx.diffeqsolve(
        dfx.ODETerm(field),
        SOLVERS[name][0],
        0.0,
        1.0,
        1 / steps,
        y0,
        RATE,
        saveat=dfx.SaveAt(ts=jnp.append(TIMES, 1.0)),
    )
    # The clocks of long solves differ by the rounding of their times.
    assert gap(plain.ys, run(name, steps)) <= 5 * tol.identity * steps**0.5
    assert plain.ys.dtype == y0.dtype


def test_a_manifold_projects_the_first_state_and_changes_no_rotation(tol):
    ts = jnp.append(TIMES, 1.0)
    options = {"solver": RKMK4(SpecialOrthogonal(3)), "ts": ts, "dt0": 1 / 16}
    ys = solved("RKMK4", y0=2 * ROTATION, manifold=SpecialOrthogonal(3), **options).ys
    assert gap(ys, run("RKMK4", 16)) < 20 * tol.identity


# --- Refusals -------------------------------------------------------------------------

REFUSED = {
    "no generator": (
        {"name": "Isospectral", "field": ambient},
        "`field` must have a `generator` for Isospectral, as lie_bracket without a "
        r"force, double_bracket, toda and fields.lax_pair\(B\) have, but was one",
    ),
    "a force": (
        {"name": "Isospectral", "field": lie_bracket(M, lambda H, args: H)},
        "`field` must have a `generator`",
    ),
    "not square": (
        {"name": "Isospectral", "field": toda, "y0": jnp.ones((3, 2))},
        r"`y0` must have shape \(..., d, d\) for Isospectral, but was of shape",
    ),
    "isospectral on a manifold": (
        {"name": "Isospectral", "manifold": SpecialOrthogonal(3)},
        "`manifold` must be None for Isospectral",
    ),
    "no rotation": (
        {"name": "RKMK4", "y0": 2 * jnp.eye(3)},
        "`y0` must be an array of rotations.* but was off by 3 in",
    ),
    "reflection": (
        {"name": "RKMK4", "y0": jnp.diag(jnp.array([1.0, 1.0, -1.0]))},
        "`y0` must be an array of rotations.* but was of determinant -1",
    ),
    "no matrix": (
        {"name": "LieEuler", "y0": jnp.ones(3)},
        r"`y0` must be an array of rotations, of shape \(..., d, d\), for LieEuler",
    ),
    "other size": (
        {"name": "LieMidpoint", "solver": LieMidpoint(SpecialOrthogonal(4))},
        r"of shape \(..., 4, 4\), for LieMidpoint, but was of shape \(3, 3\)",
    ),
    "other manifold": (
        {"name": "RKMK4", "manifold": Sphere(3)},
        "`manifold` must be a SpecialOrthogonal or None for RKMK4",
    ),
    "backsolve": (
        {"name": "LieEuler", "adjoint": dfx.BacksolveAdjoint()},
        "`adjoint` must not be BacksolveAdjoint for LieEuler",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name(case, unchecked):
    kwargs, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        solved(**{"dt0": 0.125} | kwargs)


@pytest.mark.parametrize("solver", [LieEuler, LieMidpoint, RKMK4])
def test_a_solver_of_rotations_takes_no_other_manifold(solver, unchecked):
    text = f"`manifold` must be a SpecialOrthogonal or None for {solver.__name__}"
    with pytest.raises(ValueError, match=text):
        solver(Sphere(3))


def test_a_plain_diffeqsolve_refuses_too():
    term = dfx.ODETerm(ambient)
    with pytest.raises(ValueError, match="`field` must have a `generator`"):
        dfx.diffeqsolve(term, Isospectral(), 0.0, 1.0, 0.1, SYMMETRIC, RATE)


@needs_float64
def test_no_member_of_a_batch_depends_on_its_neighbours():
    y0 = jnp.stack([ROTATION, 1.1 * ROTATION, jnp.nan * ROTATION])
    kwargs = {"t1": 1.0, "dt0": 1 / 16, "ts": jnp.append(TIMES, 1.0)}
    sol = tfjax.solve_ensemble(ambient, y0, RATE, solver=RKMK4(), **kwargs)
    assert np.asarray(dfx.is_okay(sol.result)).tolist() == [True, False, False]
    assert gap(sol.ys[0], run("RKMK4", 16)) < 1e-14


def test_rotations_in_float32_may_be_widened_by_a_plain_diffeqsolve():
    """diffrax takes the dtype of its times, which are float64 where that is on."""
    y0 = ROTATION.astype(jnp.float32)
    term = dfx.ODETerm(lambda t, y, args: y @ TURN.astype(y.dtype))
    sol = dfx.diffeqsolve(term, LieEuler(), 0.0, 1.0, 0.125, y0)
    assert dfx.is_okay(sol.result)
    assert skewness(sol.ys) < 1e-6


def test_a_state_that_is_no_rotation_does_not_succeed_unseen():
    flipped = ROTATION * jnp.array([[1.0, 1.0, -1.0]])
    sol = solved("LieEuler", y0=flipped, dt0=0.125, throw=False)
    assert sol.result == dfx.RESULTS.nonfinite
    sol = solved("LieEuler", y0=1.1 * ROTATION, dt0=0.125, throw=False)
    assert sol.result == dfx.RESULTS.nonfinite
    good = solved("LieEuler", dt0=0.125, throw=False)
    assert dfx.is_okay(good.result)
