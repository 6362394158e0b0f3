"""Shifts of inputs: nothing for strength 0, more for more, and each what it says."""

import numpy as np
import pytest

from tfjax.figures.training._shifts import (
    IMAGES,
    SERIES,
    blurred,
    delayed,
    faded,
    gapped,
    moved,
    noisy,
    scrambled,
    shifted,
    turned,
)


SHIFTS = [*((shift, 8, 8) for shift in IMAGES), *((shift, 25, 3) for shift in SERIES)]


def rng():
    return np.random.default_rng(3)


def smooth(n, f, count=40):
    """Random inputs in [-1, 1] whose edges are blank."""
    inputs = np.full((count, n, f), -1.0, np.float32)
    inputs[:, 2:-2, 1:-1] = rng().uniform(-1, 1, (count, n - 4, f - 2))
    return inputs


@pytest.mark.parametrize(("shift", "n", "f"), SHIFTS)
def test_strength_0_changes_nothing_and_more_changes_more(shift, n, f):
    inputs = smooth(n, f)
    same = shift.apply(inputs, 0.0, rng())
    np.testing.assert_allclose(same, inputs, atol=1e-6)
    found = [shift.apply(inputs, s, rng()) for s in shift.strengths]
    assert all(one.shape == inputs.shape for one in found)
    assert all(one.dtype == np.float32 for one in found)
    apart = [float(np.abs(one - inputs).mean()) for one in found]
    assert apart == sorted(apart)
    assert apart[0] > 0
    again = shift.apply(inputs, shift.strengths[-1], rng())
    assert np.array_equal(again, found[-1])


def test_a_right_angle_is_a_turn_of_the_array_to_both_sides():
    images = smooth(8, 8)
    found = turned(images, 90.0, rng())
    sides = [np.rot90(images, k, axes=(1, 2)) for k in (1, -1)]
    fits = [np.abs(found - side).max(axis=(1, 2)) < 1e-5 for side in sides]
    assert np.all(fits[0] ^ fits[1])
    assert fits[0].any()
    assert fits[1].any()


def test_a_pixel_is_a_roll_in_four_directions():
    images = smooth(8, 8)
    found = moved(images, 1.0, rng())
    rolled = [np.roll(images, step, axis) for axis in (1, 2) for step in (1, -1)]
    fits = np.stack([np.abs(found - one).max(axis=(1, 2)) < 1e-6 for one in rolled])
    assert np.all(fits.sum(axis=0) == 1)
    assert np.all(fits.any(axis=1))


def test_blur_keeps_ink_and_fading_takes_its_share():
    image = np.full((1, 8, 8), -1.0, np.float32)
    image[0, 4, 4] = 1.0
    ink = lambda x: float((x + 1).sum())
    assert ink(blurred(image, 0.6, rng())) == pytest.approx(2.0, rel=1e-4)
    assert blurred(image, 0.6, rng()).max() < 0
    images = smooth(8, 8)
    found = faded(images, 0.25, rng())
    np.testing.assert_allclose(found + 1, 0.75 * (images + 1), atol=1e-6)


def test_noise_has_the_deviation():
    inputs = np.zeros((100, 25, 12), np.float32)
    found = noisy(inputs, 0.5, rng())
    assert abs(found.std() - 0.5) < 5 * 0.5 / (2 * found.size) ** 0.5


def test_a_delay_holds_the_ends():
    series = np.arange(20.0, dtype=np.float32).reshape(1, 10, 2).repeat(30, axis=0)
    found = delayed(series, 3.0, rng())
    later = np.clip(np.arange(10) - 3, 0, 9)
    earlier = np.clip(np.arange(10) + 3, 0, 9)
    sides = [np.all(found == series[:, at], axis=(1, 2)) for at in (later, earlier)]
    assert np.all(sides[0] ^ sides[1])
    assert sides[0].any()
    assert sides[1].any()


def test_gaps_have_their_share_and_grow():
    series = np.ones((200, 25, 3), np.float32)
    few, many = (gapped(series, share, rng()) == 0 for share in (0.2, 0.4))
    assert np.all(many | ~few)
    assert np.all(many.all(axis=2) == many.any(axis=2))
    assert abs(many.mean() - 0.4) < 5 * (0.24 / 5000) ** 0.5


def test_scrambled_inputs_have_one_order_for_all():
    inputs = np.arange(48.0, dtype=np.float32).reshape(3, 4, 4)
    found = scrambled(inputs, rng())
    assert not np.array_equal(found, inputs)
    assert np.array_equal(np.sort(found.reshape(3, -1)), inputs.reshape(3, -1))
    np.testing.assert_array_equal(found[1] - found[0], np.full((4, 4), 16.0))


def test_all_shifts_come_after_the_inputs():
    images = smooth(8, 8)
    found = shifted(images, IMAGES, 5)
    assert found.shape == (1 + sum(len(s.strengths) for s in IMAGES), *images.shape)
    assert np.array_equal(found[0], images)
    last = IMAGES[-1].apply(images, IMAGES[-1].strengths[-1], rng())
    assert np.array_equal(found[-1], last)
    assert np.array_equal(shifted(images, IMAGES, 5), found)
    assert not np.array_equal(shifted(images, IMAGES, 6)[1], found[1])
