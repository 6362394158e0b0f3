"""What the models read: characters of real text, cut into sequences."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

from ...train import load_shakespeare
from ..paper._texts import paragraph


def sequences(
    count: int, length: int, *, seed: int, quick: bool
) -> tuple[Integer[Array, "count length"], int]:
    """Sequences of characters from places drawn at random, and the alphabet's size.

    They are of Shakespeare's plays; where it is to be quick, of a paragraph that ships
    with the package.
    """
    if quick:
        text = paragraph()
        alphabet = sorted(set(text))
        codes, size = np.array([alphabet.index(c) for c in text]), len(alphabet)
    else:
        plays = load_shakespeare()
        codes, size = plays.train, len(plays.alphabet)
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, codes.size - length, count)
    cut = np.stack([codes[start : start + length] for start in starts])
    return jnp.asarray(cut.astype(np.int32)), size
