"""Hamiltonian systems side by side, and whether a step of them is symplectic."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ...energies import AttentionPotential, Hamiltonian
from ...fields import hamiltonian


TOKENS, DIMENSION, BETA = 8, 3, 1.0
ECCENTRICITY = 0.6
# In units of the least distance from the centre, which is 1.
PERIOD = 2 * np.pi * (1 - ECCENTRICITY) ** -1.5


class Systems(eqx.Module):
    """Hamiltonian systems that do not know of each other, as one field.

    A step of a product is the product of the steps, of every method: one program does
    for all systems. A state is a pair of dictionaries, by the names of the systems.
    """

    energies: dict[str, Any]

    def __call__(self, t, y, args=None):
        q, p = y
        both = {
            name: hamiltonian(H)(t, (q[name], p[name]), args)
            for name, H in self.energies.items()
        }
        return tuple({name: v[part] for name, v in both.items()} for part in (0, 1))

    def quantities(self, y):
        """The energies, and the angular momentum of Kepler's problem."""
        q, p = y
        found = {name: H(q[name], p[name]) for name, H in self.energies.items()}
        if "Kepler" in found:
            (a, b), (u, v) = q["Kepler"], p["Kepler"]
            found["angular momentum"] = a * v - b * u
        return found


def separable_systems(seed: int) -> tuple[Systems, Any]:
    """Attention, Kepler, the pendulum, Henon-Heiles, an oscillator, and their starts.

    Their fastest rates are all of order 1, so that one step suits all.
    """
    keys = jax.random.split(jax.random.key(seed), 3)
    bilinear = jax.random.normal(keys[0], (DIMENSION, DIMENSION))
    bilinear = 0.5 * bilinear / jnp.linalg.norm(bilinear, 2)
    potential = AttentionPotential(BETA, bilinear, confinement=1.0)
    energies = {
        "attention": Hamiltonian(potential),
        "Kepler": Hamiltonian(_attraction),
        "pendulum": Hamiltonian(_gravity),
        "Hénon-Heiles": Hamiltonian(henon_heiles),
        "oscillator": Hamiltonian(_spring),
    }
    fast = np.sqrt(1 + ECCENTRICITY)
    tokens = (TOKENS, DIMENSION)
    q, p = henon_heiles_start(0.1, 0.0)
    starts = {
        "attention": tuple(jax.random.normal(key, tokens) for key in keys[1:]),
        "Kepler": (jnp.array([1.0, 0.0]), jnp.array([0.0, fast])),
        "pendulum": (jnp.array([2.0]), jnp.array([0.0])),
        "Hénon-Heiles": (jnp.asarray(q), jnp.asarray(p)),
        "oscillator": (jnp.array([1.0]), jnp.array([0.0])),
    }
    return Systems(energies), _pair(starts)


def bent_system() -> tuple[Systems, Any]:
    """An energy that is no sum of a function of q and one of p."""
    start = {"bent": (jnp.array([0.0]), jnp.array([-1.5]))}
    return Systems({"bent": _bent}), _pair(start)


def _pair(starts):
    return tuple({name: y[part] for name, y in starts.items()} for part in (0, 1))


def _attraction(q):
    return -1 / jnp.sqrt(jnp.sum(q**2))


def _gravity(q):
    return jnp.sum(1 - jnp.cos(q))


def _spring(q):
    return 0.5 * jnp.sum(q**2)


def _bent(q, p):
    return jnp.sum((q**2 + 1) * (p**2 + 1)) / 2


def henon_heiles(q: Any) -> Any:
    """The potential of Henon and Heiles, over the first axis of q, summed."""
    x, y = q
    return jnp.sum((x**2 + y**2) / 2 + x**2 * y - y**3 / 3)


def henon_heiles_start(y: Any, v: Any, energy: float = 1 / 8) -> tuple[Any, Any]:
    """On the section x = 0, with dx/dt > 0, at an energy; NaN where there is none."""
    y, v = np.asarray(y, dtype=float), np.asarray(v, dtype=float)
    rest = 2 * energy - y**2 + 2 * y**3 / 3 - v**2
    u = np.sqrt(np.where(rest > 0, rest, np.nan))
    return np.stack([0 * y, y]), np.stack([u, v])


def step_defect(
    solver: dfx.AbstractSolver, field: Any, y0: Any, step: float, doubled: bool
) -> float:
    """How far a step is from symplectic: the largest entry of J^T O J - O.

    J is the derivative of a step, O the matrix of the symplectic form. `doubled` is
    for Tao's method, in the space where the copies count.
    """
    (q, p), h = y0, jnp.asarray(float(step))
    flat, back = ravel_pytree(q)
    there = lambda x: ravel_pytree(x)[0]
    term, zero = dfx.ODETerm(field), jnp.zeros_like(h)

    def flow(z):
        parts = [back(part) for part in jnp.split(z, 4 if doubled else 2)]
        if doubled:
            q, x, p, y = parts
            state = (x, y), field(zero, (q, y))
        else:
            q, p = parts
            state = solver.init(term, zero, h, (q, p), None)
        (q, p), _, _, state, _ = solver.step(term, zero, h, (q, p), None, state, False)
        ends = [q, state[0][0], p, state[0][1]] if doubled else [q, p]
        return jnp.concatenate([there(part) for part in ends])

    copies = 2 if doubled else 1
    z = jnp.concatenate([flat] * copies + [there(p)] * copies)
    J, n = np.asarray(jax.jit(jax.jacfwd(flow))(z)), z.size // 2
    O = np.kron(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.eye(n))
    return float(np.abs(J.T @ O @ J - O).max())
