"""`Geodesic`: orders on every manifold, what stays on it, what is met in one step."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import (
    Product,
    SpecialOrthogonal,
    Sphere,
    SymmetricPositiveDefinite,
    Torus,
    rotation_exp,
)
from tfjax.integrate import Geodesic, Projected, steady_state
from tfjax.integrate._on_manifold import PresentRows


X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
# Most of them compile a solve, and few of their statements are of float32.
pytestmark = pytest.mark.slow
needs_float64 = pytest.mark.skipif(not X64, reason="rounding hides it in float32")
SPHERE, ROTATIONS, COVARIANCES = (
    Sphere(3),
    SpecialOrthogonal(3),
    (SymmetricPositiveDefinite(2)),
)
MIXED = Product(SPHERE, Torus(2), COVARIANCES)


def random(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape).astype(DTYPE))


def skew(a):
    return 0.5 * (a - a.T)


# Velocities whose solutions have closed forms and do not follow geodesics, in a time
# that a clock tells; `rate` scales it.
TURN, TILT = skew(random(3, 3, seed=1)), skew(random(3, 3, seed=2))
FLOW = 0.3 * random(2, 2, seed=3)
OMEGA = np.array([1.3, -2.5], DTYPE)


def clock(t, rate, xp=jnp):
    """The time that is told, and its speed."""
    return rate * (t + 0.3 * xp.sin(2 * t)), rate * (1 + 0.6 * xp.cos(2 * t))


def top(t, x, rate):
    """Euler's top, x' = x cross (1, 2, 3) x; its normal part must not matter."""
    spun = jnp.cross(
        x, jnp.broadcast_to(jnp.arange(1.0, 4.0, dtype=x.dtype), x.shape) * x
    )
    return clock(t, rate)[1] * spun + 3 * x


def matrices(t, y, rate):
    """y = e^{a TURN} e^{a TILT} y0."""
    a, speed = clock(t, rate)
    e = rotation_exp(a * TURN)
    return speed * (TURN + e @ TILT @ e.T) @ y + y


def congruent(t, y, rate):
    """y = e^{a FLOW} y0 e^{a FLOW^T}."""
    moved = clock(t, rate)[1] * FLOW @ y
    return moved + moved.T


def oscillators(t, theta, rate):
    return rate * (OMEGA - jnp.sin(theta))


def mixed(t, y, rate):
    blocks = top(t, y[:3], rate), oscillators(t, y[3:5], rate)
    return jnp.concatenate([*blocks, congruent(t, y[5:].reshape(2, 2), rate).ravel()])


def exact_top(t, x, rate):
    """Jacobi's functions, from x = (a, 0, c) with a > c."""
    a, _, c = np.moveaxis(np.asarray(x, float), -1, 0)
    sn, cn, dn, _ = scipy.special.ellipj(
        2**0.5 * a * clock(t, rate, np)[0], (c / a) ** 2
    )
    return np.stack([a * dn, -(2**0.5) * c * sn, c * cn], axis=-1)


def exact_matrices(t, y, rate):
    a, expm = clock(t, rate, np)[0], scipy.linalg.expm
    return expm(a * np.asarray(TURN, float)) @ expm(a * np.asarray(TILT, float)) @ y


def exact_congruent(t, y, rate):
    e = scipy.linalg.expm(clock(t, rate, np)[0] * np.asarray(FLOW, float))
    return e @ np.asarray(y, float) @ e.T


def exact_oscillators(t, theta, rate):
    """tan(theta / 2) moves on a Moebius circle."""
    root = np.sqrt(OMEGA.astype(float) ** 2 - 1)
    phase = np.arctan((OMEGA * np.tan(np.asarray(theta, float) / 2) - 1) / root)
    return 2 * np.arctan((1 + root * np.tan(rate * t * root / 2 + phase)) / OMEGA)


def exact_mixed(t, y, rate):
    y = np.asarray(y, float)
    return np.concatenate(
        [
            exact_top(t, y[:3], rate),
            exact_oscillators(t, y[3:5], rate),
            exact_congruent(t, y[5:].reshape(2, 2), rate).ravel(),
        ]
    )


