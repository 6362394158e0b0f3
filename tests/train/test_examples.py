"""Labelled sequences: the splits that are promised, scaled by training alone."""

import sys

import numpy as np
import pytest

from tfjax.train import load_digits, load_ucr
from tfjax.train._data import find_data


# --- digits ---------------------------------------------------------------------------


def test_the_digits_are_cut_at_the_end_of_every_class():
    sklearn = pytest.importorskip("sklearn.datasets")
    data = sklearn.load_digits()
    digits = load_digits(validation=0.25)
    assert digits.train_inputs.dtype == np.float32
    assert digits.classes == tuple("0123456789")
    for digit in range(10):
        images = data.images[data.target == digit]
        train = digits.train_inputs[digits.train_labels == digit]
        rest = digits.validation_inputs[digits.validation_labels == digit]
        assert len(rest) == round(0.25 * len(images))
        np.testing.assert_array_equal(np.concatenate([train, rest]), images / 8 - 1)
    assert digits.train_inputs.min() == -1
    assert digits.train_inputs.max() == 1


def test_a_share_that_leaves_a_part_empty_is_refused():
    for validation in (0.001, 0.999):
        with pytest.raises(
            ValueError, match="leave some of the 178 images of 0 in both"
        ):
            load_digits(validation=validation)
    with pytest.raises(ValueError, match="`validation` must be a share between"):
        load_digits(validation=1.0)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"`load_digits` must have .*tfjax\[data\]"):
        load_digits()


# --- time series ----------------------------------------------------------------------


HEADER = """# A remark: with a colon
@problemName Toy
@univariate false
@classLabel true up down
@data
"""
TRAIN = HEADER + "0,2:5,5:up\n4,6:5,5:down\n\n"
TEST = HEADER.replace("@classLabel", "@classlabel") + "3,8:7,5:down\n"


def written(folder, train=TRAIN, test=TEST):
    (folder / "Toy_TRAIN.ts").write_text(train)
    (folder / "Toy_TEST.ts").write_text(test)
    return load_ucr("Toy", folder)


def test_channels_are_scaled_by_the_training_part(tmp_path):
    found = written(tmp_path)
    # 0, 2, 4, 6 have mean 3 and variance 5; the second channel does not vary.
    expected = np.array([[[-3, 0], [-1, 0]], [[1, 0], [3, 0]]]) / [np.sqrt(5), 1]
    np.testing.assert_allclose(found.train_inputs, expected, atol=1e-7)
    test = np.array([[[0, 2], [np.sqrt(5), 0]]])
    np.testing.assert_allclose(found.validation_inputs, test, atol=1e-7)
    assert found.train_labels.tolist() == [0, 1]
    assert found.validation_labels.tolist() == [1]
    assert found.classes == ("up", "down")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": TRAIN.replace("0,2:5,5", "0:5")}, "equal length, but was .* 1 to 2"),
        (
            {"train": TRAIN.replace("0,2:5,5", "0,2")},
            "as many channels in every series",
        ),
        ({"train": TRAIN.replace("0,2:", "0,?:")}, "numbers, .* could not convert"),
        ({"train": TRAIN.replace("0,2:", "0,nan:")}, "finite numbers, but was with"),
        (
            {"train": TRAIN.replace("5:up", "5:left")},
            r"\['up', 'down'\], but .*\['left'",
        ),
        ({"train": HEADER}, "classes and series, but was without"),
        ({"train": TRAIN.replace("@classLabel true", "#")}, "classes and series, but"),
        (
            {"test": TEST.replace("up down", "down up")},
            r"Toy_TEST.ts` must have classes",
        ),
        (
            {"test": TEST.replace("3,8:7,5", "3,8")},
            r"series of shape \(2, 2\), but was",
        ),
    ],
)
def test_series_that_are_no_table_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        written(tmp_path, **change)


def test_a_problem_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match="`name` must be one of .*'GunPoint'"):
        load_ucr("Gunpoint")
    with pytest.raises(FileNotFoundError, match="Gun_TRAIN.ts, where there is none"):
        load_ucr("Gun", tmp_path)


@pytest.mark.data
def test_the_archive_has_its_published_sizes():
    try:
        find_data("ucr")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    for name, train, test, length, channels, classes in (
        ("GunPoint", 50, 150, 150, 1, 2),
        ("OSULeaf", 200, 242, 427, 1, 6),
        ("BasicMotions", 40, 40, 100, 6, 4),
        ("JapaneseVowels_eq", 270, 370, 25, 12, 9),
    ):
        found = load_ucr(name)
        assert found.train_inputs.shape == (train, length, channels)
        assert found.validation_inputs.shape == (test, length, channels)
        assert set(found.train_labels) == set(range(classes))
    with pytest.raises(
        ValueError, match="equal length .those of JapaneseVowels_eq are"
    ):
        load_ucr("JapaneseVowels")
