"""Sharp cases of integration: the input and the right behaviour of each, exactly.

Every case has its own input, variants of it (shape, dtype, jit, vmap, the other ways to
ask for the same), and a property that says the same of its kind. A property varies
values only, so that its examples share a compilation.
"""

import functools
import subprocess
import sys
import textwrap

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere
from tfjax.integrate import forward_mode, reverse_mode, saved, second_order


SPHERE = Sphere(3)
X64 = jax.config.jax_enable_x64
few = settings(max_examples=8)
reals = functools.partial(st.floats, allow_nan=False, width=32)


def decay(t, y, args):
    return -y


def scaled_decay(t, y, args):
    return -args * y


@pytest.fixture(scope="module")
def tokens():
    return SPHERE.random(jax.random.key(0), (8,))


def attention(x0, args=None, **kwargs):
    kwargs = {"t1": 2.0, "manifold": SPHERE} | kwargs
    return tfjax.solve(self_attention, x0, args, **kwargs)


class TestS13:
    """One token and V a rotation: the flow turns it by t radians on the circle."""

    TS = jnp.linspace(0, 10, 11)

    def turned(self, x0, speed, **kwargs):
        value = speed * jnp.array([[0.0, -1.0], [1.0, 0.0]])
        kwargs = {"t1": 10.0, "ts": self.TS, "manifold": Sphere(2), "dt0": 0.1} | kwargs
        args = AttentionParams(beta=3.0, value=value)
        return tfjax.solve(self_attention, x0, args, **kwargs).ys

    def off(self, x):
        return np.max(np.abs(np.linalg.norm(np.asarray(x, np.float64), axis=-1) - 1))

    def test_S13_euler_stays_on_the_circle(self):
        x0 = jnp.array([[1.0, 0.0]])
        assert self.off(self.turned(x0, 1.0, solver=dfx.Euler())) < 1e-5

    @pytest.mark.parametrize("dtype", [None, "float32", "float16"])
    def test_S13_order_5_gives_the_angle(self, dtype):
        ys = self.turned(jnp.array([[1.0, 0.0]], dtype), 1.0)
        exact = jnp.stack([jnp.cos(self.TS), jnp.sin(self.TS)], axis=1)[:, None]
        np.testing.assert_allclose(ys, exact, atol=1e-4)
        np.testing.assert_allclose(ys[-1, 0], [-0.83907, -0.54402], atol=1e-4)

    def test_S13_holds_for_many_tokens_under_jit_and_vmap(self):
        x0 = Sphere(2).random(jax.random.key(1), (2, 5))
        ys = jax.jit(jax.vmap(lambda x: self.turned(x, 1.0, solver=dfx.Euler())))(x0)
        assert ys.shape == (2, 11, 5, 2)
        assert self.off(ys) < 1e-5

    @few
    @given(speed=reals(-1.5, 1.5), start=reals(-3.125, 3.125))
    def test_S13_any_rotation_from_any_point(self, speed, start):
        x0 = jnp.array([[np.cos(start), np.sin(start)]])
        ys = self.turned(x0, speed)
        angle = start + speed * np.asarray(self.TS)
        exact = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None]
        np.testing.assert_allclose(ys, exact, atol=1e-4)
        assert self.off(ys) < 1e-5


