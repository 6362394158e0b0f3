"""Files named on the command line, read and checked."""

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._errors import FailedRun, InputError, must, unreadable


class Text(NamedTuple):
    """The tokens of a text as vectors, and what they are called."""

    vectors: np.ndarray  # (n, d)
    words: tuple[str, ...]
    layer: int


def read_init(path: Path) -> np.ndarray:
    """The tokens of `--init FILE.npy`, of shape (n, d)."""
    array = _load("--init", path, "npy")
    tokens = _finite("--init", _tokens("--init", array))
    # Only directions count: tiny rows must not vanish in single precision.
    return tokens / np.abs(tokens).max(axis=1, keepdims=True)


def _tokens(name: str, array: np.ndarray) -> np.ndarray:
    rule = "hold real numbers of shape (n, d) with n at least 1 and d at least 2"
    if array.dtype.kind not in "fiu":
        raise must(name, rule, f"of dtype {array.dtype}")
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise must(name, rule, f"of shape {array.shape}")
    return array.astype(float)


def _finite(name: str, array: np.ndarray) -> np.ndarray:
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise must(name, "hold finite numbers", f"{array[place]:g} at index {place}")
    zero = np.flatnonzero(~array.any(axis=1))
    if len(zero):
        rule = "hold rows other than 0, which can be put on the sphere"
        raise must(name, rule, f"0 in row {zero[0]}")
    return array


def read_weights(path: Path, d: int) -> dict[str, np.ndarray]:
    """The matrices of `--weights FILE.npz` that are there, checked to fit together."""
    found = _load("--weights", path, "npz")
    if not found or set(found) - {"Q", "K", "V"}:
        rule = "hold arrays named Q, K or V and no others"
        raise must("--weights", rule, f"with {', '.join(sorted(found)) or 'none'}")
    for name, array in found.items():
        if array.dtype.kind not in "fiu":
            raise must("--weights", f"hold real numbers in {name}", array.dtype)
        rows = "d" if name == "V" else "d_k"
        fits = array.ndim in (2, 3) and array.shape[-1] == d and 0 not in array.shape
        if not fits or (name == "V" and array.shape[-2] != d):
            rule = (
                f"hold {name} of shape ({rows}, d) or (heads, {rows}, d) with d = {d}"
            )
            raise must("--weights", rule, f"of shape {array.shape}")
        if not np.all(np.isfinite(array)):
            raise must(
                "--weights", f"hold finite numbers in {name}", "not in some place"
            )
    heads = {n: len(a) for n, a in found.items() if a.ndim == 3}
    if len(set(heads.values())) > 1:
        raise must("--weights", "hold as many heads in each array", f"with {heads}")
    ranks = {n: found[n].shape[-2] if n in found else d for n in ("Q", "K")}
    if ranks["Q"] != ranks["K"]:
        rule = "hold Q and K with the same d_k (d where one is absent)"
        raise must("--weights", rule, f"with {ranks}")
    return {name: array.astype(float) for name, array in found.items()}


def _load(name: str, path: Path, kind: str) -> Any:
    """An array, or the arrays of an archive by name; never pickled objects."""
    rule = f"be a .{kind} file of numpy"
    try:
        with path.open("rb") as stream:
            content = np.load(stream, allow_pickle=False)
            if isinstance(content, np.ndarray) != (kind == "npy"):
                other = "an array" if kind == "npz" else "an archive of arrays"
                raise must(name, rule, f"{path}, {other}")
            return content if kind == "npy" else {k: content[k] for k in content.files}
    except OSError as error:
        raise unreadable(name, path, error) from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise must(name, rule, f"{path}, which cannot be read as one") from error


def read_text(path: Path) -> str:
    """A text in UTF-8 that is not blank."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise unreadable("--text", path, error) from error
    except UnicodeDecodeError as error:
        got = f"{path} with the byte 0x{error.object[error.start]:02x} at {error.start}"
        raise must("--text", "be text in UTF-8", got) from error
    if not text.strip():
        raise must("--text", "hold at least one word", f"{path}, which is empty")
    return text


def embed(text: str, *, layer: int | None = None, special: bool = True) -> Text:
    """The tokens of a text in a layer of the pretrained MiniLM, in float64.

    Raises FileNotFoundError or ImportError where the weights cannot be had.
    """
    from ..nn import load_pretrained

    pretrained = load_pretrained("minilm")
    try:
        tokens = pretrained.encode(text)
    except ValueError as error:
        raise InputError(str(error).replace("`text`", "`--text`")) from error
    last = pretrained.model.config.layers
    if layer is None:
        layer = last
    if layer > last:
        rule = f"be an integer between 0 (the embedding) and {last} (the last layer)"
        raise must("--layer", rule, layer)
    hidden = np.asarray(pretrained.hidden_states(tokens), dtype=float)
    keep = np.ones(len(tokens.words), bool)
    if not special:
        keep = ~np.asarray(tokens.special)
    words = tuple(w for w, kept in zip(tokens.words, keep, strict=True) if kept)
    return Text(hidden[layer][keep], words, layer)


def embed_or_fail(text: str, **choices: Any) -> Text:
    """As `embed`; missing weights are a failed run, with what to do about them."""
    try:
        return embed(text, **choices)
    except FileNotFoundError as error:
        raise FailedRun(
            "`--text` needs the pretrained weights, which are not on this machine: "
            "run `tfjax fetch-weights` first."
        ) from error
    except (ImportError, ValueError) as error:
        raise FailedRun(str(error)) from error
