"""`solve`: closed forms, times, dtypes, padding, errors at the door, derivatives."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import AttentionParams, self_attention, unnormalized_self_attention
from tfjax.geometry import Sphere
from tfjax.integrate import Projected


SPHERE = Sphere(3)
X64 = jax.config.jax_enable_x64


def decay(t, y, args):
    return -y


@pytest.fixture
def tokens():
    return SPHERE.random(jax.random.key(0), (8,))


def attention(x0, args=None, **kwargs):
    kwargs = {"t1": 2.0, "manifold": SPHERE} | kwargs
    return tfjax.solve(self_attention, x0, args, **kwargs)


class TestTimes:
    @pytest.mark.parametrize("dt0", [None, 0.1])
    def test_equal_start_and_end_return_the_state(self, tokens, dt0, tol):
        sol = attention(tokens, t0=1.0, t1=1.0, ts=[1.0, 1.0], dt0=dt0)
        expected = np.stack([tokens, tokens])
        np.testing.assert_allclose(sol.ys, expected, atol=tol.identity)

    def test_saved_times_past_the_end_by_rounding_are_the_end(self, tokens):
        ts = np.array([1.0, np.nextafter(np.float32(2), np.float32(3))], np.float32)
        sol = attention(tokens.astype(jnp.float32), ts=ts)
        np.testing.assert_array_equal(sol.ts, [1.0, 2.0])
        assert dfx.is_okay(sol.result)

    def test_constant_steps_count_as_asked(self, tokens):
        sol = attention(tokens, dt0=0.25)
        assert int(sol.stats["num_steps"]) == 8

    def test_dt0_with_a_tolerance_is_only_the_first_step(self, tokens):
        sol = attention(tokens, dt0=0.001, rtol=1e-4)
        assert int(sol.stats["num_steps"]) < 100


class TestDtypes:
    @pytest.mark.parametrize(
        ("given", "found"),
        [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32")],
    )
    def test_half_precision_states_are_widened_to_float32(self, tokens, given, found):
        sol = attention(tokens.astype(given), AttentionParams(beta=1.0))
        assert sol.ys.dtype == sol.ts.dtype == jnp.dtype(found)

    @pytest.mark.skipif(not X64, reason="float64 needs x64")
    def test_float64_is_kept(self, tokens):
        sol = attention(tokens)
        assert sol.ys.dtype == sol.ts.dtype == jnp.float64


class TestPadding:
    @pytest.mark.parametrize("garbage", [0.0, jnp.nan, jnp.inf])
    @pytest.mark.parametrize("manifold", [SPHERE, None])
    def test_s03_s04_padding_changes_nothing_and_comes_back(
        self, tokens, garbage, manifold, tol
    ):
        padded = jnp.concatenate([tokens, jnp.full((3, 3), garbage)])
        exists = jnp.arange(11) < 8
        saveat = dfx.SaveAt(ts=[0.5, 2.0], dense=True)
        kwargs = {"manifold": manifold, "saveat": saveat}
        bare = attention(tokens, AttentionParams(beta=4.0), **kwargs)
        full = attention(padded, AttentionParams(beta=4.0, mask=exists), **kwargs)
        assert int(bare.stats["num_steps"]) == int(full.stats["num_steps"])
        np.testing.assert_allclose(full.ys[:, :8], bare.ys, atol=10 * tol.identity)
        np.testing.assert_array_equal(full.ys[:, 8:], jnp.full((2, 3, 3), garbage))
        between = full.evaluate(jnp.asarray(0.7))
        np.testing.assert_array_equal(between[8:], jnp.full((3, 3), garbage))
        exact = bare.evaluate(jnp.asarray(0.7))
        np.testing.assert_allclose(between[:8], exact, atol=10 * tol.identity)

    def test_s03_zero_rows_without_a_mask_do_take_part(self, tokens):
        padded = jnp.concatenate([tokens, jnp.zeros((3, 3))])
        # Constant steps: the field is not smooth at the origin, where such rows start.
        kwargs = {"manifold": None, "dt0": 0.1}
        bare = attention(tokens, AttentionParams(beta=1.0), **kwargs)
        full = attention(padded, AttentionParams(beta=1.0), **kwargs)
        assert np.max(np.abs(full.ys[:, :8] - bare.ys)) > 1e-2

    @pytest.mark.slow
    def test_s04_garbage_in_absent_rows_does_not_reach_gradients(self, tokens):
        padded = jnp.concatenate([tokens, jnp.full((3, 3), jnp.nan)])
        exists = jnp.arange(11) < 8

        def loss(x0, mask):
            ys = attention(x0, AttentionParams(beta=4.0, mask=mask)).ys[-1]
            return jnp.sum(ys[:8] ** 3)

        full = jax.grad(loss)(padded, exists)
        bare = jax.grad(lambda x0: loss(x0, None))(tokens)
        np.testing.assert_allclose(full[:8], bare, atol=1e-5)
        np.testing.assert_array_equal(full[8:], 0)

    def test_functions_of_the_state_see_absent_rows_as_they_went_in(self, tokens):
        padded = jnp.concatenate([tokens, jnp.full((1, 3), 7.0)])
        saveat = dfx.SaveAt(t1=True, fn=lambda t, y, args: y[-1])
        args = AttentionParams(mask=jnp.arange(9) < 8)
        np.testing.assert_array_equal(attention(padded, args, saveat=saveat).ys, 7.0)


class TestErrors:
    def test_zero_row_is_named(self, tokens):
        with pytest.raises(ValueError, match=r"no zero row, but was .* at row \(2,\)"):
            attention(tokens.at[2].set(0.0))

    def test_zero_row_without_throw_is_reported(self, tokens):
        sol = attention(tokens.at[2].set(0.0), throw=False)
        assert not dfx.is_okay(sol.result)

    def test_zero_row_is_named_where_only_the_solver_projects(self, tokens):
        solver = Projected(dfx.Tsit5(), SPHERE)
        with pytest.raises(ValueError, match=r"no zero row, but was .* at row \(2,\)"):
            attention(tokens.at[2].set(0.0), manifold=None, solver=solver)

    def test_velocity_of_another_shape_is_refused(self, tokens):
        field = lambda t, x, args: x[0]
        text = r"`field` must return a velocity of the state's shape \(8, 3\), .*\(3,\)"
        with pytest.raises(ValueError, match=text):
            tfjax.solve(field, tokens, t1=1.0, manifold=SPHERE)

    @pytest.mark.parametrize(
        ("name", "value", "rule"),
        [
            ("t1", jnp.nan, "be finite"),
            ("ts", [0.0, jnp.nan], "be finite"),
            ("dt0", 0.0, "be finite and not 0"),
            ("rtol", -1.0, "be finite and not negative"),
        ],
    )
    def test_bad_number_inside_jit_is_a_run_time_error_naming_it(
        self, tokens, name, value, rule
    ):
        run = eqx.filter_jit(lambda value: attention(tokens, **{name: value}).ys)
        with pytest.raises(RuntimeError, match=f"`{name}` must {rule}"):
            run(jnp.asarray(value)).block_until_ready()

    def test_nonfinite_parameters_are_named(self, tokens):
        with pytest.raises(ValueError, match="`beta` must be finite, but was inf"):
            attention(tokens, AttentionParams(beta=jnp.inf))
        value = jnp.eye(3).at[1, 2].set(jnp.nan)
        with pytest.raises(ValueError, match=r"`value` must be finite.*\(1, 2\)"):
            attention(tokens, AttentionParams(value=value))

    @pytest.mark.parametrize(
        ("kwargs", "text"),
        [
            ({"ts": [0.0, 3.0]}, r"`ts` must lie within \[0, 2\], but was 3"),
            ({"ts": [0.0, 1.0, 0.5]}, "`ts` must be increasing.*1 followed by 0.5"),
            ({"ts": [[0.0]]}, r"`ts` must have shape \(t,\)"),
            ({"ts": []}, r"`ts` must have shape \(t,\)"),
            ({"ts": [0.0, jnp.nan]}, "`ts` must be finite"),
            ({"saveat": dfx.SaveAt(ts=[5.0])}, r"`saveat` must lie within \[0, 2\]"),
            ({"ts": [1.0], "saveat": dfx.SaveAt(t1=True)}, "`ts` must be None where"),
            ({"t0": 2.0, "t1": 0.0, "ts": [0.0, 1.0]}, "`ts` must be decreasing"),
            ({"t1": jnp.inf}, "`t1` must be finite, but was inf"),
            ({"t1": [1.0, 2.0]}, r"`t1` must be a scalar, but was of shape \(2,\)"),
            ({"dt0": 0.0}, "`dt0` must be finite and not 0"),
            ({"rtol": -1.0}, "`rtol` must be finite and not negative, but was -1.0"),
            ({"atol": jnp.nan}, "`atol` must be finite and not negative, but was nan"),
            ({"solver": dfx.Euler()}, "`dt0` must be given.*for Euler"),
            ({"max_steps": 0}, "`max_steps` must be a positive integer, but was 0"),
            ({"max_steps": "a"}, "`max_steps` must be a positive integer, but was 'a'"),
            ({"event": 3}, "`event` must be a diffrax.Event or None, but was 3"),
            ({"adjoint": 3}, "`adjoint` must be a diffrax.AbstractAdjoint or None"),
            ({"stepsize_controller": 3}, "`stepsize_controller` must be a diffrax."),
            (
                {"saveat": dfx.SaveAt(ts=jnp.zeros((2, 2)))},
                r"`saveat` must hold times of shape \(t,\), but was times of shape",
            ),
            (
                {"solver": Projected(dfx.Tsit5(), Sphere(4))},
                r"`manifold` must be that of the solver, Sphere\(d=4\), or None",
            ),
            ({"dt0": 1e-4}, "`max_steps` must be at least 20000 for steps of 0.0001"),
            ({"manifold": Sphere(4)}, r"`y0` must have shape \(\.\.\., 4\), as points"),
            ({"adjoint": dfx.BacksolveAdjoint()}, "`adjoint` must not be Backsolve"),
            ({"solver": "tsit5"}, "`solver` must be a diffrax solver, but was 'tsit5'"),
            ({"manifold": "sphere"}, "`manifold` must be a manifold of tfjax.geometry"),
            ({"saveat": 3}, "`saveat` must be a diffrax.SaveAt, but was 3"),
            ({"progress": 3}, "`progress` must be a bool or a diffrax meter"),
            ({"stepsize_controller": dfx.ConstantStepSize()}, "`dt0` must be given"),
        ],
    )
    @pytest.mark.usefixtures("unchecked")
    def test_bad_argument_is_named(self, tokens, kwargs, text):
        with pytest.raises(ValueError, match=text):
            attention(tokens, **kwargs)

    @pytest.mark.parametrize(
        ("y0", "text"),
        [
            (jnp.ones((0, 3)), "`y0` must have no axis of length 0"),
            (jnp.ones(3), r"`x` must have shape \(n, d\), but was of shape \(3,\)"),
            (jnp.ones((2, 8, 3)), r"`x` must have shape \(n, d\)"),
            (
                jnp.ones((8, 4)),
                r"`y0` must have shape \(\.\.\., 3\), .* shape \(8, 4\)",
            ),
            (1.0, r"`y0` must have shape \(\.\.\., 3\), as points"),
            ({"x": jnp.ones((8, 3))}, r"`y0` must have shape \(\.\.\., 3\), as points"),
            ("tokens", "`y0` must be a real array"),
            (
                jnp.ones((8, 3), bool),
                "`y0` must be a real array, but was of dtype bool",
            ),
            (np.ones((8, 3), complex), "`y0` must be a real array"),
            (None, "`y0` must hold at least one array"),
        ],
    )
    @pytest.mark.usefixtures("unchecked")
    def test_bad_state_is_named(self, y0, text):
        with pytest.raises(ValueError, match=text):
            attention(y0)

    @pytest.mark.usefixtures("unchecked")
    def test_parameters_of_another_kind_are_refused(self, tokens):
        with pytest.raises(ValueError, match="`args` must be of type AttentionParams"):
            attention(tokens, 4.0)
        with pytest.raises(ValueError, match="`field` must be a function"):
            tfjax.solve(3, tokens, t1=1.0)

    def test_step_limit_says_how_far_the_solve_came(self, tokens):
        text = "stopped at t = .* after 5 steps: `max_steps` was reached, which was 5"
        with pytest.raises(RuntimeError, match=text):
            attention(tokens, t1=100.0, max_steps=5)
        sol = attention(tokens, t1=100.0, max_steps=5, ts=[0.0, 100.0], throw=False)
        assert not dfx.is_okay(sol.result)
        assert np.all(np.isinf(sol.ys[-1]))

    def test_step_limit_inside_jit_is_a_run_time_error(self, tokens):
        run = eqx.filter_jit(lambda x0: attention(x0, t1=100.0, max_steps=5).ys)
        with pytest.raises(RuntimeError, match="maximum number of solver steps"):
            run(tokens).block_until_ready()

    def test_field_that_overflows_stops_soon_and_says_so(self, tokens):
        args = AttentionParams(beta=1e4)
        with pytest.raises(RuntimeError, match="is the field finite here"):
            tfjax.solve(unnormalized_self_attention, tokens, args, t1=1.0)


class TestProgress:
    def test_bar_is_shown_when_asked_for(self, tokens, capfd):
        attention(tokens, progress=True)
        jax.effects_barrier()
        captured = capfd.readouterr()
        assert "100.00%" in captured.out + captured.err

    def test_nothing_is_printed_otherwise(self, tokens, capfd):
        attention(tokens)
        captured = capfd.readouterr()
        assert not captured.out + captured.err


class TestDerivatives:
    def test_gradient_with_respect_to_beta_is_the_finite_difference(self, tokens):
        def order(beta):
            x = attention(tokens, AttentionParams(beta=beta), dt0=0.1).ys[-1]
            return jnp.linalg.norm(jnp.mean(x, axis=0))

        gradient = jax.grad(order)(jnp.asarray(2.0))
        h = 1e-5 if X64 else 1e-2
        difference = (order(2.0 + h) - order(2.0 - h)) / (2 * h)
        np.testing.assert_allclose(gradient, difference, rtol=1e-7 if X64 else 1e-2)


def test_plain_floats_as_parameters_compile_once():
    traces = []

    def counted(t, y, args):
        traces.append(1)
        return -args * y

    counts = []
    for rate in (1.0, 2.0, 3.0):
        sol = tfjax.solve(counted, jnp.ones(1), rate, t1=1.0)
        np.testing.assert_allclose(sol.ys[-1], np.exp(-rate), rtol=1e-5)
        counts.append(len(traces))
    assert counts[0] == counts[-1]


def test_solution_is_diffrax_own(tokens):
    sol = attention(tokens, ts=[0.0, 1.0, 2.0])
    assert type(sol) is dfx.Solution
    assert sol.ys.shape == (3, 8, 3)
    assert sol.result == dfx.RESULTS.successful
    assert sol.interpolation is None


def test_several_records_keep_their_structure(tokens):
    mean = dfx.SubSaveAt(ts=[0.0, 1.0], fn=lambda t, y, args: y.mean(axis=0))
    saveat = dfx.SaveAt(subs={"mean": mean, "end": dfx.SubSaveAt(t1=True)})
    sol = attention(tokens, saveat=saveat)
    assert sol.ys["mean"].shape == (2, 3)
    assert sol.ys["end"].shape == (1, 8, 3)