class TestS15:
    """Backwards in time: y(t) = exp(1 - t) from y(1) = 1 down to t = 0."""

    TS = jnp.array([1, 0.75, 0.25, 0])
    EXACT = (1, 1.284025, 2.117000, 2.718282)

    @pytest.mark.parametrize("dt0", [None, 0.01, -0.01])
    def test_S15_values_for_any_sign_of_the_step(self, dt0):
        sol = tfjax.solve(decay, jnp.ones(1), t0=1.0, t1=0.0, ts=self.TS, dt0=dt0)
        np.testing.assert_array_equal(sol.ts, self.TS)
        np.testing.assert_allclose(sol.ys[:, 0], self.EXACT, rtol=1e-5)

    def test_S15_values_under_jit_and_vmap_in_float32(self):
        def run(y0):
            return tfjax.solve(decay, y0, t0=1.0, t1=0.0, ts=self.TS)

        y0 = jnp.array([[1.0], [2.0]], jnp.float32)
        sol = jax.jit(jax.vmap(lambda y: eqx.filter(run(y), eqx.is_array)))(y0)
        np.testing.assert_array_equal(sol.ts[1], self.TS)
        exact = np.array(self.EXACT)
        found = sol.ys[:, :, 0]
        np.testing.assert_allclose(found, [exact, 2 * exact], rtol=1e-5)

    def test_S15_ascending_times_are_refused_by_name(self):
        with pytest.raises(ValueError, match="`ts` must be decreasing"):
            tfjax.solve(decay, jnp.ones(1), t0=1.0, t1=0.0, ts=self.TS[::-1])

    @few
    @given(beta=reals(0, 8), seed=st.integers(0, 99))
    def test_S15_forwards_then_backwards_returns(self, beta, seed):
        x0, args = SPHERE.random(jax.random.key(seed), (8,)), AttentionParams(beta)
        kwargs = {"t1": 1.0, "rtol": 1e-7, "atol": 1e-7}
        there = attention(x0, args, **kwargs).ys[-1]
        back = attention(there, args, **kwargs | {"t0": 1.0, "t1": 0.0}).ys[-1]
        # The way back amplifies what the way there contracted.
        np.testing.assert_allclose(back, x0, atol=1e-5 if X64 else 1e-3)


class TestS16:
    """A member of y' = -a y is the same beside a stiff one as beside its like."""

    KWARGS = {"t1": 1.0, "rtol": 1e-3, "atol": 1e-3}

    def first(self, *rates, **kwargs):
        kwargs = self.KWARGS | {"in_axes": (None, 0), "batch_size": 2} | kwargs
        y0, rates = jnp.ones(1), jnp.array(rates)
        return tfjax.solve_ensemble(scaled_decay, y0, rates, **kwargs).ys[0]

    def agree(self, found):
        solo = tfjax.solve(scaled_decay, jnp.ones(1), jnp.asarray(1.0), **self.KWARGS)
        # Another program rounds otherwise, which adaptive steps amplify in float32.
        np.testing.assert_allclose(found, solo.ys, atol=1e-7 if X64 else 1e-5)

    @pytest.mark.parametrize("batch_size", [1, 2])
    def test_S16_in_an_ensemble(self, batch_size):
        beside_stiff = self.first(1.0, 200.0, batch_size=batch_size)
        np.testing.assert_array_equal(
            beside_stiff, self.first(1.0, 1.0, batch_size=batch_size)
        )
        self.agree(beside_stiff)

    def test_S16_by_vmap(self):
        solve = functools.partial(tfjax.solve, scaled_decay, jnp.ones(1), **self.KWARGS)
        run = jax.jit(jax.vmap(lambda rate: solve(rate).ys))
        beside_stiff = run(jnp.array([1.0, 200.0]))[0]
        np.testing.assert_array_equal(beside_stiff, run(jnp.ones(2))[0])
        self.agree(beside_stiff)

    @few
    @given(rate=reals(0.125, 200))
    def test_S16_beside_any_neighbour(self, rate):
        np.testing.assert_array_equal(self.first(1.0, rate), self.first(1.0, 1.0))


