"""Samples of the fields of tokens of shape (n, d)."""

import functools

import equinox as eqx
import numpy as np

from tfjax import fields
from tfjax.fields import AttentionParams

from .base import DTYPE, D, N, Sample, permuted, random, rotated


def rotate_params(params, r):
    return AttentionParams(
        beta=params.beta,
        query=rotated(params.query, r, "right"),
        key=rotated(params.key, r, "right"),
        value=rotated(params.value, r),
        mask=params.mask,
        chunk_size=params.chunk_size,
    )


def permute_params(params, order):
    mask = permuted(params.mask, order)
    return eqx.tree_at(lambda p: p.mask, params, mask, is_leaf=lambda m: m is None)


WEIGHTS = {
    "query": random(2, 2, D, seed=1),
    "key": random(2, 2, D, seed=2),
    "value": random(2, D, D, seed=3),
}
EXISTS = np.array([True, False, True, True, True])
PAIRS = np.random.default_rng(4).random((N, N)) < 0.7


def attention_samples(field):
    """Plain, general and causal parameters for an attention field."""
    variants = {
        "plain": AttentionParams(beta=DTYPE.type(1.3)),
        "heads and masks": AttentionParams(
            beta=DTYPE.type(0.4), **WEIGHTS, mask=(EXISTS, PAIRS)
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


FIELDS = {
    "self_attention": attention_samples(fields.self_attention),
    "unnormalized_self_attention": attention_samples(
        fields.unnormalized_self_attention
    ),
}
