"""Many members: each is what a plain loop of steps makes of it."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.figures.training._members import (
    Member,
    batch_places,
    train_members,
    training,
)
from tfjax.nn import Transformer, TransformerConfig
from tfjax.train import classification_loss, make_optimizer, make_step, start


CONFIG = TransformerConfig(
    vocabulary=None, features=2, classes=3, context=4, layers=1, heads=1, head_dim=8
)
STEPS, BATCH, COUNT = 6, 4, 9
_model = eqx.filter_jit(Transformer)


def loss(model, given, key):
    """Of the labels, and of the weights, and a draw that shows which key came."""
    (inputs, labels), strengths = given
    noisy = inputs + 0.1 * jax.random.normal(key, inputs.shape, inputs.dtype)
    weights = jnp.sum(model.embedding**2)
    fit = classification_loss(model, (noisy, labels), None)
    return fit + strengths["weights"] * weights


def member(seed, strength, rate):
    rng = np.random.default_rng(seed)
    data = (
        rng.normal(size=(COUNT, 4, 2)).astype(np.float32),
        rng.integers(0, 3, COUNT).astype(np.int32),
    )
    return Member(
        _model(CONFIG, key=jax.random.key(seed), dtype=jnp.float32),
        data,
        batch_places(COUNT, STEPS, BATCH, rng),
        {"weights": strength},
        {"learning_rate": rate, "weight_decay": 10 * rate},
        jax.random.key(seed + 100),
    )


MEMBERS = [(0, 0.0, 1e-2), (1, 0.5, 1e-2), (2, 0.5, 3e-2), (0, 0.1, 3e-2)]


def test_members_are_those_of_a_plain_loop_in_order():
    program = training(loss, clip=0.5, schedule="linear")
    found = list(train_members(program, (member(*each) for each in MEMBERS)))
    assert len(found) == len(MEMBERS)
    for each, trained in zip(MEMBERS, found, strict=True):
        one = member(*each)
        optimizer = make_optimizer(steps=STEPS, schedule="linear", **one.options)
        step = make_step(loss, optimizer, clip=0.5)
        state, losses = start(one.model, optimizer, one.key), []
        strengths = {"weights": jnp.asarray(one.strengths["weights"], jnp.float32)}
        for places in one.places:
            batch = tuple(jnp.asarray(a[places]) for a in one.data)
            state, metrics = step(state, (batch, strengths))
            losses.append(metrics.loss)
        np.testing.assert_allclose(trained.losses, jnp.stack(losses), rtol=1e-5)
        for a, b in zip(
            *map(jax.tree.leaves, (trained.model, state.model)), strict=True
        ):
            assert a.dtype == b.dtype == jnp.float32
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert int(trained.skipped) == 0


def test_another_strength_or_rate_compiles_nothing():
    traces = []

    def counted(model, given, key):
        traces.append(1)
        return loss(model, given, key)

    program = training(counted)
    list(train_members(program, [member(*MEMBERS[0])]))
    first = len(traces)
    list(train_members(program, [member(*each) for each in MEMBERS[1:]]))
    assert first == len(traces) > 0


def test_a_member_that_cannot_be_trained_says_so_and_ends_the_rest():
    program = training(loss)
    wrong = member(0, 0.0, 1e-2)._replace(strengths={})
    results = train_members(program, [member(0, 0.0, 1e-2), wrong])
    next(results)
    with pytest.raises(KeyError, match="weights"):
        next(results)


@pytest.mark.parametrize(("count", "steps", "batch"), [(9, 6, 4), (3, 5, 7), (8, 4, 2)])
def test_batches_take_every_example_as_often_as_others_to_one(count, steps, batch):
    places = batch_places(count, steps, batch, np.random.default_rng(0))
    assert places.shape == (steps, batch)
    often = Counter(places.ravel().tolist())
    assert set(often) == set(range(count))
    assert max(often.values()) - min(often.values()) <= 1
    again = batch_places(count, steps, batch, np.random.default_rng(0))
    assert np.array_equal(places, again)
