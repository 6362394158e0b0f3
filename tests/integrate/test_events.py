"""Events: their times against closed forms, their derivatives, padding, batches."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
import scipy.integrate
import scipy.optimize
from hypothesis import given, settings, strategies as st

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere
from tfjax.integrate import (
    Projected,
    first_merge,
    forward_mode,
    one_cluster,
    saved,
    steady_state,
)
from tfjax.integrate._root import BracketedNewton


X64 = jax.config.jax_enable_x64
TIGHT = {"rtol": 1e-10, "atol": 1e-10} if X64 else {"rtol": 1e-6, "atol": 1e-6}
CIRCLE, THRESHOLD = Sphere(2), 0.99
ONE, MERGE = one_cluster(), first_merge()
few = settings(max_examples=8)


def on_circle(*angles):
    angles = jnp.stack([jnp.asarray(a, float) for a in angles])
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)


def pair(rho):
    return on_circle(0.0, jnp.arccos(jnp.asarray(rho, float)))


def run(x0, beta=1.0, event=ONE, mask=None, **kwargs):
    kwargs = {"t1": 30.0, "manifold": Sphere(x0.shape[-1]), "event": event} | kwargs
    args = AttentionParams(beta=beta, mask=mask)
    return tfjax.solve(self_attention, x0, args, **kwargs)


def merge_time(rho, beta):
    """The time in which rho' = 2 (1 - rho^2) / (1 + e^(beta (1 - rho))) is .99."""
    slowness = lambda r: (1 + np.exp(beta * (1 - r))) / (2 * (1 - r**2))
    return scipy.integrate.quad(slowness, rho, THRESHOLD, epsabs=1e-12)[0]


def merge_time_slopes(rho, beta):
    """Its derivatives by rho and beta."""
    slowness = (1 + np.exp(beta * (1 - rho))) / (2 * (1 - rho**2))
    change = lambda r: (1 - r) * np.exp(beta * (1 - r)) / (2 * (1 - r**2))
    return -slowness, scipy.integrate.quad(change, rho, THRESHOLD, epsabs=1e-12)[0]


class TestTimes:
    @few
    @given(rho=st.floats(-0.75, 0.9375), beta=st.floats(0, 3))
    def test_two_tokens_merge_when_the_quadrature_says(self, rho, beta):
        for event in (ONE, MERGE):
            sol = run(pair(rho), beta, event, **TIGHT)
            assert dfx.is_event(sol.result)
            exact = merge_time(float(rho), float(beta))
            np.testing.assert_allclose(sol.ts[-1], exact, rtol=1e-8 if X64 else 1e-4)
            product = sol.ys[-1, 0] @ sol.ys[-1, 1]
            np.testing.assert_allclose(product, THRESHOLD, atol=1e-13 if X64 else 2e-7)

    def test_time_is_as_accurate_as_the_solve(self):
        exact = merge_time(-0.5, 1.0)
        for tolerance in (1e-3, 1e-5):
            found = run(pair(-0.5), rtol=tolerance, atol=tolerance).ts[-1]
            np.testing.assert_allclose(found, exact, rtol=10 * tolerance)
        found = run(pair(-0.5), dt0=0.5).ts[-1]
        np.testing.assert_allclose(found, exact, rtol=2e-5)

    @pytest.mark.parametrize("event", [ONE, MERGE])
    def test_equiangular_tokens_at_beta_zero(self, event):
        """gamma(t) = (e^2t - 1) / (e^2t + n - 1), so e^2t = (1 + 3 g) / (1 - g)."""
        found = run(jnp.eye(4), 0.0, event, **TIGHT).ts[-1]
        exact = 0.5 * np.log((1 + 3 * THRESHOLD) / (1 - THRESHOLD))
        np.testing.assert_allclose(found, exact, rtol=1e-8 if X64 else 1e-5)

    def test_a_cluster_from_the_start_occurs_at_the_start(self):
        x0 = pair(0.995)
        sol = run(x0, t0=1.0)
        assert dfx.is_event(sol.result)
        assert sol.ts[-1] == 1
        np.testing.assert_allclose(sol.ys[-1], x0, atol=1e-7)

    def test_one_token_is_a_cluster(self):
        assert run(jnp.eye(2)[:1]).ts[-1] == 0

    def test_what_never_happens_ends_at_t1(self):
        antipodes = jnp.array([[1.0, 0.0], [-1.0, 0.0]])
        sol = run(antipodes, t1=2.0)
        assert not dfx.is_event(sol.result)
        assert dfx.is_okay(sol.result)
        assert sol.ts[-1] == 2
        assert not any(sol.event_mask)


