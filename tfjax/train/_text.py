"""Texts as integer tokens, one of each character, cut into two parts by position."""

import dataclasses
import os
import re
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from .._core import must
from ._data import PLAYS, find_data


# Stands for every character that the training part does not have.
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """Documents as tokens, each a character's place in the alphabet.

    Of every document, the last share is validation and the rest is training, so that no
    passage is in both, and both have all documents; the parts follow one another in the
    order of `names`.

    **Arguments:**

    - `alphabet`: the characters of the training part, sorted. Where the validation part
      has others, the replacement character U+FFFD is one more, and stands for them all:
      they are counted, not left out, and a model has to give them their probability.
    - `train`, `validation`: tokens, of dtype uint8, or int32 for more than 256.
    - `names`: of the documents.
    - `unknown`: how many tokens of the validation part stand for a character that is
      not in the training part.
    """

    alphabet: str
    train: Integer[np.ndarray, " n"]
    validation: Integer[np.ndarray, " m"]
    names: tuple[str, ...]
    unknown: int = 0

    def encode(self, text: str) -> Integer[np.ndarray, " k"]:
        """The tokens of a text; **Raises** ValueError for characters without one."""
        places, known = _places(self.alphabet, text)
        if not known.all():
            others = sorted({text[k] for k in np.flatnonzero(~known)})
            raise must("text", "have characters of the alphabet only", others[:10])
        return places.astype(_dtype(self.alphabet))

    def decode(self, tokens: Integer[np.ndarray, " k"]) -> str:
        """The text of tokens; **Raises** ValueError where one is out of range."""
        tokens = np.asarray(tokens)
        most = len(self.alphabet) - 1
        if tokens.size and not (0 <= tokens.min() and tokens.max() <= most):
            got = f"in {tokens.min()}..{tokens.max()}"
            raise must("tokens", f"be in 0..{most}", got)
        return _string(_codes(self.alphabet)[tokens])


def load_shakespeare(
    directory: str | os.PathLike[str] | None = None, *, validation: float = 0.1
) -> Text:
    """The plays of Shakespeare, 4.8 million characters.

    37 plays, as volunteers of Project Gutenberg typed them: title, persons, acts and
    stage directions included; the files have no notes or licences. Two lines of mere
    `@` in Love's Labour's Lost are left out. Of Cymbeline, this collection lacks the
    acts III and IV. Its five poems are not among the plays.

    **Arguments:**

    - `directory`: where [`fetch_data`][] put `"shakespeare"`; `None` is the cache.
    - `validation`: the share of every play, at its end, that is not trained on.

    **Returns:** a [`Text`][].

    **Raises:** FileNotFoundError, which says how to get it, where it is not there.

    !!! example

        >>> from tfjax.train import load_shakespeare
        >>> text = load_shakespeare()  # doctest: +SKIP
        >>> text.decode(text.train[:25])  # doctest: +SKIP
        "ALL'S WELL THAT ENDS WELL"

    Source: own.
    """
    folder = find_data("shakespeare", directory)
    documents = {}
    for play in PLAYS:
        content = _read(folder / f"{play}.txt")
        documents[play] = re.sub(r"(?m)^@+\n", "", content)
    return _text(documents, validation)


def load_text(path: str | os.PathLike[str], *, validation: float = 0.1) -> Text:
    r"""Text of one's own: a file, or the files `*.txt` of a folder, in UTF-8.

    Ends of lines become `"\n"`, and a byte order mark is left out.

    **Arguments:**

    - `path`: of the file or folder; files are taken in the order of their names.
    - `validation`: the share of every file, at its end, that is not trained on.

    **Returns:** a [`Text`][].

    **Raises:** FileNotFoundError where there is no such file, or none in the folder;
    ValueError, which names the file, where one is empty, too short to be cut in two, or
    not UTF-8.

    !!! example

        >>> import pathlib, tempfile
        >>> from tfjax.train import load_text
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "song.txt"
        >>> _ = file.write_text("tu-whit, tu-who, a merry note")
        >>> text = load_text(file)
        >>> text.alphabet, text.decode(text.validation)
        (' ,-aehimnortuwy', 'ote')

    Source: own.
    """
    path = Path(path).expanduser()
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files:
        got = f"the folder {path} without any"
        raise FileNotFoundError(str(must("path", "have files *.txt", got)))
    return _text({file.name: _read(file) for file in files}, validation)


def _read(file: Path) -> str:
    if not file.is_file():
        got = f"{file}, where there is none"
        raise FileNotFoundError(str(must("path", "name a file", got)))
    try:
        content = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"{file}, which is none from byte {error.start} on"
        raise must("path", "name a text in UTF-8", got) from error
    if not content:
        raise must("path", "name a text", f"{file}, which is empty")
    return content


def _text(documents: dict[str, str], validation: float) -> Text:
    if not 0 < validation < 1:
        raise must("validation", "be a share between 0 and 1", validation)
    train, held_out = [], []
    for name, content in documents.items():
        cut = len(content) - round(validation * len(content))
        if not 0 < cut < len(content):
            rule = f"be long enough to hold out a share of {validation:g}"
            raise must(name, rule, f"{len(content)} characters long")
        train.append(content[:cut])
        held_out.append(content[cut:])
    seen, rest = "".join(train), "".join(held_out)
    alphabet = _string(np.unique(_codes(seen)))
    places, known = _places(alphabet, rest)
    if not known.all():
        alphabet = "".join(sorted({*alphabet, UNKNOWN}))
        places, _ = _places(alphabet, rest)
        places = np.where(known, places, alphabet.index(UNKNOWN))
    dtype = _dtype(alphabet)
    return Text(
        alphabet,
        _places(alphabet, seen)[0].astype(dtype),
        places.astype(dtype),
        tuple(documents),
        int(np.sum(~known)),
    )


def _places(alphabet: str, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Where each character is in the sorted alphabet, and whether it is there."""
    table, codes = _codes(alphabet), _codes(text)
    places = np.minimum(np.searchsorted(table, codes), len(table) - 1)
    return places, table[places] == codes


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _string(codes: np.ndarray) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _dtype(alphabet: str) -> type[np.integer]:
    return np.uint8 if len(alphabet) <= 256 else np.int32