class TestS17:
    """NaN in the initial state is named, or reported in the result of its member."""

    X0 = jnp.array([[jnp.nan, 1.0], [0.0, 1.0]])

    def run(self, x0, **kwargs):
        kwargs = {"t1": 1.0, "manifold": Sphere(2)} | kwargs
        return tfjax.solve(self_attention, x0, **kwargs)

    @pytest.mark.parametrize("dt0", [None, 0.1])
    @pytest.mark.parametrize("dtype", [None, "float16"])
    def test_S17_is_named_with_its_place(self, dt0, dtype):
        text = r"`y0` must be finite, with no zero row, but was nan at index \(0, 0\)"
        with pytest.raises(ValueError, match=text):
            self.run(self.X0.astype(dtype or self.X0.dtype), dt0=dt0)

    @pytest.mark.parametrize("dt0", [None, 0.1])
    def test_S17_without_throw_is_reported_and_costs_one_step(self, dt0):
        sol = self.run(self.X0, dt0=dt0, throw=False)
        assert not dfx.is_okay(sol.result)
        assert int(sol.stats["num_steps"]) <= 1

    def test_S17_inside_jit_is_a_run_time_error_naming_y0(self):
        run = eqx.filter_jit(lambda x0: self.run(x0).ys)
        with pytest.raises(RuntimeError, match="`y0` must be finite"):
            run(self.X0).block_until_ready()

    @pytest.mark.parametrize("batch_size", [1, 6])
    def test_S17_in_an_ensemble_touches_no_neighbour(self, batch_size):
        tokens = SPHERE.random(jax.random.key(0), (6, 8))
        bad = tokens.at[1, 0, 0].set(jnp.nan).at[4, 2].set(0.0)
        kwargs = {"t1": 2.0, "manifold": SPHERE, "batch_size": batch_size}
        args = AttentionParams(beta=4.0)
        run = lambda x0: tfjax.solve_ensemble(
            self_attention, x0, args, max_steps=100, **kwargs
        )
        found, healthy = run(bad), run(tokens)
        good = np.array([0, 2, 3, 5])
        np.testing.assert_array_equal(dfx.is_okay(found.result), [1, 0, 1, 1, 0, 1])
        np.testing.assert_array_equal(found.ys[good], healthy.ys[good])

    @few
    @given(
        row=st.integers(0, 1),
        column=st.integers(0, 1),
        value=st.sampled_from([np.nan, np.inf, -np.inf]),
    )
    def test_S17_any_nonfinite_entry_is_named(self, row, column, value):
        x0 = jnp.ones((2, 2)).at[row, column].set(value)
        text = rf"but was {value} at index \({row}, {column}\)"
        with pytest.raises(ValueError, match=text):
            self.run(x0)
        assert not dfx.is_okay(self.run(x0, throw=False).result)


class TestS18:
    """Integers are an exact subset of the reals."""

    def end(self, y0, **kwargs):
        return tfjax.solve(decay, y0, t0=0, t1=1, **kwargs).ys[-1]

    def test_S18_an_integer_state_over_integer_times(self):
        found = self.end(jnp.array([1, 2], jnp.int32))
        assert jnp.issubdtype(found.dtype, jnp.floating)
        np.testing.assert_allclose(found, [0.367879, 0.735759], atol=1e-5)

    @pytest.mark.parametrize("dtype", ["int8", "uint16", "int32"])
    def test_S18_under_jit_and_vmap(self, dtype):
        y0 = jnp.array([[1, 2], [3, 4]], dtype)
        found = jax.jit(jax.vmap(self.end))(y0)
        exact = 0.367879 * np.array([[1, 2], [3, 4]])
        np.testing.assert_allclose(found, exact, atol=1e-5)

    def test_S18_integer_beta_is_its_float_alone_and_under_vmap(self, tokens):
        run = lambda beta: attention(tokens, AttentionParams(beta), dt0=0.25).ys[-1]
        for one, two in ((2, 2.0), (jnp.asarray(2), jnp.asarray(2.0))):
            np.testing.assert_array_equal(run(one), run(two))
        many = jax.jit(jax.vmap(run))
        whole = many(jnp.array([1, 2]))
        np.testing.assert_array_equal(whole, many(jnp.array([1.0, 2.0])))

    @few
    @given(y0=st.lists(st.integers(-1000, 1000), min_size=2, max_size=2))
    def test_S18_any_integers_give_what_their_floats_give(self, y0):
        floats = jnp.array(y0, float)
        np.testing.assert_array_equal(self.end(jnp.array(y0)), self.end(floats))