class TestFirstMerge:
    ANGLES = (0.0, 0.05, 1.0, 2.2)

    def apart(self, y):
        """The largest product of tokens that start in different clusters."""
        products = np.asarray(y @ y.T)
        pairs = ~np.eye(4, dtype=bool)
        pairs[:2, :2] = False
        return products[pairs].max()

    def test_pairs_close_from_the_start_are_no_merge(self):
        x0, t1 = on_circle(*self.ANGLES), 10.0
        sol = run(x0, 4.0, MERGE, t1=t1, **TIGHT)
        saveat = dfx.SaveAt(dense=True)
        dense = run(x0, 4.0, None, t1=t1, saveat=saveat, **TIGHT)
        gap = lambda t: self.apart(dense.evaluate(jnp.asarray(t))) - THRESHOLD
        exact = scipy.optimize.brentq(gap, 0.0, t1, xtol=1e-12)
        np.testing.assert_allclose(sol.ts[-1], exact, rtol=1e-7 if X64 else 1e-4)
        assert gap(exact - 0.1) < 0 < gap(exact + 0.1)

    def test_the_ends_of_a_chain_are_one_cluster(self):
        chain = on_circle(0.0, 0.1, 0.2, 2.0)  # cos .2 < .99 < cos .1
        sol = run(chain, 4.0, MERGE, t1=20.0)
        assert float(sol.ys[-1, 0] @ sol.ys[-1, 2]) > 0.999
        np.testing.assert_allclose(self.joined(sol.ys[-1]), THRESHOLD, atol=1e-5)

    def joined(self, y):
        return np.max(np.asarray(y[:3] @ y[3]))

    def test_one_cluster_never_merges(self):
        sol = run(pair(0.995), 1.0, MERGE, t1=2.0)
        assert not dfx.is_event(sol.result)
        assert sol.ts[-1] == 2

    def test_a_given_start_serves_a_solve_that_began_earlier(self):
        x0 = on_circle(*self.ANGLES)
        whole = run(x0, 4.0, MERGE, t1=10.0)
        half = run(x0, 4.0, None, t1=1.0).ys[-1]
        rest = run(half, 4.0, first_merge(start=x0), t0=1.0, t1=10.0)
        np.testing.assert_allclose(rest.ts, whole.ts, rtol=1e-4)
        late = run(whole.ys[-1] + 1e-3, 4.0, first_merge(start=x0), t0=3.0, t1=10.0)
        assert late.ts[-1] >= 3

    def test_kinks_over_which_newton_goes_back_and_forth_do_no_harm(self):
        """The pair that is closest changes within long steps of wide spread sets."""
        # Newton's method alone never ends at number 127 of these, in float64.
        x0 = CIRCLE.random(jax.random.key(5), (256, 32))[96:160]
        args, kwargs = AttentionParams(beta=9.0), {"t1": 20.0, "manifold": CIRCLE}
        sol = tfjax.solve_ensemble(
            self_attention, x0, args, event=MERGE, batch_size=64, **kwargs
        )
        assert np.all(dfx.is_event(sol.result))


