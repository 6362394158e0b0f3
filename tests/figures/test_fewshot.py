"""Few shots: splits that share nothing, pieces of series, warping, baselines."""

import itertools

import jax
import numpy as np
import pytest

from tfjax.figures.training._baselines import (
    band_of,
    baselines,
    euclidean,
    nearest,
)
from tfjax.figures.training._shots import (
    draw_split,
    patches,
    problem,
    problem_of,
    splits,
)
from tfjax.figures.training._warping import warped_distances, warped_matrix
from tfjax.train import Examples


def series(seed, count=3, times=7, channels=2, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, times, channels)).astype(dtype)


def tiny(least=4, classes=3):
    """Classes of unequal sizes, the smallest of so many, far enough apart to tell."""
    sizes = least + np.arange(classes)
    labels = np.repeat(np.arange(classes), sizes).astype(np.int32)
    inputs = (series(5, len(labels)) * 0.1 + labels[:, None, None]).astype(np.float32)
    half = np.arange(0, len(labels), 2)
    names = tuple(map(str, range(classes)))
    return Examples(inputs, labels, inputs[half] + 0.01, labels[half], names)


def test_a_split_has_as_many_of_every_class_and_shares_nothing_with_its_rest():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(4), (9, 5, 7, 6)))
    split = draw_split(labels, 5, np.random.default_rng(1))
    assert len(set(split.train.tolist())) == 20
    together = np.sort(np.concatenate([split.train, split.validation]))
    assert np.array_equal(together, np.arange(len(labels)))
    for K in range(1, 6):  # Fewer shots are the first part.
        assert np.array_equal(np.bincount(labels[split.train[: 4 * K]]), [K] * 4)


def test_splits_are_those_of_the_seed_and_those_for_tuning_are_others():
    one = problem_of("tiny", tiny(), (1, 2))
    drawn = splits(one, 4, 0)
    again, tuning, other = (
        splits(one, 2, 0),
        splits(one, 4, 0, tuning=True),
        splits(one, 4, 1),
    )
    for a, b in zip(drawn[:2], again, strict=True):
        assert np.array_equal(a.train, b.train)
    for a, b in itertools.combinations([*drawn, *tuning, *other], 2):
        assert not np.array_equal(a.train, b.train)


def test_every_example_is_drawn_as_often_as_others_of_its_class():
    labels = np.repeat(np.arange(2), (4, 8))
    often = np.zeros(12)
    for k in range(2000):
        often[draw_split(labels, 2, np.random.default_rng(k)).train] += 1
    # 5 standard deviations of a binomial share.
    assert np.abs(often[:4] / 2000 - 2 / 4).max() < 5 * 0.5 / 2000**0.5
    assert np.abs(often[4:] / 2000 - 2 / 8).max() < 5 * 0.44 / 2000**0.5


def test_shots_that_would_leave_nothing_to_draw_or_validate_with_are_left_out():
    assert problem_of("tiny", tiny(least=4), (1, 2, 3, 4, 5)).shots == (1, 2, 3)


def test_the_digits_have_no_example_in_both_parts():
    digits = problem("digits")
    assert digits.shots == (1, 2, 5, 10)
    assert digits.tokens.shape[1:] == (8, 8)
    pool = {image.tobytes() for image in digits.series}
    assert not any(image.tobytes() in pool for image in digits.test_series)


@pytest.mark.parametrize(
    ("times", "shape"),
    [(7, (7, 2)), (8, (8, 2)), (9, (5, 4)), (24, (8, 6)), (25, (7, 8))],
)
def test_pieces_hold_all_values_in_order_and_then_the_last_one(times, shape):
    x = series(0, 2, times)
    found = patches(x, 8)
    assert found.shape == (2, *shape)
    flat = found.reshape(2, -1, 2)
    assert np.array_equal(flat[:, :times], x)
    assert np.array_equal(
        flat[:, times:], np.repeat(x[:, -1:], flat.shape[1] - times, 1)
    )


def brute_force(x, y, band):
    """The least sum over all paths, by the recursion."""
    t = len(x)
    total = np.full((t + 1, t + 1), np.inf)
    total[0, 0] = 0
    for i, j in itertools.product(range(t), repeat=2):
        if abs(i - j) <= band:
            before = min(total[i, j], total[i, j + 1], total[i + 1, j])
            total[i + 1, j + 1] = ((x[i] - y[j]) ** 2).sum() + before
    return total[t, t]


@pytest.mark.parametrize("band", [0, 1, 3, 6, 20])
def test_warping_is_that_of_the_recursion(band, tol):
    dtype = np.float64 if jax.config.jax_enable_x64 else np.float32
    xs, ys = series(1, dtype=dtype), series(2, 4, dtype=dtype)
    found = warped_matrix(xs, ys, band=band)
    expected = [[brute_force(x, y, band) for y in ys] for x in xs]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=tol.composite)


def test_warping_in_no_band_is_euclidean_and_more_band_is_never_farther():
    xs, ys = series(1), series(2, 4)
    found = [warped_matrix(xs, ys, band=band) for band in range(8)]
    np.testing.assert_allclose(found[0], euclidean(xs, ys), rtol=1e-6)
    for narrow, wide in itertools.pairwise(found):
        assert (wide <= (1 + 1e-6) * narrow).all()  # sums in another order
    assert np.array_equal(found[6], found[7])


def test_warping_is_symmetric_and_takes_a_stretched_series_for_the_same(tol):
    x = series(3, 1, 4)[0]
    stretched = np.repeat(x, 2, axis=0)
    held = np.concatenate([x, np.repeat(x[-1:], 4, axis=0)])
    assert warped_distances(stretched, held[None], band=7)[0] == 0
    xs, ys = series(1), series(2, 3)
    there, back = warped_matrix(xs, ys, band=2), warped_matrix(ys, xs, band=2)
    np.testing.assert_allclose(there, back.T, rtol=tol.composite)


def test_the_nearest_label_is_that_of_the_first_of_equals():
    squared = np.array([[1.0, 0.0, 0.0], [3.0, 2.0, 1.0]])
    assert nearest(squared, np.array([5, 6, 7])).tolist() == [6, 7]


def test_bands_are_shares_of_the_length_rounded_up():
    assert [band_of(0.1, times) for times in (8, 25, 427)] == [1, 3, 43]


@pytest.mark.parametrize("name", ["1-NN", "DTW-1-NN", "logistic", "SVM"])
def test_baselines_tell_apart_what_is_apart_from_few_examples(name):
    one = problem_of("tiny", tiny(), (1, 2, 3))
    guess = baselines(one)[name]
    split = splits(one, 1, 0)[0]
    for K in one.shots:
        found = guess(split.train[: K * one.classes], K)
        assert np.array_equal(found, one.test_labels), K


def test_logistic_regression_in_the_span_of_its_examples_is_that_of_all_values():
    from sklearn.linear_model import LogisticRegression

    data = tiny()
    noisy = Examples(
        data.train_inputs + 3 * series(8, len(data.train_labels)),
        data.train_labels,
        data.validation_inputs + 3 * series(9, len(data.validation_labels)),
        data.validation_labels,
        data.classes,
    )
    one = problem_of("noisy", noisy, (1,))
    places = splits(one, 1, 0)[0].train
    flat = lambda a: a.reshape(len(a), -1).astype(float)
    whole = LogisticRegression(max_iter=1000, tol=1e-8)
    whole.fit(flat(one.series[places]), one.labels[places])
    expected = whole.predict(flat(one.test_series))
    assert len(set(expected.tolist())) > 1
    assert np.array_equal(baselines(one)["logistic"](places, 1), expected)
