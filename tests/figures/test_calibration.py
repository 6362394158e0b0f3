"""The experiment on calibration: parts, pairs, choices, and what is compared."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.figures.training import _calibration_study as studies
from tfjax.figures.training._calibrated import (
    TRAINED,
    Choice,
    Setup,
    drawn,
    fresh,
    problem,
    read,
    sizes,
)
from tfjax.figures.training._calibration import _compared, _settled
from tfjax.figures.training._scores import Scores
from tfjax.train import load_digits


CHOICE = Choice(0.3, 0.2, 1e-3, 0.3)


@pytest.fixture(scope="module")
def digits():
    return problem("digits", 0)


def test_the_parts_of_the_digits_have_nothing_in_common(digits):
    whole = load_digits()
    parts = digits.inputs, digits.validation
    together = np.concatenate(parts).reshape(-1, 64)
    assert np.array_equal(
        np.unique(together, axis=0),
        np.unique(whole.train_inputs.reshape(-1, 64), axis=0),
    )
    assert len(together) == len(whole.train_inputs)
    assert len(digits.validation) == pytest.approx(len(together) / 3, rel=0.01)
    assert np.array_equal(digits.test[0], whole.validation_inputs)
    assert np.array_equal(digits.test_labels, whole.validation_labels)
    for k in range(10):  # in the order of the data
        own = whole.train_inputs[whole.train_labels == k]
        split = digits.inputs[digits.labels == k]
        assert np.array_equal(own[: len(split)], split)
        later = digits.validation[digits.validation_labels == k]
        assert np.array_equal(own[len(split) :], later)


def test_a_seed_draws_as_many_examples_of_every_class(digits):
    train = drawn(digits, 7, 3)
    assert np.array_equal(np.bincount(digits.labels[train]), np.full(10, 7))
    assert len(np.unique(train)) == 70
    assert np.array_equal(train, drawn(digits, 7, 3))
    assert not np.array_equal(train, drawn(digits, 7, 4))


def test_contestants_start_alike_and_others_of_a_seed_do_not(digits):
    config = sizes(digits, 1)
    standard = fresh("standard", config, CHOICE, 5)
    for name in TRAINED:
        model = fresh(name, config, CHOICE, 5)
        one, other = model.layers[0], standard.layers[0]
        assert np.array_equal(one.attention.qkv, other.attention.qkv)
        assert np.array_equal(one.feed_forward.up, other.feed_forward.up)
        assert np.array_equal(model.embedding, standard.embedding)
        assert model.embedding.dtype == jnp.float32
        assert (model.config.dropout > 0) is (name == "dropout")
    further = fresh("standard", config, CHOICE, 5, 1)
    assert not np.array_equal(further.embedding, standard.embedding)


def test_another_deviation_is_data_not_another_program(digits):
    config = sizes(digits, 1)
    one, other = (
        fresh("stochastic", config, CHOICE._replace(deviation=value), 0)
        for value in (0.3, 0.8)
    )
    assert jax.tree.structure(one) == jax.tree.structure(other)
    found = jnp.exp(other.layers[0].attention.log_deviation)
    np.testing.assert_allclose(found, 0.8, rtol=1e-6)
    floats, rest = eqx.partition(one, eqx.is_array)
    _, other_rest = eqx.partition(other, eqx.is_array)
    assert eqx.tree_equal(rest, other_rest)
    assert len(jax.tree.leaves(floats)) > 0


def test_only_models_with_draws_have_information(unchecked, digits):
    config, inputs = sizes(digits, 1), digits.test[0, :5]
    setup = SimpleNamespace(samples=3)
    for name, some in (("standard", False), ("dropout", True), ("stochastic", True)):
        model = fresh(name, config, CHOICE, 0)
        found = read(name, model, inputs, setup, 0)
        assert bool(jnp.any(found.mutual_information > 0)) is some


def test_the_least_surprise_on_validation_data_is_chosen_in_turn(monkeypatch):
    # The surprise of each choice; the weight is chosen at the decay chosen before it.
    cost = lambda c: (c.decay - 1) ** 2 + (c.weight - c.decay) ** 2 + c.deviation
    monkeypatch.setattr(studies, "read", lambda name, model, *rest: model)
    monkeypatch.setattr(
        studies, "scores", lambda found, labels: SimpleNamespace(nats=found)
    )
    setup = Setup(
        ("standard", "stochastic"), 1, 2, 1, 1, 1, 1, 1, 0.1,
        (0.0, 1.0, 3.0), (0.2,), (0.0, 1.0, 9.0), (0.5, 0.1), 4,
    )  # fmt: skip
    asked, tried = [], {}

    def each(name, choice, which):
        asked.append([s for s, _ in which])
        return [np.array([cost(choice)]) for _ in which]

    parts = SimpleNamespace(validation=np.zeros((2, 1, 1)), validation_labels=None)
    chosen = studies._chosen("stochastic", parts, setup, 7, each, tried)
    assert chosen == Choice(1.0, 0.2, 1.0, 0.1)
    assert list(tried) == [("stochastic", n) for n in ("decay", "weight", "deviation")]
    assert tried["stochastic", "weight"] == {0.0: 1.1, 1.0: 0.1, 9.0: 64.1}
    assert asked == [[1007, 1008]] * 8
    alone = studies._chosen("standard", parts, setup, 7, each, tried)
    assert alone == Choice(1.0, 0.2, 1.0, 0.1)
    assert ("standard", "weight") not in tried


def test_contestants_are_compared_with_the_standard_seed_by_seed(unchecked):
    def judged(shift):
        values = np.arange(12.0).reshape(4, 3) + shift[:, None]
        return SimpleNamespace(scores=Scores(*[values] * 7))

    base, better = np.zeros(4), np.array([-1.0, -1.1, -0.9, -1.0])
    every = {"standard": judged(base), "gated heads": judged(better)}
    compared = _compared({"digits": SimpleNamespace(judged=every)})
    assert len(compared) == 4
    for pair, word in compared.values():
        assert pair.mean == pytest.approx(-1.0)
        assert pair.pairs == 4
        assert word == "better"
    values = np.array([[1.0, 2.0, 4.0]])
    assert _settled(values, "test") == [1.0]
    assert _settled(values, "shifted") == [3.0]
