"""The BERT encoder, whose layers can be read as steps of a particle system."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Key

from ._config import BertConfig
from ._layers import BertLayer, Embedding, default_dtype


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

    embedding: Embedding
    layers: tuple[BertLayer, ...]
    config: BertConfig = eqx.field(static=True)

    def __init__(
        self,
        config: BertConfig,
        *,
        key: Key[Array, ""],
        dtype: DTypeLike | None = None,
    ):
        kind = default_dtype(dtype)
        ekey, lkey = jr.split(key)
        self.embedding = Embedding(config, config.width, key=ekey, dtype=kind)
        self.layers = tuple(
            BertLayer(config, key=k, dtype=kind) for k in jr.split(lkey, config.layers)
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
        states = [self.embedding(token_ids)]
        for layer in self.layers:
            states.append(layer(states[-1], mask))
        return jnp.stack(states)

    def __call__(
        self, token_ids: Integer[Array, " n"], *, mask: Bool[Array, " n"] | None = None
    ) -> Float[Array, "n d"]:
        """The last hidden layer, `hidden_states(token_ids, mask=mask)[-1]`."""
        return self.hidden_states(token_ids, mask=mask)[-1]
