"""Trees of arrays on disk: whole or not at all, and never the wrong one."""

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._core import must
from ._atomic import replaced


FORMAT = 2
_HEADER = "__header__"


def save_checkpoint(
    path: str | Path, tree: Any, *, metadata: dict[str, Any] | None = None
) -> None:
    """Writes the arrays of a tree to a file, bit for bit.

    The file is replaced in one step when the new one is complete and on disk: whoever
    is interrupted, by a full disk too, still has the old one. It is an archive of numpy
    arrays (npz), and a checksum of each leaf tells a damaged one.

    **Arguments:**

    - `path`: the file, by custom with the ending `.npz`.
    - `tree`: any tree: arrays of numbers and random keys are kept, and so are Python
      numbers and booleans; other leaves, such as functions, belong to the program.
    - `metadata`: what JSON can hold, such as a configuration.

    **Raises:** ValueError where a leaf cannot be kept or `metadata` is no JSON; OSError
    where the file cannot be written.

    !!! example

        >>> import jax.numpy as jnp, pathlib, tempfile
        >>> from tfjax.train import load_checkpoint, save_checkpoint
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "model.npz"
        >>> save_checkpoint(file, {"w": jnp.arange(3)}, metadata={"step": 7})
        >>> tree, metadata = load_checkpoint(file, {"w": jnp.zeros(3, int)})
        >>> tree["w"].tolist(), metadata
        ([0, 1, 2], {'step': 7})

    Source: own.
    """
    path = Path(path)
    arrays, kinds = {}, {}
    for name, leaf in _leaves(tree):
        arrays[name], kinds[name] = _stored(name, leaf)
    try:
        sums = {name: _sum(name, kinds[name], array) for name, array in arrays.items()}
        header = {"format": FORMAT, "kinds": kinds, "sums": sums}
        text = json.dumps(header | {"metadata": metadata or {}}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise must("metadata", "be what JSON can hold", f"not: {error}") from error
    arrays[_HEADER] = np.frombuffer(text.encode(), np.uint8)
    with replaced(path) as file:
        np.savez(file, **arrays)


def load_checkpoint(path: str | Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """Reads what [`save_checkpoint`][] wrote.

    **Arguments:**

    - `path`: the file.
    - `like`: a tree of the same structure, shapes and dtypes; leaves that are not kept
      are taken from it.

    **Returns:** the tree, and the metadata.

    **Raises:** FileNotFoundError where there is no such file; ValueError, which names
    the file and the leaf, where it is damaged or holds another tree.

    Source: own.
    """
    path = Path(path)
    header, arrays = _read(path)
    kinds, found = header["kinds"], {}
    expected = dict(_leaves(like))
    for name in expected:
        if name not in kinds:
            raise leaf_error(path, name, "be in the file", "missing")
    for name in kinds:
        if name not in expected:
            raise leaf_error(path, name, "be in the tree", "in the file only")
    for name, leaf in expected.items():
        wanted, kind = _stored(name, leaf)
        if kinds[name] != kind or arrays[name].shape != wanted.shape:
            rule = f"be {_words(kind, wanted.shape)}"
            raise leaf_error(path, name, rule, _words(kinds[name], arrays[name].shape))
        found[name] = _restored(arrays[name], kind)
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [jax.tree_util.keystr(where) for where, _ in leaves]
    new = [found.get(n, leaf) for n, (_, leaf) in zip(names, leaves, strict=True)]
    return jax.tree_util.tree_unflatten(structure, new), header["metadata"]


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a checkpoint alone.

    **Arguments:**

    - `path`: the file.

    **Returns:** what [`save_checkpoint`][] was given.

    **Raises:** as [`load_checkpoint`][].

    Source: own.
    """
    return _read(Path(path))[0]["metadata"]


def _leaves(tree):
    """Names and values of the leaves that are kept."""
    for where, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if eqx.is_array_like(leaf):
            yield jax.tree_util.keystr(where), leaf


def _stored(name: str, leaf: Any) -> tuple[np.ndarray, str]:
    """What is written of a leaf, and which kind it is."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf)), f"key {jax.random.key_impl(leaf)}"
    if isinstance(leaf, bool | int | float | complex):
        return np.asarray(leaf), f"Python {type(leaf).__name__}"
    array = np.asarray(leaf)
    if array.dtype.kind in "biufc":
        return array, array.dtype.name
    if array.dtype.itemsize in (1, 2):  # those of jax, such as bfloat16
        return array.view(f"u{array.dtype.itemsize}"), array.dtype.name
    raise must("tree", f"have arrays of numbers, at {name} too", array.dtype.name)


def _restored(array: np.ndarray, kind: str) -> Any:
    if kind.startswith("key "):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=kind[4:])
    if kind.startswith("Python "):
        return array.item()
    return jnp.asarray(array.view(jnp.dtype(kind)))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    if not zipfile.is_zipfile(path):
        raise _damaged(path, "it is no archive, or not all of one")
    name, arrays = _HEADER, {}
    try:
        # numpy leaves a file open that it cannot read.
        with path.open("rb") as source, np.load(source) as file:
            header = json.loads(file[_HEADER].tobytes())
            if header["format"] != FORMAT:
                raise must(str(path), f"have format {FORMAT}", header["format"])
            for name, kind in header["kinds"].items():
                arrays[name] = file[name]
                if header["sums"][name] != _sum(name, kind, arrays[name]):
                    raise _damaged(path, f"leaf `{name}` has another checksum")
            if not isinstance(header["metadata"], dict):
                raise TypeError("metadata")
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise _damaged(path, f"leaf `{name}` cannot be read") from error
    except Exception as error:  # numpy and zipfile raise many kinds on damaged bytes
        raise _damaged(path, f"leaf `{name}` cannot be read") from error
    return header, arrays


def _sum(name: str, kind: str, array: np.ndarray) -> int:
    """A checksum that ties the bytes of a leaf to its name, kind and shape."""
    words = f"{name} {kind} {array.dtype.name} {array.shape}".encode()
    return zlib.crc32(np.ascontiguousarray(array).tobytes(), zlib.crc32(words))


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path} is no whole checkpoint: {reason}.")


def leaf_error(path: Path, name: str, rule: str, got: str) -> ValueError:
    """The error for a leaf of a file."""
    return ValueError(f"{path}: leaf `{name}` must {rule}, but was {got}.")


def _words(kind: str, shape: tuple[int, ...]) -> str:
    return kind if kind.startswith("Python") else f"{kind} of shape {shape}"