ANGLES = np.array([0.2, 0.4, 0.6])
STARTS = jnp.asarray(
    np.stack([np.cos(ANGLES), 0 * ANGLES, np.sin(ANGLES)], axis=1).astype(DTYPE)
)
PROBLEMS = {
    "sphere": (top, exact_top, SPHERE, STARTS),
    "rotations": (
        matrices,
        exact_matrices,
        ROTATIONS,
        ROTATIONS.random(jax.random.key(1)),
    ),
    "covariances": (
        congruent,
        exact_congruent,
        COVARIANCES,
        jnp.asarray(np.array([[1.5, 0.4], [0.4, 0.7]], DTYPE)),
    ),
    "mixed": (
        mixed,
        exact_mixed,
        MIXED,
        jnp.asarray(np.array([0.8, 0.0, 0.6, 3.0, -3.1, 1.5, 0.4, 0.4, 0.7], DTYPE)),
    ),
}
# Problem, solver, order, steps, and the rate. Tsit5 is tuned to have a tiny principal
# error: it looks like order 6 until the steps are short, hence the long run.
RATE = 1.5
ORDERS = {
    "Euler": ("sphere", dfx.Euler(), 1, (2048, 4096, 8192), RATE),
    "Heun": ("sphere", dfx.Heun(), 2, (128, 256, 512), RATE),
    "Bosh3": ("sphere", dfx.Bosh3(), 3, (64, 128, 256), RATE),
    "Tsit5": ("sphere", dfx.Tsit5(), 5, (1600, 2000, 2400), 60.0),
    "Bosh3, rotations": ("rotations", dfx.Bosh3(), 3, (64, 128, 256), RATE),
    "Tsit5, covariances": ("covariances", dfx.Tsit5(), 5, (16, 24, 32), RATE),
    "Heun, product": ("mixed", dfx.Heun(), 2, (128, 256, 512), RATE),
}
# Most lie within a step.
TIMES = np.sort(np.random.default_rng(4).uniform(0.0, 1.0, 60)).astype(DTYPE)
TS = jnp.append(TIMES, 1.0)


def solved(name, *, rate=RATE, t1=1.0, **kwargs):
    problem, solver, *_ = ORDERS[name]
    field, _, manifold, y0 = PROBLEMS[problem]
    kwargs = {"y0": y0, "solver": Geodesic(solver, manifold), "ts": t1 * TS} | kwargs
    kwargs = {"max_steps": 16384} | kwargs
    rate = jnp.asarray(rate, DTYPE)
    return tfjax.solve(kwargs.pop("field", field), args=rate, t1=t1, **kwargs)


@functools.cache
def run(name, steps):
    return np.asarray(solved(name, rate=ORDERS[name][-1], dt0=1 / steps).ys)


def gap(a, b):
    return float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float))))


def rms(a, b):
    return float(np.sqrt(np.mean((a - b) ** 2)))


def slope(counts, errors):
    assert all(1e-11 <= error <= 1e-3 for error in errors), errors
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


def off_sphere(x):
    return np.max(np.abs(np.linalg.norm(np.asarray(x, np.float64), axis=-1) - 1))


# --- Order ----------------------------------------------------------------------------


@needs_float64
@pytest.mark.parametrize("name", ORDERS)
def test_the_order_is_that_of_the_wrapped_solver_between_steps_too(name):
    problem, _, order, counts, rate = ORDERS[name]
    _, exact, _, y0 = PROBLEMS[problem]
    expected = np.stack([exact(float(t), y0, rate) for t in TS])
    runs = [run(name, n) for n in counts]
    ends = [rms(ys[-1], expected[-1]) for ys in runs]
    assert abs(slope(counts, ends) - order) < 0.2, ends
    middles = [rms(ys[:-1], expected[:-1]) for ys in runs]
    assert abs(slope(counts, middles) - order) < 0.2, middles


@needs_float64
def test_going_back_in_time_runs_the_same_clock():
    """The field depends on time: from the exact end the start is met by the order."""
    end, times = jnp.asarray(exact_top(1.0, STARTS, RATE)), TS[::-1]
    back = {"y0": end, "t0": 1.0, "t1": 0.0, "ts": times}
    errors = [
        gap(
            solved("Bosh3", dt0=1 / n, **back).ys[-1],
            exact_top(float(times[-1]), STARTS, RATE),
        )
        for n in (64, 128)
    ]
    assert abs(np.log2(errors[0] / errors[1]) - 3) < 0.3, errors


