"""A model's loss on data that it was not trained on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._core import count, must
from ..nn import ContinuousTransformer, Transformer
from ._losses import cross_entropy
from ._metrics import accuracy, bits_per_character, calibration_error, perplexity


def evaluate_text(
    model: Transformer | ContinuousTransformer,
    tokens: np.ndarray,
    *,
    stride: int | None = None,
    windows: int | None = None,
    batch: int = 16,
) -> dict[str, float]:
    """How well a language model guesses every token of a text but the first.

    The text is cut into windows of `context` tokens, each `stride` after the one
    before; of each, those tokens are counted that no window before it has counted, so
    that a token is guessed from at least `context - stride` before it.

    **Arguments:**

    - `model`: a language model.
    - `tokens`: integers of shape (n,).
    - `stride`: at most the context; None is the context.
    - `windows`: take only so many windows, evenly spread; None takes all.
    - `batch`: how many windows at a time.

    **Returns:** `nats`, the mean of -log p; `bits` per token; `perplexity`.

    **Raises:** ValueError where the text is shorter than two tokens, or the stride
    longer than the context.

    !!! example

        >>> import jax, numpy as np
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import evaluate_text
        >>> config = TransformerConfig(vocabulary=9, layers=1, heads=1, head_dim=8)
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> found = evaluate_text(model, np.arange(200) % 9)
        >>> sorted(found)
        ['bits', 'nats', 'perplexity']

    Source: own.
    """
    if tokens.ndim != 1 or len(tokens) < 2:
        raise must("tokens", "have shape (n,), n at least 2", f"{tokens.shape}")
    context = min(model.config.context, len(tokens) - 1)
    step = context if stride is None else count("stride", stride)
    if stride is not None and stride > model.config.context:
        raise must("stride", f"be at most {model.config.context}", stride)
    step = min(step, context)
    # The last window ends with the text, whatever the stride.
    starts = np.arange(0, len(tokens) - context, step)
    if starts[-1] != len(tokens) - 1 - context:
        starts = np.append(starts, len(tokens) - 1 - context)
    fresh = np.diff(starts, prepend=starts[0] - context)
    if windows is not None and windows < len(starts):
        chosen = np.linspace(0, len(starts) - 1, count("windows", windows)).astype(int)
        starts, fresh = starts[chosen], fresh[chosen]
    total = 0.0
    for k in range(0, len(starts), batch):
        # The last batch is filled up, with windows that do not count.
        first = np.resize(starts[k : k + batch], batch)
        new = np.zeros(batch, int)
        new[: len(fresh[k : k + batch])] = fresh[k : k + batch]
        window = tokens[first[:, None] + np.arange(context + 1)].astype(np.int32)
        counted = np.arange(context) >= context - new[:, None]
        total += float(_nats(model, jnp.asarray(window), jnp.asarray(counted)))
    nats = total / float(fresh.sum())
    return {
        "nats": nats,
        "bits": float(bits_per_character(nats)),
        "perplexity": float(perplexity(nats)),
    }


def evaluate_examples(
    model: Transformer | ContinuousTransformer,
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    batch: int = 256,
) -> dict[str, float]:
    """How well a classifier does.

    **Arguments:**

    - `model`: a classifier of vectors.
    - `inputs`: of shape (m, n, f).
    - `labels`: integers of shape (m,).
    - `batch`: how many at a time.

    **Returns:** `nats`, the mean of -log p; `accuracy`; `calibration_error`.

    **Raises:** ValueError where shapes do not fit.

    !!! example

        >>> import jax, numpy as np
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import evaluate_examples
        >>> config = TransformerConfig(
        ...     vocabulary=None, features=2, classes=3, context=5, heads=1, head_dim=8
        ... )
        >>> model = Transformer(config, key=jax.random.key(0))
        >>> inputs, labels = np.ones((4, 5, 2), np.float32), np.zeros(4, int)
        >>> sorted(evaluate_examples(model, inputs, labels))
        ['accuracy', 'calibration_error', 'nats']

    Source: own.
    """
    if inputs.ndim != 3 or labels.shape != inputs.shape[:1] or not len(labels):
        rule = "have shape (m,), for inputs of shape (m, n, f)"
        raise must("labels", rule, f"{labels.shape} for {inputs.shape}")
    parts = []
    for k in range(0, len(inputs), batch):
        part = inputs[k : k + batch]
        full = np.resize(part, (min(batch, len(inputs)), *part.shape[1:]))
        parts.append(np.asarray(_logits(model, jnp.asarray(full)))[: len(part)])
    logits, wanted = jnp.asarray(np.concatenate(parts)), jnp.asarray(labels, jnp.int32)
    return {
        "nats": float(cross_entropy(logits, wanted)),
        "accuracy": float(accuracy(logits, wanted)),
        "calibration_error": float(calibration_error(logits, wanted)),
    }


@eqx.filter_jit
def _nats(model, windows, counted):
    log_p = jax.nn.log_softmax(model(windows[:, :-1]).astype(jnp.float32), axis=-1)
    found = jnp.take_along_axis(log_p, windows[:, 1:, None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(counted, found, jnp.zeros_like(found)))


@eqx.filter_jit
def _logits(model, inputs):
    return model(inputs)