class TestS19:
    """The last of many constant steps ends at the end time."""

    def run(self, t1=5.9, dt0=1e-4, y0=1.0, **kwargs):
        y0 = jnp.full(1, y0, jnp.float32)
        kwargs = {"ts": [t1], "max_steps": 60_000} | kwargs
        return tfjax.solve(decay, y0, t1=t1, dt0=dt0, **kwargs)

    def test_S19_the_time_is_exact_and_the_value_right(self):
        sol = self.run()
        assert sol.ts[-1] == np.float32(5.9)
        np.testing.assert_allclose(sol.ys[-1], 0.0027394, rtol=1e-3)

    @pytest.mark.parametrize("saveat", [dfx.SaveAt(t1=True), dfx.SaveAt(ts=[0.0, 5.9])])
    def test_S19_whatever_is_saved(self, saveat):
        sol = self.run(ts=None, saveat=saveat)
        assert sol.ts[-1] == np.float32(5.9)
        np.testing.assert_allclose(sol.ys[-1], 0.0027394, rtol=1e-3)

    def test_S19_under_jit_and_vmap(self):
        run = jax.jit(jax.vmap(lambda t1: self.run(t1, ts=None).ys[-1, 0]))
        t1 = jnp.array([5.9, 4.7], jnp.float32)
        np.testing.assert_allclose(run(t1), np.exp(-np.asarray(t1)), rtol=1e-3)

    def test_S19_a_step_below_the_spacing_of_the_clock_is_refused(self):
        with pytest.raises(ValueError, match="`dt0` must be at least 0.000488, the sp"):
            self.run(4097.0, t0=4096.0)

    @few
    @given(t1=reals(0.5, 5.875), steps=st.integers(1000, 50_000))
    def test_S19_any_end_and_any_number_of_steps(self, t1, steps):
        sol = self.run(t1, t1 / steps)
        assert sol.ts[-1] == np.float32(t1)
        np.testing.assert_allclose(sol.ys[-1], np.exp(-t1), rtol=1e-3)


class TestS20:
    """A record of all steps is told from its tail by `saved`."""

    def record(self, y0, dt0=0.25, **kwargs):
        saveat = dfx.SaveAt(steps=True)
        kwargs = {"t1": 1.0, "dt0": dt0, "max_steps": 16, "saveat": saveat} | kwargs
        return tfjax.solve(decay, y0, **kwargs)

    def test_S20_four_records_their_mean_and_its_gradient(self):
        def total(y0):
            sol = self.record(y0)
            return jnp.sum(sol.ys, where=saved(sol)[:, None]), sol

        gradient, sol = jax.grad(total, has_aux=True)(jnp.ones(1))
        kept = saved(sol)
        np.testing.assert_array_equal(kept, np.arange(16) < 4)
        assert np.all(np.isinf(sol.ys[~kept]))
        np.testing.assert_array_equal(sol.ts[kept], [0.25, 0.5, 0.75, 1.0])
        mean = jnp.mean(sol.ys, where=kept[:, None])
        np.testing.assert_allclose(mean, 0.556394, atol=1e-4)
        np.testing.assert_allclose(gradient, [2.22558], rtol=1e-4)

    def test_S20_five_with_the_start(self):
        saveat = dfx.SaveAt(t0=True, steps=True)
        assert int(saved(self.record(jnp.ones(1), saveat=saveat)).sum()) == 5

    def test_S20_per_member_of_an_ensemble_in_float32(self):
        y0 = jnp.array([1.0, 2.0, jnp.nan], jnp.float32)[:, None]
        steps = dfx.SaveAt(steps=True)
        for batch_size in (1, 3):
            kwargs = {"t1": 1.0, "dt0": 0.25, "max_steps": 16, "saveat": steps}
            sol = tfjax.solve_ensemble(decay, y0, batch_size=batch_size, **kwargs)
            # The member that is lost has written a record, but not of a state.
            assert saved(sol).sum(axis=1).tolist() == [4, 4, 0]

    def test_S20_under_jit_and_vmap(self):
        count = lambda y0: saved(self.record(y0)).sum()
        np.testing.assert_array_equal(jax.jit(jax.vmap(count))(jnp.ones((2, 3))), 4)

    @few
    @given(dt0=reals(0.0703125, 1.0))
    def test_S20_any_step(self, dt0):
        sol = self.record(jnp.ones(1), dt0)
        kept = saved(sol)
        assert int(kept.sum()) == int(sol.stats["num_steps"]) == np.ceil(1 / dt0)
        exact = np.exp(-np.asarray(sol.ts[kept]))
        np.testing.assert_allclose(sol.ys[kept][:, 0], exact, atol=1e-3)