@pytest.mark.slow
class TestDerivatives:
    def test_of_the_time_of_two_tokens_by_start_and_beta(self):
        def time(rho, beta):
            return run(pair(rho), beta, **TIGHT).ts[-1]

        found = jax.grad(time, (0, 1))(-0.5, 1.0)
        exact = merge_time_slopes(-0.5, 1.0)
        np.testing.assert_allclose(found, exact, rtol=1e-6 if X64 else 1e-3)

    @pytest.mark.skipif(not X64, reason="float32 has no digits for a difference")
    def test_of_time_and_state_are_the_finite_difference_and_the_implicit_formula(self):
        x0 = Sphere(3).random(jax.random.key(2), (5,))
        weights = jax.random.normal(jax.random.key(3), (5, 3))

        def time_and_state(beta, x0):
            sol = run(x0, beta, **TIGHT)
            return sol.ts[-1] + jnp.sum(weights * sol.ys[-1])

        gradient, by_x0 = jax.grad(time_and_state, (0, 1))(1.0, x0)
        way = jax.random.normal(jax.random.key(4), (5, 3))
        h = 1e-4
        moved = lambda s: float(time_and_state(1.0 + s, x0))
        np.testing.assert_allclose(
            gradient, (moved(h) - moved(-h)) / (2 * h), rtol=1e-6
        )
        moved = lambda s: float(time_and_state(1.0, x0 + s * way))
        difference = (moved(h) - moved(-h)) / (2 * h)
        np.testing.assert_allclose(jnp.sum(by_x0 * way), difference, rtol=1e-6)
        # dt = -dg / g' with the state's change at a fixed time, here by differences.
        sol = run(x0, 1.0, **TIGHT)
        t, y = float(sol.ts[-1]), sol.ys[-1]
        at = lambda beta: run(x0, beta, None, t1=t, **TIGHT).ys[-1]
        change = (at(1.0 + h) - at(1.0 - h)) / (2 * h)
        velocity = self_attention(0.0, y, AttentionParams(beta=1.0))
        i, j = np.unravel_index(np.argmin(y @ y.T), (5, 5))
        slope = lambda v: float(v[i] @ y[j] + y[i] @ v[j])
        dt = -slope(change) / slope(velocity)
        state = change + velocity * dt
        np.testing.assert_allclose(gradient, dt + jnp.sum(weights * state), rtol=1e-6)

    @pytest.mark.slow
    def test_of_times_under_vmap_are_those_of_each(self):
        """Half of the members never have the event: the derivative of t1 is 0."""

        def total(betas, weights):
            times = jax.vmap(lambda b: run(pair(-0.5), b, t1=6.0, **TIGHT).ts[-1])
            return jnp.sum(weights * times(betas))

        betas = jnp.array([0.0, 1.0, 4.0])
        found = jax.grad(total)(betas, jnp.array([1.0, 2.0, 3.0]))
        exact = [w * merge_time_slopes(-0.5, b)[1] for b, w in ((0.0, 1), (1.0, 2))]
        np.testing.assert_allclose(found, [*exact, 0], rtol=1e-6 if X64 else 1e-3)

    @pytest.mark.slow
    def test_by_forward_mode_are_the_same(self):
        time = lambda b: run(pair(-0.5), b, adjoint=forward_mode(), **TIGHT).ts[-1]
        found = jax.jvp(time, (1.0,), (1.0,))[1]
        exact = merge_time_slopes(-0.5, 1.0)[1]
        np.testing.assert_allclose(found, exact, rtol=1e-6 if X64 else 1e-3)

    def test_of_a_steady_state_are_0_for_the_time_and_right_for_the_state(self):
        """The time is the end of a step; the state there is exp(-a t)."""

        def end(rate):
            event = steady_state(rtol=0.0, atol=1e-2)
            kwargs = {"t1": 100.0, "dt0": 0.1, "event": event}
            sol = tfjax.solve(lambda t, y, a: -a * y, jnp.ones(1), rate, **kwargs)
            return sol.ts[-1], sol.ys[-1, 0]

        time, state = jax.jacrev(end)(1.0)
        assert time == 0
        t = end(1.0)[0]
        np.testing.assert_allclose(state, -t * np.exp(-t), rtol=1e-4)


class TestPadding:
    @pytest.mark.parametrize("event", [MERGE, steady_state(1e-3, 0.0)])
    def test_absent_rows_change_no_time(self, event):
        x0 = on_circle(0.0, 0.6, 1.5)
        padded = jnp.concatenate([x0, jnp.full((2, 2), jnp.nan)])
        # Constant steps: the end of an adaptive one moves with rounding.
        bare = run(x0, 4.0, event, dt0=0.125)
        full = run(padded, 4.0, event, mask=jnp.arange(5) < 3, dt0=0.125)
        assert dfx.is_event(bare.result)
        assert dfx.is_event(full.result)
        np.testing.assert_allclose(full.ts, bare.ts, rtol=1e-8 if X64 else 1e-4)

    def test_a_condition_of_the_user_sees_absent_rows_as_they_went_in(self):
        seen = lambda t, y, args, **kwargs: jnp.sum(y) - 9.0
        padded = jnp.concatenate([pair(-0.5), jnp.full((1, 2), 3.5)])
        event = dfx.Event(seen, optx.Newton(1e-6, 1e-6))
        sol = run(padded, 1.0, event, mask=jnp.arange(3) < 2)
        assert dfx.is_event(sol.result)
        np.testing.assert_allclose(jnp.sum(sol.ys[-1]), 9.0, atol=1e-5)


