"""Tokens and clusters in words."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np


def phrases(members: Iterable[int], words: Sequence[str]) -> list[str]:
    """The tokens of a cluster, read as a person would.

    Pieces of one word stand together: "mending" where the whole word is in the
    cluster, "kn ##ead" where a part is missing. Repeated words are counted.
    """
    inside = sorted(members)
    runs: list[list[int]] = []
    for i in inside:
        if runs and runs[-1][-1] == i - 1 and words[i].startswith("##"):
            runs[-1].append(i)
        else:
            runs.append([i])
    counted = Counter(_phrase(run, words) for run in runs)
    return [text if k == 1 else f"{text} x{k}" for text, k in counted.items()]


def _phrase(run: list[int], words: Sequence[str]) -> str:
    pieces = [words[i] for i in run]
    after = run[-1] + 1
    whole = not pieces[0].startswith("##") and not (
        after < len(words) and words[after].startswith("##")
    )
    text = " ".join(pieces)
    if whole:
        text = pieces[0] + "".join(piece.removeprefix("##") for piece in pieces[1:])
    # A bare comma would be lost among those that separate the words.
    return text if any(letter.isalnum() for letter in text) else f"'{text}'"


def listing(parts: Sequence[str], most: int, glue: str = ", ") -> str:
    """The parts in a row; of very many the first ones, and how many are left out."""
    if len(parts) <= most:
        return glue.join(parts)
    return f"{glue.join(parts[:most])}{glue}... {len(parts) - most} more"


def group(members: Sequence[int], words: Sequence[str], most: int = 5) -> str:
    """A cluster in brackets; of a large one the first words and the size."""
    parts = phrases(members, words)
    if len(parts) <= most:
        return f"({', '.join(parts)})"
    return f"({', '.join(parts[:3])}, ... {len(members)} tokens)"


def clusters_of(labels: np.ndarray) -> list[tuple[int, ...]]:
    """The clusters of one state, largest first."""
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    found = [tuple(int(i) for i in group) for group in groups]
    return sorted(found, key=lambda group: (-len(group), group[0]))
