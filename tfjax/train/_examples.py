"""Labelled sequences of vectors, in a part to train on and one to validate with."""

import dataclasses
import os
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32

from .._core import must
from ..nn._extra import extra
from ._data import SERIES, find_data


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Sequences of n vectors with f features each, and the class of each sequence.

    **Arguments:**

    - `train_inputs`, `validation_inputs`: of shapes (m, n, f) and (k, n, f).
    - `train_labels`, `validation_labels`: of shapes (m,) and (k,), each the place of a
      class in `classes`.
    - `classes`: their names.
    """

    train_inputs: Float32[np.ndarray, "m n f"]
    train_labels: Int32[np.ndarray, " m"]
    validation_inputs: Float32[np.ndarray, "k n f"]
    validation_labels: Int32[np.ndarray, " k"]
    classes: tuple[str, ...]


def load_digits(*, validation: float = 0.2) -> Examples:
    """Handwritten digits: 1797 images of 8 times 8 pixels, as sequences of 8 rows.

    Pixels, 0 to 16 in the data, are scaled to [-1, 1]. Of every digit, the last share
    in the order of the data is validation. The images of one writer seem to follow one
    another, so that many hands of the validation part are not in the training part: a
    shuffled split would be easier.

    **Arguments:**

    - `validation`: the share of every digit that is not trained on.

    **Returns:** [`Examples`][] with inputs of shape (m, 8, 8).

    **Raises:** ImportError without scikit-learn, which carries the data.

    !!! example

        >>> from tfjax.train import load_digits
        >>> digits = load_digits()
        >>> digits.train_inputs.shape, digits.validation_inputs.shape
        ((1438, 8, 8), (359, 8, 8))

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI
    repository, 1998 (its test part).
    """
    if not 0 < validation < 1:
        raise must("validation", "be a share between 0 and 1", validation)
    data = extra("sklearn.datasets", "load_digits", "data").load_digits()
    inputs = (data.images / 8 - 1).astype(np.float32)
    labels = data.target.astype(np.int32)
    held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        places = np.flatnonzero(labels == digit)
        many = round(validation * len(places))
        if not 0 < many < len(places):
            rule = f"leave some of the {len(places)} images of {digit} in both parts"
            raise must("validation", rule, validation)
        held_out[places[len(places) - many :]] = True
    return Examples(
        inputs[~held_out],
        labels[~held_out],
        inputs[held_out],
        labels[held_out],
        tuple(str(digit) for digit in range(10)),
    )


def load_ucr(name: str, directory: str | os.PathLike[str] | None = None) -> Examples:
    """A problem of the UCR or UEA archive of time series.

    The training part is the archive's own, and the validation part is what the archive
    calls its test part: there is no third one, and whoever chooses a model by it has no
    test left. Every channel is shifted and scaled to mean 0 and variance 1 over all
    places of the training part, and the validation part by the same numbers.

    **Arguments:**

    - `name`: such as `"GunPoint"`; [`fetch_data`][] brings ACSF1, ArrowHead,
      BasicMotions, GunPoint, ItalyPowerDemand, OSULeaf, and in a form of equal length,
      JapaneseVowels_eq and PickupGestureWiimoteZ_eq.
    - `directory`: where `<name>_TRAIN.ts` and `<name>_TEST.ts` lie; `None` is the cache
      of [`fetch_data`][].

    **Returns:** [`Examples`][] with inputs of shape (m, times, channels).

    **Raises:** FileNotFoundError where the files are missing; ValueError where their
    series differ in length, lack values, or have no classes.

    !!! example

        >>> from tfjax.train import load_ucr
        >>> load_ucr("GunPoint").train_inputs.shape  # doctest: +SKIP
        (50, 150, 1)

    Source: arXiv 1810.07758 and 1811.00075.
    """
    if directory is None and name not in SERIES:
        raise must("name", f"be one of {list(SERIES)}", repr(name))
    folder = find_data("ucr", directory)
    train, train_labels, classes = _read_series(folder / f"{name}_TRAIN.ts")
    test, test_labels, test_classes = _read_series(folder / f"{name}_TEST.ts")
    if classes != test_classes or train.shape[1:] != test.shape[1:]:
        rule = f"have classes {classes} and series of shape {train.shape[1:]}"
        got = f"with {test_classes} and {test.shape[1:]}"
        raise must(f"{name}_TEST.ts", rule, got)
    mean = train.mean((0, 1))
    deviation = train.std((0, 1))
    deviation = np.where(deviation > 0, deviation, 1)
    scaled = lambda x: ((x - mean) / deviation).astype(np.float32)
    return Examples(scaled(train), train_labels, scaled(test), test_labels, classes)


def _read_series(file: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Series of shape (m, times, channels), labels and classes of a `.ts` file."""
    if not file.is_file():
        got = f"{file}, where there is none"
        raise FileNotFoundError(str(must("name", "name a file", got)))
    series, labels, classes, in_data = [], [], (), False
    for line in file.read_text(encoding="utf-8").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.lower() == "@classlabel":
            classes = tuple(rest.split()[1:])
        elif word.lower() == "@data":
            in_data = True
        elif in_data and line.strip():
            *channels, label = line.strip().split(":")
            series.append(_values(file, channels))
            labels.append(label.strip())
    if not classes or not series:
        raise must(file.name, "have classes and series", "without")
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise must(file.name, f"have labels among {list(classes)}", unknown)
    lengths = sorted({len(each) for each in series})
    if len(lengths) > 1:
        name = file.stem.rpartition("_")[0]
        hint = f" (those of {name}_eq are)" if f"{name}_eq" in SERIES else ""
        got = f"of lengths {lengths[0]} to {lengths[-1]}"
        raise must(file.name, f"have series of equal length{hint}", got)
    if len({each.shape for each in series}) > 1:
        raise must(file.name, "have as many channels in every series", "mixed")
    places = np.array([classes.index(label) for label in labels], np.int32)
    return np.stack(series), places, classes


def _values(file: Path, channels: list[str]) -> np.ndarray:
    """One series, of shape (times, channels)."""
    try:
        values = np.array([channel.split(",") for channel in channels], np.float64).T
    except ValueError as error:  # "?" for a missing value, or channels of two lengths
        raise must(file.name, "have numbers, as many in all channels", error) from error
    if not np.isfinite(values).all():
        raise must(file.name, "have finite numbers", "with others")
    return values
