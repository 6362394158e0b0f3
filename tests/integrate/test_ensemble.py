"""`solve_ensemble`: each member as alone, failures contained, axes, devices."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere


SPHERE = Sphere(3)
ARGS = AttentionParams(beta=4.0)
KWARGS = {"t1": 2.0, "manifold": SPHERE}


@pytest.fixture(scope="module")
def tokens():
    return SPHERE.random(jax.random.key(0), (6, 8))


@pytest.fixture(scope="module")
def alone(tokens):
    """Every member solved by itself."""
    runs = [tfjax.solve(self_attention, x0, ARGS, **KWARGS) for x0 in tokens]
    return np.stack([run.ys for run in runs])


@pytest.mark.parametrize("batch_size", [None, 1, 4, 6, 100])
def test_members_equal_their_solo_runs(tokens, alone, batch_size, tol):
    sol = tfjax.solve_ensemble(
        self_attention, tokens, ARGS, batch_size=batch_size, **KWARGS
    )
    np.testing.assert_allclose(sol.ys, alone, atol=10 * tol.identity)
    assert sol.ts.shape == (6, 1)
    assert all(stat.shape == (6,) for stat in sol.stats.values())
    assert dfx.is_okay(sol.result).shape == (6,)


def test_throw_names_the_members_that_failed(tokens):
    bad = tokens.at[1, 0, 0].set(jnp.nan).at[4, 2].set(0.0)
    text = r"2 of 6 members failed \(numbers 1, 4\)\. Member 1: .* not finite"
    with pytest.raises(RuntimeError, match=text):
        tfjax.solve_ensemble(self_attention, bad, ARGS, throw=True, **KWARGS)


def test_step_limit_is_reported_per_member(tokens):
    sol = tfjax.solve_ensemble(
        self_attention, tokens, ARGS, t1=50.0, max_steps=3, ts=[0.0, 50.0]
    )
    assert not np.any(dfx.is_okay(sol.result))
    assert np.all(np.isinf(sol.ys[:, -1]))


class TestAxes:
    def test_a_dict_names_batched_parameters(self, tokens, alone, tol):
        args = AttentionParams(beta=jnp.array([1.0, 4.0]), value=jnp.eye(3))
        for axes in ({"beta": 0}, AttentionParamsAxes(0)):
            sol = tfjax.solve_ensemble(
                self_attention, tokens[3], args, in_axes=(None, axes), **KWARGS
            )
            np.testing.assert_allclose(sol.ys[1], alone[3], atol=10 * tol.identity)

    def test_batch_axis_may_stand_elsewhere(self, tokens, alone, tol):
        moved = jnp.moveaxis(tokens, 0, -1)
        sol = tfjax.solve_ensemble(
            self_attention, moved, ARGS, in_axes=(-1, None), **KWARGS
        )
        np.testing.assert_allclose(sol.ys, alone, atol=10 * tol.identity)

    @pytest.mark.parametrize(
        ("axes", "text"),
        [
            ((0, 0), "name an axis of each batched array, but was 0 for a leaf"),
            ((None, None), "select batch axes of one length"),
            ((0, {"bta": 0}), "name fields of .*, but was .'bta'."),
            (0, "be a pair, for y0 and args, but was 0"),
            ((7, None), "name an axis of each batched array, but was 7"),
        ],
    )
    def test_bad_axes_are_named(self, tokens, axes, text):
        with pytest.raises(ValueError, match=f"`in_axes` must {text}"):
            tfjax.solve_ensemble(self_attention, tokens, ARGS, in_axes=axes, **KWARGS)

    def test_axes_of_different_lengths_are_refused(self, tokens):
        args = AttentionParams(beta=jnp.ones(5))
        with pytest.raises(ValueError, match=r"one length.*\[5, 6\]"):
            tfjax.solve_ensemble(
                self_attention, tokens, args, in_axes=(0, {"beta": 0}), **KWARGS
            )

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize("batch_size", [0, -1, True, 2.5, "a"])
    def test_bad_batch_size_is_named(self, tokens, batch_size):
        with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
            tfjax.solve_ensemble(
                self_attention, tokens, ARGS, batch_size=batch_size, **KWARGS
            )


def AttentionParamsAxes(beta):
    """Axes in the shape of the parameters, as `jax.vmap` takes them."""
    return eqx.tree_at(
        lambda p: (p.beta, p.value), AttentionParams(value=jnp.eye(3)), (beta, None)
    )


@pytest.mark.skipif(len(jax.devices()) < 2, reason="needs two devices")
class TestDevices:
    @pytest.mark.parametrize("batch_size", [None, 6])
    def test_spread_over_devices_gives_the_same(self, tokens, alone, batch_size, tol):
        mesh = Mesh(np.array(jax.devices()[:2]), ("members",))
        sol = tfjax.solve_ensemble(
            self_attention, tokens, ARGS, batch_size=batch_size, mesh=mesh, **KWARGS
        )
        np.testing.assert_allclose(sol.ys, alone, atol=10 * tol.identity)
        assert sol.ys.sharding.spec[0] in ("members", ("members",))
        assert sol.ys.sharding.spec[1:] in ((), PartitionSpec()[1:])

    def test_members_that_do_not_divide_are_refused(self, tokens):
        mesh = Mesh(np.array(jax.devices()[:2]), ("members",))
        with pytest.raises(ValueError, match="`mesh` must have a number of devices"):
            tfjax.solve_ensemble(self_attention, tokens[:5], ARGS, mesh=mesh, **KWARGS)


def test_progress_bar_counts_members(tokens, capfd):
    tfjax.solve_ensemble(self_attention, tokens, ARGS, progress=True, **KWARGS)
    jax.effects_barrier()
    captured = capfd.readouterr()
    assert "100.00%" in captured.out + captured.err


@pytest.mark.slow
def test_gradient_through_an_ensemble_equals_the_members(tokens):
    def loss(beta, x0, solver):
        kwargs = KWARGS | {"dt0": 0.1, "solver": dfx.Heun()}
        sol = solver(self_attention, x0, AttentionParams(beta), **kwargs)
        return jnp.sum(sol.ys[..., 0])

    beta = jnp.asarray(4.0)
    together = jax.grad(loss)(beta, tokens[:2], tfjax.solve_ensemble)
    apart = sum(jax.grad(loss)(beta, x0, tfjax.solve) for x0 in tokens[:2])
    np.testing.assert_allclose(together, apart, rtol=1e-4)
