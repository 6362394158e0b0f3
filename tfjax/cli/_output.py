"""The directory of results: complete, or as it was before."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._errors import FailedRun, InputError, must


def claim(out: Path, *, force: bool, known: tuple[str, ...]) -> None:
    """Refuses a directory that cannot be written, or that holds something.

    With `force` a directory with content is fine. Called before the work, so that
    nobody waits for a refusal; for the same reason the plots' library is looked for.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "The pictures need matplotlib, which was not found: "
            'pip install matplotlib, or "tfjax[viz]".'
        )
    if out.exists() and not out.is_dir():
        raise must("--out", "be a directory", f"the file {out}")
    base = _existing(out)
    try:
        with tempfile.TemporaryDirectory(prefix=".tfjax-", dir=base):
            pass
    except OSError:
        raise must("--out", "be a directory that can be written", out) from None
    if not out.exists():
        return
    content = sorted(entry.name for entry in out.iterdir())
    if not content:
        return
    if not force:
        names = ", ".join(content[:3]) + (", ..." if len(content) > 3 else "")
        rule = "be a new or empty directory (or be given with --force)"
        raise must("--out", rule, f"{out} with {names} in it")
    for name in known:
        if (out / name).is_dir():
            rule = f"hold no directory {name}, since a file goes there"
            raise must("--out", rule, out)


@contextlib.contextmanager
def writing(out: Path, known: tuple[str, ...]) -> Iterator[Path]:
    """A scratch directory whose files appear in `out` when the block ends well.

    Files of an earlier run (`known`) that this one did not write are removed, so that
    the directory never mixes two runs.
    """
    scratch = None
    try:
        # Inside or beside the target: the last step is a rename in one file system.
        scratch = Path(tempfile.mkdtemp(prefix=".tfjax-", dir=_existing(out)))
        fresh = scratch / "fresh"
        fresh.mkdir()
        yield fresh
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(out)
        else:
            own = [name for name in known if (out / name).exists()]
            if own:
                print(f"Replacing in {out}: {', '.join(own)}.")
            for file in fresh.iterdir():
                os.replace(file, out / file.name)
                known = tuple(name for name in known if name != file.name)
            for name in known:
                (out / name).unlink(missing_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FailedRun(
            f"The results could not be written to {out}: {reason}."
        ) from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _existing(path: Path) -> Path:
    """The path itself or its nearest ancestor that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Strict JSON, which has no NaN and no infinity."""
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def killable(lost: str = "nothing was written") -> Iterator[None]:
    """Lets Ctrl-C end the process at once: compiled code does not listen to Python.

    Only around work that has written nothing yet; `lost` says what is not there.
    """
    # A parent may have asked that Ctrl-C be ignored (nohup, jobs in the background).
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        # Python's own handler waits for the main thread; this byte comes at once.
        before = signal.set_wakeup_fd(writer)
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    watcher = threading.Thread(target=_end_on_signal, args=(reader, lost), daemon=True)
    watcher.start()
    signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        os.close(writer)  # the watcher reads the end, and ends
        watcher.join()
        os.close(reader)


def _end_on_signal(reader: int, lost: str) -> None:
    if os.read(reader, 1):
        os.write(2, f"\nInterrupted; {lost}.\n".encode())
        os._exit(130)
