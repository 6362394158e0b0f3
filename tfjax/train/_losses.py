"""What is minimised in training: cross-entropy of tokens, and of classes."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Shaped

from .._core import is_concrete, must, require, widen


def cross_entropy(
    logits: Float[Array, "*batch v"], labels: Int[Array, "..."]
) -> Float[Array, ""]:
    r"""The mean of $-\log p$ of the labels, p the softmax of the logits.

    $$\frac{1}{N} \sum_{i=1}^{N} \Big( \log \sum_{j} e^{z_{ij}} - z_{i y_i} \Big)$$

    **Arguments:**

    - `logits`: z, of shape (*batch, v); may be large, or -inf where a class is
      impossible.
    - `labels`: y, integers in [0, v), of shape batch.

    **Returns:** a scalar, in nats; in float32 at least.

    **Raises:** ValueError where shapes do not fit or labels are no integers in [0, v)
    (under jit, a run-time error).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import cross_entropy
        >>> logits = jnp.log(jnp.array([[0.5, 0.5], [0.75, 0.25]]))
        >>> round(float(jnp.exp(-cross_entropy(logits, jnp.array([0, 1])))), 4)
        0.3536

    Source: own.
    """
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise must("labels", "be integers", f"of dtype {labels.dtype}")
    if labels.shape != logits.shape[:-1]:
        rule = f"have shape {logits.shape[:-1]}, as `logits` have but for the last axis"
        raise must("labels", rule, f"of shape {labels.shape}")
    if not logits.size:
        rule = "have no axis of length 0"
        raise must("logits", rule, f"of shape {logits.shape}")
    count = logits.shape[-1]
    inside = (labels >= 0) & (labels < count)
    labels = require(labels, inside, "labels", f"lie in [0, {count})")
    (wide,), _ = widen(logits)
    # Selected, not gathered: the derivative is a selection too, where a gather's is a
    # slow scatter.
    chosen = labels[..., None] == jax.lax.broadcasted_iota(
        labels.dtype, logits.shape, logits.ndim - 1
    )
    picked = jnp.sum(jnp.where(chosen, wide, jnp.zeros_like(wide)), axis=-1)
    return jnp.mean(jax.nn.logsumexp(wide, axis=-1) - picked)


def variational_loss(
    loss: Callable[..., Any], weight: float | Float[Array, ""] = 1.0
) -> Callable[..., Float[Array, ""]]:
    r"""A loss, and beside it the divergence of stochastic scores: for [`make_step`][].

    $$L + \lambda\, D$$

    with D as [`tfjax.nn.Transformer`][]'s `logits_and_divergence` has it, in the same
    pass. For [`language_loss`][] and $\lambda = 1$ it is, in the mean over tokens, an
    upper bound of the surprise with scores integrated over their prior; for
    [`classification_loss`][] of n tokens $\lambda = n$ is. Smaller weights temper it.

    **Arguments:**

    - `loss`: a function `(model, batch, key) -> scalar` that calls the model once, such
      as [`language_loss`][] or [`classification_loss`][].
    - `weight`: lambda, a number of at least 0, which may be traced.

    **Returns:** a function `(model, batch, key) -> scalar`, in nats, of a
    [`Transformer`][tfjax.nn.Transformer]. Without a key scores are exact, and the
    divergence is that of the distributions around them.

    **Raises:** ValueError where the weight is negative or not finite.

    !!! example

        >>> import jax
        >>> from tfjax.nn import BayesianConfig, Transformer, TransformerConfig
        >>> from tfjax.train import language_loss, variational_loss
        >>> config = TransformerConfig(
        ...     vocabulary=65,
        ...     layers=2,
        ...     heads=2,
        ...     head_dim=16,
        ...     bayesian=BayesianConfig(scores="stochastic"),
        ... )
        >>> model, key = Transformer(config, key=jax.random.key(0)), jax.random.key(1)
        >>> tokens = jax.random.randint(key, (3, 11), 0, 65)
        >>> bound = variational_loss(language_loss)(model, tokens, key)
        >>> bool(bound > language_loss(model, tokens, key))
        True

    Source: arXiv 2010.10604, section 3.
    """
    known = is_concrete(weight)
    if isinstance(weight, bool) or (known and not 0 <= weight < math.inf):
        raise must("weight", "be a number of at least 0", repr(weight))

    def bound(model: Any, batch: Any, key: Any) -> Float[Array, ""]:
        divergences = []

        def logits(inputs: Any, *, key: Any = None) -> Any:
            found, divergence = model.logits_and_divergence(inputs, key=key)
            divergences.append(divergence)
            return found

        return loss(logits, batch, key) + weight * sum(divergences)

    return bound


def language_loss(
    model: Callable[..., Any], tokens: Int[Array, "..."], key: Key[Array, ""] | None
) -> Float[Array, ""]:
    """How surprised a language model is by each next token: a loss for [`make_step`][].

    **Arguments:**

    - `model`: a function of integers of shape (..., n), and of `key`, that returns
      logits of shape (..., n, v), such as a [`Transformer`][tfjax.nn.Transformer].
    - `tokens`: integers of shape (..., n + 1): n are read, n are guessed.
    - `key`: for the model's dropout; None drops nothing, to evaluate.

    **Returns:** the [`cross_entropy`][], in nats a token; log v for a uniform guess.

    **Raises:** ValueError where there are fewer than two tokens in a sequence.

    !!! example

        >>> import jax
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import language_loss
        >>> config = TransformerConfig(vocabulary=65, layers=2, heads=2, head_dim=16)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> tokens = jax.random.randint(jax.random.key(1), (3, 11), 0, 65)
        >>> language_loss(model, tokens, None).shape
        ()

    Source: own.
    """
    if not tokens.ndim or tokens.shape[-1] < 2:
        rule = "have at least two tokens in each sequence"
        raise must("tokens", rule, f"of shape {tokens.shape}")
    return cross_entropy(model(tokens[..., :-1], key=key), tokens[..., 1:])


def classification_loss(
    model: Callable[..., Any],
    batch: tuple[Shaped[Array, "..."], Int[Array, "..."]],
    key: Key[Array, ""] | None,
) -> Float[Array, ""]:
    """How surprised a classifier is by the labels: a loss for [`make_step`][].

    **Arguments:**

    - `model`: a function of the inputs, and of `key`, that returns logits of shape
      (..., v), such as a [`Transformer`][tfjax.nn.Transformer] with `classes`.
    - `batch`: inputs, and their labels: integers in [0, v).
    - `key`: for the model's dropout; None drops nothing, to evaluate.

    **Returns:** the [`cross_entropy`][], in nats a label.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.train import classification_loss
        >>> model = lambda inputs, key: inputs @ jnp.zeros((3, 4))
        >>> batch = jnp.ones((8, 3)), jnp.zeros(8, int)
        >>> round(float(jnp.exp(classification_loss(model, batch, None))), 4)
        4.0

    Source: own.
    """
    inputs, labels = batch
    return cross_entropy(model(inputs, key=key), labels)
