"""What every public field and energy keeps, in one test for all of them.

The public names are read from the rooms. One that has no sample in `samples/` fails the
first test, so nothing new goes unchecked. Manifolds: `test_protocol_manifolds.py`.
"""

import functools
import inspect

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import ENERGIES, FIELDS
from samples.base import DTYPE, PERMUTATION, ROTATION, random, with_scalar

import tfjax
from tfjax import energies, fields


X64 = jax.config.jax_enable_x64
DTYPES = ("float64", "float32", "bfloat16", "float16")

# Public names of the rooms that are no field and no energy.
NO_FIELDS = {
    "AbstractNormalization",
    "AttentionParams",
    "BlockParams",
    "FeedForward",
    "Kuramoto",
    "LNScaling",
    "MixNorm",
    "NGPT",
    "NormalizedParams",
    "PeriNorm",
    "PiecewiseConstant",
    "PostNorm",
    "PreNorm",
    "TokenParams",
    "VectorField",
    "present_tokens",
}
NO_ENERGIES: set[str] = set()

SAMPLES = {
    f"{name}, {variant}": sample
    for table in (FIELDS, ENERGIES)
    for name, samples in table.items()
    for variant, sample in samples.items()
}
every_sample = pytest.mark.parametrize("name", SAMPLES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def public(room):
    return {name for name in vars(room) if not name.startswith("_")} - {
        name for name, value in vars(room).items() if inspect.ismodule(value)
    }


def test_every_public_field_and_energy_has_a_sample():
    assert public(fields) - NO_FIELDS == set(FIELDS)
    assert public(energies) - NO_ENERGIES == set(ENERGIES)


def close(actual, expected, tolerance):
    """Equal up to the tolerance times the largest entry, and of the same structure."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


@functools.cache
def compiled(name):
    return eqx.filter_jit(SAMPLES[name].call)


@functools.cache
def eager(name):
    """The result without jit at the sample's own state."""
    return np.asarray(SAMPLES[name].call(SAMPLES[name].state(0), SAMPLES[name].params))


@every_sample
def test_jit_gives_what_eager_gives(name, tol):
    sample = SAMPLES[name]
    got = compiled(name)(sample.state(0), sample.params)
    close(got, eager(name), tol.identity)
    assert np.abs(eager(name)).max() > 1e-3


@every_sample
def test_a_batch_gives_what_a_loop_gives(name, tol):
    sample = SAMPLES[name]
    xs = np.stack([sample.state(0), sample.state(7), sample.state(8)])
    values = np.array([0.3, 0.8, 1.1], DTYPE)
    with_value = lambda value: with_scalar(sample, jnp.asarray(value))
    over_both = jax.vmap(lambda x, value: sample.call(x, with_value(value)))
    loop = [compiled(name)(x, with_value(v)) for x, v in zip(xs, values, strict=True)]
    close(jax.jit(over_both)(xs, values), np.stack(loop), tol.identity)


@every_sample
def test_the_gradient_is_the_central_finite_difference(name, tol):
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    sample = SAMPLES[name]
    floats, rest = eqx.partition(sample.params, eqx.is_inexact_array_like)
    floats = jax.tree.map(jnp.asarray, floats)
    x = 1.1 * sample.state(0)  # off the sphere too
    weights = random(*x.shape, seed=10) if sample.vector else 1.0

    def scalar(x, floats):
        out = sample.call(x, eqx.combine(floats, rest))
        return jnp.sum(out * weights)

    value_and_gradient = jax.jit(jax.value_and_grad(scalar, (0, 1)))
    _, gradient = value_and_gradient(x, floats)
    leaves, tree = jax.tree.flatten((x, floats))
    assert len(leaves) >= 2
    step = 1e-5
    for k in range(len(leaves)):  # each argument in a direction of its own
        direction = random(*np.shape(leaves[k]), seed=11 + k)
        shifted = lambda s, k=k, direction=direction: jax.tree.unflatten(
            tree, [a + s * direction if i == k else a for i, a in enumerate(leaves)]
        )
        up, down = (value_and_gradient(*shifted(s))[0] for s in (step, -step))
        expected = (up - down) / (2 * step)
        leaf = np.asarray(jax.tree.leaves(gradient)[k])
        assert np.abs(leaf).max() > 1e-3  # the argument matters
        got = float(np.sum(leaf * direction))
        assert got == pytest.approx(float(expected), rel=tol.composite, abs=1e-9)


@every_dtype
@every_sample
def test_the_dtype_is_kept_and_half_precision_is_float32_rounded_once(name, dtype):
    if dtype == "float64" and not X64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    sample = SAMPLES[name]
    x = jnp.asarray(sample.state(0), dtype)
    got = compiled(name)(x, sample.params)
    assert got.dtype == dtype
    if dtype in ("float16", "bfloat16"):
        wide = compiled(name)(x.astype(jnp.float32), sample.params)
        assert wide.dtype == jnp.float32
        np.testing.assert_array_equal(got, wide.astype(dtype))
    else:
        tolerance = 1e-12 if dtype == "float64" else 2e-6
        close(got, eager(name), tolerance)


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.rotate])
def test_a_rotation_of_the_state_turns_the_result(name, tol):
    sample, r = SAMPLES[name], ROTATION
    got = compiled(name)(
        sample.turn(sample.state(0), r), sample.rotate(sample.params, r)
    )
    expected = sample.turn_velocity(eager(name), r) if sample.vector else eager(name)
    close(got, expected, 5 * tol.identity)


