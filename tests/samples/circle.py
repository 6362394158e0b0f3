"""Samples of the fields of angles of shape (n,); a turn adds to all of them."""

import functools

from tfjax import fields
from tfjax.fields import AttentionParams, Kuramoto

from .base import DTYPE, N, Sample, random
from .tokens import EXISTS, PAIRS, permute_params


def angles(seed=0):
    return 2 * random(N, seed=seed)


def shift(theta, r):
    """A turn by an angle that the rotation stands for."""
    return theta + DTYPE.type(3 * r[0, 0])


def angle_sample(call, params, *, permute, **kwargs):
    """Shifted angles have the same velocities, and the parameters stay."""
    keep = {"turn": shift, "turn_velocity": lambda v, r: v, "state": angles}
    return Sample(call, params, True, permute=permute, **keep, **kwargs)


def attention_samples(field):
    variants = {
        "plain": AttentionParams(beta=DTYPE.type(1.3)),
        "masks": AttentionParams(beta=DTYPE.type(0.4), mask=(EXISTS, PAIRS)),
    }
    call = functools.partial(field, 0.25)
    return {
        name: angle_sample(call, params, permute=permute_params)
        for name, params in variants.items()
    }


def permute_frequencies(params, order):
    return Kuramoto(params.coupling, params.frequencies[order])


FIELDS = {
    "circle_attention": attention_samples(fields.circle_attention),
    "unnormalized_circle_attention": attention_samples(
        fields.unnormalized_circle_attention
    ),
    "kuramoto": {
        "plain": angle_sample(
            functools.partial(fields.kuramoto, 0.25),
            Kuramoto(DTYPE.type(1.5), random(N, seed=1)),
            permute=permute_frequencies,
            scalar=lambda params: params.coupling,
        )
    },
}
