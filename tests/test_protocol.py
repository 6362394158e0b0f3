"""What every public field, energy and manifold keeps, in one test for all of them.

The public names are read from the rooms. One that has no sample here fails the first
test, so nothing new goes unchecked: add its samples to the table below.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import tfjax
from tfjax import energies, fields, geometry
from tfjax.fields import AttentionParams


N, D = 5, 3
X64 = jax.config.jax_enable_x64
DTYPE = jnp.zeros(()).dtype
DTYPES = ("float64", "float32", "bfloat16", "float16")

# Public names of the rooms that are no field, energy or manifold.
NO_FIELDS = {"AttentionParams", "VectorField"}
NO_ENERGIES: set[str] = set()
NO_MANIFOLDS = {"AbstractManifold"}


# --- Samples --------------------------------------------------------------------------


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(DTYPE)


def points(*shape, seed=0):
    x = random(*shape, seed=seed)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def orthogonal():
    return np.linalg.qr(random(D, D, seed=9))[0].astype(DTYPE)


PERMUTATION = np.array([3, 0, 4, 1, 2])


def rotate_params(params, r):
    """The parameters after a change of coordinates x -> R x."""
    turn = lambda w, side: None if w is None else side(w)
    d = np.eye(D, dtype=r.dtype)
    return AttentionParams(
        beta=params.beta,
        query=turn(params.query, lambda w: w @ r.T),
        key=turn(params.key, lambda w: w @ r.T),
        value=turn(params.value, lambda w: r @ w @ r.T @ d),
        mask=params.mask,
        chunk_size=params.chunk_size,
    )


def permute_params(params, order):
    one = lambda m: m[order] if m.ndim == 1 else m[order][:, order]
    return eqx.tree_at(
        lambda p: p.mask,
        params,
        jax.tree.map(one, params.mask),
        is_leaf=lambda mask: mask is None,
    )


@dataclass(frozen=True)
class Sample:
    """One way to call a function of tokens: its parameters, and what it respects."""

    call: Callable[[Any, Any], Any]  # (x, params) -> a velocity or an energy
    params: Any
    vector: bool  # whether the result turns and permutes with x; else it is invariant
    rotate: Callable[[Any, Any], Any] = lambda params, r: params
    permute: Callable[[Any, Any], Any] | None = lambda params, order: params


def field_samples(field):
    """Plain, general and causal parameters for an attention field."""
    weights = {
        "query": random(2, 2, D, seed=1),
        "key": random(2, 2, D, seed=2),
        "value": random(2, D, D, seed=3),
    }
    exists = np.array([True, False, True, True, True])
    pairs = np.random.default_rng(4).random((N, N)) < 0.7
    variants = {
        "plain": AttentionParams(beta=DTYPE.type(1.3)),
        "heads and masks": AttentionParams(
            beta=DTYPE.type(0.4), **weights, mask=(exists, pairs)
        ),
        "causal": AttentionParams(beta=DTYPE.type(1.3), mask="causal"),
    }
    call = functools.partial(field, 0.25)
    return {
        name: Sample(
            call,
            params,
            True,
            rotate_params,
            None if name == "causal" else permute_params,
        )
        for name, params in variants.items()
    }


def energy_samples(energy, variants):
    def rotate(params, r):
        turned = {k: r @ w @ r.T for k, w in params.items() if k == "bilinear"}
        return params | turned

    def sample(options):
        static = {k: v for k, v in options.items() if isinstance(v, bool)}
        arrays = {k: v for k, v in options.items() if k not in static}
        call = lambda x, params: energy(x, **params, **static)
        return Sample(call, arrays, False, rotate)

    return {name: sample(options) for name, options in variants.items()}


BILINEAR = random(D, D, seed=6)

FIELDS = {
    "self_attention": field_samples(fields.self_attention),
    "unnormalized_self_attention": field_samples(fields.unnormalized_self_attention),
}
ENERGIES = {
    "interaction_energy": energy_samples(
        energies.interaction_energy,
        {
            "plain": {"beta": DTYPE.type(2.0)},
            "centred": {"beta": DTYPE.type(0.7), "bilinear": BILINEAR, "centred": True},
        },
    ),
    "log_interaction_energy": energy_samples(
        energies.log_interaction_energy,
        {
            "plain": {"beta": DTYPE.type(1.3)},
            "small beta": {"beta": DTYPE.type(0.1), "bilinear": BILINEAR},
        },
    ),
}
MANIFOLDS = {"Sphere": geometry.Sphere(D), "Euclidean": geometry.Euclidean(D)}
# The arguments of every operation: x and y are points, v is tangent at x, w any vector.
OPERATIONS = {
    "project": "w",
    "projectable": "w",
    "tangent": "xw",
    "exp": "xv",
    "log": "xy",
    "distance": "xy",
    "squared_distance": "xy",
    "transport": "xyv",
    "retract": "xv",
}
SAMPLING = {"random"}

SAMPLES = {
    f"{name}, {variant}": sample
    for table in (FIELDS, ENERGIES)
    for name, samples in table.items()
    for variant, sample in samples.items()
}
every_sample = pytest.mark.parametrize("name", SAMPLES)
every_manifold = pytest.mark.parametrize("name", MANIFOLDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def public(room):
    return {name for name in vars(room) if not name.startswith("_")} - {
        name for name, value in vars(room).items() if inspect.ismodule(value)
    }


def test_every_public_field_energy_and_manifold_has_a_sample():
    assert public(fields) - NO_FIELDS == set(FIELDS)
    assert public(energies) - NO_ENERGIES == set(ENERGIES)
    assert public(geometry) - NO_MANIFOLDS == set(MANIFOLDS)
    abstract = geometry.AbstractManifold.__abstractmethods__ - {"d"}
    assert abstract == set(OPERATIONS) | SAMPLING
    methods = {
        name
        for manifold in MANIFOLDS.values()
        for name, _ in inspect.getmembers(type(manifold), inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == set(OPERATIONS) | SAMPLING


# --- Fields and energies --------------------------------------------------------------


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
    """The result without jit at the sample's own tokens."""
    return np.asarray(SAMPLES[name].call(points(N, D), SAMPLES[name].params))


