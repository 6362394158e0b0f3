"""The tensors of a PyTorch checkpoint, read with numpy and without running its code."""

import collections
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._core import must


class _Storage(NamedTuple):
    dtype: np.dtype


# What a pickle may name; anything else in it is refused.
_STORAGES = {
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
}


def read_torch(file: Path) -> dict[str, np.ndarray]:
    """The tensors of a file that `torch.save` wrote of a state dict, by name.

    A pickle can name any function for its reader to call. This reader knows the three
    names that tensors need, and refuses a file that names another.

    **Arguments:** `file`: a zip archive with `data.pkl` and a file for each storage.

    **Returns:** numpy arrays by name; tied tensors share their memory.

    **Raises:** `ValueError` for a file that is damaged, holds anything but tensors, or
    names anything else.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            pickles = [
                n for n in archive.namelist() if n.split("/")[1:] == ["data.pkl"]
            ]
            if len(pickles) != 1:
                raise must(file.name, "hold one data.pkl", f"with {pickles}")
            with archive.open(pickles[0]) as stream:
                found = _Reader(stream, archive, pickles[0].split("/")[0], file).load()
    except (zipfile.BadZipFile, EOFError, KeyError, IndexError, TypeError) as error:
        raise must(file.name, "be a whole archive of PyTorch", repr(error)) from error
    except (pickle.UnpicklingError, AttributeError, OSError) as error:
        raise must(file.name, "be a whole archive of PyTorch", repr(error)) from error
    if not isinstance(found, dict):
        raise must(file.name, "hold a dictionary of tensors", type(found).__name__)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            rule = "hold tensors only"
            raise must(file.name, rule, f"with a {type(value).__name__} at {name!r}")
    return dict(found)


class _Reader(pickle.Unpickler):
    def __init__(self, stream: Any, archive: zipfile.ZipFile, root: str, file: Path):
        super().__init__(stream)
        self._archive, self._root, self._file = archive, root, file
        self._storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if module == "torch" and name in _STORAGES:
            return _Storage(np.dtype(_STORAGES[name]))
        raise must(self._file.name, "name tensors only", f"naming {module}.{name}")

    def persistent_load(self, pid: Any) -> np.ndarray:
        kind, storage, key, _, _ = pid
        if kind != "storage" or not isinstance(storage, _Storage):
            raise must(self._file.name, "refer to storages only", repr(pid))
        if key not in self._storages:
            content = self._archive.read(f"{self._root}/data/{key}")
            self._storages[key] = np.frombuffer(content, storage.dtype)
        return self._storages[key]

    def _tensor(
        self, storage: np.ndarray, offset: int, shape: Any, strides: Any, *_: Any
    ) -> np.ndarray:
        # Strides that reach outside the storage would read foreign memory.
        last = offset + sum((m - 1) * s for m, s in zip(shape, strides, strict=True))
        inside = 0 <= offset and last < storage.size and min((0, *shape, *strides)) >= 0
        if not inside or math.prod(shape) > storage.size:
            rule = "have tensors that lie inside their storage"
            raise must(self._file.name, rule, f"with one of shape {tuple(shape)}")
        width = storage.itemsize
        return np.lib.stride_tricks.as_strided(
            storage[offset:], shape, [width * s for s in strides], writeable=False
        )
