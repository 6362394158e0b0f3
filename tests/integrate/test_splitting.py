"""A sum of fields, one part after the other."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tfjax
from tfjax.fields import Bound, Scaled, Sum
from tfjax.integrate import SplitEuler


A = np.array([[0.0, 1.0, 0.3], [-0.5, 0.1, 0.0], [0.2, 0.0, -0.4]])
B = np.array([[-0.2, 0.0, 0.7], [0.3, 0.0, 0.1], [0.0, -0.6, 0.1]])
Y0 = np.array([1.0, -0.5, 0.25])


def linear(t, y, args):
    return args @ y


FIELD = Sum(Bound(linear, jnp.asarray(A)), Bound(linear, jnp.asarray(B)))


def end(field, steps, **more):
    options = {"t1": 1.0, "dt0": 1 / steps, "solver": SplitEuler()} | more
    return tfjax.solve(field, jnp.asarray(Y0), **options).ys[-1]


def test_a_step_moves_by_one_part_and_then_by_the_next(tol):
    step = (np.eye(3) + B / 8) @ (np.eye(3) + A / 8)
    expected = np.linalg.matrix_power(step, 8) @ Y0
    assert np.abs(end(FIELD, 8) - expected).max() < 10 * tol.identity
    other = Sum(*FIELD.fields[::-1])
    assert np.abs(end(other, 8) - expected).max() > 1e-3


def test_the_order_is_one():
    if not jax.config.jax_enable_x64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for an order")
    exact = scipy.linalg.expm(A + B) @ Y0
    steps = np.array([32, 64, 128])
    errors = [np.linalg.norm(end(FIELD, int(n)) - exact) for n in steps]
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(-1, abs=0.1)


def test_parts_see_the_time_at_the_start_of_a_step(tol):
    field = Sum(lambda t, y, args: t * y, lambda t, y, args: -2 * t * y)
    times = np.arange(4) / 4
    expected = Y0 * np.prod((1 + times / 4) * (1 - times / 2))
    assert np.abs(end(field, 4) - expected).max() < 10 * tol.identity


def test_it_works_in_diffrax_alone_and_interpolates_in_between(tol):
    sol = dfx.diffeqsolve(
        dfx.ODETerm(FIELD),
        SplitEuler(),
        0.0,
        1.0,
        0.125,
        jnp.asarray(Y0),
        saveat=dfx.SaveAt(ts=jnp.array([0.0625, 0.125, 1.0])),
    )
    assert np.abs(sol.ys[2] - end(FIELD, 8)).max() < 10 * tol.identity
    assert np.abs(sol.ys[0] - (sol.ys[1] + Y0) / 2).max() < 10 * tol.identity


def test_members_and_gradients(tol):
    starts = jnp.asarray(np.stack([Y0, -2 * Y0]))
    options = {"t1": 1.0, "dt0": 0.125, "solver": SplitEuler()}
    both = tfjax.solve_ensemble(FIELD, starts, **options).ys[:, -1]
    alone = end(FIELD, 8)
    assert np.abs(both - np.stack([alone, -2 * alone])).max() < 10 * tol.identity

    def energy(y0):
        return jnp.sum(tfjax.solve(FIELD, y0, **options).ys[-1] ** 2)

    step = (np.eye(3) + B / 8) @ (np.eye(3) + A / 8)
    whole = np.linalg.matrix_power(step, 8)
    expected = 2 * whole.T @ whole @ Y0
    found = jax.grad(energy)(jnp.asarray(Y0))
    assert np.abs(found - expected).max() < 20 * tol.identity


def test_what_it_cannot_split_is_named():
    for field in (lambda t, y, args: -y, Scaled(FIELD, 2.0)):
        with pytest.raises(ValueError, match="`field` must be a Sum, or have `parts`"):
            end(field, 4)
    wrong = Sum(lambda t, y, args: -y, lambda t, y, args: y)
    with pytest.raises(ValueError, match="`adjoint` must not be BacksolveAdjoint for"):
        end(wrong, 4, adjoint=dfx.BacksolveAdjoint())
    with pytest.raises(ValueError, match="`dt0` must be given"):
        end(wrong, 4, dt0=None)

    class Pair:
        parts = (lambda t, y, args: -y, lambda t, y, args: y[:1])

        def __call__(self, t, y, args):
            return -y

    with pytest.raises(ValueError, match="`field` must have parts that return the"):
        end(Pair(), 4)
