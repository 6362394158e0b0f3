"""What a model predicts, and how much of its doubt is doubt about itself."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, Shaped

from .._core import count, must, widen


class Prediction(NamedTuple):
    """A predictive distribution, and its entropy in nats, in two parts.

    - `log_probabilities`: of the mean distribution over samples.
    - `entropy`: of that distribution: all doubt.
    - `expected_entropy`: the mean entropy of a sample: doubt that stays when the model
      is known.
    - `mutual_information`: the difference, never negative: doubt about the model.
    """

    log_probabilities: Float[Array, "*batch v"]
    entropy: Float[Array, "*batch"]
    expected_entropy: Float[Array, "*batch"]
    mutual_information: Float[Array, "*batch"]


def predict(
    model: Callable[..., Any],
    inputs: Shaped[Array, "..."],
    *,
    key: Key[Array, ""] | None = None,
    samples: int = 1,
) -> Prediction:
    r"""The predictive distribution of a model, in the mean over its random parts.

    $$p(y) = \frac1S \sum_{s=1}^S p_s(y), \qquad
      H(p) = \frac1S \sum_s H(p_s) + I$$

    Random parts are stochastic scores and dropout: each sample draws them anew. The
    mutual information I of the prediction and these is 0 without any.

    **Arguments:**

    - `model`: a [`Transformer`][], a language model or a classifier; or any function of
      the inputs, and of `key`, that returns logits.
    - `inputs`: what the model takes.
    - `key`: draws the random parts; None leaves them out.
    - `samples`: S, one after another.

    **Returns:** a [`Prediction`][], of shape (..., v) and (...) for logits of (..., v),
    in float32 at least.

    **Raises:** ValueError where there are more samples than one, and no key.

    !!! example

        >>> import jax
        >>> from tfjax.nn import BayesianConfig, Transformer, TransformerConfig, predict
        >>> noisy = BayesianConfig(scores="stochastic")
        >>> config = TransformerConfig(
        ...     vocabulary=9, layers=1, heads=2, head_dim=8, bayesian=noisy
        ... )
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> inputs, key = jax.numpy.arange(9), jax.random.key(1)
        >>> found = predict(model, inputs, key=key, samples=8)
        >>> found.entropy.shape, bool((found.mutual_information[1:] > 0).all())
        ((9,), True)

    Source: Y. Gal, Uncertainty in Deep Learning (2016), section 3.3.
    """
    samples = count("samples", samples)
    if key is None and samples > 1:
        raise must("key", "be given for more than one sample", "None")
    return _predicted(model, inputs, key, samples)


@eqx.filter_jit
def _predicted(model, inputs, key, samples):
    def sample(key):
        (logits,), _ = widen(model(inputs, key=key))
        log_p = jax.nn.log_softmax(logits, axis=-1)
        return log_p, _entropy(log_p)

    if samples == 1:
        log_p, entropy = sample(key)
        return Prediction(log_p, entropy, entropy, jnp.zeros_like(entropy))
    # One after another: all at once would take the memory of as many models.
    first, *_ = keys = jr.split(key, samples)

    def add(total, key):
        more = sample(key)
        return (jnp.logaddexp(total[0], more[0]), total[1] + more[1]), None

    (log_sum, sum_of), _ = jax.lax.scan(add, sample(first), keys[1:])
    log_p, expected = log_sum - jnp.log(samples).astype(log_sum.dtype), sum_of / samples
    # Jensen's inequality, which rounding may miss.
    entropy = jnp.maximum(_entropy(log_p), expected)
    return Prediction(log_p, entropy, expected, entropy - expected)


def _entropy(log_p):
    finite = jnp.where(log_p == -jnp.inf, 0.0, log_p)
    return -jnp.sum(jnp.exp(log_p) * finite, axis=-1)
