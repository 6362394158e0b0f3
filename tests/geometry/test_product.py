"""Products of manifolds: every operation is that of the factors, block by block."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tfjax.geometry import Euclidean, Product, Sphere, Torus


FACTORS = (Sphere(3), Torus(2), Euclidean(1))
SPACE = Product(*FACTORS)
ENDS = ((0, 3), (3, 5), (5, 6))


@pytest.fixture(scope="module")
def operands():
    x, y = np.asarray(SPACE.random(jr.key(0), (2, 8)))
    v = np.asarray(SPACE.tangent(x, np.asarray(SPACE.random(jr.key(1), (8,)))))
    return {"x": x, "y": y, "v": v}


def blocks(operation, *arrays):
    """The operation of each factor on its block, by slices."""
    return [
        np.asarray(getattr(factor, operation)(*(a[..., i:j] for a in arrays)))
        for factor, (i, j) in zip(FACTORS, ENDS, strict=True)
    ]


@pytest.mark.parametrize(
    ("operation", "takes"),
    [
        ("project", "x"),
        ("tangent", "xv"),
        ("exp", "xv"),
        ("log", "xy"),
        ("transport", "xyv"),
        ("retract", "xv"),
        ("embed", "x"),
    ],
)
def test_operations_act_on_each_block_alone(operands, operation, takes):
    arrays = [operands[letter] for letter in takes]
    expected = np.concatenate(blocks(operation, *arrays), axis=-1)
    np.testing.assert_array_equal(getattr(SPACE, operation)(*arrays), expected)


def test_squared_distances_add(operands, tol):
    x, y = operands["x"], operands["y"]
    squares = sum(blocks("squared_distance", x, y))
    np.testing.assert_allclose(
        SPACE.squared_distance(x, y), squares, rtol=2 * tol.identity
    )
    np.testing.assert_allclose(
        SPACE.distance(x, y), np.sqrt(squares), rtol=2 * tol.identity
    )


def test_distances_at_coincidence_have_finite_derivatives(operands):
    x, y = operands["x"][0], operands["y"][0]
    gradient = jax.jit(jax.grad(SPACE.distance, (0, 1)))
    np.testing.assert_array_equal(gradient(x, x), np.zeros((2, 6)))
    # Where one factor coincides, it alone has gradient 0.
    mixed = np.concatenate([x[:3], y[3:]])
    at_mixed = np.asarray(gradient(x, mixed)[1])
    np.testing.assert_array_equal(at_mixed[:3], np.zeros(3))
    assert np.linalg.norm(at_mixed[3:]) == pytest.approx(1, rel=1e-6)


def test_the_inner_products_of_embeddings_add(operands, tol):
    x, y = operands["x"], operands["y"]
    inner = np.sum(np.asarray(SPACE.embed(x)) * np.asarray(SPACE.embed(y)), axis=-1)
    expected = np.sum(x[:, :3] * y[:, :3], axis=1) + x[:, 5] * y[:, 5]
    expected = expected + np.cos(x[:, 3:5] - y[:, 3:5]).sum(axis=1)
    np.testing.assert_allclose(inner, expected, rtol=0, atol=5 * tol.identity)


def test_a_point_is_projectable_where_every_part_is():
    x = np.ones((4, 6))
    x[1, :3] = 0.0
    x[2, 4] = np.nan
    x[3, 5] = np.inf
    assert SPACE.projectable(jnp.asarray(x)).tolist() == [True, False, False, False]


def test_the_dimension_is_the_sum_and_products_nest(operands):
    nested = Product(Sphere(3), Product(Torus(2), Euclidean(1)))
    assert (SPACE.d, nested.d, Product(Torus(2)).d) == (6, 6, 2)
    x, y = operands["x"], operands["y"]
    np.testing.assert_array_equal(nested.log(x, y), SPACE.log(x, y))
    np.testing.assert_allclose(nested.distance(x, y), SPACE.distance(x, y), rtol=1e-6)


def test_products_are_equal_as_values():
    assert Product(*FACTORS) == SPACE
    assert hash(Product(*FACTORS)) == hash(SPACE)
    assert Product(*FACTORS[::-1]) != SPACE
    assert Product(Product(*FACTORS)) != SPACE
    assert jax.tree.leaves(SPACE) == []


def test_the_factors_are_drawn_independently_with_their_own_law():
    space = Product(Torus(1), Torus(1), Sphere(3))
    x = np.asarray(space.random(jr.key(3), (20_000,)), np.float64)
    values = np.cos(x[:, 0]) * np.cos(x[:, 1])
    assert abs(values.mean()) < 5 * 0.5 / np.sqrt(len(x))
    np.testing.assert_allclose(np.linalg.norm(x[:, 2:], axis=1), 1, rtol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    with pytest.raises(ValueError, match="`factors` must be at least one manifold"):
        Product()
    with pytest.raises(ValueError, match="`factors` must be manifolds .* but was 3"):
        Product(Sphere(3), 3)
    shape = (
        r"`y` must have shape \(\.\.\., 5\), as points of Product\(.*of shape \(4,\)"
    )
    with pytest.raises(ValueError, match=shape):
        Product(Sphere(3), Torus(2)).log(np.ones(5), np.ones(4))
