"""Samples of Hamiltonians, their field, and the potential of attention.

The momenta are -2 q, which half precision represents too.
"""

import jax.numpy as jnp
import numpy as np

from tfjax.energies import AttentionPotential, Hamiltonian
from tfjax.fields import hamiltonian

from .base import DTYPE, D, Sample, random


BILINEAR = random(D, D, seed=21)
MASS = BILINEAR @ BILINEAR.T + 2 * np.eye(D, dtype=DTYPE)


def potential(params, chunk_size=None):
    return AttentionPotential(
        params["beta"], params.get("bilinear"), params["confinement"], chunk_size
    )


def energy(q, params):
    return Hamiltonian(potential(params), params["mass"])(q, -2 * q)


def heavy(q, params):
    """The energy for a mass that grows with the spread of all tokens."""
    mass = lambda q: params["mass"].astype(q.dtype) * (1 + jnp.mean(q * q))
    return Hamiltonian(potential(params, 2), mass)(q, -2 * q)


def force(q, params):
    control = lambda t, y, args: -y[0] * jnp.cos(jnp.asarray(t, y[0].dtype))
    H = Hamiltonian(potential(params, 2), params["mass"])
    field = hamiltonian(H, damping=params["damping"], control=control)
    return field(0.25, (q, -2 * q))[1]


def rotate(params, r):
    return params | {k: r @ w @ r.T for k, w in params.items() if w.ndim == 2}


def sample(call, params, *, vector=False):
    return Sample(call, params, vector, rotate, scalar=lambda p: p["beta"])


PLAIN = {"beta": DTYPE.type(1.3), "confinement": DTYPE.type(0.5)}
HEAVY = PLAIN | {"bilinear": BILINEAR, "mass": MASS}

ENERGIES = {
    "AttentionPotential": {
        "plain": sample(lambda q, params: potential(params)(q), PLAIN),
        "chunked": sample(
            lambda q, params: potential(params, 2)(q), PLAIN | {"bilinear": BILINEAR}
        ),
    },
    "Hamiltonian": {
        "mass": sample(energy, HEAVY),
        "mass of q": sample(heavy, HEAVY),
    },
}

FIELDS = {
    "hamiltonian": {
        "matrix": sample(
            force, HEAVY | {"damping": DTYPE.type(0.1) * MASS}, vector=True
        ),
        "scalar": sample(
            force,
            PLAIN | {"mass": DTYPE.type(2.0), "damping": DTYPE.type(0.3)},
            vector=True,
        ),
    },
}
