"""What every public manifold keeps, in one test for all of them.

A public manifold that has no sample in `samples/manifolds.py` fails the first test.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from samples import MANIFOLDS
from samples.base import random

from tfjax import geometry


X64 = jax.config.jax_enable_x64
DTYPES = ("float64", "float32", "bfloat16", "float16")
NO_MANIFOLDS = {"AbstractManifold", "PullbackMoments"}

# The arguments of every operation: x and y are points, p is near the manifold, v is
# tangent at x, w is any vector.
OPERATIONS = {
    "project": "p",
    "projectable": "p",
    "tangent": "xw",
    "exp": "xv",
    "log": "xy",
    "distance": "xy",
    "squared_distance": "xy",
    "transport": "xyv",
    "retract": "xv",
    "embed": "x",
}
POINTS, VECTORS = {"project", "exp", "retract"}, {"tangent", "log", "transport"}
SAMPLING = {"random"}

every_manifold = pytest.mark.parametrize("name", MANIFOLDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def test_every_public_manifold_has_a_sample_and_every_operation():
    names = {name for name, value in vars(geometry).items() if inspect.isclass(value)}
    assert names - NO_MANIFOLDS == set(MANIFOLDS)
    abstract = geometry.AbstractManifold.__abstractmethods__ - {"d"}
    assert abstract == set(OPERATIONS) | SAMPLING
    for sample in MANIFOLDS.values():
        members = inspect.getmembers(type(sample.manifold), inspect.isfunction)
        methods = {name for name, _ in members if not name.startswith("_")}
        assert methods == set(OPERATIONS) | SAMPLING


@functools.cache
def operands(name):
    """Random points x and y, p near the manifold, v tangent at x, and any vector w."""
    sample, batch = MANIFOLDS[name], 4
    x, y = sample.points(batch, 20), sample.points(batch, 21)
    w = sample.vectors(batch, 22)
    v = np.asarray(sample.manifold.tangent(x, w))
    return {"x": x, "y": y, "v": v, "w": w, "p": 2 * y + w}


def everything(name):
    """A function of the operands that returns the result of every operation."""

    def results(given):
        manifold = MANIFOLDS[name].manifold
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
    sample = MANIFOLDS[name]
    assert jax.tree.leaves(sample.manifold) == []
    assert sample.make() == sample.make()
    assert hash(sample.make()) == hash(sample.make())
    assert sample.manifold != sample.other


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
        got = (
            np.asarray(gradients[argument]).reshape(len(smooth), -1) @ direction.ravel()
        )
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
    manifold = MANIFOLDS[name].manifold
    x = jax.jit(lambda key: manifold.random(key, (4,), dtype=dtype))(jr.key(0))
    assert (x.shape, x.dtype) == ((4, *manifold.point_shape), dtype)
    # They lie on the manifold.
    eps, x = float(jnp.finfo(dtype).eps), x.astype(jnp.zeros(()).dtype)
    np.testing.assert_allclose(manifold.project(x), x, rtol=0, atol=4 * eps)


@every_manifold
def test_operations_commute_with_an_isometry(name, tol):
    sample, given = MANIFOLDS[name], operands(name)
    moved = {
        k: sample.push(a) if k in "vw" else sample.move(a) for k, a in given.items()
    }
    results = compiled_operations(name)(given)
    got = compiled_operations(name)(moved)

    def bring(operation, result):
        # Points are compared where they are in space: coordinates may have a cut.
        if operation in POINTS:
            return np.asarray(sample.manifold.embed(result))
        if operation == "embed":
            return np.asarray(result @ result.T)  # inner products
        return np.asarray(result)

    def expect(operation, result):
        if operation in POINTS:
            return sample.move(result)
        return sample.push(result) if operation in VECTORS else result

    expected = {o: bring(o, expect(o, r)) for o, r in results.items()}
    got = {o: bring(o, r) for o, r in got.items()}
    close_each(got, expected, 5 * sample.condition * tol.identity)


@pytest.mark.parametrize("name", [n for n, s in MANIFOLDS.items() if s.isometric])
def test_the_embedding_is_isometric(name, tol):
    # |d embed(x)[v]| = |v| for every tangent vector v.
    manifold, given = MANIFOLDS[name].manifold, operands(name)
    push = lambda x, v: jax.jvp(manifold.embed, (x,), (v,))[1]
    pushed = jax.jit(push)(given["x"], given["v"])
    norm = lambda a: np.linalg.norm(np.reshape(a, (len(a), -1)), axis=-1)
    np.testing.assert_allclose(norm(pushed), norm(given["v"]), rtol=5 * tol.identity)


@every_manifold
@pytest.mark.parametrize("batch", [(), (2, 2)], ids=["a point", "a batch"])
def test_the_derivative_of_log_where_points_coincide_is_the_identity(name, batch, tol):
    """On tangent vectors; second derivatives exist there as well."""
    manifold, given = MANIFOLDS[name].manifold, operands(name)
    shape = manifold.point_shape
    x, v = (
        jnp.asarray(given[k].reshape(2, 2, *shape) if batch else given[k][0])
        for k in "xv"
    )

    @jax.jit
    def pushed(x, y, v):
        return jax.jvp(lambda y: manifold.log(x, y), (y,), (v,))[1]

    np.testing.assert_allclose(pushed(x, x, v), v, rtol=0, atol=20 * tol.identity)
    if batch:
        total = lambda *a: jnp.sum(pushed(*a) ** 2)
        second = jax.jit(jax.grad(total, (0, 1, 2)))(x, x, v)
        assert all(np.isfinite(g).all() for g in second)
