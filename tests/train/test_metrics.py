"""Metrics: closed forms, a reference in numpy, and what the documentation claims."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.train import accuracy, bits_per_character, calibration_error, perplexity


def sure(confidences, classes=3):
    """Logits whose prediction is class 0, with these confidences."""
    c = jnp.asarray(confidences, jnp.zeros(()).dtype)[:, None]
    rest = jnp.broadcast_to((1 - c) / (classes - 1), (len(c), classes - 1))
    return jnp.log(jnp.concatenate([c, rest], axis=1))


def drawn(n=200, classes=5):
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((n, classes))
    return jnp.asarray(logits), jnp.asarray(rng.integers(0, classes, n))


def by_hand(logits, labels, bins):
    """The definition in numpy, bin after bin."""
    p = np.exp(np.asarray(logits, np.float64))
    p /= p.sum(1, keepdims=True)
    confidence, right = p.max(1), p.argmax(1) == np.asarray(labels)
    error = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            gap = right[inside].mean() - confidence[inside].mean()
            error += inside.mean() * abs(gap)
    return error


# --- Cross-entropies ------------------------------------------------------------------


def test_a_uniform_guess_among_k_has_perplexity_k(tol):
    nats = jnp.log(jnp.array([1.0, 2.0, 82.0]))
    np.testing.assert_allclose(perplexity(nats), [1, 2, 82], rtol=tol.identity)
    bits = bits_per_character(nats)
    np.testing.assert_allclose(bits, np.log2([1, 2, 82]), rtol=tol.identity)
    np.testing.assert_allclose(2**bits, perplexity(nats), rtol=10 * tol.identity)


def test_half_precision_is_rounded_once():
    nats = jnp.asarray(4.4, jnp.bfloat16)
    for metric in (perplexity, bits_per_character):
        exact = metric(nats.astype(jnp.float32)).astype(jnp.bfloat16)
        assert metric(nats) == exact
        assert metric(nats).dtype == jnp.bfloat16


# --- Accuracy -------------------------------------------------------------------------


def test_accuracy_counts_the_largest_logit():
    logits, labels = drawn()
    share = np.mean(np.asarray(logits).argmax(1) == np.asarray(labels))
    assert float(accuracy(logits, labels)) == pytest.approx(share, abs=1e-7)
    shaped = accuracy(logits.reshape(10, 20, 5), labels.reshape(10, 20))
    assert shaped == accuracy(logits, labels)
    assert float(accuracy(jnp.zeros((4, 3)), jnp.array([0, 1, 2, 2]))) == 0.25


def test_labels_of_one_byte_are_not_wrapped():
    logits = jnp.zeros((1, 300)).at[0, 256].set(1.0)
    assert accuracy(logits, jnp.zeros(1, jnp.uint8)) == 0


# --- Calibration ----------------------------------------------------------------------


def test_one_bin_is_accuracy_minus_confidence(tol):
    labels = jnp.array([0, 0, 1, 0, 2])
    found = calibration_error(sure([0.9] * 5), labels)
    np.testing.assert_allclose(found, 0.9 - 0.6, atol=tol.identity)
    perfect = calibration_error(sure([0.6] * 5), labels)
    np.testing.assert_allclose(perfect, 0, atol=tol.identity)


def test_an_edge_belongs_to_the_bin_below(tol):
    # Confidence 1/2 is in the first of two bins: gaps of -1/2 and 1/10 do not mix.
    found = calibration_error(sure([0.5, 0.9]), jnp.array([1, 0]), bins=2)
    np.testing.assert_allclose(found, (0.5 + 0.1) / 2, atol=tol.identity)
    mixed = calibration_error(sure([0.5, 0.9]), jnp.array([1, 0]), bins=1)
    np.testing.assert_allclose(mixed, (0.5 - 0.1) / 2, atol=tol.identity)
    certain = jnp.array([[0.0, -jnp.inf]])
    assert calibration_error(certain, jnp.array([0])) == 0
    assert calibration_error(certain, jnp.array([1])) == 1


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_it_is_the_sum_over_bins(bins, tol):
    logits, labels = drawn()
    found = calibration_error(logits, labels, bins=bins)
    np.testing.assert_allclose(found, by_hand(logits, labels, bins), atol=tol.identity)
    shaped = calibration_error(
        logits.reshape(10, 20, 5), labels.reshape(10, 20), bins=bins
    )
    np.testing.assert_allclose(shaped, found, atol=tol.identity)


def test_a_calibrated_model_has_the_bias_that_is_documented():
    c, m, runs = 0.7, 400, 2000
    right = np.random.default_rng(0).random((runs, m)) < c
    labels = jnp.asarray(np.where(right, 0, 1))
    found = jax.vmap(lambda each: calibration_error(sure([c] * m), each))(labels)
    expected = np.sqrt(2 * c * (1 - c) / (np.pi * m))
    # A mean of 2000 half-normal numbers has a deviation of 1.7 per cent.
    np.testing.assert_allclose(np.mean(found), expected, rtol=0.05)


def test_jit_vmap_and_gradient(tol):
    logits, labels = drawn(40)
    many = logits.reshape(2, 20, 5), labels.reshape(2, 20)
    for metric in (accuracy, calibration_error):
        loop = jnp.stack([metric(*pair) for pair in zip(*many, strict=True)])
        each = jax.jit(jax.vmap(metric))(*many)
        np.testing.assert_allclose(each, loop, atol=tol.identity)
    slope = jax.grad(calibration_error)(logits, labels)
    step = jnp.asarray(1e-2 if logits.dtype == jnp.float32 else 1e-5, logits.dtype)
    way = drawn(40)[0][::-1] / 10
    ahead, back = (calibration_error(logits + s * way, labels) for s in (step, -step))
    along = (ahead - back) / (2 * step)
    np.testing.assert_allclose(jnp.vdot(slope, way), along, atol=tol.composite)


@pytest.mark.parametrize("metric", [accuracy, calibration_error])
@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (jnp.zeros((0, 3)), jnp.zeros(0, int), "`logits` must have predictions"),
        (jnp.zeros((2, 3)), jnp.zeros(3, int), r"`labels` must have the shape \(2,\)"),
        (jnp.full((2, 3), jnp.nan), jnp.zeros(2, int), "`logits` must have a finite"),
        (jnp.full((2, 3), -jnp.inf), jnp.zeros(2, int), "`logits` must have a finite"),
        (jnp.zeros((2, 3)), jnp.array([0, 3]), r"`labels` must lie in \[0, 3\), but"),
        (jnp.zeros((2, 3)), jnp.array([0, -1]), r"`labels` must lie in \[0, 3\), but"),
    ],
)
def test_bad_predictions_are_refused(metric, logits, labels, message, unchecked):
    with pytest.raises(ValueError, match=message):
        metric(logits, labels)


def test_bad_bins_are_refused(unchecked):
    with pytest.raises(
        ValueError, match="`bins` must be a positive integer, but was 0"
    ):
        calibration_error(*drawn(), bins=0)