GEODESICS = {
    # In the plane that the rotation turns, y' = (y0 -> J y0) follows a great circle.
    "sphere": (
        SPHERE,
        lambda t, x, args: args * jnp.stack([-x[1], x[0], 5 * x[2]]),
        np.array([0.6, 0.8, 0.0]),
        lambda y, s: (
            scipy.linalg.expm(s * np.array([[0, -1.0, 0], [1, 0, 0], [0] * 3])) @ y
        ),
    ),
    "rotations": (
        ROTATIONS,
        lambda t, y, args: args * y @ TURN,
        np.eye(3)[[1, 2, 0]],
        lambda y, s: y @ scipy.linalg.expm(s * np.asarray(TURN, float)),
    ),
    "covariances": (
        COVARIANCES,
        lambda t, y, args: args * y @ np.array([[0.2, 0.4], [0.1, -0.3]], DTYPE),
        np.array([[2.0, 0.0], [0.0, 8.0]]),  # with it, the velocity is symmetric
        lambda y, s: y @ scipy.linalg.expm(s * np.array([[0.2, 0.4], [0.1, -0.3]])),
    ),
}


@pytest.mark.parametrize("name", GEODESICS)
def test_a_geodesic_is_met_in_one_step_of_euler_and_so_is_its_middle(name, tol):
    manifold, field, y0, exact = GEODESICS[name]
    ys = tfjax.solve(
        field,
        y0.astype(DTYPE),
        jnp.asarray(1.3, DTYPE),
        t1=1.0,
        dt0=1.0,
        ts=jnp.array([0.5, 1.0]),
        solver=Geodesic(dfx.Euler(), manifold),
    ).ys
    expected = [exact(y0, 0.65), exact(y0, 1.3)]
    assert gap(expected[1], y0) > 0.3
    np.testing.assert_allclose(ys, expected, rtol=0, atol=20 * tol.identity)


# --- What is kept ---------------------------------------------------------------------


def test_ten_thousand_steps_and_what_lies_between_stay_on_the_sphere():
    sol = solved("Heun", t1=100.0, dt0=0.01)
    assert gap(sol.ys[-1], sol.ys[-2]) > 1e-3  # it still moves
    assert off_sphere(sol.ys) < 2 * np.finfo(DTYPE).eps


@needs_float64
def test_rotations_stay_so_over_ten_thousand_steps_and_between():
    ys = np.asarray(solved("Bosh3, rotations", t1=100.0, dt0=0.01).ys)
    products = np.swapaxes(ys, -1, -2) @ ys
    assert gap(products, np.broadcast_to(np.eye(3), products.shape)) < 3e-15


def test_the_field_is_never_evaluated_off_the_manifold():
    """The stages of a projected solver are; these are not, on any manifold."""
    far = []

    def watched(t, y, args):
        jax.debug.callback(lambda x: far.append(off_sphere(x)), y)
        return top(t, y, args)

    for solver in (Geodesic(dfx.Tsit5(), SPHERE), Projected(dfx.Tsit5(), SPHERE)):
        term, rate = dfx.ODETerm(watched), jnp.asarray(RATE, DTYPE)
        dfx.diffeqsolve(term, solver, 0.0, 1.0, jnp.asarray(0.25, DTYPE), STARTS, rate)
        jax.effects_barrier()
        if type(solver) is Geodesic:
            assert len(far) >= 4 * 7
            assert max(far) < 4 * np.finfo(DTYPE).eps
    assert max(far) > 1e-4


# --- Use ------------------------------------------------------------------------------

X0 = SPHERE.random(jax.random.key(5), (8,))
ATTENTION = AttentionParams(beta=4.0)


@functools.cache
def attention(kind):
    """Adaptive steps, by which a token of attention comes to the same place."""
    return tfjax.solve(
        self_attention,
        X0,
        ATTENTION,
        t1=5.0,
        rtol=1e-8 if X64 else 1e-5,
        atol=1e-8 if X64 else 1e-5,
        saveat=dfx.SaveAt(ts=5 * TS, dense=True),
        solver=kind(dfx.Tsit5(), SPHERE),
        manifold=SPHERE if kind is Projected else None,
    )


def test_adaptive_steps_have_the_limit_of_a_projected_solver_in_about_as_many():
    ours, theirs = attention(Geodesic), attention(Projected)
    assert gap(ours.ys, theirs.ys) < (1e-6 if X64 else 1e-3)
    counts = [int(sol.stats["num_accepted_steps"]) for sol in (ours, theirs)]
    assert abs(counts[0] / counts[1] - 1) < 0.15, counts


