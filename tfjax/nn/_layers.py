"""The parts that BERT and ALBERT are made of."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Key

from .._core import matmul, must, require, widen
from ..attention import attend
from ._config import BertConfig


class Affine(eqx.Module):
    r"""The map $x \mapsto W x + b$, with $W$ drawn normal of deviation 0.02."""

    weight: Float[Array, "m d"]
    bias: Float[Array, " m"]

    def __init__(self, d: int, m: int, *, key: Key[Array, ""], dtype: DTypeLike):
        self.weight = 0.02 * jr.normal(key, (m, d), dtype)
        self.bias = jnp.zeros(m, dtype)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
        (x, weight, bias), dtype = widen(x, self.weight, self.bias)
        return (matmul(x, weight.T) + bias[None, :]).astype(dtype)


class LayerNorm(eqx.Module):
    """Each token less its mean, over its deviation, then scaled and shifted."""

    weight: Float[Array, " d"]
    bias: Float[Array, " d"]
    epsilon: float = eqx.field(static=True)

    def __init__(self, d: int, epsilon: float, *, dtype: DTypeLike):
        self.weight = jnp.ones(d, dtype)
        self.bias = jnp.zeros(d, dtype)
        self.epsilon = epsilon

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        (x, weight, bias), dtype = widen(x, self.weight, self.bias)
        # Two passes: mean(x^2) - mean(x)^2 cancels for tokens far from the origin.
        x = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        x = x * jax.lax.rsqrt(variance + self.epsilon)
        return (x * weight[None, :] + bias[None, :]).astype(dtype)


class Embedding(eqx.Module):
    """The sum of three tables, of words, positions and token types, normalised.

    `width` is the dimension of the rows, which in ALBERT is not that of the tokens.
    """

    word: Float[Array, "vocabulary d"]
    position: Float[Array, "positions d"]
    token_type: Float[Array, "token_types d"]
    norm: LayerNorm

    def __init__(
        self, config: BertConfig, width: int, *, key: Key[Array, ""], dtype: DTypeLike
    ):
        wkey, pkey, tkey = jr.split(key, 3)
        self.word = 0.02 * jr.normal(wkey, (config.vocabulary, width), dtype)
        self.position = 0.02 * jr.normal(pkey, (config.positions, width), dtype)
        self.token_type = 0.02 * jr.normal(tkey, (config.token_types, width), dtype)
        self.norm = LayerNorm(width, config.epsilon, dtype=dtype)

    def __call__(self, token_ids: Integer[Array, " n"]) -> Float[Array, "n d"]:
        n, positions = token_ids.shape[0], self.position.shape[0]
        if not 1 <= n <= positions:
            raise must("token_ids", f"have from 1 to {positions} tokens", f"of {n}")
        vocabulary = self.word.shape[0]
        if jnp.iinfo(token_ids.dtype).bits < 32:
            # The size of the vocabulary may be beyond what a short integer holds.
            token_ids = token_ids.astype(jnp.int32)
        # Indexing alone would wrap or clamp silently.
        inside = (token_ids >= 0) & (token_ids < vocabulary)
        token_ids = require(token_ids, inside, "token_ids", f"lie in [0, {vocabulary})")
        x = self.word[token_ids] + self.position[:n] + self.token_type[:1]
        return self.norm(x)


class BertLayer(eqx.Module):
    r"""One post-norm block, $y = N_1(x + O\,A(x))$, $x' = N_2(y + W_2\,g(W_1 y))$.

    $A$ is multi-head attention at $\beta = 1/\sqrt{d_k}$; every map is affine; $g$ is
    the GELU $z\,\Phi(z)$, exact in BERT and by its formula with tanh in ALBERT. Made by
    `BertEncoder` and `AlbertEncoder`.

    **Arguments:**

    - `config`: the sizes, and which GELU.
    - `key`: draws the weights.
    - `dtype`: of the parameters.
    """

    query: Affine
    key: Affine
    value: Affine
    output: Affine
    attention_norm: LayerNorm
    expand: Affine
    contract: Affine
    mlp_norm: LayerNorm
    heads: int = eqx.field(static=True)
    tanh: bool = eqx.field(static=True)

    def __init__(self, config: BertConfig, *, key: Key[Array, ""], dtype: DTypeLike):
        d, m = config.width, config.mlp_width
        qkey, kkey, vkey, okey, ekey, ckey = jr.split(key, 6)
        self.query = Affine(d, d, key=qkey, dtype=dtype)
        self.key = Affine(d, d, key=kkey, dtype=dtype)
        self.value = Affine(d, d, key=vkey, dtype=dtype)
        self.output = Affine(d, d, key=okey, dtype=dtype)
        self.attention_norm = LayerNorm(d, config.epsilon, dtype=dtype)
        self.expand = Affine(d, m, key=ekey, dtype=dtype)
        self.contract = Affine(m, d, key=ckey, dtype=dtype)
        self.mlp_norm = LayerNorm(d, config.epsilon, dtype=dtype)
        self.heads = config.heads
        self.tanh = config.tanh

    def __call__(
        self, x: Float[Array, "n d"], mask: Bool[Array, " n"] | None = None
    ) -> Float[Array, "n d"]:
        """The tokens after this block; `mask` is that of the encoder."""
        n, d = x.shape

        def split(y: Float[Array, "n d"]) -> Float[Array, "h n k"]:
            return y.reshape(n, self.heads, d // self.heads).transpose(1, 0, 2)

        mixed = jax.vmap(lambda q, k, v: attend(q, k, v, mask=mask))(
            split(self.query(x)), split(self.key(x)), split(self.value(x))
        )
        y = self.output(mixed.transpose(1, 0, 2).reshape(n, d))
        x = self.attention_norm(x + y)
        y = self.contract(jax.nn.gelu(self.expand(x), approximate=self.tanh))
        return self.mlp_norm(x + y)


class MaskedHead(eqx.Module):
    r"""Which word fits a place: $E\,N(g(A x + a)) + b$, with the table $E$ of words.

    **Arguments:**

    - `config`: the sizes.
    - `key`: draws the weights.
    - `dtype`: of the parameters.
    """

    dense: Affine
    norm: LayerNorm
    bias: Float[Array, " vocabulary"]

    def __init__(self, config: BertConfig, *, key: Key[Array, ""], dtype: DTypeLike):
        self.dense = Affine(config.width, config.width, key=key, dtype=dtype)
        self.norm = LayerNorm(config.width, config.epsilon, dtype=dtype)
        self.bias = jnp.zeros(config.vocabulary, dtype)

    def __call__(
        self, x: Float[Array, "n d"], word: Float[Array, "vocabulary d"]
    ) -> Float[Array, "n vocabulary"]:
        """The logits of every word in every place."""
        y = self.norm(jax.nn.gelu(self.dense(x), approximate=False))
        (y, word, bias), dtype = widen(y, word, self.bias)
        return (matmul(y, word.T) + bias[None, :]).astype(dtype)


def default_dtype(dtype: DTypeLike | None) -> Any:
    """`dtype`, or the default floating one."""
    return jnp.zeros(()).dtype if dtype is None else dtype
