"""What the experiment on terms of geometry trains on, chooses by, and tests with."""

import jax
import numpy as np
import pytest

from tfjax.figures.training._continuous_training import Corpus
from tfjax.figures.training._geometry import AGAINST, LOWERS, VARIANTS, _setup
from tfjax.figures.training._regularized import member, parts


SETUP = _setup(50, quick=True)[0]
LENGTH = SETUP.config.context + 1


@pytest.fixture(scope="module")
def corpus():
    """Every token of the held-out part is another one, so that none hides."""
    return Corpus(np.arange(1000) % 50, 1000 + np.arange(70 * LENGTH), 50)


def test_choices_and_tests_share_no_token_and_neither_is_trained_on(corpus):
    data = parts(corpus, SETUP, None)
    assert data.validation.shape == data.test.shape == (SETUP.windows, LENGTH)
    sets = [set(a.ravel().tolist()) for a in data]
    assert len(set.union(*sets)) == sum(map(len, sets))
    for rows in (data.validation, data.test):
        np.testing.assert_array_equal(np.diff(rows, axis=1), 1)


def test_a_smaller_training_text_is_the_middle_of_the_whole(corpus):
    whole, few = parts(corpus, SETUP, None), parts(corpus, SETUP, 100)
    np.testing.assert_array_equal(whole.train, corpus.train)
    np.testing.assert_array_equal(few.train, corpus.train[450:550])
    np.testing.assert_array_equal(few.test, whole.test)


def test_members_of_a_seed_differ_by_their_terms_alone(corpus):
    data = parts(corpus, SETUP, None)
    strengths = {"isometry": 0.1, "curvature": 0.2, "kinetic": 0.3}
    make = lambda name, seed=3: member(
        VARIANTS[name], data, SETUP, seed, decay=0.1, strengths=strengths
    )
    plain = make("plain")
    for name, reference in AGAINST.items():
        one, other = make(name), make(reference)
        assert set(one.strengths) == set(VARIANTS[name].terms) <= set(LOWERS)
        assert not other.strengths
        np.testing.assert_array_equal(one.places, plain.places)
        assert one.options == other.options
        leaves = jax.tree.leaves(one.model), jax.tree.leaves(other.model)
        for a, b in zip(*leaves, strict=True):
            np.testing.assert_array_equal(a, b)
    assert (make("plain", 4).places != plain.places).any()