def test_dense_output_is_that_of_saved_times_and_lies_on_the_sphere(tol):
    sol = attention(Geodesic)
    found = jax.vmap(sol.evaluate)(sol.ts)
    assert gap(found, sol.ys) < 5 * tol.identity
    assert off_sphere(found) < 2 * np.finfo(DTYPE).eps
    t = jnp.asarray(1.234, DTYPE)
    inner = jnp.sum(sol.evaluate(t) * sol.derivative(t), axis=-1)
    assert gap(inner, 0) < 5 * tol.identity


def test_a_plain_diffeqsolve_gives_the_same_with_every_kind_of_record(tol):
    field, _, manifold, y0 = PROBLEMS["mixed"]
    plain = dfx.diffeqsolve(
        dfx.ODETerm(field),
        Geodesic(dfx.Heun(), manifold),
        0.0,
        1.0,
        jnp.asarray(1 / 128, DTYPE),
        y0,
        jnp.asarray(RATE, DTYPE),
        saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=TS), dfx.SubSaveAt(steps=True)]),
        stepsize_controller=dfx.ConstantStepSize(),
        max_steps=256,
    )
    assert plain.ys[0].dtype == DTYPE
    expected = run("Heun, product", 128)
    assert gap(plain.ys[0], expected) < 20 * tol.identity
    assert gap(plain.ys[1][127], expected[-1]) < 20 * tol.identity


def test_a_manifold_that_is_given_too_changes_nothing_and_y0_is_projected(tol):
    given = solved("Heun", y0=3 * STARTS, manifold=SPHERE, dt0=1 / 128)
    assert gap(given.ys, run("Heun", 128)) < 5 * tol.identity


def test_jit_gives_what_eager_gives_and_a_batch_what_a_loop_gives(tol):
    y0 = jnp.stack([STARTS, STARTS[::-1]])
    one = lambda y: solved("Heun", y0=y, dt0=1 / 128).ys
    assert gap(jax.jit(one)(STARTS), run("Heun", 128)) < 5 * tol.identity
    both = jax.vmap(one)(y0)
    assert gap(both, np.stack([one(y) for y in y0])) < 5 * tol.identity


def test_neighbours_do_not_change_a_member_under_vmap():
    y0 = jnp.stack([STARTS, STARTS[::-1], STARTS])
    kwargs = {"rtol": 1e-5, "atol": 1e-5, "max_steps": 200, "throw": False}
    all_ = jax.vmap(lambda y: solved("Tsit5", y0=y, **kwargs).ys)
    healthy, beside_nan = all_(y0), all_(y0.at[2].set(jnp.nan))
    np.testing.assert_array_equal(healthy[:2], beside_nan[:2])
    assert not np.isfinite(beside_nan[2]).any()


EVERY = Product(SPHERE, ROTATIONS, COVARIANCES)
EVERY_Y0 = jnp.concatenate([PROBLEMS[name][3].ravel() for name in list(PROBLEMS)[1:3]])
EVERY_Y0 = jnp.concatenate([STARTS[0], EVERY_Y0])


def every(t, y, rate):
    parts = (
        top(t, y[:3], rate),
        matrices(t, y[3:12].reshape(3, 3), rate),
        congruent(t, y[12:].reshape(2, 2), rate),
    )
    return jnp.concatenate([part.ravel() for part in parts])


WEIGHTS = random(16, seed=6)


def derivatives(loss):
    """The gradient, and the central finite difference by the same program."""
    both = jax.jit(jax.value_and_grad(loss))
    up, down = (both(RATE + step)[0] for step in (1e-5, -1e-5))
    return float(both(RATE)[1]), float(up - down) / 2e-5


@needs_float64
def test_the_gradient_is_the_central_finite_difference_on_every_manifold():
    """Of several steps: the chart starts anew, where its point and itself coincide."""

    def loss(rate):
        solver = Geodesic(dfx.Heun(), EVERY)
        sol = tfjax.solve(every, EVERY_Y0, rate, t1=0.5, dt0=0.125, solver=solver)
        return jnp.sum(WEIGHTS * sol.ys[-1])

    found, expected = derivatives(loss)
    assert abs(expected) > 0.1
    assert found == pytest.approx(expected, rel=1e-8)