def end(y0, rate, adjoint=None):
    return tfjax.solve(scaled_decay, y0, rate, t1=1.0, adjoint=adjoint).ys[-1]


@jax.jit
@jax.vmap
def derivatives(y0, rate):
    """J by reverse and by forward mode, and the Hessian of the square."""
    square = lambda y: end(y, rate, second_order()) ** 2
    reverse = jax.jacrev(lambda y: end(y, rate))(y0)
    forward = jax.jacfwd(lambda y: end(y, rate, forward_mode()))(y0)
    return reverse, forward, jax.hessian(square)(y0)


@pytest.mark.slow
class TestS21:
    """Derivatives of y(1) = y0 exp(-a): J by both modes, and H of y(1) squared."""

    def test_S21_reverse_and_forward_mode_eagerly(self):
        reverse = jax.jacrev(end)(jnp.ones(1), 1.0)
        forward = jax.jacfwd(end)(jnp.ones(1), 1.0, forward_mode())
        np.testing.assert_allclose(reverse, [[0.367879]], atol=1e-5)
        np.testing.assert_allclose(forward, [[0.367879]], atol=1e-5)

    def test_S21_forward_mode_in_float32(self):
        forward = jax.jacfwd(end)(jnp.ones(1, jnp.float32), 1.0, forward_mode())
        assert forward.dtype == jnp.float32
        np.testing.assert_allclose(forward, [[0.367879]], atol=1e-5)

    def test_S21_all_three_under_jit_and_vmap(self):
        reverse, forward, hessian = derivatives(jnp.ones(2), jnp.ones(2))
        np.testing.assert_allclose(reverse, 0.367879, atol=1e-5)
        np.testing.assert_allclose(forward, 0.367879, atol=1e-5)
        np.testing.assert_allclose(hessian, 0.270671, atol=1e-5)

    @pytest.mark.parametrize(
        ("derivative", "option"),
        [(jax.jacfwd, "forward_mode"), (jax.hessian, "second_order")],
    )
    @pytest.mark.parametrize("compile", [lambda f: f, jax.jit])
    def test_S21_a_mode_not_offered_names_the_option(self, derivative, option, compile):
        text = rf"`adjoint` must be tfjax.integrate.{option}\(\) for .* but was Recursi"
        with pytest.raises(ValueError, match=text):
            compile(derivative(end))(jnp.ones(1), 1.0)

    @few
    @given(y0=reals(-2, 2), rate=reals(-1, 2))
    def test_S21_any_rate_from_any_start(self, y0, rate):
        pair = lambda x: jnp.array([x, 1.0])
        reverse, forward, hessian = (d[0] for d in derivatives(pair(y0), pair(rate)))
        np.testing.assert_allclose(reverse, np.exp(-rate), rtol=1e-4)
        np.testing.assert_allclose(forward, np.exp(-rate), rtol=1e-4)
        np.testing.assert_allclose(hessian, 2 * np.exp(-2 * rate), rtol=1e-4)


