"""The BERT encoder, whose layers can be read as steps of a particle system."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Key

from .._core import matmul, must, require, widen
from ..attention import attend
from ._bert_config import BertConfig as BertConfig


class _Affine(eqx.Module):
    weight: Float[Array, "m d"]
    bias: Float[Array, " m"]

    def __init__(self, d: int, m: int, *, key: Key[Array, ""], dtype: DTypeLike):
        self.weight = 0.02 * jr.normal(key, (m, d), dtype)
        self.bias = jnp.zeros(m, dtype)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
        (x, weight, bias), dtype = widen(x, self.weight, self.bias)
        return (matmul(x, weight.T) + bias[None, :]).astype(dtype)


class _LayerNorm(eqx.Module):
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


class BertLayer(eqx.Module):
    r"""One post-norm block, $y = N_1(x + O\,A(x))$, $x' = N_2(y + W_2\,g(W_1 y))$.

    $A$ is multi-head attention at $\beta = 1/\sqrt{d_k}$, $g$ the exact GELU
    $z\,\Phi(z)$; every map is affine. Made by `BertEncoder`.

    **Arguments:**

    - `config`: the sizes.
    - `key`: draws the weights.
    - `dtype`: of the parameters.
    """

    query: _Affine
    key: _Affine
    value: _Affine
    output: _Affine
    attention_norm: _LayerNorm
    expand: _Affine
    contract: _Affine
    mlp_norm: _LayerNorm
    heads: int = eqx.field(static=True)

    def __init__(self, config: BertConfig, *, key: Key[Array, ""], dtype: DTypeLike):
        d, m = config.width, config.mlp_width
        qkey, kkey, vkey, okey, ekey, ckey = jr.split(key, 6)
        self.query = _Affine(d, d, key=qkey, dtype=dtype)
        self.key = _Affine(d, d, key=kkey, dtype=dtype)
        self.value = _Affine(d, d, key=vkey, dtype=dtype)
        self.output = _Affine(d, d, key=okey, dtype=dtype)
        self.attention_norm = _LayerNorm(d, config.epsilon, dtype=dtype)
        self.expand = _Affine(d, m, key=ekey, dtype=dtype)
        self.contract = _Affine(m, d, key=ckey, dtype=dtype)
        self.mlp_norm = _LayerNorm(d, config.epsilon, dtype=dtype)
        self.heads = config.heads

    def __call__(
        self, x: Float[Array, "n d"], mask: Bool[Array, " n"] | None = None
    ) -> Float[Array, "n d"]:
        """The tokens after this block; `mask` is that of `BertEncoder`."""
        n, d = x.shape

        def split(y: Float[Array, "n d"]) -> Float[Array, "h n k"]:
            return y.reshape(n, self.heads, d // self.heads).transpose(1, 0, 2)

        mixed = jax.vmap(lambda q, k, v: attend(q, k, v, mask=mask))(
            split(self.query(x)), split(self.key(x)), split(self.value(x))
        )
        y = self.output(mixed.transpose(1, 0, 2).reshape(n, d))
        x = self.attention_norm(x + y)
        y = self.contract(jax.nn.gelu(self.expand(x), approximate=False))
        return self.mlp_norm(x + y)


class BertEncoder(eqx.Module):
    """A BERT encoder (post-norm) for one sequence of tokens.

    Batch it with `jax.vmap`, compile it with `eqx.filter_jit`.

    **Arguments:**

    - `config`: the sizes.
    - `key`: draws the weights, normal of deviation 0.02; trained ones come from
      [`tfjax.nn.load_pretrained`][].
    - `dtype`: of the parameters, which every result follows; `None` is the default
      floating dtype.

    !!! example

        >>> import jax
        >>> from tfjax.nn import BertConfig, BertEncoder
        >>> config = BertConfig(vocabulary=100, width=16, layers=2, heads=4)
        >>> model = BertEncoder(config, key=jax.random.key(0))
        >>> model.hidden_states(jax.numpy.arange(5)).shape
        (3, 5, 16)

    Source: Devlin, Chang, Lee, Toutanova, *BERT*, NAACL 2019, arXiv 1810.04805.
    """

    word: Float[Array, "vocabulary d"]
    position: Float[Array, "positions d"]
    token_type: Float[Array, "token_types d"]
    norm: _LayerNorm
    layers: tuple[BertLayer, ...]
    config: BertConfig = eqx.field(static=True)

    def __init__(
        self,
        config: BertConfig,
        *,
        key: Key[Array, ""],
        dtype: DTypeLike | None = None,
    ):
        dtype = jnp.zeros(()).dtype if dtype is None else dtype
        d = config.width
        wkey, pkey, tkey, lkey = jr.split(key, 4)
        self.word = 0.02 * jr.normal(wkey, (config.vocabulary, d), dtype)
        self.position = 0.02 * jr.normal(pkey, (config.positions, d), dtype)
        self.token_type = 0.02 * jr.normal(tkey, (config.token_types, d), dtype)
        self.norm = _LayerNorm(d, config.epsilon, dtype=dtype)
        self.layers = tuple(
            BertLayer(config, key=k, dtype=dtype) for k in jr.split(lkey, config.layers)
        )
        self.config = config

    def hidden_states(
        self, token_ids: Integer[Array, " n"], *, mask: Bool[Array, " n"] | None = None
    ) -> Float[Array, "layers_plus_1 n d"]:
        """The tokens as they enter the first block and as they leave each block.

        **Arguments:**

        - `token_ids`: of shape `(n,)`, with `1 <= n <= config.positions`; all tokens
          are of type 0.
        - `mask`: of shape `(n,)`, True where a token exists. Nothing attends to an
          absent one; its own rows of the result are without meaning.

        **Returns:** an array of shape `(layers + 1, n, d)`: index 0 is the embedding
        after its LayerNorm, index -1 the last hidden layer.

        **Raises:** `ValueError` for a wrong number of tokens or an id outside the
        vocabulary; under `jit` or `vmap` the latter is a run-time error.
        """
        n = token_ids.shape[0]
        if not 1 <= n <= self.config.positions:
            rule = f"have from 1 to {self.config.positions} tokens"
            raise must("token_ids", rule, f"of {n}")
        vocabulary = self.config.vocabulary
        if jnp.iinfo(token_ids.dtype).bits < 32:
            # The size of the vocabulary may be beyond what a short integer holds.
            token_ids = token_ids.astype(jnp.int32)
        # Indexing alone would wrap or clamp silently.
        inside = (token_ids >= 0) & (token_ids < vocabulary)
        token_ids = require(token_ids, inside, "token_ids", f"lie in [0, {vocabulary})")
        x = self.word[token_ids] + self.position[:n] + self.token_type[:1]
        states = [self.norm(x)]
        for layer in self.layers:
            states.append(layer(states[-1], mask))
        return jnp.stack(states)

    def __call__(
        self, token_ids: Integer[Array, " n"], *, mask: Bool[Array, " n"] | None = None
    ) -> Float[Array, "n d"]:
        """The last hidden layer, `hidden_states(token_ids, mask=mask)[-1]`."""
        return self.hidden_states(token_ids, mask=mask)[-1]
