"""What Hamiltonian networks learn from, how they start, and the step that they take."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.figures.structure._hnn_training import (
    MODELS,
    SYSTEMS,
    loss,
    networks,
    observe,
    train,
)


def _published(seed):
    """The spring's data in the order of the published draws: orbits are rotations."""
    rng, t = np.random.RandomState(seed), np.linspace(0.0, 3.0, 30)
    turn = np.array([[np.cos(2 * t), np.sin(2 * t)], [-np.sin(2 * t), np.cos(2 * t)]])
    states, velocities = [], []
    for _ in range(50):
        start = rng.rand(2) * 2 - 1
        start *= (rng.rand() * 0.9 + 0.1) / np.sqrt(np.sum(start**2))
        q, p = np.einsum("ijt,j->it", turn, start)
        velocities.append(np.stack([2 * p, -2 * q], axis=1))
        q, p = q + rng.randn(30) * 0.1, p + rng.randn(30) * 0.1
        states.append(np.stack([q, p], axis=1))
    return np.concatenate(states), np.concatenate(velocities)


@pytest.fixture(scope="module")
def data():
    if not jax.config.jax_enable_x64:
        pytest.skip("experiments are in float64")
    return observe(SYSTEMS["spring"], [0, 5])


@pytest.fixture
def rngs():
    return [np.random.default_rng(k) for k in range(2)]


def test_the_data_of_a_seed_are_those_of_the_published_code(data):
    for k, seed in enumerate((0, 5)):
        x, velocity = _published(seed)
        for found, expected in (
            (data.x, x[:750]),
            (data.velocity, velocity[:750]),
            (data.test_x, x[750:]),
            (data.test_velocity, velocity[750:]),
        ):
            assert found.dtype == jnp.float32
            np.testing.assert_allclose(found[k], expected, atol=1e-6)


@pytest.mark.parametrize("out", [2, "scalar"])
def test_weights_start_orthogonal_and_biases_below_the_root_of_the_inputs(rngs, out):
    nets = networks(rngs, out, 20)
    for layer, inputs in zip(nets.layers, (2, 20, 20), strict=True):
        for weight in np.asarray(layer.weight):
            tall = weight if weight.shape[0] >= weight.shape[1] else weight.T
            np.testing.assert_allclose(tall.T @ tall, np.eye(tall.shape[1]), atol=1e-6)
        if layer.bias is not None:
            assert layer.bias.shape == (2, 20)
            assert 0.5 < np.abs(layer.bias).max() * np.sqrt(inputs) <= 1.0
    assert nets.layers[-1].bias is None
    assert not np.array_equal(*nets.layers[0].weight)


def _first(nets):
    arrays = lambda leaf: leaf[0] if isinstance(leaf, jax.Array) else leaf
    return jax.tree.map(arrays, nets)


def test_the_loss_is_that_of_the_rotated_slope_of_the_output(data, rngs):
    field, out = MODELS["HNN"]
    net = _first(networks(rngs, out, 20))
    one, two, last = net.layers

    def energy(x):
        hidden = jnp.tanh(two.weight @ jnp.tanh(one.weight @ x + one.bias) + two.bias)
        return (last.weight @ hidden)[0]

    x, velocity = data.x[0], data.velocity[0]
    slope = jax.vmap(jax.grad(energy))(x)
    moved = jnp.stack([slope[:, 1], -slope[:, 0]], axis=1)
    expected = jnp.mean((moved - velocity) ** 2)
    np.testing.assert_allclose(loss(field, net, x, velocity), expected, rtol=1e-5)


def test_a_network_that_fits_steps_towards_zero_at_the_rate_of_adam(data, rngs):
    """Weight decay is part of the gradient; beside it, it would move by 1e-7."""
    field, out = MODELS["baseline"]
    nets = networks(rngs, out, 20)
    fit = eqx.filter_vmap(lambda net, x: jax.vmap(net)(x))(nets, data.x)
    fractions = []
    perfect = data._replace(velocity=fit)
    trained, test = train(field, nets, perfect, 1, fractions.append)
    for old, new in zip(nets.layers, trained.layers, strict=True):
        sure = np.abs(old.weight) > 0.02
        change = np.asarray(new.weight - old.weight)[sure]
        np.testing.assert_allclose(change, -1e-3 * np.sign(old.weight)[sure], rtol=0.05)
    assert test.shape == (2,)
    assert fractions == [1.0]
