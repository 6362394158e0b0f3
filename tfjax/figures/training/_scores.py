"""How good probabilities are: their scores, their calibration, what doubt tells."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import optimize, special

from ...nn import Prediction
from ...nn._extra import extra
from ...train import accuracy, calibration_error, cross_entropy


BINS = 15


class Scores(NamedTuple):
    """Of one model, on several sets of inputs with the same labels.

    - `nats`: the mean of -log p of the label.
    - `error`: the expected calibration error, in `BINS` bins.
    - `by_chance`: what it would be in expectation if every confidence were right.
    - `accuracy`, `brier`: the latter between 0 and 2.
    - `entropy`, `information`: means of the entropy of the prediction, and of its part
      that is doubt about the model, in nats.
    """

    nats: Float[np.ndarray, " sets"]
    error: Float[np.ndarray, " sets"]
    by_chance: Float[np.ndarray, " sets"]
    accuracy: Float[np.ndarray, " sets"]
    brier: Float[np.ndarray, " sets"]
    entropy: Float[np.ndarray, " sets"]
    information: Float[np.ndarray, " sets"]


def brier(log_p: Float[Array, "m c"], labels: Int[Array, " m"]) -> Float[Array, ""]:
    """The mean squared distance of the probabilities from those of the label."""
    right = jax.nn.one_hot(labels, log_p.shape[-1], dtype=log_p.dtype)
    return jnp.mean(jnp.sum((jnp.exp(log_p) - right) ** 2, axis=-1))


@jax.jit
def _measured(log_p, labels):
    measures = (cross_entropy, calibration_error, accuracy, brier)
    return jax.vmap(lambda p: [measure(p, labels) for measure in measures])(log_p)


def scores(found: Prediction, labels: Int[np.ndarray, " m"]) -> Scores:
    """Of predictions of shape (sets, m, c)."""
    log_p = np.asarray(found.log_probabilities)
    measured = _measured(jnp.asarray(log_p), jnp.asarray(labels, jnp.int32))
    nats, error, right, square = (np.asarray(each, float) for each in measured)
    chance = np.array([by_chance(np.exp(p.max(-1))) for p in log_p])
    mean = lambda a: np.asarray(a, float).mean(axis=-1)
    doubts = mean(found.entropy), mean(found.mutual_information)
    return Scores(nats, error, chance, right, square, *doubts)


def by_chance(confidence: Float[np.ndarray, " m"]) -> float:
    r"""The calibration error of predictions whose confidences are all right.

    $\sum_b \sqrt{2 V_b / \pi} / m$ in expectation, where the sum of successes in bin b
    has variance $V_b = \sum_i c_i (1 - c_i)$, for the normal approximation of it.
    """
    confidence = np.clip(confidence.astype(float), 0.0, 1.0)
    variances = np.bincount(_bins(confidence), confidence * (1 - confidence), BINS)
    return float(np.sqrt(2 * variances / np.pi).sum() / confidence.size)


def reliability(
    log_p: Float[np.ndarray, "m c"], labels: Int[np.ndarray, " m"]
) -> Float[np.ndarray, "three bins"]:
    """How many predictions are in each bin, the sum of confidences, of right ones."""
    confidence = np.clip(np.exp(log_p.max(-1).astype(float)), 0.0, 1.0)
    right = (log_p.argmax(-1) == labels).astype(float)
    weights = np.ones_like(right), confidence, right
    return np.stack([np.bincount(_bins(confidence), w, BINS) for w in weights])


def _bins(confidence):
    return np.maximum(np.ceil(BINS * confidence).astype(int) - 1, 0)


def tells_apart(
    doubt: Float[np.ndarray, " m"], wanted: Bool[np.ndarray, " m"]
) -> float:
    """The area under the ROC curve: how often one that is wanted has more doubt.

    0.5 is chance; NaN where all or none are wanted.
    """
    if wanted.all() or not wanted.any():
        return float("nan")
    metrics = extra("sklearn.metrics", "tfjax reproduce calibration", "data")
    return float(metrics.roc_auc_score(wanted, doubt))


def best_temperature(
    log_p: Float[np.ndarray, "m c"], labels: Int[np.ndarray, " m"]
) -> float:
    """T for which p^(1/T), normalised, surprises least by the labels."""
    wide, rows = log_p.astype(float), np.arange(len(labels))

    def nats(log_t):
        scaled = special.log_softmax(wide / np.exp(log_t), axis=-1)
        return -scaled[rows, labels].mean()

    found = optimize.minimize_scalar(nats, bounds=(-3.0, 3.0), method="bounded")
    # A search within bounds never tries the value that changes nothing.
    return float(np.exp(found.x)) if found.fun < nats(0.0) else 1.0


def tempered(found: Prediction, temperature: float) -> Prediction:
    """The prediction p^(1/T), normalised; all its doubt counts as that which stays."""
    log_p = np.asarray(found.log_probabilities)
    log_p = special.log_softmax(log_p / log_p.dtype.type(temperature), axis=-1)
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    return _prediction(log_p, entropy, entropy)


def together(members: list[Prediction]) -> Prediction:
    """The mean distribution of several models, with what they disagree about."""
    every = np.stack([np.asarray(one.log_probabilities) for one in members])
    log_p = special.logsumexp(every, axis=0) - every.dtype.type(np.log(len(members)))
    expected = np.mean([np.asarray(one.entropy) for one in members], axis=0)
    entropy = np.maximum(-(np.exp(log_p) * log_p).sum(-1), expected)
    return _prediction(log_p, entropy, expected)


def _prediction(log_p, entropy, expected):
    parts = log_p, entropy, expected, entropy - expected
    return Prediction(*map(jnp.asarray, parts))