@needs_float64
def test_other_adjoints_have_the_same_derivative():
    def loss(rate, adjoint):
        kwargs = {"dt0": 0.5, "ts": None, "max_steps": 2}
        ys = solved("Euler", rate=rate, adjoint=adjoint, **kwargs).ys
        return jnp.sum(WEIGHTS[:9].reshape(3, 3) * ys[-1])

    direct, expected = derivatives(lambda rate: loss(rate, dfx.DirectAdjoint()))
    forward = jax.jit(jax.jacfwd(lambda rate: loss(rate, dfx.ForwardMode())))(RATE)
    assert abs(expected) > 0.1
    assert direct == pytest.approx(expected, rel=1e-8)
    assert float(forward) == pytest.approx(direct, rel=1e-12)


def test_a_steady_state_is_that_of_the_tangential_field():
    """The pull e_3 is never 0, but its tangential part is, at the pole."""
    pull = lambda t, x, args: jnp.broadcast_to(jnp.eye(3)[2], x.shape)
    event = steady_state(rtol=0.0, atol=1e-3)
    kwargs = {"t1": 100.0, "event": event, "solver": Geodesic(dfx.Bosh3(), SPHERE)}
    sol = tfjax.solve(pull, STARTS, **kwargs)
    assert dfx.is_event(sol.result)
    assert gap(sol.ys[-1, :, 2], 1) < 1e-5


def rolled(t, x, args):
    """Each token by itself."""
    return args.beta * jnp.roll(x, 1, axis=1) ** 2


def test_absent_rows_come_back_as_they_went_in():
    x0 = SPHERE.random(jax.random.key(7), (3,)).at[1].set(jnp.nan)
    args = AttentionParams(beta=0.5, mask=jnp.array([True, False, True]))
    saveat = dfx.SaveAt(ts=jnp.array([0.3, 1.0]), dense=True)
    kwargs = {"t1": 1.0, "dt0": 0.5, "saveat": saveat}
    sol = tfjax.solve(rolled, x0, args, solver=Geodesic(dfx.Heun(), SPHERE), **kwargs)
    for ys in (*sol.ys, sol.evaluate(jnp.asarray(0.7, DTYPE))):
        assert np.isnan(ys[1]).all()
        assert off_sphere(ys[::2]) < 4 * np.finfo(DTYPE).eps


def test_absent_rows_change_nothing_where_zero_is_no_point(tol):
    """Absent rows are no covariances meanwhile; the others take Euler's steps."""
    space, exists = Product(COVARIANCES), jnp.array([False, True, True])
    args = AttentionParams(beta=0.5, mask=exists)
    solver = Geodesic(dfx.Euler(), space)

    x = space.random(jax.random.key(7), (3,))
    lost = x.at[0].set(jnp.nan)
    ys = tfjax.solve(rolled, lost, args, t1=1.0, dt0=0.5, solver=solver).ys[-1]
    for _ in range(2):
        x = space.exp(x, space.tangent(x, 0.5 * rolled(0.0, x, args)))
    assert gap(ys[1:], x[1:]) < 20 * tol.identity
    assert np.isnan(ys[0]).all()
    # There and back, as within a step.
    rows = PresentRows(space, exists, lost)
    back = lambda x: jnp.sum(rows.log(x, rows.exp(x, x)) ** 2)
    gradient = np.asarray(jax.jit(jax.grad(back))(x.at[0].set(0.0)))
    assert np.all(gradient[0] == 0)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[1:]).min() > 1e-3


