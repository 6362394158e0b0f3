"""Samples of the fields that are made: of a manifold, an energy, or other fields."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from tfjax import energies, fields
from tfjax.fields import AttentionParams
from tfjax.geometry import Product, Sphere, Torus

from .base import DTYPE, D, N, Sample, random
from .circle import angles, shift
from .manifolds import MANIFOLDS
from .tokens import EXISTS, PAIRS, WEIGHTS, permute_params, rotate_params


BETA = DTYPE.type(1.3)


def beta_of(params):
    return params["beta"]


# --- Attention by geodesics -----------------------------------------------------------


class Linear(eqx.Module):
    """A field of vectors for the transport: x -> A x."""

    matrix: jax.Array

    def __call__(self, x):
        return self.matrix.astype(x.dtype) @ x


def on_sphere(x, params):
    return fields.intrinsic_attention(Sphere(D))(0.25, x, params)


def transported(x, params):
    field = fields.intrinsic_attention(Sphere(D), Linear(params["matrix"]))
    return field(0.25, x, AttentionParams(params["beta"]))


def on(manifold):
    """Tokens on another manifold, turned by its isometry in place of the rotation."""
    sample = next(s for s in MANIFOLDS.values() if s.manifold == manifold)
    return Sample(
        lambda x, params: fields.intrinsic_attention(manifold)(0.25, x, params),
        AttentionParams(beta=DTYPE.type(0.6)),
        True,
        state=lambda seed: np.asarray(manifold.random(jr.key(seed), (N,))),
        turn=lambda x, r: sample.move(x),
        turn_velocity=lambda v, r: sample.push(v),
    )


INTRINSIC = {
    "product": on(Product(Sphere(D), Product(Torus(2)))),
    "heads and masks": Sample(
        on_sphere,
        AttentionParams(
            beta=DTYPE.type(0.4),
            query=WEIGHTS["query"],
            key=WEIGHTS["key"],
            mask=(EXISTS, PAIRS),
        ),
        True,
        rotate_params,
        permute_params,
    ),
    "transport": Sample(
        transported,
        {"beta": BETA, "matrix": random(D, D, seed=12)},
        True,
        lambda params, r: params | {"matrix": r @ params["matrix"] @ r.T},
        scalar=beta_of,
    ),
}


# --- Gradient flows, sums, multiples --------------------------------------------------


def climb(x, params):
    energy = lambda x, args: energies.interaction_energy(x, args["beta"])
    return fields.gradient_flow(energy, Sphere(D))(0.25, x, params)


def descend(theta, params):
    flow = fields.gradient_flow(energies.kuramoto_energy, Torus(N), sign=-1)
    return flow(0.25, theta, params["coupling"])


def summed(x, params):
    bent = fields.Bound(fields.unnormalized_self_attention, params["own"])
    part = fields.Scaled(bent, params["factor"])
    both = fields.Sum(fields.self_attention, part)
    return both(0.25, x, AttentionParams(beta=params["beta"]))


def scaled(x, params):
    field = fields.Scaled(fields.self_attention, params["factor"])
    return field(0.25, x, AttentionParams(beta=params["beta"]))


def bound(x, params):
    return fields.Bound(fields.self_attention, params)(0.25, x, jnp.nan)


FIELDS = {
    "intrinsic_attention": INTRINSIC,
    "gradient_flow": {
        "sphere": Sample(climb, {"beta": BETA}, True, scalar=beta_of),
        "torus": Sample(
            descend,
            {"coupling": DTYPE.type(1.5)},
            True,
            state=angles,
            turn=shift,
            turn_velocity=lambda v, r: v,
            scalar=lambda params: params["coupling"],
        ),
    },
    "Sum": {
        "nested": Sample(
            summed,
            {
                "beta": BETA,
                "factor": DTYPE.type(-0.7),
                "own": AttentionParams(beta=DTYPE.type(0.5)),
            },
            True,
            scalar=beta_of,
        )
    },
    "Scaled": {
        "plain": Sample(
            scaled,
            {"beta": BETA, "factor": DTYPE.type(2.0)},
            True,
            scalar=lambda params: params["factor"],
        )
    },
    "Bound": {"plain": Sample(bound, AttentionParams(beta=BETA), True)},
}