def series(y0, ts, rate):
    kwargs = {"t1": 3.0, "ts": ts, "rtol": 1e-7, "atol": 1e-7}
    return tfjax.solve(scaled_decay, y0, rate, **kwargs).ys


slopes = jax.jit(jax.vmap(jax.jacrev(series), in_axes=(0, None, None)))


class TestS22:
    """Gradients at intermediate times of y' = -2 y are exp(-2 t), and 1 at t = 0."""

    TS = jnp.array([0.0, 0.5, 1.0, 3.0])
    EXACT = (1, 0.367879, 0.135335, 0.00247875)

    def test_S22_eagerly(self):
        jacobian = jax.jacrev(series)(jnp.asarray(1.0), self.TS, 2.0)
        np.testing.assert_allclose(jacobian, self.EXACT, atol=1e-5)
        assert jacobian[0] == 1

    def test_S22_of_a_sum_in_float32(self):
        total = lambda y0: jnp.sum(series(y0, self.TS, 2.0))
        gradient = jax.grad(total)(jnp.asarray(1.0, jnp.float32))
        assert gradient.dtype == jnp.float32
        np.testing.assert_allclose(gradient, sum(self.EXACT), atol=2e-5)

    def test_S22_under_jit_and_vmap(self):
        jacobian = slopes(jnp.array([1.0, -3.0]), self.TS, jnp.asarray(2.0))
        np.testing.assert_allclose(jacobian, [self.EXACT, self.EXACT], atol=1e-5)
        np.testing.assert_array_equal(jacobian[:, 0], 1)

    @few
    @given(times=st.lists(reals(0, 3), min_size=3, max_size=3), rate=reals(0, 4))
    def test_S22_at_any_times(self, times, rate):
        ts = np.array([0.0, *sorted(times)])
        args = (jnp.ones(2), jnp.asarray(ts), jnp.asarray(rate))
        jacobian = slopes(*args)[0]
        np.testing.assert_allclose(jacobian, np.exp(-rate * ts), atol=1e-5)
        assert jacobian[0] == 1