class TestEnsembles:
    @pytest.mark.parametrize(("event", "batch_size"), [(ONE, 6), (MERGE, 6), (ONE, 1)])
    def test_each_member_has_its_own_time(self, event, batch_size):
        rhos = (-0.5, 0.5, 0.995, 0.9, -0.999999, 0.0)
        x0 = jnp.stack([pair(rho) for rho in rhos])
        kwargs = {"t1": 6.0, "manifold": CIRCLE, "event": event} | TIGHT
        args, many = AttentionParams(beta=1.0), {"batch_size": batch_size}
        sol = tfjax.solve_ensemble(self_attention, x0, args, **many, **kwargs)
        assert np.all(dfx.is_okay(sol.result))
        late = [merge_time(rho, 1.0) for rho in rhos]
        late[2] = 0.0 if event is ONE else np.inf
        occurred = np.array(late) < 6
        np.testing.assert_array_equal(dfx.is_event(sol.result), occurred)
        exact = np.where(occurred, late, 6.0)
        np.testing.assert_allclose(sol.ts[:, 0], exact, rtol=1e-7 if X64 else 1e-4)


class TestRecords:
    def test_times_after_the_event_are_not_saved_and_its_own_comes_last(self):
        ts = jnp.linspace(0.0, 6.0, 7)
        exact = merge_time(-0.5, 1.0)  # 4.37
        with_end = run(pair(-0.5), saveat=dfx.SaveAt(ts=ts, t1=True), t1=6.0)
        kept = saved(with_end)
        np.testing.assert_allclose(with_end.ts[kept], [0, 1, 2, 3, 4, exact], rtol=1e-4)

    def test_subs_tell_path_and_end_apart_and_steps_stop(self):
        path = dfx.SubSaveAt(steps=True)
        subs = {"path": path, "end": dfx.SubSaveAt(t1=True)}
        saveat = dfx.SaveAt(subs=subs)
        sol = run(pair(-0.5), saveat=saveat, max_steps=64)
        kept = saved(sol)
        assert kept["end"].tolist() == [True]
        assert int(kept["path"].sum()) == int(sol.stats["num_accepted_steps"])
        assert sol.ts["path"][kept["path"]][-1] == sol.ts["end"][0]

    def test_times_alone_and_backwards_in_time(self):
        """Tokens that repel come together backwards, at -4.37."""
        args = AttentionParams(beta=1.0, value=-jnp.eye(2))
        kwargs = {"manifold": CIRCLE, "event": ONE, "ts": jnp.linspace(0.0, -6.0, 61)}
        sol = tfjax.solve(self_attention, pair(-0.5), args, t1=-6.0, **kwargs)
        np.testing.assert_array_equal(saved(sol), kwargs["ts"] > -merge_time(-0.5, 1.0))

    def test_dense_output_alone_has_no_records(self):
        sol = run(pair(-0.5), event=None, saveat=dfx.SaveAt(dense=True), max_steps=64)
        with pytest.raises(ValueError, match="`solution` must hold records"):
            saved(sol)


