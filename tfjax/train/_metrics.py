"""How good predictions are, and whether their probabilities can be believed."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Integer

from .._core import as_float, count, must, require, widen


def perplexity(nats: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    r"""How many equally likely tokens would be as hard to guess: $e^L$.

    **Arguments:**

    - `nats`: L, a mean cross-entropy with the natural logarithm.

    **Returns:** of the same shape; infinite where it is too large for the dtype.

    !!! example

        >>> from tfjax.train import perplexity
        >>> round(float(perplexity(1.5)), 3)
        4.482

    Source: own.
    """
    (wide,), dtype = widen(as_float("nats", nats))
    return jnp.exp(wide).astype(dtype)


def bits_per_character(nats: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
    r"""A cross-entropy in bits: $L / \ln 2$.

    **Arguments:**

    - `nats`: L, a mean cross-entropy per character with the natural logarithm.

    **Returns:** of the same shape, in bits per character.

    !!! example

        >>> from tfjax.train import bits_per_character
        >>> round(float(bits_per_character(1.5)), 3)
        2.164

    Source: own.
    """
    (wide,), dtype = widen(as_float("nats", nats))
    return (wide / math.log(2)).astype(dtype)


def accuracy(
    logits: Float[Array, "*batch classes"], labels: Integer[Array, " *batch"]
) -> Float[Array, ""]:
    r"""The share of predictions whose largest logit is that of the label.

    Among equal logits the first is the prediction, so that a model which says the same
    of every class is right where the label is 0.

    **Arguments:**

    - `logits`: or probabilities, or logarithms of them.
    - `labels`: the right classes.

    **Returns:** a number in [0, 1], in float32 at least.

    **Raises:** ValueError where there are no predictions, the largest logit of one is
    not finite, or a label is no class (under jit, the latter are run-time errors).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import accuracy
        >>> logits = jnp.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0], [5.0, 1.0]])
        >>> float(accuracy(logits, jnp.array([0, 1, 1, 0])))
        0.75

    Source: own.
    """
    logits, labels = _checked(logits, labels)
    right = jnp.argmax(logits, axis=-1).astype(labels.dtype) == labels
    return jnp.mean(right, dtype=logits.dtype)


def calibration_error(
    logits: Float[Array, "*batch classes"],
    labels: Integer[Array, " *batch"],
    *,
    bins: int = 15,
) -> Float[Array, ""]:
    r"""The expected calibration error: how far confidence is from accuracy.

    Predictions are sorted by their confidence, the largest probability of softmax, into
    bins $B_b = \{i : (b - 1) / B < p_i \le b / B\}$, and

    $$ \mathrm{ECE} = \sum_{b=1}^B \frac{|B_b|}{m}
       |\mathrm{accuracy}(B_b) - \mathrm{confidence}(B_b)|. $$

    It is an estimate, biased in both ways. It is too large for few predictions: a
    perfectly calibrated model of confidence c has an expectation of about
    $\sqrt{2 c (1 - c) / (\pi |B_b|)}$ in a bin, not 0. It is too small for few bins:
    within a bin, too much confidence here makes up for too little there. And it says
    nothing about the classes that were not predicted. Compare models with the same m
    and `bins` only.

    **Arguments:**

    - `logits`: unnormalised; of probabilities, give the logarithms.
    - `labels`: the right classes.
    - `bins`: B.

    **Returns:** a number in [0, 1], in float32 at least.

    **Raises:** ValueError as [`accuracy`][], and where `bins` is no positive integer.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import calibration_error
        >>> logits = jnp.log(jnp.array([[0.9, 0.1]] * 4))
        >>> found = calibration_error(logits, jnp.array([0, 0, 0, 1]))
        >>> round(float(found), 3)
        0.15

    Source: arXiv 1706.04599, equation 3; on its bias arXiv 2012.08668.
    """
    many = count("bins", bins)
    logits, labels = _checked(logits, labels)
    confidence = jnp.max(jax.nn.softmax(logits, axis=-1), axis=-1).reshape(-1)
    right = (jnp.argmax(logits, axis=-1).astype(labels.dtype) == labels).reshape(-1)
    place = jnp.ceil(many * jax.lax.stop_gradient(confidence)).astype(jnp.int32) - 1
    # Of each bin, its number of predictions times accuracy minus confidence.
    gaps = jax.ops.segment_sum(right.astype(confidence.dtype) - confidence, place, many)
    return jnp.sum(jnp.abs(gaps)) / confidence.size


def _checked(logits: Array, labels: Array) -> tuple[Array, Array]:
    if not labels.size or not logits.shape[-1]:
        raise must("logits", "have predictions", f"of shape {logits.shape}")
    if logits.shape[:-1] != labels.shape:
        rule = f"have the shape {logits.shape[:-1]} of the predictions"
        raise must("labels", rule, f"of shape {labels.shape}")
    (wide,), _ = widen(logits)
    finite = jnp.isfinite(jnp.max(wide, axis=-1))  # a NaN is the largest one of all
    wide = require(wide, finite, "logits", "have a finite largest one everywhere")
    if labels.dtype.itemsize < 4:  # too narrow for the number of classes, perhaps
        labels = labels.astype(jnp.int32)
    classes = logits.shape[-1]
    inside = (labels >= 0) & (labels < classes)
    return wide, require(labels, inside, "labels", f"lie in [0, {classes})")
