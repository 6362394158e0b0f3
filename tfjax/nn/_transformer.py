"""A Transformer to be trained: a causal language model, or a classifier."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Key, Shaped

from .._core import must, normalize, require, widen
from ._bayesian import BayesianAttention
from ._branches import Attention, FeedForward, Norm, Tokens, dropped, like
from ._layers import default_dtype
from ._transformer_config import TransformerConfig


class TransformerLayer(eqx.Module):
    """Attention, then a feed-forward map; made by [`Transformer`][].

    **Arguments:**

    - `config`: the sizes and choices.
    - `key`: draws the weights.
    - `dtype`: of the parameters.
    """

    attention: Attention | BayesianAttention
    feed_forward: FeedForward
    norms: tuple[Norm, Norm]
    outer_norms: tuple[Norm, Norm] | None
    rates: Float[Array, "two d"] | None
    config: TransformerConfig = eqx.field(static=True)

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""], dtype: Any):
        d = config.width // 2 if config.block == "leapfrog" else config.width
        sphere = config.norm == "ngpt"
        norm = lambda: Norm(d, sphere=sphere, dtype=dtype)
        akey, fkey = jr.split(key)
        kind = Attention if config.bayesian is None else BayesianAttention
        self.attention = kind(config, d, key=akey, dtype=dtype)
        self.feed_forward = FeedForward(config, d, key=fkey, dtype=dtype)
        self.norms = norm(), norm()
        self.outer_norms = (norm(), norm()) if config.norm == "peri" else None
        start = jnp.full((2, d), 1 / config.layers, dtype)
        self.rates = start if sphere else None
        self.config = config

    def __call__(
        self,
        x: Tokens,
        mask: Bool[Array, "n n"] | None = None,
        key: Key[Array, ""] | None = None,
    ) -> Tokens:
        """Tokens after this layer; without `key` nothing is dropped."""
        return self.with_divergence(x, mask, key)[0]

    def with_divergence(
        self,
        x: Tokens,
        mask: Bool[Array, "n n"] | None,
        key: Key[Array, ""] | None,
    ) -> tuple[Tokens, Float[Array, ""]]:
        """The tokens, and the divergence of stochastic scores from their prior."""
        keys = self._keys(key)
        if self.config.block == "leapfrog":
            q, p = jnp.split(x, 2, axis=-1)
            y, divergence = self._attended(q, mask, keys)
            p = p + y
            q = q + self._fed(p, keys)
            return jnp.concatenate([q, p], axis=-1), divergence
        y, divergence = self._attended(x, mask, keys)
        x = self._joined(0, x, y)
        return self._joined(1, x, self._fed(x, keys)), divergence

    def branches(
        self, mask: Bool[Array, "n n"] | None, key: Key[Array, ""] | None
    ) -> tuple[Callable[[Tokens], Tokens], Callable[[Tokens], Tokens]]:
        """What attention and the feed-forward map add, as functions of the tokens."""
        keys = self._keys(key)
        return (
            lambda x: self._attended(x, mask, keys)[0],
            lambda x: self._fed(x, keys),
        )

    def _keys(self, key):
        """For what each branch drops, and for the scores."""
        if self.config.bayesian is None:
            return (None, None) if key is None else jr.split(key)
        return (None, None, None) if key is None else jr.split(key, 3)

    def _attended(self, x, mask, keys):
        seen = self._seen(0, x)
        if isinstance(self.attention, BayesianAttention):
            y, divergence = self.attention.with_divergence(seen, mask, keys[2])
        else:
            y = self.attention(seen, mask)
            divergence = jnp.zeros((), widen(y)[0][0].dtype)
        return self._added(0, y, keys), divergence

    def _fed(self, x, keys):
        return self._added(1, self.feed_forward(self._seen(1, x)), keys)

    def _seen(self, i, x):
        """What a branch is given."""
        return self.norms[i](x) if self.config.norm in ("pre", "peri") else x

    def _added(self, i, y, keys):
        """What a branch adds, before its rate."""
        config = self.config
        if self.outer_norms is not None:
            y = self.outer_norms[i](y)
        y = dropped(y, config.dropout, keys[i])
        return config.layers**-config.branch_exponent * y

    def _joined(self, i, x, y):
        """The tokens and what a branch adds to them."""
        if self.config.block == "cayley":
            return turned(x, y)
        if self.config.norm == "post":
            return self.norms[i](x + y)
        if self.rates is not None:
            return normalize(x + like(self.rates[i], x) * (normalize(y) - x))
        return x + y


def turned(x: Tokens, y: Tokens) -> Tokens:
    r"""Every token turned towards another vector, at its own length.

    With the unit vector $\hat x$ and the part $w$ of y across it, it is Cayley's
    transform of the rotation $w \hat x^\top - \hat x w^\top$, applied to x:

    $$|x| \, \frac{(1 - |w|^2 / 4)\, \hat x + w}{1 + |w|^2 / 4}$$

    a step of the flow $\dot x = |x| P_x y$ that stays on the sphere.
    """
    (x, y), dtype = widen(x, y)
    length = jnp.linalg.norm(x, axis=-1, keepdims=True)
    unit = normalize(x)
    w = y - jnp.sum(unit * y, axis=-1, keepdims=True) * unit
    quarter = 0.25 * jnp.sum(w * w, axis=-1, keepdims=True)
    return (length * ((1 - quarter) * unit + w) / (1 + quarter)).astype(dtype)


class Transformer(eqx.Module):
    r"""A Transformer with weights to be trained.

    It takes a batch at once: leading axes of its input are sequences.

    **Arguments:**

    - `config`: a [`TransformerConfig`][]: sizes, where tokens are normalised, and what
      a layer does with its branches.
    - `key`: draws the weights, normal of variance 1 over the number of columns.
    - `dtype`: of the parameters; None is the default floating dtype. Tokens are
      computed in it, norms and softmax in float32 at least.

    **Arguments of the call:**

    - `inputs`: integers of shape (..., n), or vectors of shape (..., n, f) where the
      config says `features`; n at most `context`.
    - `key`: drops a share of the branches, in training; None drops nothing.

    **Returns, when called:** logits: of the next token, of shape (..., n, vocabulary);
    or of the classes, of shape (..., classes).

    **Raises:** ValueError where the inputs are of another kind or too long, or a token
    is not in the vocabulary (under jit, a run-time error).

    !!! example

        >>> import jax
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> config = TransformerConfig(vocabulary=65, layers=2, heads=2, head_dim=16)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> model(jax.numpy.zeros((3, 10), int)).shape
        (3, 10, 65)

    Source: arXiv 1706.03762, with rotary positions of arXiv 2104.09864.
    """

    embedding: Float[Array, "rows d"]
    position: Float[Array, "n d"] | None
    layers: Any
    norm: Norm
    head: Float[Array, "out d"] | None
    logit_scale: Float[Array, " out"] | None
    config: TransformerConfig = eqx.field(static=True)

    def __init__(
        self,
        config: TransformerConfig,
        *,
        key: Key[Array, ""],
        dtype: DTypeLike | None = None,
    ):
        kind, d = default_dtype(dtype), config.width
        ekey, pkey, lkey, hkey = jr.split(key, 4)
        draw = lambda key, *shape: jr.normal(key, shape, kind)
        if config.vocabulary is not None:
            rows, out = config.vocabulary, config.classes or config.vocabulary
            self.embedding = draw(ekey, rows, d)
        else:
            rows, out = config.features or 0, config.classes or 0  # neither is None
            self.embedding = rows**-0.5 * draw(ekey, rows, d)
        learned = config.positions == "learned"
        self.position = 0.1 * draw(pkey, config.context, d) if learned else None
        make = lambda key: TransformerLayer(config, key=key, dtype=kind)
        keys = jr.split(lkey, config.layers)
        self.layers = eqx.filter_vmap(make)(keys) if config.scan else [*map(make, keys)]
        self.norm = Norm(d, sphere=config.norm == "ngpt", dtype=kind)
        tied = config.tied and config.classes is None
        self.head = None if tied else d**-0.5 * draw(hkey, out, d)
        scale = jnp.full(out, d**0.5, kind) if config.norm == "ngpt" else None
        self.logit_scale = scale
        self.config = config

    def __call__(
        self,
        inputs: Shaped[Array, "..."],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "..."]:
        return self.logits(self._through(self.embed(inputs), key, keep=False)[0])

    def logits_and_divergence(
        self, inputs: Shaped[Array, "..."], *, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        """The logits, and how far stochastic scores are from their prior.

        **Arguments:** as of the call.

        **Returns:** what the call returns, and a Kullback-Leibler divergence in nats,
        summed over layers, heads and keys, in the mean over tokens; 0 for scores that
        are not stochastic.
        """
        x, divergence = self._through(self.embed(inputs), key, keep=False)
        return self.logits(x), divergence

    def hidden_states(
        self, inputs: Shaped[Array, "..."], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, "layers_plus_1 *batch n d"]:
        """The tokens as they enter the first layer, and as they leave each layer."""
        return self._through(self.embed(inputs), key, keep=True)[0]

    def embed(self, inputs: Shaped[Array, "..."]) -> Tokens:
        """The tokens that enter the first layer."""
        config = self.config
        whole = jnp.issubdtype(inputs.dtype, jnp.integer)
        if whole is (config.vocabulary is None):
            rule = "be vectors" if config.vocabulary is None else "be integers"
            raise must("inputs", rule, f"of dtype {inputs.dtype}")
        shape = inputs.shape if whole else inputs.shape[:-1]
        if not shape or not 1 <= shape[-1] <= config.context:
            rule = f"have sequences of from 1 to {config.context} tokens"
            raise must("inputs", rule, f"of shape {inputs.shape}")
        if whole:
            count = self.embedding.shape[0]
            inside, rule = (inputs >= 0) & (inputs < count), f"lie in [0, {count})"
            x = self.embedding[require(inputs, inside, "inputs", rule)]
        else:
            if inputs.shape[-1] != config.features:
                rule = f"have vectors of length {config.features}"
                raise must("inputs", rule, f"of shape {inputs.shape}")
            x = inputs.astype(self.embedding.dtype) @ self.embedding
        if self.position is not None:
            x = x + like(self.position[: shape[-1]], x)
        return normalize(x) if config.norm == "ngpt" else x

    def logits(self, x: Tokens) -> Float[Array, "..."]:
        """What the last layer's tokens say: of the next token, or of the classes."""
        x = self.norm(x)
        if self.config.classes is not None:
            x = jnp.mean(x, axis=-2)
        head = self.embedding if self.head is None else self.head
        if self.logit_scale is not None:
            logits = x @ normalize(head).T
            return logits * like(self.logit_scale, logits)
        # A table of tokens has rows of length sqrt(d).
        scale = self.config.width**-0.5 if self.head is None else 1.0
        return scale * (x @ head.T)

    def _through(self, x, key, keep):
        """The last tokens, or those of all layers, and the sum of divergences."""
        config, n = self.config, x.shape[-2]
        mask = jnp.tril(jnp.ones((n, n), bool)) if config.sees_earlier_only else None
        keys = None if key is None else jr.split(key, config.layers)
        if config.scan:
            parts, static = eqx.partition(self.layers, eqx.is_array)

            def step(x, given):
                part, key = given
                layer = eqx.combine(part, static)
                x, divergence = layer.with_divergence(x, mask, key)
                return x, (x if keep else None, divergence)

            last, (later, each) = jax.lax.scan(step, x, (parts, keys))
            states = last if later is None else jnp.concatenate([x[None], later])
            return states, jnp.sum(each)
        states, total = [x], jnp.zeros((), widen(x)[0][0].dtype)
        for i, layer in enumerate(self.layers):
            given = mask, None if keys is None else keys[i]
            x, divergence = layer.with_divergence(states[-1], *given)
            states, total = [*states, x], total + divergence
        return jnp.stack(states) if keep else states[-1], total
