"""What the layers of a Transformer are made of, for batches of sequences at once.

Tokens have shape (*batch, n, d): all leading axes go through one product of matrices,
which on CPU is nearly twice as fast as a vmap over sequences.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Key

from .._core import normalize, widen
from ._transformer_config import TransformerConfig


Tokens = Float[Array, "*batch n d"]


class Norm(eqx.Module):
    """LayerNorm with a scale and no shift; or, on the sphere, unit length.

    Computed in float32 at least, in two passes: mean(x^2) - mean(x)^2 cancels for
    tokens far from the origin.
    """

    scale: Float[Array, " d"] | None

    def __init__(self, d: int, *, sphere: bool, dtype: DTypeLike):
        self.scale = None if sphere else jnp.ones(d, dtype)

    def __call__(self, x: Tokens) -> Tokens:
        (wide,), _ = widen(x)
        if self.scale is None:
            return normalize(wide).astype(x.dtype)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(wide * wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(variance + 1e-5)
        return wide.astype(x.dtype) * like(self.scale, x)


class Attention(eqx.Module):
    r"""Multi-head attention with one fused map to queries, keys and values.

    On the sphere (`"ngpt"`) queries, keys and the weights of every unit are normalised,
    queries and keys get a learned scale, and the logits are multiplied by $\sqrt{d_k}$
    in place of being divided by it.
    """

    qkv: Float[Array, "three_d d"]
    out: Float[Array, "d d"]
    scale: Float[Array, "h k"] | None
    heads: int = eqx.field(static=True)
    rotary: bool = eqx.field(static=True)

    def __init__(
        self, config: TransformerConfig, d: int, *, key: Key[Array, ""], dtype
    ):
        self.heads = d // config.head_dim
        self.rotary = config.positions == "rotary"
        first, second = jr.split(key)
        self.qkv = _weights(first, 3 * d, d, dtype)
        self.out = _weights(second, d, d, dtype)
        shape = (self.heads, config.head_dim)
        self.scale = jnp.ones(shape, dtype) if config.norm == "ngpt" else None

    def __call__(self, x: Tokens, mask: Bool[Array, "n n"] | None) -> Tokens:
        *batch, n, d = x.shape
        qkv, out = self.qkv.astype(x.dtype), self.out.astype(x.dtype)
        if self.scale is not None:
            qkv, out = normalize(qkv), normalize(out.T).T
        # One product for all sequences: leading axes are folded by hand.
        parts = jnp.split(linear(x.reshape(-1, d), qkv), 3, axis=1)
        q, k, v = (a.reshape(-1, n, self.heads, d // self.heads) for a in parts)
        temperature = (d // self.heads) ** -0.5
        if self.rotary:
            q, k = rotated(q), rotated(k)
        if self.scale is not None:
            scale = like(self.scale, q)
            q, k = normalize(q) * scale, normalize(k) * scale
            temperature = 1 / temperature
        q, k, v = (jnp.moveaxis(a, 2, 1) for a in (q, k, v))
        (logits,), _ = widen(temperature * (q @ jnp.swapaxes(k, -1, -2)))
        if mask is not None:
            logits = jnp.where(mask[None, None], logits, -jnp.inf)
        # A softmax that divides last: one array of n x n is kept for the derivative.
        largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
        weights = jnp.exp(logits - largest)
        total = jnp.sum(weights, axis=-1, keepdims=True)
        wide = jnp.matmul(
            weights.astype(x.dtype), v, preferred_element_type=total.dtype
        )
        mixed = jnp.moveaxis((wide / total).astype(x.dtype), 1, 2)
        return linear(mixed.reshape(-1, d), out).reshape(*batch, n, d)


class FeedForward(eqx.Module):
    r"""The map $x \mapsto W_2\, g(W_1 x)$ of each token, g the GELU."""

    up: Float[Array, "m d"]
    down: Float[Array, "d m"]
    sphere: bool = eqx.field(static=True)

    def __init__(
        self, config: TransformerConfig, d: int, *, key: Key[Array, ""], dtype
    ):
        first, second = jr.split(key)
        self.up = _weights(first, config.mlp_ratio * d, d, dtype)
        self.down = _weights(second, d, config.mlp_ratio * d, dtype)
        self.sphere = config.norm == "ngpt"

    def __call__(self, x: Tokens) -> Tokens:
        up, down = self.up.astype(x.dtype), self.down.astype(x.dtype)
        flat = x.reshape(-1, x.shape[-1])
        if self.sphere:
            up, down = normalize(up), normalize(down.T).T
            # Entries of W x are of size 1 / sqrt(d) there: too small to bend the GELU.
            flat = x.shape[-1] ** 0.5 * flat
        # Computed again for the derivative: on CPU, to store it takes longer.
        hidden = jax.checkpoint(jax.nn.gelu)(linear(flat, up))
        return (hidden @ down.T).reshape(x.shape)


def linear(x: Float[Array, "b d"], w: Float[Array, "m d"]) -> Float[Array, "b m"]:
    """The product with a matrix of more rows than columns, or as many.

    The barrier keeps XLA from writing the derivative `x.T @ g` as the transpose of
    `g.T @ x`, which takes twice the time on CPU.
    """
    return x @ jax.lax.optimization_barrier(w.T)


def like(scale: Float[Array, "..."], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """An array of the last axes of `x`, in its dtype and number of axes."""
    return scale.astype(x.dtype).reshape((1,) * (x.ndim - scale.ndim) + scale.shape)


def rotated(x: Float[Array, "b n h k"]) -> Float[Array, "b n h k"]:
    """Rotary positions: pairs of coordinates turn at rates of 10000^(-2i/k) a place."""
    half, kind = x.shape[-1] // 2, widen(x)[0][0].dtype
    rates = 10000.0 ** (-jnp.arange(half, dtype=kind) / half)
    angle = jnp.arange(x.shape[1], dtype=kind)[:, None] * rates[None, :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    cos, sin = (
        jnp.stack(pair, axis=1).astype(x.dtype)[None, :, None]
        for pair in ((cos, cos), (-sin, sin))
    )
    # Flipped, where a concatenation of both halves is slow on CPU.
    pairs = x.reshape(*x.shape[:-1], 2, half)
    return (pairs * cos + jnp.flip(pairs, axis=-2) * sin).reshape(x.shape)


def dropped(x: Tokens, share: float, key: Key[Array, ""] | None) -> Tokens:
    """Zeros in place of a random share of the entries, the others made up for it."""
    if key is None or share == 0:
        return x
    kept = jr.bernoulli(key, 1 - share, x.shape)
    return jnp.where(kept, x / (1 - share), jnp.zeros_like(x))


def _weights(key, rows, columns, dtype):
    """Normal, of variance 1 / columns: tokens of variance 1 keep it."""
    return columns**-0.5 * jr.normal(key, (rows, columns), dtype)
