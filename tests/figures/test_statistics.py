"""Paired comparisons: intervals against the textbook, verdicts by Holm's rule."""

import numpy as np
import pytest
from scipy import stats

from tfjax.figures.training._statistics import Comparison, interval, paired, verdicts


def test_the_interval_is_that_of_students_t_for_differences_in_pairs():
    one = np.array([5.1, 4.9, 5.6, 5.0, 5.3])
    other = np.array([4.8, 4.9, 5.1, 4.9, 4.9])
    found = paired(one, other)
    test = stats.ttest_rel(one, other)
    low, high = test.confidence_interval(0.95)
    assert found.mean == pytest.approx(0.26)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert found.p_value == pytest.approx(test.pvalue, abs=1e-12)
    assert found.pairs == 5
    assert found.words(2) == "+0.26 (+0.00 to +0.52)"


def test_the_interval_covers_the_truth_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(0.3, 1.0, (2000, 6))
    found = [paired(row, np.zeros(6)) for row in draws]
    covered = np.mean([one.low <= 0.3 <= one.high for one in found])
    assert abs(covered - 0.95) < 5 * (0.95 * 0.05 / 2000) ** 0.5


def test_differences_that_are_all_alike_and_single_pairs_have_no_nan():
    same = np.ones(4)
    assert paired(same, same) == Comparison(0.0, 0.0, 0.0, 1.0, 4)
    assert paired(same, 2 * same) == Comparison(-1.0, -1.0, -1.0, 0.0, 4)
    single = paired(same[:1], 2 * same[:1])
    assert single == Comparison(-1.0, -np.inf, np.inf, 1.0, 1)
    assert single.words() == "-1.0000 (one pair)"
    assert interval(same[:1]) == "1.000"


def test_verdicts_follow_holm_who_stops_at_the_first_that_is_too_likely():
    make = lambda p, mean: Comparison(mean, 0.0, 0.0, p, 5)
    # 0.05/4 = .0125, 0.05/3 = .0167: the third, below .05/2, comes after a failure.
    few = [make(0.02, -1.0), make(0.001, -1.0), make(0.024, 1.0), make(0.5, 1.0)]
    none = "no difference shown"
    assert verdicts(few, better="lower") == [none, "better", none, none]
    most = [make(0.012, -1.0), make(0.001, -1.0), make(0.024, 1.0), make(0.5, 1.0)]
    assert verdicts(most, better="lower") == ["better", "better", "worse", none]
    assert verdicts(most, better="higher") == ["worse", "worse", "better", none]


def test_a_mean_has_half_its_interval_beside_it():
    values = np.array([1.0, 2.0, 3.0])
    half = stats.t.ppf(0.975, 2) / 3**0.5
    assert interval(values, 2) == f"2.00 ± {half:.2f}"
