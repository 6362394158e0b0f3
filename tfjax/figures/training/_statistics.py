"""Whether one way of training is better than another: paired differences, in words."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats


class Comparison(NamedTuple):
    """A mean of differences in pairs, with its interval of confidence.

    - `mean`: of the differences.
    - `low`, `high`: the interval; infinite for fewer than two pairs.
    - `p_value`: of no difference, by Student's t, two-sided.
    - `pairs`: how many.
    """

    mean: float
    low: float
    high: float
    p_value: float
    pairs: int

    def words(self, digits: int = 4) -> str:
        """As "-0.012 (-0.020 to -0.004)"."""
        if self.pairs < 2:
            return f"{self.mean:+.{digits}f} (one pair)"
        interval = f"{self.low:+.{digits}f} to {self.high:+.{digits}f}"
        return f"{self.mean:+.{digits}f} ({interval})"


def paired(
    one: Float[np.ndarray, " pairs"],
    other: Float[np.ndarray, " pairs"],
    *,
    level: float = 0.95,
) -> Comparison:
    """The differences of `one` less `other`, member by member: of seeds, or splits.

    The interval is of Student's t, for differences that are independent draws of a
    normal distribution. Splits of one set of data overlap: for them it is too narrow.
    """
    difference = np.asarray(one, float) - np.asarray(other, float)
    mean, count = float(difference.mean()), len(difference)
    if count < 2:
        return Comparison(mean, -np.inf, np.inf, 1.0, count)
    error = float(stats.sem(difference))
    if error == 0:  # all alike, and t is 0/0 or infinite
        return Comparison(mean, mean, mean, float(mean == 0), count)
    found: Any = stats.ttest_1samp(difference, 0.0)
    low, high = found.confidence_interval(level)
    return Comparison(mean, float(low), float(high), float(found.pvalue), count)


def verdicts(
    comparisons: Sequence[Comparison], *, better: str, level: float = 0.05
) -> list[str]:
    """What comparisons that were made together show, by Holm's rule.

    `better` is what is wanted of the difference, "lower" or "higher". That any of the
    verdicts "better" or "worse" is wrong has a probability of at most `level`, as far
    as the p values are right.
    """
    order = np.argsort([comparison.p_value for comparison in comparisons])
    found, open_still = ["no difference shown"] * len(comparisons), True
    for rank, place in enumerate(order):
        one = comparisons[place]
        open_still = open_still and one.p_value <= level / (len(order) - rank)
        if open_still:
            found[place] = (
                "better" if (one.mean < 0) is (better == "lower") else "worse"
            )
    return found


def interval(values: Float[np.ndarray, " members"], digits: int = 3) -> str:
    """A mean and half its 95 % interval, as "2.633 ± 0.016"."""
    values = np.asarray(values, float)
    mean = f"{values.mean():.{digits}f}"
    if len(values) < 2:
        return mean
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{mean} ± {half:.{digits}f}"