@every_sample
def test_a_permutation_of_the_tokens_permutes_the_result_unless_causal(name, tol):
    sample = SAMPLES[name]
    permute = sample.permute or (lambda params, order: params)
    params = permute(sample.params, PERMUTATION)
    got = np.asarray(compiled(name)(sample.state(0)[PERMUTATION], params))
    expected = eager(name)[PERMUTATION] if sample.vector else eager(name)
    if sample.permute is None:
        assert np.abs(got - expected).max() > 0.1
    else:
        close(got, expected, 5 * tol.identity)


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.vector])
def test_another_unit_of_time_changes_no_step(name):
    """t -> c t and f -> f / c: bit for bit, for a power of two."""
    sample = SAMPLES[name]
    field = lambda t, x, args: compiled(name)(x, args)
    slow, (h, c) = fields.Scaled(field, 0.25), (0.125, 4)
    x = y = jnp.asarray(sample.state(0))
    for _ in range(2):
        x = x + h * field(0.0, x, sample.params)
        y = y + c * h * slow(0.0, y, sample.params)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", FIELDS)
def test_a_sweep_through_solve_is_traced_once(name):
    sample = next(iter(FIELDS[name].values()))
    traces = []

    def counted(t, x, args):
        traces.append(None)
        return sample.call(x, args)

    ends = []
    for count, value in enumerate((1.0, 2.0, 3.0, 4.0)):
        params = with_scalar(sample, jnp.asarray(value))
        sol = tfjax.solve(
            counted, sample.state(0), params, t1=0.2, dt0=0.1, solver=dfx.Euler()
        )
        ends.append(np.asarray(sol.ys[-1]))
        if count == 0:
            first = len(traces)
    assert len(traces) == first > 0
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(ends, ends[1:], strict=False))


@pytest.mark.parametrize("name", ENERGIES)
def test_a_sweep_under_jit_is_traced_once(name):
    sample = next(iter(ENERGIES[name].values()))
    traces = []

    @jax.jit
    def counted(x, params):
        traces.append(None)
        return sample.call(x, params)

    values = [
        float(counted(sample.state(0), with_scalar(sample, value)))
        for value in (1.0, 2.0, 3.0, 4.0)
    ]
    assert len(traces) == 1
    assert len(set(values)) == 4