# --- Refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "got"),
    [
        (dfx.Kvaerno5(), "Kvaerno5"),
        (dfx.KenCarp4(), "KenCarp4"),
        (dfx.ImplicitEuler(), "ImplicitEuler"),
        (dfx.SemiImplicitEuler(), "SemiImplicitEuler"),
        (dfx.LeapfrogMidpoint(), "LeapfrogMidpoint"),
        (dfx.ReversibleHeun(), "ReversibleHeun"),
        (dfx.EulerHeun(), "EulerHeun"),
        (dfx.SPaRK(), "SPaRK"),
        (dfx.HalfSolver(dfx.Euler()), "HalfSolver"),
        (tfjax.integrate.RKMK4(), "RKMK4"),
        (tfjax.integrate.Leapfrog(), "Leapfrog"),
        (Projected(dfx.Tsit5(), SPHERE), "Projected"),
        (Geodesic(dfx.Tsit5(), SPHERE), "Geodesic"),
        ("tsit5", "'tsit5'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.usefixtures("unchecked")
def test_only_explicit_runge_kutta_solvers_are_taken(solver, got):
    text = f"`solver` must be an explicit Runge-Kutta solver.*, but was {got}"
    with pytest.raises(ValueError, match=text):
        Geodesic(solver, SPHERE)


@pytest.mark.usefixtures("unchecked")
def test_a_geodesic_is_not_wrapped_and_needs_a_manifold():
    with pytest.raises(ValueError, match="`solver` must be a diffrax solver to wrap"):
        Projected(Geodesic(dfx.Tsit5(), SPHERE), SPHERE)
    with pytest.raises(ValueError, match="`manifold` must be a manifold, but was 3"):
        Geodesic(dfx.Tsit5(), 3)


def plain(field, y0, **kwargs):
    """A few steps in diffrax itself."""
    term, solver = dfx.ODETerm(field), Geodesic(dfx.Heun(), SPHERE)
    step = jnp.asarray(0.25, DTYPE)
    rate = jnp.asarray(RATE, DTYPE)
    return dfx.diffeqsolve(term, solver, 0.0, 0.5, step, y0, rate, **kwargs)


def backsolved(y0):
    return jnp.sum(plain(top, y0, adjoint=dfx.BacksolveAdjoint()).ys)


REFUSED = {
    "another manifold": (
        lambda: solved("Heun", manifold=Sphere(4), dt0=0.1),
        r"`manifold` must be that of the solver, Sphere\(d=3\), or None",
    ),
    "backsolve": (
        lambda: solved("Heun", dt0=0.1, adjoint=dfx.BacksolveAdjoint()),
        "`adjoint` must not be BacksolveAdjoint",
    ),
    "points of another size": (
        lambda: solved("Heun", y0=jnp.ones(4), dt0=0.1),
        r"`y0` must have shape \(\.\.\., 3\), as points of Sphere",
    ),
    "a velocity of another shape": (
        lambda: solved("Heun", field=lambda t, x, args: x[0], dt0=0.1),
        r"`field` must return a velocity of the state's shape \(3, 3\)",
    ),
    "no error to control": (
        lambda: solved("Euler", rtol=1e-3),
        "`dt0` must be given, without rtol and atol, for Euler",
    ),
    "noise": (
        lambda: tfjax.solve_sde(
            self_attention,
            lambda t, x, args: 0.1 * x,
            X0,
            ATTENTION,
            t1=1.0,
            dt0=0.1,
            key=jax.random.key(0),
            solver=Geodesic(dfx.Euler(), SPHERE),
        ),
        "`solver` must not be Geodesic where there is noise",
    ),
    "plainly, another size": (
        lambda: plain(lambda t, x, args: x, jnp.ones(4)),
        r"`y0` must have shape \(\.\.\., 3\), as points of Sphere",
    ),
    "plainly, a pair": (
        lambda: plain(lambda t, y, args: y, (STARTS, STARTS)),
        r"`y0` must have shape .* but was a tuple",
    ),
    "plainly, a velocity that would be broadcast": (
        lambda: plain(lambda t, x, args: x[0], STARTS),
        r"`field` must return a velocity of the state's shape \(3, 3\)",
    ),
    "plainly, backsolve": (
        lambda: jax.grad(backsolved)(STARTS),
        "`adjoint` must not be BacksolveAdjoint for Geodesic",
    ),
    "plainly, a control": (
        lambda: dfx.diffeqsolve(
            dfx.ControlTerm(lambda t, x, args: x, lambda t0, t1: t1 - t0),
            Geodesic(dfx.Heun(), SPHERE),
            0.0,
            0.5,
            0.25,
            STARTS,
        ),
        "`terms` must be a diffrax.ODETerm for Geodesic, but was ControlTerm",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused_by_name(case):
    make, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        make()


def test_plainly_a_state_that_is_no_point_does_not_succeed_unseen():
    assert dfx.is_okay(plain(top, STARTS, throw=False).result)
    lost = plain(top, 1.1 * STARTS, throw=False)
    assert lost.result == dfx.RESULTS.nonfinite


def test_angles_of_more_than_a_turn_are_points(tol):
    theta = jnp.array([3.0, -3.1], DTYPE)
    term, solver = dfx.ODETerm(oscillators), Geodesic(dfx.Heun(), Torus(2))
    ends = [
        dfx.diffeqsolve(term, solver, 0.0, 1.0, 0.25, y, jnp.asarray(RATE, DTYPE)).ys
        for y in (theta, theta + np.array([2, -4], DTYPE) * DTYPE.type(np.pi))
    ]
    assert gap(*ends) < 20 * tol.identity
