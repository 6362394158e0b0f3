"""Clusters in words."""

import numpy as np
import pytest

from tfjax.cli._words import clusters_of, group, listing, phrases


WORDS = ("[CLS]", "the", "fisher", "##men", "kn", "##ead", "##ed", ",", "the", ",")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((1, 2, 3), ["the", "fishermen"]),
        ((2,), ["fisher"]),
        ((3,), ["##men"]),
        ((4, 5), ["kn ##ead"]),
        ((5, 6), ["##ead ##ed"]),
        ((4, 6), ["kn", "##ed"]),
        ((4, 5, 6), ["kneaded"]),
        ((8, 1), ["the x2"]),
        ((0, 7, 9), ["[CLS]", "',' x2"]),
    ],
)
def test_phrases(members, expected):
    assert phrases(members, WORDS) == expected


def test_group():
    assert group((1, 4, 5, 6), WORDS) == "(the, kneaded)"
    assert group(range(10), WORDS, 2) == "([CLS], the x2, fishermen, ... 10 tokens)"


def test_listing():
    assert listing(["a", "b"], 2, " + ") == "a + b"
    assert listing(["a", "b", "c", "d"], 2, " + ") == "a + b + ... 2 more"


def test_clusters_of():
    assert clusters_of(np.array([0, 1, 1, 0, 4])) == [(0, 3), (1, 2), (4,)]
    assert clusters_of(np.array([0, 1, 1, 1])) == [(1, 2, 3), (0,)]
