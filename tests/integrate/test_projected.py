"""`Projected`: orders, staying on the sphere, independence of neighbours."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere
from tfjax.integrate import Projected


SPHERE = Sphere(3)
needs_float64 = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="rounding hides the order in float32"
)


def top(t, x, args):
    """A spinning top whose spin comes and goes: nonlinear, and it contracts nothing."""
    inertia = jnp.arange(1.0, 4.0)[None]
    return jnp.cross(x, inertia * x * (2 + jnp.sin(2 * t)))


def turn(t, x, args):
    """A rigid rotation about an axis that moves."""
    axis = jnp.stack([jnp.sin(3 * t), jnp.cos(2 * t), jnp.ones_like(t)])
    return jnp.cross(jnp.broadcast_to(axis, x.shape), x)


# Tsit5 is tuned to have a tiny principal error: it looks like order 6 until the steps
# are short, hence the long run. A flow that contracts, or a linear one whose errors lie
# along the normal, would hide it. Errors must lie in [1e-11, 1e-3] to be fitted.
ORDERS = {
    "Euler": (dfx.Euler(), self_attention, 4.0, (512, 1024, 2048, 4096), 1),
    "Heun": (dfx.Heun(), self_attention, 4.0, (128, 256, 512, 1024, 2048), 2),
    "Tsit5": (dfx.Tsit5(), top, 60.0, (4000, 5000, 6000, 7000), 5),
    "Dopri8": (dfx.Dopri8(), turn, 4.0, (16, 20, 24, 28, 32), 8),
}


@needs_float64
@pytest.mark.parametrize(
    ("name", "by"), [(name, "solve") for name in ORDERS] + [("Heun", "diffeqsolve")]
)
def test_projected_solver_keeps_the_order_of_the_solver_it_wraps(name, by):
    solver, field, t1, counts, order = ORDERS[name]
    args = AttentionParams(beta=4.0)
    limit = 4096 if max(counts) <= 2048 else None

    def by_solve(x0, solver, steps):
        kwargs = {"t1": t1, "dt0": t1 / steps, "manifold": SPHERE, "max_steps": limit}
        return tfjax.solve(field, x0, args, solver=solver, **kwargs).ys[-1]

    def by_diffeqsolve(x0, solver, steps):
        sol = dfx.diffeqsolve(
            dfx.ODETerm(field),
            Projected(solver, SPHERE),
            0.0,
            t1,
            jnp.asarray(t1 / steps),
            x0,
            args,
            max_steps=None,
        )
        return sol.ys[-1]

    run = by_solve if by == "solve" else by_diffeqsolve
    for seed in range(3):
        x0 = SPHERE.random(jax.random.key(seed), (8,))
        exact = by_solve(x0, dfx.Dopri8(), max(counts) * 2)
        gaps = [run(x0, solver, n) - exact for n in counts]
        errors = [float(jnp.sqrt(jnp.mean(gap**2))) for gap in gaps]
        assert all(1e-11 <= error <= 1e-3 for error in errors), errors
        slope = np.polyfit(np.log(1 / np.array(counts)), np.log(errors), 1)[0]
        assert abs(slope - order) < 0.2, (seed, slope, errors)


@pytest.fixture(scope="module", params=[3, 64], ids=["d=3", "d=64"])
def dense(request):
    """One adaptive float32 solve with steps, saved times and dense output."""
    sphere = Sphere(request.param)
    x0 = sphere.random(jax.random.key(1), (16,), dtype=jnp.float32)
    saveat = dfx.SaveAt(ts=jnp.linspace(0, 10, 57, dtype=jnp.float32), dense=True)
    args = AttentionParams(beta=4.0)
    kwargs = {"t1": 10.0, "manifold": sphere, "saveat": saveat}
    return tfjax.solve(self_attention, x0, args, **kwargs)


def off_sphere(x):
    return np.max(np.abs(np.linalg.norm(np.asarray(x, np.float64), axis=-1) - 1))


def test_saved_times_lie_on_the_sphere_in_float32(dense):
    assert dense.ys.dtype == jnp.float32
    assert off_sphere(dense.ys) < 1e-7


def test_dense_output_between_steps_lies_on_the_sphere_in_float32(dense):
    ts = jnp.linspace(0, 10, 501, dtype=jnp.float32)
    assert off_sphere(jax.vmap(dense.evaluate)(ts)) < 1e-7


def test_every_step_lies_on_the_sphere_without_projection_it_does_not():
    x0 = SPHERE.random(jax.random.key(1), (16,), dtype=jnp.float32)
    saveat, args = dfx.SaveAt(steps=True), AttentionParams(beta=4.0)
    drift = {}
    for manifold in (SPHERE, None):
        kwargs = {"t1": 10.0, "manifold": manifold, "saveat": saveat}
        sol = tfjax.solve(self_attention, x0, args, **kwargs)
        drift[manifold] = off_sphere(sol.ys[: int(sol.stats["num_accepted_steps"])])
    assert drift[SPHERE] < 2e-7 < drift[None]


def test_dense_output_is_continuous_and_agrees_with_saved_times(dense, tol):
    found = jax.vmap(dense.evaluate)(dense.ts)
    np.testing.assert_allclose(found, dense.ys, atol=2e-6)


def test_derivative_of_dense_output_is_tangent(dense):
    t = jnp.asarray(1.234, jnp.float32)
    inner = jnp.sum(dense.evaluate(t) * dense.derivative(t), axis=-1)
    np.testing.assert_allclose(inner, 0, atol=1e-6)


def test_repulsive_values_stay_on_the_sphere_to_t_200():
    x0 = SPHERE.random(jax.random.key(2), (16,))
    args = AttentionParams(beta=4.0, value=-jnp.eye(3))
    ts = jnp.linspace(0, 200, 101)
    sol = tfjax.solve(self_attention, x0, args, t1=200.0, ts=ts, manifold=SPHERE)
    assert off_sphere(sol.ys) < (1e-10 if jax.config.jax_enable_x64 else 2e-7)


def test_repulsive_field_alone_is_stable_off_the_sphere():
    """The plain projected field blows up by t = 30; ours is that of x / |x|."""
    x0 = SPHERE.random(jax.random.key(2), (16,))
    args = AttentionParams(beta=4.0, value=-jnp.eye(3))
    sol = tfjax.solve(self_attention, x0, args, t1=200.0)
    assert off_sphere(sol.ys) < 1e-4


def test_nontangent_field_gives_its_tangential_part():
    """A constant field e_3 pulls every token to the pole along a great circle."""
    x0 = jnp.array([[1.0, 0.0, 0.0]])
    pull = lambda t, x, args: jnp.broadcast_to(jnp.array([0.0, 0, 1]), x.shape)
    sol = tfjax.solve(pull, x0, t1=2.0, manifold=SPHERE, rtol=1e-7, atol=1e-7)
    # The latitude phi obeys phi' = cos phi, so sin phi = tanh t.
    exact = [[1 / np.cosh(2.0), 0.0, np.tanh(2.0)]]
    np.testing.assert_allclose(sol.ys[-1], exact, atol=2e-6)


def test_event_state_lies_on_the_sphere_and_meets_its_condition(tol):
    x0 = jnp.array([[1.0, 0.0, 0.0]])
    pull = lambda t, x, args: jnp.broadcast_to(jnp.array([0.0, 0, 1]), x.shape)
    finder = optx.Newton(rtol=1e-6, atol=1e-6)
    event = dfx.Event(lambda t, y, args, **kwargs: y[0, 2] - 0.5, finder)
    sol = tfjax.solve(pull, x0, t1=5.0, manifold=SPHERE, event=event)
    assert dfx.is_okay(sol.result)
    assert abs(sol.ys[-1, 0, 2] - 0.5) < 1e-5
    assert off_sphere(sol.ys) < 2e-7
    np.testing.assert_allclose(sol.ts[-1], np.arctanh(0.5), atol=1e-4)


def test_neighbours_do_not_change_a_member_under_vmap():
    """A first-same-as-last cache kept over the projection would let them."""
    x0 = SPHERE.random(jax.random.key(3), (3, 8))
    args = AttentionParams(beta=4.0)

    @jax.vmap
    def run(x):
        kwargs = {"t1": 5.0, "manifold": SPHERE, "throw": False, "max_steps": 200}
        return tfjax.solve(self_attention, x, args, **kwargs).ys

    healthy, beside_nan = run(x0), run(x0.at[2].set(jnp.nan))
    np.testing.assert_array_equal(healthy[:2], beside_nan[:2])


def test_implicit_solver_can_be_wrapped(tol):
    x0 = SPHERE.random(jax.random.key(4), (4,))
    args = AttentionParams(beta=1.0)
    kwargs = {"t1": 1.0, "manifold": SPHERE, "rtol": 1e-6, "atol": 1e-6}
    found = tfjax.solve(self_attention, x0, args, solver=dfx.Kvaerno5(), **kwargs)
    exact = tfjax.solve(self_attention, x0, args, **kwargs)
    np.testing.assert_allclose(found.ys, exact.ys, atol=1e-4)


def test_projected_given_to_solve_is_not_wrapped_twice():
    x0 = SPHERE.random(jax.random.key(5), (8,))
    args = AttentionParams(beta=4.0)
    kwargs = {"t1": 2.0, "manifold": SPHERE}
    once = tfjax.solve(self_attention, x0, args, **kwargs)
    given = Projected(dfx.Tsit5(), SPHERE)
    twice = tfjax.solve(self_attention, x0, args, solver=given, **kwargs)
    np.testing.assert_array_equal(once.ys, twice.ys)


def test_isinstance_sees_through_the_wrapper():
    assert isinstance(Projected(dfx.Tsit5(), SPHERE), dfx.AbstractAdaptiveSolver)
    assert not isinstance(Projected(dfx.Euler(), SPHERE), dfx.AbstractAdaptiveSolver)


def test_interpolation_class_is_static_so_that_plans_compare_equal():
    one, two = Projected(dfx.Tsit5(), SPHERE), Projected(dfx.Tsit5(), SPHERE)
    assert eqx.tree_equal(one, two)
    assert one.interpolation_cls is two.interpolation_cls


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("solver", "manifold", "text"),
    [
        (Projected(dfx.Euler(), SPHERE), SPHERE, "`solver` must be a diffrax solver"),
        ("tsit5", SPHERE, "`solver` must be a diffrax solver to wrap, but was 'tsit5'"),
        (dfx.Euler(), 3, "`manifold` must be a manifold, but was 3"),
    ],
)
def test_errors_name_the_argument(solver, manifold, text):
    with pytest.raises(ValueError, match=text):
        Projected(solver, manifold)
