"""The ALBERT encoder: one layer, applied again and again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Key

from .._core import count
from ._config import AlbertConfig
from ._layers import Affine, BertLayer, Embedding, default_dtype


class AlbertEncoder(eqx.Module):
    """An ALBERT encoder for one sequence of tokens: an autonomous map, iterated.

    All layers share their weights, so that depth is time, and more steps than the
    model was trained with are as well defined. Batch it with `jax.vmap`, compile it
    with `eqx.filter_jit`.

    **Arguments:**

    - `config`: the sizes; `config.layers` is the trained depth.
    - `key`: draws the weights, normal of deviation 0.02; trained ones come from
      [`tfjax.nn.load_pretrained`][].
    - `dtype`: of the parameters, which every result follows; `None` is the default
      floating dtype.

    !!! example

        >>> import jax
        >>> from tfjax.nn import AlbertConfig, AlbertEncoder
        >>> config = AlbertConfig(vocabulary=100, width=16, layers=2, heads=4)
        >>> model = AlbertEncoder(config, key=jax.random.key(0))
        >>> model.hidden_states(jax.numpy.arange(5)).shape
        (3, 5, 16)
        >>> model.hidden_states(jax.numpy.arange(5), steps=40).shape
        (41, 5, 16)

    Source: Lan, Chen, Goodman, Gimpel, Sharma, Soricut, *ALBERT*, ICLR 2020, arXiv
    1909.11942.
    """

    embedding: Embedding
    lift: Affine
    layer: BertLayer
    config: AlbertConfig = eqx.field(static=True)

    def __init__(
        self,
        config: AlbertConfig,
        *,
        key: Key[Array, ""],
        dtype: DTypeLike | None = None,
    ):
        kind, narrow = default_dtype(dtype), config.embedding_width
        ekey, mkey, lkey = jr.split(key, 3)
        self.embedding = Embedding(config, narrow, key=ekey, dtype=kind)
        self.lift = Affine(narrow, config.width, key=mkey, dtype=kind)
        self.layer = BertLayer(config, key=lkey, dtype=kind)
        self.config = config

    def hidden_states(
        self,
        token_ids: Integer[Array, " n"],
        *,
        mask: Bool[Array, " n"] | None = None,
        steps: int | None = None,
    ) -> Float[Array, "steps_plus_1 n d"]:
        """The tokens as they enter the layer and after each of its applications.

        **Arguments:**

        - `token_ids`: of shape `(n,)`, with `1 <= n <= config.positions`; all tokens
          are of type 0.
        - `mask`: of shape `(n,)`, True where a token exists. Nothing attends to an
          absent one; its own rows of the result are without meaning.
        - `steps`: how often the layer is applied; `None` is `config.layers`.

        **Returns:** an array of shape `(steps + 1, n, d)`: index 0 is the embedding
        in the width of the tokens, index -1 the last state.

        **Raises:** `ValueError` for `steps` below 1, a wrong number of tokens or an id
        outside the vocabulary; under `jit` or `vmap` the latter is a run-time error.
        """
        steps = self.config.layers if steps is None else count("steps", steps)

        def step(x, _):
            x = self.layer(x, mask)
            return x, x

        first = self.lift(self.embedding(token_ids))
        _, later = jax.lax.scan(step, first, length=steps)
        return jnp.concatenate([first[None], later])

    def __call__(
        self, token_ids: Integer[Array, " n"], *, mask: Bool[Array, " n"] | None = None
    ) -> Float[Array, "n d"]:
        """The last hidden layer, `hidden_states(token_ids, mask=mask)[-1]`."""
        return self.hidden_states(token_ids, mask=mask)[-1]