@every_sample
def test_jit_gives_what_eager_gives(name, tol):
    got = compiled(name)(points(N, D), SAMPLES[name].params)
    close(got, eager(name), tol.identity)
    assert np.abs(eager(name)).max() > 1e-3


@every_sample
def test_a_batch_gives_what_a_loop_gives(name, tol):
    sample = SAMPLES[name]
    xs = np.stack([points(N, D), points(N, D, seed=7), points(N, D, seed=8)])
    betas = np.array([0.3, 0.8, 1.1], DTYPE)
    has_beta = lambda params: (
        params["beta"] if isinstance(params, dict) else params.beta
    )
    with_beta = lambda beta: eqx.tree_at(has_beta, sample.params, jnp.asarray(beta))
    over_both = jax.vmap(lambda x, beta: sample.call(x, with_beta(beta)))
    loop = [compiled(name)(x, with_beta(b)) for x, b in zip(xs, betas, strict=True)]
    close(jax.jit(over_both)(xs, betas), np.stack(loop), tol.identity)


@every_sample
def test_the_gradient_is_the_central_finite_difference(name, tol):
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    sample = SAMPLES[name]
    floats, rest = eqx.partition(sample.params, eqx.is_inexact_array_like)
    floats = jax.tree.map(jnp.asarray, floats)
    weights = random(N, D, seed=10) if sample.vector else 1.0

    def scalar(x, floats):
        out = sample.call(x, eqx.combine(floats, rest))
        return jnp.sum(out * weights)

    x = 1.1 * points(N, D)  # off the sphere too
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
    x = jnp.asarray(points(N, D), dtype)
    got = compiled(name)(x, sample.params)
    assert got.dtype == dtype
    if dtype in ("float16", "bfloat16"):
        wide = compiled(name)(x.astype(jnp.float32), sample.params)
        assert wide.dtype == jnp.float32
        np.testing.assert_array_equal(got, wide.astype(dtype))
    else:
        tolerance = 1e-12 if dtype == "float64" else 2e-6
        close(got, eager(name), tolerance)


@every_sample
def test_a_rotation_of_the_tokens_turns_the_result(name, tol):
    sample, r = SAMPLES[name], orthogonal()
    got = compiled(name)(points(N, D) @ r.T, sample.rotate(sample.params, r))
    expected = eager(name) @ r.T if sample.vector else eager(name)
    close(got, expected, 5 * tol.identity)


@every_sample
def test_a_permutation_of_the_tokens_permutes_the_result_unless_causal(name, tol):
    sample = SAMPLES[name]
    permute = sample.permute or (lambda params, order: params)
    params = permute(sample.params, PERMUTATION)
    got = np.asarray(compiled(name)(points(N, D)[PERMUTATION], params))
    expected = eager(name)[PERMUTATION] if sample.vector else eager(name)
    if sample.permute is None:
        assert np.abs(got - expected).max() > 0.1
    else:
        close(got, expected, 5 * tol.identity)


@pytest.mark.parametrize("name", FIELDS)
def test_a_sweep_over_beta_through_solve_is_traced_once(name):
    traces = []
    field = getattr(fields, name)

    def counted(t, x, args):
        traces.append(None)
        return field(t, x, args)

    ends = []
    for count, beta in enumerate((1.0, 2.0, 3.0, 4.0)):
        params = AttentionParams(beta=beta)
        sol = tfjax.solve(
            counted, points(N, D), params, t1=0.2, dt0=0.1, solver=dfx.Euler()
        )
        ends.append(np.asarray(sol.ys[-1]))
        if count == 0:
            first = len(traces)
    assert len(traces) == first > 0
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(ends, ends[1:], strict=False))


@pytest.mark.parametrize("name", ENERGIES)
def test_a_sweep_over_beta_under_jit_is_traced_once(name):
    traces = []

    @jax.jit
    def counted(x, beta):
        traces.append(None)
        return getattr(energies, name)(x, beta)

    values = [float(counted(points(N, D), beta)) for beta in (1.0, 2.0, 3.0, 4.0)]
    assert len(traces) == 1
    assert len(set(values)) == 4


