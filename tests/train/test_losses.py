"""Losses: closed forms, derivatives, precision, and what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from tfjax.nn import Transformer, TransformerConfig
from tfjax.train import classification_loss, cross_entropy, language_loss


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape))


LOGITS = 3 * random(2, 5, 7)
LABELS = jnp.asarray(np.random.default_rng(1).integers(0, 7, (2, 5)))


def test_it_is_the_mean_of_minus_log_p(tol):
    logs = log_softmax(np.asarray(LOGITS, float), axis=-1)
    expected = -np.mean(np.take_along_axis(logs, np.asarray(LABELS)[..., None], -1))
    for function in (cross_entropy, jax.jit(cross_entropy)):
        assert float(function(LOGITS, LABELS)) == pytest.approx(
            expected, abs=10 * tol.identity
        )
    assert float(cross_entropy(jnp.zeros(7), jnp.array(3))) == pytest.approx(np.log(7))


def test_its_derivative_is_the_softmax_less_one_at_the_label(tol):
    found = jax.jit(jax.grad(cross_entropy))(LOGITS, LABELS)
    p = np.exp(log_softmax(np.asarray(LOGITS, float), axis=-1))
    expected = (p - np.eye(7)[np.asarray(LABELS)]) / LABELS.size
    np.testing.assert_allclose(found, expected, atol=10 * tol.identity)


def test_large_logits_and_impossible_classes_are_safe():
    logits = jnp.array([[1e30, -1e30, -jnp.inf], [300.0, 301.0, -jnp.inf]])
    labels = jnp.array([0, 1])
    value, slope = jax.value_and_grad(cross_entropy)(logits, labels)
    assert float(value) == pytest.approx(0.5 * np.log1p(np.exp(-1)), rel=1e-5)
    assert np.all(np.isfinite(slope))
    assert float(cross_entropy(logits, jnp.array([0, 2]))) == np.inf


def test_half_precision_is_summed_in_float32():
    logits = (3 * random(400, 7)).astype(jnp.bfloat16)
    labels = jnp.asarray(np.random.default_rng(2).integers(0, 7, 400))
    value = cross_entropy(logits, labels)
    assert value.dtype == jnp.float32
    exact = cross_entropy(logits.astype(jnp.float32), labels)
    assert float(value) == float(exact)
    assert jax.grad(cross_entropy)(logits, labels).dtype == jnp.bfloat16


def test_a_language_model_is_asked_for_the_next_token():
    table = 5 * random(7, 7)  # logits of the token after each
    model = lambda tokens, key: table[tokens]
    tokens = jnp.array([[0, 1, 2], [3, 3, 4]])
    pairs = [(0, 1), (1, 2), (3, 3), (3, 4)]
    logs = log_softmax(np.asarray(table, float), axis=-1)
    expected = -np.mean([logs[pair] for pair in pairs])
    found = float(language_loss(model, tokens, None))
    assert found == pytest.approx(expected, rel=1e-5)
    one = float(language_loss(model, tokens[0], None))
    assert one == pytest.approx(-np.mean([logs[0, 1], logs[1, 2]]), rel=1e-5)


def test_the_key_drops_what_the_model_drops():
    config = TransformerConfig(
        vocabulary=7, layers=1, heads=1, head_dim=8, context=4, dropout=0.5
    )
    model = Transformer(config, key=jax.random.key(0))
    loss = eqx.filter_jit(language_loss)
    values = [float(loss(model, LABELS, jax.random.key(k))) for k in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert float(loss(model, LABELS, None)) not in values


def test_a_classifier_is_asked_for_its_labels():
    model = lambda inputs, key: inputs @ jnp.eye(7)
    labels = LABELS[:, 0]
    found = classification_loss(model, (LOGITS[:, 0], labels), None)
    assert float(found) == float(cross_entropy(LOGITS[:, 0], labels))


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (
            LOGITS,
            LABELS.astype(float),
            "`labels` must be integers, but was of dtype float",
        ),
        (LOGITS, LABELS[:, :4], r"`labels` must have shape \(2, 5\), .* shape \(2, 4"),
        (LOGITS, LABELS.at[0, 0].set(7), r"`labels` must lie in \[0, 7\)"),
        (LOGITS, LABELS.at[0, 0].set(-1), r"`labels` must lie in \[0, 7\)"),
        (LOGITS[:0], LABELS[:0], "`logits` must have no axis of length 0"),
    ],
)
def test_bad_labels_are_named(logits, labels, message, unchecked):
    with pytest.raises(ValueError, match=message):
        cross_entropy(logits, labels)


def test_bad_tokens_are_named_under_jit_too():
    model = lambda tokens, key: LOGITS[0][tokens]
    with pytest.raises(ValueError, match="`tokens` must have at least two tokens in"):
        language_loss(model, LABELS[:, :1], None)
    # The last token is only guessed, so that no model has looked at it.
    bad = jnp.zeros((1, 3), int).at[0, -1].set(9)
    with pytest.raises(Exception, match=r"`labels` must lie in \[0, 7\)"):
        eqx.filter_jit(language_loss)(model, bad, None)
