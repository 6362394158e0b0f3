"""N-grams: a distribution for every context, against closed forms and a dictionary."""

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tfjax.train import (
    load_shakespeare,
    load_text,
    witten_bell_bits,
    witten_bell_probabilities,
)


HAMLET = Path(__file__).parents[1] / "reference" / "hamlet.txt"


def by_dictionary(train, context, token, vocabulary):
    """The definition, by going through `train` anew for every context."""
    if context is None:
        return Fraction(1, vocabulary)
    after = Counter(
        train[i + len(context)]
        for i in range(len(train) - len(context))
        if train[i : i + len(context)] == context
    )
    shorter = by_dictionary(train, context[1:] if context else None, token, vocabulary)
    if not after:
        return shorter
    kinds = len(after)
    return (after[token] + kinds * shorter) / (sum(after.values()) + kinds)


def text(seed, n, vocabulary):
    """Tokens with habits: mostly one more than the last one, now and then anything."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(n) < 0.7, 1, rng.integers(0, vocabulary, n))
    return np.cumsum(steps) % vocabulary


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_probabilities_are_those_of_the_definition(order, dtype):
    train, validation = text(0, 80, 5).astype(dtype), text(1, 40, 7).astype(dtype)
    found = witten_bell_probabilities(train, validation, order, 7)
    rows = [tuple(validation[max(0, j - order + 1) : j].tolist()) for j in range(40)]
    expected = [
        float(by_dictionary(tuple(train.tolist()), row, int(validation[j]), 7))
        for j, row in enumerate(rows)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    bits = witten_bell_bits(train, validation, order, 7)
    assert bits == pytest.approx(-np.mean(np.log2(expected)), rel=1e-13)


def test_a_text_of_one_token_has_a_closed_form():
    n, train = 9, np.zeros(9, int)
    found = witten_bell_probabilities(train, np.array([0, 0, 0, 1]), 2, 4)
    once = (n + 1 / 4) / (n + 1)
    twice = (n - 1 + once) / n
    other = (1 / 4) / (n + 1) / n
    np.testing.assert_allclose(found, [once, twice, twice, other], rtol=1e-14)


def test_a_fair_coin_takes_one_bit():
    train, validation = np.arange(1000) % 2, np.arange(64) // 2 % 2
    assert witten_bell_bits(train, validation, 1, 2) == pytest.approx(1, abs=1e-12)
    # Given the last one, 500 and 499 times the same: T = 1 is all that is shared.
    known = -500 * np.log2(500.5 / 501) - 499 * np.log2(499.5 / 500)
    certain = witten_bell_bits(train, train, 2, 2)
    assert certain == pytest.approx((1 + known) / 1000, rel=1e-9)


CONTEXTS = [
    [],
    [3],
    [0, 1, 2, 3],
    [8, 8, 8, 8],  # 8 is never seen
    [1, 2, 8, 4],
    [2, 0, 2, 0, 2],
    [2, 3, 7],  # the end of the text, which nothing follows
]


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
@pytest.mark.parametrize("order", [1, 3, 5])
def test_every_context_has_a_distribution(context, order):
    train = np.array([*text(0, 300, 7), 2, 3, 7])
    of = lambda c: witten_bell_probabilities(train, np.array([*context, c]), order, 9)
    probabilities = np.array([of(c)[-1] for c in range(9)])
    assert probabilities.sum() == pytest.approx(1, abs=1e-13)
    assert probabilities.min() > 0


def test_a_shorter_context_is_what_a_longer_order_falls_back_to():
    train, validation = text(0, 50, 5), text(1, 30, 5)
    seventy = witten_bell_probabilities(train, validation, 70, 5)
    assert np.isfinite(seventy).all()
    first = witten_bell_probabilities(train, validation[:1], 70, 5)
    np.testing.assert_allclose(first, seventy[:1], rtol=1e-14)
    one = witten_bell_probabilities(train, validation[:1], 1, 5)
    np.testing.assert_array_equal(one, first)


def test_longer_contexts_help_in_hamlet():
    hamlet = load_text(HAMLET)
    given = hamlet.train, hamlet.validation
    bits = [witten_bell_bits(*given, n, len(hamlet.alphabet)) for n in range(1, 5)]
    assert np.all(np.diff(bits) < -0.1)
    # A uniform guess takes the logarithm of the alphabet.
    assert 2 < bits[-1] < bits[0] < np.log2(len(hamlet.alphabet)) - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": np.array([], int)}, "`train` must have tokens, but was without any"),
        ({"validation": np.array([], int)}, "`validation` must have tokens"),
        ({"train": np.array([0, 3])}, r"`train` must have tokens in 0\.\.2, .* 0\.\.3"),
        ({"validation": np.array([0, -1])}, r"`validation` .* but was in -1\.\.0"),
        ({"order": 0}, "`order` must be a positive integer, but was 0"),
    ],
)
def test_bad_tokens_are_refused(change, message, unchecked):
    given = {"train": np.arange(3), "validation": np.arange(3), "order": 2}
    with pytest.raises(ValueError, match=message):
        witten_bell_bits(**(given | change), vocabulary=3)


@pytest.mark.slow
@pytest.mark.data
def test_the_plays_take_the_bits_that_others_have_measured():
    try:
        plays = load_shakespeare()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    given = plays.train, plays.validation
    # Figures from elsewhere, for a split that was alike.
    for order, bits in ((3, 2.84), (4, 2.32), (5, 2.08)):
        found = witten_bell_bits(*given, order, len(plays.alphabet))
        assert found == pytest.approx(bits, abs=0.02)