class TestPlainDiffrax:
    ARGS = AttentionParams(beta=1.0)

    def solve(self, event, field=self_attention, y0=None, **kwargs):
        y0 = pair(-0.5) if y0 is None else y0
        solver = Projected(dfx.Tsit5(), Sphere(y0.shape[-1]))
        steps = {"stepsize_controller": dfx.PIDController(rtol=1e-6, atol=1e-6)}
        clock = (jnp.zeros((), y0.dtype), jnp.full((), 30.0, y0.dtype), None)
        term = dfx.ODETerm(field)
        kwargs = steps | {"event": event} | kwargs
        return dfx.diffeqsolve(term, solver, *clock, y0, self.ARGS, **kwargs)

    @pytest.mark.parametrize("event", [ONE, first_merge(start=pair(-0.5))])
    def test_events_of_clusters(self, event):
        sol = self.solve(event)
        np.testing.assert_allclose(sol.ts[-1], merge_time(-0.5, 1.0), rtol=2e-5)

    def test_a_first_merge_needs_its_start(self):
        with pytest.raises(ValueError, match="`start` must be given to first_merge"):
            self.solve(MERGE)

    def test_a_steady_state_is_one_of_the_tangential_part(self):
        """A constant field pulls to the pole, where it is normal to the sphere."""
        x0 = jnp.array([[0.6, 0.0, 0.8]])
        pull = lambda t, x, args: jnp.broadcast_to(jnp.array([0.0, 0, 1]), x.shape)
        event = steady_state(0.0, 1e-3)
        sol = self.solve(event, pull, x0)
        assert dfx.is_event(sol.result)
        kwargs = {"t1": 30.0, "manifold": Sphere(3), "event": event}
        same = tfjax.solve(pull, x0, self.ARGS, **kwargs)
        for found in (sol, same):
            # sin of the latitude is tanh(t + artanh .8), and the speed 1 / cosh.
            speed = 1 / np.cosh(float(found.ts[-1]) + np.arctanh(0.8))
            assert speed / np.sqrt(3) < 1.01e-3
            assert dfx.is_event(found.result)


def test_a_steady_state_needs_no_adaptive_steps():
    kwargs = {"t1": 100.0, "dt0": 0.125, "event": steady_state(0.0, 1e-2)}
    sol = tfjax.solve(lambda t, y, args: -y, jnp.ones(2), **kwargs)
    first = np.ceil(np.log(100) / 0.125) * 0.125
    np.testing.assert_allclose(sol.ts[-1], first, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: one_cluster(1.0), "`threshold` must lie between -1 and 1, but was 1"),
        (lambda: first_merge(jnp.nan), "`threshold` must lie between -1 and 1"),
        (lambda: one_cluster([0.9, 0.8]), r"`threshold` must be a scalar.* \(2,\)"),
        (lambda: one_cluster("abc"), "`threshold` must be a real array"),
        (lambda: first_merge(start=jnp.ones(3)), r"`start` must have shape \(n, d\)"),
        (lambda: steady_state(-1.0), "`rtol` must be finite and not negative, but"),
        (lambda: steady_state(0.0, jnp.inf), "`atol` must be finite and not negative"),
        (lambda: steady_state(jnp.ones(2)), "`rtol` must be a scalar"),
        (
            lambda: run(pair(0.5), event=first_merge(start=jnp.eye(3))),
            "`start` must hold the 2 tokens of the state, but was of 3",
        ),
        (
            lambda: tfjax.solve(lambda t, y, _: -y, jnp.ones(2), t1=1.0, event=ONE),
            r"`y0` must be tokens of shape \(n, d\) for an event.*of shape \(2,\)",
        ),
    ],
)
def test_errors_name_the_argument(make, text):
    with pytest.raises(ValueError, match=text):
        make()


class TestRootFinder:
    def root(self, function, lower=0.0, upper=1.0):
        options = {"lower": jnp.asarray(lower), "upper": jnp.asarray(upper)}
        pair = lambda t, _: (function(t), jnp.zeros_like(t))
        finder, start = BracketedNewton(), jnp.asarray(upper)
        return optx.root_find(pair, finder, start, options=options, max_steps=200)

    @few
    @given(where=st.floats(0.0625, 0.9375))
    @pytest.mark.parametrize(
        "shape",
        [
            lambda s: s,
            lambda s: jnp.expm1(20 * s),
            lambda s: jnp.sign(s) * jnp.abs(s) ** 0.5,  # Newton goes back and forth
            lambda s: s**3,  # its derivative is 0 at the root
            lambda s: jnp.where(s > 0, 0.1 * s, 10 * s),
            lambda s: jnp.where(jnp.abs(s) < 0.01, 100 * s, jnp.sign(s)),  # flat
        ],
    )
    def test_finds_any_root_to_rounding(self, shape, where):
        found = self.root(lambda t: shape(t - where)).value
        atol = 8 * jnp.finfo(found.dtype).eps
        np.testing.assert_allclose(found, where, atol=atol)

    def test_an_end_of_the_step_is_found_at_once(self):
        found = self.root(lambda t: 1.0 - t)
        assert found.value == 1
        assert int(found.stats["num_steps"]) == 1
