"""Inputs that are not as in training: images and series, shifted by some strength."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from scipy import ndimage


_Inputs = Float32[np.ndarray, "m n f"]
# Of an image whose pixels lie in [-1, 1].
_BLANK = -1.0


class Shift(NamedTuple):
    """A way in which inputs can differ from those of training.

    - `name`: with what `strengths` are in.
    - `strengths`: growing, above 0; inputs are as they were for 0.
    - `apply`: a function of inputs, a strength, and a generator of random numbers,
      whose draws do not depend on the strength.
    """

    name: str
    strengths: tuple[float, ...]
    apply: Callable[[_Inputs, float, np.random.Generator], _Inputs]


def noisy(inputs: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """With normal noise of this deviation."""
    return inputs + (strength * rng.normal(size=inputs.shape)).astype(np.float32)


def turned(images: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """Turned about the middle by this angle in degrees, each to one side at random."""
    left = rng.integers(2, size=(len(images), 1, 1)) == 0
    one, other = (
        ndimage.rotate(images, angle, axes=(2, 1), reshape=False, order=1, cval=_BLANK)
        for angle in (strength, -strength)
    )
    return np.where(left, one, other)


def moved(images: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """Moved by so many pixels, each in one of four directions at random."""
    where = rng.integers(4, size=(len(images), 1, 1))
    steps = ((1, 0), (-1, 0), (0, 1), (0, -1))
    choices = [
        ndimage.shift(
            images, (0, strength * down, strength * right), order=1, cval=_BLANK
        )
        for down, right in steps
    ]
    return np.select([where == k for k in range(4)], choices)


def blurred(images: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """Averaged with normal weights of this deviation, in pixels."""
    del rng
    wide = (0.0, strength, strength)
    return ndimage.gaussian_filter(images, wide, mode="constant", cval=_BLANK)


def faded(images: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """With this share of the contrast to a blank image taken away."""
    del rng
    return images - np.float32(strength) * (images - np.float32(_BLANK))


def delayed(series: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """Later or earlier by so many places, at random; the ends are held."""
    sides = 2 * rng.integers(2, size=(len(series), 1)) - 1
    last = series.shape[1] - 1
    places = np.clip(np.arange(last + 1) - sides * round(strength), 0, last)
    return np.take_along_axis(series, places[..., None], axis=1)


def gapped(series: _Inputs, strength: float, rng: np.random.Generator) -> _Inputs:
    """With this share of places, drawn at random, at 0: the mean in training."""
    lost = rng.random(series.shape[:2]) < strength
    return np.where(lost[..., None], np.float32(0), series)


def scrambled(inputs: _Inputs, rng: np.random.Generator) -> _Inputs:
    """All entries in another order, the same one for all: inputs of no class."""
    flat = inputs.reshape(len(inputs), -1)
    return flat[:, rng.permutation(flat.shape[1])].reshape(inputs.shape)


# Strengths were set with standard models and validation data: from few more errors to
# about every other answer wrong.
IMAGES = (
    Shift("noise, deviation", (0.2, 0.4, 0.6, 0.8), noisy),
    Shift("rotation, degrees", (5.0, 10.0, 15.0, 20.0), turned),
    Shift("translation, pixels", (0.25, 0.5, 0.75, 1.0), moved),
    Shift("blur, pixels", (0.3, 0.6, 0.9, 1.2), blurred),
    Shift("lost contrast, share", (0.15, 0.3, 0.45, 0.6), faded),
)
SERIES = (
    Shift("noise, deviation", (0.25, 0.5, 0.75, 1.0), noisy),
    Shift("delay, frames", (2.0, 4.0, 6.0, 8.0), delayed),
    Shift("lost frames, share", (0.1, 0.2, 0.3, 0.4), gapped),
)


def shifted(
    inputs: _Inputs, shifts: tuple[Shift, ...], seed: int
) -> Float32[np.ndarray, "sets m n f"]:
    """The inputs, then for every shift those of every strength."""
    sets = [inputs]
    for k, shift in enumerate(shifts):
        for strength in shift.strengths:
            rng = np.random.default_rng((seed, k))
            sets.append(shift.apply(inputs, strength, rng))
    return np.stack(sets)