# --- Manifolds ------------------------------------------------------------------------


@functools.cache
def operands(name):
    """Random points x and y, tangent vectors v at x, and any vector w."""
    batch = 4
    x, y = points(batch, D, seed=20), points(batch, D, seed=21)
    if name == "Euclidean":
        x, y = 2 * x, 3 * y
    w = random(batch, D, seed=22)
    return {"x": x, "y": y, "v": np.asarray(MANIFOLDS[name].tangent(x, w)), "w": w}


def everything(name):
    """A function of the operands that returns the result of every operation."""

    def results(given):
        manifold = MANIFOLDS[name]
        return {
            operation: getattr(manifold, operation)(
                *(given[letter] for letter in takes)
            )
            for operation, takes in OPERATIONS.items()
        }

    return results


@functools.cache
def compiled_operations(name):
    return jax.jit(everything(name))


def close_each(actual, expected, tolerance):
    assert set(actual) == set(expected) == set(OPERATIONS)
    for operation in OPERATIONS:
        message = f"in the operation {operation}"
        a, b = (np.asarray(r[operation], np.float64) for r in (actual, expected))
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance, err_msg=message
        )


@every_manifold
def test_a_manifold_is_a_value_without_leaves(name):
    manifold = MANIFOLDS[name]
    assert jax.tree.leaves(manifold) == []
    assert manifold == type(manifold)(D)
    assert hash(manifold) == hash(type(manifold)(D))
    assert manifold != type(manifold)(D + 1)


@every_manifold
def test_operations_give_by_jit_and_by_vmap_what_an_eager_loop_gives(name, tol):
    given = operands(name)
    each = [everything(name)({k: a[i] for k, a in given.items()}) for i in range(4)]
    loop = {o: np.stack([one[o] for one in each]) for o in OPERATIONS}
    close_each(compiled_operations(name)(given), loop, 5 * tol.identity)
    close_each(jax.jit(jax.vmap(everything(name)))(given), loop, 5 * tol.identity)


@every_manifold
def test_operations_have_the_gradient_of_their_finite_difference(name, tol):
    if not X64:
        pytest.skip("needs JAX_ENABLE_X64: float32 has no digits for a difference")
    given = operands(name)
    smooth = [operation for operation in OPERATIONS if operation != "projectable"]

    def scalars(given):
        out = everything(name)(given)
        weigh = lambda a, k: jnp.sum(a * random(*a.shape, seed=23 + k))
        return jnp.stack(
            [weigh(out[operation], k) for k, operation in enumerate(smooth)]
        )

    value, gradients = jax.jit(scalars), jax.jit(jax.jacrev(scalars))(given)
    step = 1e-5
    for k, argument in enumerate(given):
        direction = random(*given[argument].shape, seed=50 + k)
        shift = lambda s, a=argument, d=direction: given | {a: given[a] + s * d}
        expected = (value(shift(step)) - value(shift(-step))) / (2 * step)
        got = np.sum(np.asarray(gradients[argument]) * direction, axis=(1, 2))
        for operation, a, b in zip(smooth, got, expected, strict=True):
            close = pytest.approx(float(b), rel=tol.composite, abs=tol.composite)
            assert float(a) == close, f"{operation} in {argument}"
            takes = argument in OPERATIONS[operation]
            assert takes or a == 0.0, f"{operation} in {argument}"


@every_dtype
@every_manifold
def test_operations_keep_the_dtype_and_round_half_precision_once(name, dtype):
    if dtype == "float64" and not X64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    run = compiled_operations(name)
    given = {k: jnp.asarray(a, dtype) for k, a in operands(name).items()}
    got = run(given)
    assert got.pop("projectable").dtype == bool
    for operation, result in got.items():
        assert result.dtype == dtype, operation
    if dtype in ("float16", "bfloat16"):
        wide = run({k: a.astype(jnp.float32) for k, a in given.items()})
        for operation, result in got.items():
            expected = wide[operation].astype(dtype)
            np.testing.assert_array_equal(result, expected, err_msg=operation)


@every_dtype
@every_manifold
def test_random_points_have_the_dtype_that_is_asked_for(name, dtype):
    if dtype == "float64" and not X64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    manifold = MANIFOLDS[name]
    x = jax.jit(lambda key: manifold.random(key, (4,), dtype=dtype))(jr.key(0))
    assert (x.shape, x.dtype) == ((4, D), dtype)
    if name == "Sphere":
        eps = float(jnp.finfo(dtype).eps)
        norms = np.linalg.norm(np.asarray(x, np.float64), axis=1)
        np.testing.assert_allclose(norms, np.ones(4), rtol=4 * eps)


@every_manifold
def test_operations_turn_with_their_arguments(name, tol):
    r, given = orthogonal(), operands(name)
    turn = lambda a: np.asarray(a) @ r.T if np.ndim(a) == 2 else np.asarray(a)
    expected = {k: turn(a) for k, a in compiled_operations(name)(given).items()}
    got = compiled_operations(name)({k: a @ r.T for k, a in given.items()})
    close_each(got, expected, 5 * tol.identity)
