"""Files that are written whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of `path` at once, when it is on disk."""
    for left in path.parent.glob(f".{path.name}.*"):
        # Of a process that was killed while it wrote; one that writes keeps its own.
        if not _runs(left.suffix[1:]):
            left.unlink(missing_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _runs(number: str) -> bool:
    """Whether there is a process of this number; True where it is no number."""
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):
        return True
    return True