MEMORY = """
    import ctypes, sys
    import diffrax as dfx, jax, jax.numpy as jnp, tfjax
    from tfjax.fields import AttentionParams, self_attention
    from tfjax.geometry import Sphere
    from tfjax.integrate import reverse_mode

    steps, checkpoints = int(sys.argv[1]), int(sys.argv[2]) or None
    kwargs = {"t1": 1.0, "dt0": 1 / steps, "max_steps": steps + 1}
    kwargs |= {"solver": dfx.Heun(), "manifold": Sphere(16)}
    kwargs |= {"adjoint": reverse_mode(checkpoints)}
    args = AttentionParams(beta=1.0)
    x0 = Sphere(16).random(jax.random.key(0), (512,))
    loss = lambda x: jnp.sum(tfjax.solve(self_attention, x, args, **kwargs).ys)
    gradient = jax.jit(jax.grad(loss)).lower(x0).compile()

    def kilobytes(name):
        with open("/proc/self/status") as lines:
            return next(int(l.split()[1]) for l in lines if l.startswith(name))

    # The mark of compiling is taken down, or it would hide that of the run.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = kilobytes("VmHWM")
    gradient(x0).block_until_ready()
    print(kilobytes("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc")
class TestS23:
    """The backward pass keeps checkpoints, not steps: 512 tokens in R^16, Heun."""

    def rise(self, steps, checkpoints):
        program = [sys.executable, "-c", textwrap.dedent(MEMORY)]
        program += [str(steps), str(checkpoints)]
        done = subprocess.run(program, capture_output=True, text=True, check=True)
        return int(done.stdout)

    @pytest.mark.parametrize(("checkpoints", "most"), [(8, 2), (0, 5)])
    def test_S23_memory_of_1024_steps_over_that_of_64(self, checkpoints, most):
        few, many = self.rise(64, checkpoints), self.rise(1024, checkpoints)
        assert few > 1000  # a gradient of this size takes megabytes
        assert many < most * few

    @staticmethod
    @functools.cache
    def program(steps, checkpoints, n=16, dtype=jnp.float32, batch=None):
        """Bytes that the compiled gradient keeps besides its arguments and results."""

        def total(x0):
            how = {"adjoint": reverse_mode(checkpoints), "solver": dfx.Heun()}
            return jnp.sum(attention(x0, t1=1.0, dt0=1 / steps, **how).ys[-1])

        gradient = jax.grad(total) if batch is None else jax.vmap(jax.grad(total))
        shape = (n, 3) if batch is None else (batch, n, 3)
        compiled = jax.jit(gradient).lower(jax.ShapeDtypeStruct(shape, dtype)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    @pytest.mark.parametrize(
        "how",
        [{}, {"n": 7}, {"dtype": jnp.zeros(()).dtype}, {"batch": 3}],
        ids=["plain", "another shape", "default dtype", "vmap"],
    )
    def test_S23_the_program_needs_no_more_for_1024_steps(self, how):
        assert self.program(1024, 8, **how) < 2 * self.program(64, 8, **how)

    @settings(max_examples=4)
    @given(st.integers(17, 4000), st.sampled_from([4, 16]))
    def test_S23_the_program_needs_as_much_for_any_number_of_steps(self, steps, kept):
        assert self.program(steps, kept) < 2 * self.program(64, kept)


class TestS24:
    """A sweep over a scalar is traced once."""

    def counted(self):
        traces = []

        def field(t, x, args):
            traces.append(1)
            return self_attention(t, x, args)

        def run(beta, **kwargs):
            x0 = SPHERE.random(jax.random.key(0), (8,))
            kwargs = {"t1": 1.0} | kwargs
            return tfjax.solve(field, x0, AttentionParams(beta=beta), **kwargs).ys[-1]

        return run, traces

    def test_S24_floats_and_then_arrays(self):
        run, traces = self.counted()
        sweep = [run(1.0)]
        once = len(traces)
        sweep += [run(beta) for beta in (2.0, 3.0, 4.0)]
        assert len(traces) == once
        assert all(
            np.abs(a - b).max() > 1e-3 for a, b in zip(sweep, sweep[1:], strict=False)
        )
        arrays = [run(jnp.asarray(beta)) for beta in (1.0, 2.0, 3.0, 4.0)]
        np.testing.assert_array_equal(arrays, sweep)
        assert len(traces) <= 2 * once

    def test_S24_integers_mixed_with_floats(self):
        run, traces = self.counted()
        run(1)
        once = len(traces)
        for beta in (2.0, 3, 4.0):
            run(beta)
        assert len(traces) <= 2 * once

    def test_S24_times_and_tolerances_too(self):
        run, traces = self.counted()
        run(1.0, t1=1.0, rtol=1e-5)
        once = len(traces)
        for beta, t1, rtol in [(2.0, 1.5, 1e-6), (3.0, 2.0, 1e-5), (4.0, 2.5, 1e-4)]:
            run(beta, t1=t1, rtol=rtol)
        assert len(traces) == once

    def test_S24_vmap_equals_the_loop(self):
        run, _ = self.counted()
        betas = jnp.array([1.0, 2.0, 3.0, 4.0])
        # Constant steps: adaptive ones amplify the rounding of another program.
        loop = np.stack([run(beta, dt0=0.125) for beta in betas])
        whole = jax.jit(jax.vmap(lambda beta: run(beta, dt0=0.125)))(betas)
        np.testing.assert_allclose(whole, loop, atol=1e-6)

    @few
    @given(betas=st.lists(reals(0, 9), min_size=2, max_size=4))
    def test_S24_any_sweep(self, betas):
        run, traces = SWEEP
        if not traces:
            run(1.0)
        before = len(traces)
        for beta in betas:
            run(beta)
        assert len(traces) == before


SWEEP = TestS24().counted()
