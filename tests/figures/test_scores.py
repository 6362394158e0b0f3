"""Scores of probabilities: closed forms, and statistics of draws."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from tfjax.figures.training._scores import (
    BINS,
    best_temperature,
    brier,
    by_chance,
    reliability,
    scores,
    tells_apart,
    tempered,
    together,
)
from tfjax.nn import Prediction
from tfjax.train import calibration_error


M, CLASSES = 400, 5
RNG = np.random.default_rng(0)
LOGITS = (2.0 * RNG.normal(size=(M, CLASSES))).astype(np.float32)
LOG_P = np.asarray(special.log_softmax(LOGITS, axis=-1))
LABELS = np.array([RNG.choice(CLASSES, p=p) for p in special.softmax(LOGITS, axis=-1)])


def prediction(log_p):
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    return Prediction(*map(jnp.asarray, (log_p, entropy, entropy, 0 * entropy)))


def test_brier_score_of_knowing_nothing_and_of_being_sure():
    labels = jnp.array([0, 1, 2])
    even = jnp.log(jnp.full((3, 4), 0.25))
    assert float(brier(even, labels)) == pytest.approx(0.75, rel=1e-6)
    sure = jnp.log(jnp.array([[1.0, 0.0]] * 2))
    assert float(brier(sure, jnp.array([0, 0]))) == 0.0
    assert float(brier(sure, jnp.array([1, 1]))) == 2.0


def test_scores_are_those_of_each_set():
    two = np.stack([LOG_P, LOG_P[:, ::-1]])
    found = scores(prediction(two), LABELS)
    right = np.eye(CLASSES)[LABELS]
    for k, log_p in enumerate(two):
        _, confidence, hits = reliability(log_p, LABELS)
        expected = {
            "nats": -log_p[np.arange(M), LABELS].mean(),
            "error": np.abs(confidence - hits).sum() / M,
            "accuracy": np.mean(log_p.argmax(-1) == LABELS),
            "brier": ((np.exp(log_p) - right) ** 2).sum(-1).mean(),
            "by_chance": by_chance(np.exp(two[k].max(-1))),
            "entropy": stats.entropy(np.exp(two[k]), axis=-1).mean(),
            "information": 0.0,
        }
        got = {name: getattr(found, name)[k] for name in expected}
        assert got == pytest.approx({n: float(v) for n, v in expected.items()}, 1e-5)


def test_the_error_by_chance_is_the_mean_over_labels_drawn_from_the_predictions():
    p = np.exp(LOG_P.astype(float))
    p /= p.sum(axis=-1, keepdims=True)
    upper = np.cumsum(p, axis=-1)
    drawn = (RNG.random((300, M, 1)) > upper).sum(axis=-1)
    errors = []
    for labels in drawn:
        _, confidence, right = reliability(LOG_P, labels)
        errors.append(np.abs(confidence - right).sum() / M)
    # The binomial is not normal: 8 % is what that costs for 400 predictions.
    assert by_chance(np.exp(LOG_P.max(-1))) == pytest.approx(np.mean(errors), rel=0.08)


def test_reliability_has_the_calibration_error_in_it():
    many, confidence, right = reliability(LOG_P, LABELS)
    assert many.sum() == M
    assert right.sum() == (LOG_P.argmax(-1) == LABELS).sum()
    error = np.abs(confidence - right).sum() / M
    expected = calibration_error(jnp.asarray(LOG_P), jnp.asarray(LABELS))
    assert error == pytest.approx(float(expected), rel=1e-5)
    sure = np.log(np.array([[1.0, 1e-30]] * 3))
    found = reliability(sure, np.zeros(3, int))
    assert found.shape == (3, BINS)
    assert found[0, -1] == 3


def test_the_area_under_the_curve_is_that_of_all_pairs():
    doubt = RNG.normal(size=50).round(1)
    wanted = RNG.random(50) < 0.4
    one, other = doubt[wanted][:, None], doubt[~wanted][None, :]
    expected = np.mean((one > other) + 0.5 * (one == other))
    assert tells_apart(doubt, wanted) == pytest.approx(expected)
    assert np.isnan(tells_apart(doubt, np.ones(50, bool)))
    assert np.isnan(tells_apart(doubt, np.zeros(50, bool)))


def test_the_best_temperature_is_where_nothing_is_gained_by_another():
    found = best_temperature(3 * LOG_P, LABELS)
    # The labels are draws from the softmax of LOGITS.
    assert abs(np.log(found / 3)) < 0.2
    nats = lambda t: (
        -special.log_softmax(3 * LOG_P / t, axis=-1)[np.arange(M), LABELS].mean()
    )
    assert nats(found) < min(nats(0.98 * found), nats(1.02 * found), nats(1.0))
    sharper = best_temperature(LOG_P / 3, LABELS)
    assert sharper == pytest.approx(found / 9, rel=1e-3)


def test_a_temperature_changes_doubt_not_answers():
    found = tempered(prediction(LOG_P), 2.5)
    log_p = np.asarray(found.log_probabilities)
    assert log_p.dtype == np.float32
    np.testing.assert_allclose(
        log_p, special.log_softmax(LOGITS / 2.5, axis=-1), atol=1e-5
    )
    assert np.array_equal(log_p.argmax(-1), LOG_P.argmax(-1))
    expected = stats.entropy(np.exp(log_p), axis=-1)
    np.testing.assert_allclose(found.entropy, expected, rtol=1e-4, atol=1e-6)
    assert not np.any(found.mutual_information)
    same = tempered(prediction(LOG_P), 1.0)
    np.testing.assert_allclose(same.log_probabilities, LOG_P, atol=1e-6)


def test_models_together_say_their_mean_and_what_they_disagree_about():
    members = [prediction(LOG_P), prediction(LOG_P[:, ::-1])]
    found = together(members)
    mean = (np.exp(LOG_P) + np.exp(LOG_P[:, ::-1])) / 2
    np.testing.assert_allclose(np.exp(found.log_probabilities), mean, rtol=1e-5)
    total = stats.entropy(mean, axis=-1)
    np.testing.assert_allclose(found.entropy, total, rtol=1e-4)
    each = stats.entropy(np.exp(LOG_P), axis=-1)
    np.testing.assert_allclose(found.expected_entropy, each, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.mutual_information, total - each, atol=1e-5)
    alone = together(members[:1])
    np.testing.assert_allclose(alone.log_probabilities, LOG_P, atol=1e-6)
    assert float(jnp.max(alone.mutual_information)) < 1e-6
