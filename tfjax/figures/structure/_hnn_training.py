"""Data of two ideal systems, and networks that learn to move as they do."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ...fields import hamiltonian
from ...integrate import solve_ensemble


Pair = tuple[Float[Array, "..."], Float[Array, "..."]]


class System(NamedTuple):
    """An energy H(q, p), and from where and how often its motion is observed."""

    energy: Callable[[Any, Any], Float[Array, ""]]
    radii: tuple[float, float]
    points: int


def _spring(q, p):
    return jnp.sum(q**2 + p**2)


def _pendulum(q, p):
    return jnp.sum(3.0 * (1.0 - jnp.cos(q)) + p**2)


# The published code takes 15 points in a unit of time for the pendulum; its paper, 10.
SYSTEMS = {
    "spring": System(_spring, (0.1, 1.0), 30),
    "pendulum": System(_pendulum, (1.3, 2.3), 45),
}


class Data(NamedTuple):
    """Noisy states and exact velocities, (b, n, 2) each, to learn from and to test."""

    x: Float[Array, "b n 2"]
    velocity: Float[Array, "b n 2"]
    test_x: Float[Array, "b n 2"]
    test_velocity: Float[Array, "b n 2"]


def observe(system: System, seeds: Sequence[int]) -> Data:
    """50 trajectories a seed, the first half to learn from, the others to test.

    The states have noise of standard deviation 0.1, the velocities are those of the
    states without it. NumPy's generator is called in the order of the published code:
    the data set of seed 0 is the published one, to what the solvers err by. In float32.
    """
    count, points = 50, system.points
    x0 = np.empty((len(seeds), count, 2))
    noise = np.empty((len(seeds), count, points, 2))
    low, high = system.radii
    for i, seed in enumerate(seeds):
        rng = np.random.RandomState(seed)
        for j in range(count):
            start = 2.0 * rng.rand(2) - 1.0
            radius = low + (high - low) * rng.rand()
            x0[i, j] = start / np.linalg.norm(start) * radius
            noise[i, j] = 0.1 * rng.randn(2, points).T
    field = hamiltonian(system.energy)
    x0 = jnp.asarray(x0.reshape(-1, 2))
    sol = solve_ensemble(
        field,
        (x0[:, :1], x0[:, 1:]),
        t1=3.0,
        ts=np.linspace(0.0, 3.0, points),
        rtol=1e-10,
        atol=1e-10,
        throw=True,
    )
    states: Any = sol.ys
    moving = jax.vmap(jax.vmap(lambda q, p: field(0.0, (q, p), None)))
    x, velocity = (np.concatenate(y, -1) for y in (states, moving(*states)))
    x = x.reshape(noise.shape) + noise
    shape = (len(seeds), 2, count // 2 * points, 2)
    halves = (y.reshape(shape).astype(np.float32) for y in (x, velocity))
    x, velocity = (jnp.asarray(y) for y in halves)
    return Data(x[:, 0], velocity[:, 0], x[:, 1], velocity[:, 1])


def networks(rngs: Sequence[np.random.Generator], out: Any, width: int) -> eqx.nn.MLP:
    """One a generator, stacked: two hidden layers of tanh, no bias at the end, float32.

    As published, weights are orthogonal and biases uniform, up to 1 / sqrt(fan-in).
    """
    shape = eqx.filter_eval_shape(
        eqx.nn.MLP,
        2,
        out,
        width,
        depth=2,
        activation=jnp.tanh,
        use_final_bias=False,
        dtype=jnp.float32,
        key=jax.random.key(0),
    )
    leaves = lambda net: [
        *(layer.weight for layer in net.layers),
        *(layer.bias for layer in net.layers[:-1]),
    ]
    drawn = [
        [_orthogonal(rng, layer.weight.shape) for layer in shape.layers]
        + [rng.uniform(-1.0, 1.0, width) / np.sqrt(fan_in) for fan_in in (2, width)]
        for rng in rngs
    ]
    single = lambda each: jnp.asarray(np.stack(each).astype(np.float32))
    stacked = [single(each) for each in zip(*drawn, strict=True)]
    return eqx.tree_at(leaves, shape, stacked)


def _orthogonal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Rows or columns, whichever are fewer, are orthonormal, and uniformly so."""
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q = q * np.sign(np.diagonal(r))
    return q if shape[0] >= shape[1] else q.T


def learned_energy(q: Any, p: Any, net: eqx.nn.MLP) -> Float[Array, ""]:
    """The output of a network, as an energy."""
    return net(jnp.concatenate([q, p]))


def baseline_field(t: Any, y: Pair, net: eqx.nn.MLP) -> Pair:
    """The outputs of a network, as a velocity."""
    velocity = net(jnp.concatenate(y))
    return velocity[:1], velocity[1:]


hnn_field = hamiltonian(learned_energy)
MODELS = {"baseline": (baseline_field, 2), "HNN": (hnn_field, "scalar")}


def loss(field: Any, net: eqx.nn.MLP, x: Any, velocity: Any) -> Float[Array, ""]:
    """The mean squared error of the velocity, over points and components."""
    moving = jax.vmap(lambda x: jnp.concatenate(field(0.0, (x[:1], x[1:]), net)))
    return jnp.mean((moving(x) - velocity) ** 2)


# The published weight decay is added to the gradient, before Adam sees it.
_OPTIMIZER = optax.chain(optax.add_decayed_weights(1e-4), optax.adam(1e-3))


def train(
    field: Any,
    nets: eqx.nn.MLP,
    data: Data,
    steps: int,
    progress: Callable[[float], None],
) -> tuple[eqx.nn.MLP, Float[Array, " b"]]:
    """Full-batch steps of Adam, for all members together.

    **Returns:** the networks, and their losses on the test data.
    """
    arrays, static = eqx.partition(nets, eqx.is_inexact_array)
    state = jax.vmap(_OPTIMIZER.init)(arrays)
    one = lambda net, x, v: loss(field, eqx.combine(net, static), x, v)

    def step(carry, x, velocity):
        net, state = carry
        slope = jax.grad(one)(net, x, velocity)
        # optax takes powers of a float to an integer, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            update, state = _OPTIMIZER.update(slope, state, net)
        return optax.apply_updates(net, update), state

    @jax.jit
    def chunk(carry, count):
        many = jax.vmap(step)
        return jax.lax.fori_loop(
            0, count, lambda _, carry: many(carry, data.x, data.velocity), carry
        )

    carry, done = (arrays, state), 0
    while done < steps:
        count = min(100, steps - done)
        carry = jax.block_until_ready(chunk(carry, count))
        done += count
        progress(done / steps)
    arrays, _ = carry
    test = jax.jit(jax.vmap(one))(arrays, data.test_x, data.test_velocity)
    return eqx.combine(arrays, static), test
