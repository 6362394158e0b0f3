"""What an experiment is: a function that returns claims, arrays and a figure."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ._base import Figure


class Experiment(NamedTuple):
    """Where an experiment is found, what it shows in a line, and what it needs.

    `module` is relative to `tfjax.figures`; the function in it has the experiment's
    name, with underscores. `weights` have to be fetched for it, and `data`, but for
    its quick form.
    """

    module: str
    title: str
    weights: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


class Row(NamedTuple):
    """A claim beside what was found: `passed` says whether they agree.

    `expected` is a sentence fragment such as "0.52 ± 0.01" or "below 1e-06", and
    `reported` marks rows that state a measurement and cannot fail.
    """

    claim: str
    expected: str
    found: float
    passed: bool
    reported: bool = False

    def as_json(self) -> dict[str, Any]:
        """For `summary.json`, which knows no NaN."""
        found = self.found if math.isfinite(self.found) else None
        return self._asdict() | {"found": found}


def near(claim: str, found: Any, expected: float | int, tolerance: float | int) -> Row:
    """Within a tolerance of the value expected; NaN is not."""
    value = float(found)
    text = f"{expected:.7g} ± {tolerance:.2g}"
    return Row(claim, text, value, bool(abs(value - expected) <= tolerance))


def below(claim: str, found: Any, bound: float | int) -> Row:
    """Less than a bound; NaN is not."""
    value = float(found)
    return Row(claim, f"below {bound:.4g}", value, bool(value < bound))


def above(claim: str, found: Any, bound: float | int) -> Row:
    """More than a bound; NaN is not."""
    value = float(found)
    return Row(claim, f"above {bound:.4g}", value, bool(value > bound))


def within(claim: str, found: Any, low: float | int, high: float | int) -> Row:
    """Between two bounds, which count; NaN is not."""
    value = float(found)
    return Row(claim, f"{low:.4g} to {high:.4g}", value, bool(low <= value <= high))


def reported(claim: str, found: Any, what: str) -> Row:
    """A measurement beside what others say of it, judged by nobody."""
    return Row(claim, what, float(found), True, reported=True)


class Table(NamedTuple):
    """Measurements that belong together: a title, columns, and cells row by row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Report:
    """What an experiment hands back.

    **Arguments:**

    - `rows`: its claims, expected against found.
    - `data`: numpy arrays by name: what the figure shows, and more.
    - `figure`: a matplotlib figure.
    - `note`: what else a reader should know, such as what differs from the paper.
    - `tables`: measurements that are read side by side, judged by nobody.
    """

    rows: list[Row]
    figure: Figure
    data: dict[str, np.ndarray] = field(default_factory=dict)
    note: str = ""
    tables: tuple[Table, ...] = ()


def quiet(fraction: float) -> None:
    """A progress callback that shows nothing."""


Progress = Callable[[float], None]
