"""Samples of the fields of tokens of shape (n, d)."""

import functools
from dataclasses import replace
from types import MappingProxyType

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from tfjax import fields
from tfjax.attention import TopK, Window
from tfjax.fields import AttentionParams, BlockParams, FeedForward, NormalizedParams

from .base import DTYPE, D, N, Sample, permuted, random, rotated, tokens


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


CHUNKED = {
    "chunked": AttentionParams(
        beta=DTYPE.type(0.4), **WEIGHTS, mask=(EXISTS, PAIRS), chunk_size=2
    ),
    "windowed": AttentionParams(beta=DTYPE.type(1.3), mask=Window(1), chunk_size=2),
    "few": AttentionParams(beta=DTYPE.type(1.3), mask=TopK(2)),
}


def attention_samples(field, more=MappingProxyType({})):
    """Plain, general and causal parameters for an attention field, and more."""
    variants = {
        "plain": AttentionParams(beta=DTYPE.type(1.3)),
        "heads and masks": AttentionParams(
            beta=DTYPE.type(0.4), **WEIGHTS, mask=(EXISTS, PAIRS)
        ),
        "causal": AttentionParams(beta=DTYPE.type(1.3), mask="causal"),
    } | more
    call = functools.partial(field, 0.25)
    return {
        name: Sample(
            call,
            params,
            True,
            rotate_params,
            None if name in ("causal", "windowed") else permute_params,
        )
        for name, params in variants.items()
    }


def one_value(samples):
    """The samples with a single matrix V for all heads."""
    several = samples["heads and masks"]
    one = eqx.tree_at(lambda p: p.value, several.params, several.params.value[0])
    return samples | {"heads and masks": replace(several, params=one)}


LAYER = FeedForward(
    w=random(D, 4, seed=14),
    a=random(4, D, seed=15),
    b=random(4, seed=16),
    activation=jnp.tanh,
)


def rotate_layer(layer, r):
    return FeedForward(r @ layer.w, layer.a @ r.T, layer.b, layer.activation)


def rotate_block(params, r):
    return BlockParams(
        rotate_params(params.attention, r), rotate_layer(params.feed_forward, r)
    )


def permute_attention(params, order):
    inner = permute_params(params.attention, order)
    return eqx.tree_at(lambda p: p.attention, params, inner)


beta_inside = lambda params: params.attention.beta

BLOCK = {
    name: Sample(
        functools.partial(fields.transformer_block, 0.25),
        BlockParams(attention, LAYER),
        True,
        rotate_block,
        permute_attention,
        scalar=beta_inside,
    )
    for name, attention in {
        "plain": AttentionParams(beta=DTYPE.type(1.3)),
        "heads and masks": AttentionParams(
            beta=DTYPE.type(0.4), **WEIGHTS, mask=(EXISTS, PAIRS)
        ),
    }.items()
}
SCHEMES = {
    "post": fields.PostNorm(),
    "pre": fields.PreNorm(),
    "peri": fields.PeriNorm(),
    "nGPT": fields.NGPT(DTYPE.type(0.6)),
    "LN-scaling": fields.LNScaling(),
}
NORMALIZED = {
    name: Sample(
        functools.partial(fields.normalized_attention, 0.25),
        NormalizedParams(
            AttentionParams(beta=DTYPE.type(0.9), value=random(D, D, seed=17)), scheme
        ),
        True,
        lambda params, r: NormalizedParams(
            rotate_params(params.attention, r), params.scheme
        ),
        permute_attention,
        scalar=beta_inside,
    )
    for name, scheme in SCHEMES.items()
}


def switched(sample, switch):
    """The sample under Mix-LN, whose switch is no smooth parameter."""
    call = lambda x, params: fields.normalized_attention(
        0.25, x, NormalizedParams(params.attention, fields.MixNorm(switch))
    )
    return replace(sample, call=call)


NORMALIZED["mix, before the switch"] = switched(NORMALIZED["post"], 0.5)
NORMALIZED["mix, after the switch"] = switched(NORMALIZED["post"], 0.1)

# A mask of pairs may permit no doubly stochastic weights.
SINKHORN = {
    "plain": attention_samples(fields.sinkhorn_attention)["plain"],
    "heads and padding": Sample(
        functools.partial(fields.sinkhorn_attention, 0.25),
        AttentionParams(beta=DTYPE.type(0.4), **WEIGHTS, mask=EXISTS),
        True,
        rotate_params,
        permute_params,
    ),
}


def of_all_lengths(seed):
    """Tokens in one orthant, of which the first and longest lead the others."""
    lengths = np.linspace(2.0, 0.5, N).astype(DTYPE)
    return np.abs(tokens(seed)) * lengths[:, None]


# beta is not used: V is multiplied by the scalar to sweep over.
HARDMAX = {
    name: Sample(
        lambda x, p, exists=exists: fields.hardmax_attention(
            0.25, x, AttentionParams(value=p["gain"] * p["value"], mask=exists)
        ),
        {"gain": jnp.asarray(DTYPE.type(1.2)), "value": random(D, D, seed=18)},
        True,
        lambda p, r: p | {"value": r @ p["value"] @ r.T},
        None if exists == "causal" else lambda p, order: p,
        state=of_all_lengths,
        scalar=lambda p: p["gain"],
    )
    for name, exists in {"plain": None, "causal": "causal"}.items()
}
# A scalar to sweep over: the matrix w is multiplied by it.
RESNET = Sample(
    lambda x, p: fields.feed_forward(
        0.25,
        x,
        eqx.tree_at(lambda layer: layer.w, p["layer"], p["gain"] * p["layer"].w),
    ),
    {"gain": jnp.asarray(DTYPE.type(1.2)), "layer": LAYER},
    True,
    lambda params, r: params | {"layer": rotate_layer(params["layer"], r)},
    scalar=lambda params: params["gain"],
)

FIELDS = {
    "self_attention": attention_samples(fields.self_attention, CHUNKED),
    "unnormalized_self_attention": attention_samples(
        fields.unnormalized_self_attention, CHUNKED
    ),
    "euclidean_attention": attention_samples(fields.euclidean_attention),
    "displacement_attention": attention_samples(fields.displacement_attention),
    "rescaled_attention": one_value(attention_samples(fields.rescaled_attention)),
    "hardmax_attention": HARDMAX,
    "sinkhorn_attention": SINKHORN,
    "transformer_block": BLOCK,
    "normalized_attention": NORMALIZED,
    "feed_forward": {"layer": RESNET},
}
