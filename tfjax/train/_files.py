"""The files of a run: a checkpoint to go on from, and a log of every step."""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from .._core import must
from ._atomic import replaced
from ._checkpoint import load_checkpoint, read_metadata, save_checkpoint
from ._step import TrainState


CHECKPOINT, LOG = "checkpoint.npz", "log.jsonl"

Record = dict[str, Any]


class RunFiles:
    """Checkpoint and log in a directory; without one nothing is written.

    A disk that fills up while training goes on is told and waited for: the next
    checkpoint may find room. `close` raises if the last one did not.
    """

    def __init__(self, directory: Path | None, metadata: dict[str, Any]):
        self.directory, self.metadata = directory, metadata
        self.saved = -1
        self._waiting: list[str] = []
        self._trouble: OSError | None = None

    def begin(self, state: TrainState, *, resume: bool) -> tuple[TrainState, list]:
        """The state to begin with, and the records of the steps before it."""
        if self.directory is None:
            return state, []
        file, log = self.directory / CHECKPOINT, self.directory / LOG
        if resume:
            # Data and sizes first: a leaf of another shape would say less.
            check_same(str(file), read_metadata(file), self.metadata)
            state, _ = load_checkpoint(file, state)
            before = read_log(log) if log.exists() else []
            records = [r for r in before if r["step"] <= int(state.step)]
            _write_whole(log, records)
            self.saved = int(state.step)
            return state, records
        for taken in (file, log):
            if taken.exists():
                rule = "hold no run (or be given with `resume=True`, to go on with it)"
                raise must("directory", rule, f"{self.directory} with {taken.name}")
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            _write_whole(log, [])
            # Twice: later checkpoints need room for the new one beside the old one.
            for _ in range(2):
                save_checkpoint(file, state, metadata=self.metadata)
        except BaseException:  # an interruption too leaves no half of a run
            for written in (file, log):
                written.unlink(missing_ok=True)
            raise
        self.saved = int(state.step)
        return state, []

    def record(self, record: Record) -> None:
        """Adds a line to the log."""
        if self.directory is not None:
            self._waiting.append(_line(record))
            self._write(self._append)

    def save(self, state: TrainState) -> None:
        """Replaces the checkpoint."""
        if self.directory is None or self.saved == int(state.step):
            return
        file = self.directory / CHECKPOINT
        if self._write(lambda: save_checkpoint(file, state, metadata=self.metadata)):
            self.saved = int(state.step)

    def close(self, state: TrainState) -> None:
        """Saves for the last time; **Raises** OSError where something is missing."""
        self.save(state)
        if self._waiting:
            self._write(self._append)
        if self._trouble is not None and (self._waiting or self.saved != state.step):
            raise OSError(
                self._trouble.errno,
                f"{self.directory} holds the run up to step {self.saved} of "
                f"{int(state.step)} only: {self._trouble.strerror or self._trouble}",
            ) from self._trouble

    def _append(self) -> None:
        assert self.directory is not None
        file = self.directory / LOG
        size = file.stat().st_size
        try:
            with file.open("a", encoding="utf-8") as stream:
                stream.write("".join(self._waiting))
        except OSError:
            os.truncate(file, size)  # half a line would be taken for a damaged log
            raise
        self._waiting.clear()

    def _write(self, action) -> bool:
        try:
            action()
        except OSError as error:
            if self._trouble is None:
                text = error.strerror or str(error)
                print(f"\n{self.directory}: {text}; going on.", file=sys.stderr)
            self._trouble = error
            return False
        return True


def read_log(path: str | Path) -> list[Record]:
    r"""The records of a run, in their order.

    **Arguments:**

    - `path`: a file `log.jsonl`, as [`fit`][] writes it.

    **Returns:** dictionaries with `step` and what was measured there. A last line that
    was cut off, by a kill, is left out.

    **Raises:** FileNotFoundError where there is no such file; ValueError, which names
    the line, where it is damaged.

    !!! example

        >>> import pathlib, tempfile
        >>> from tfjax.train import read_log
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = file.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
        >>> read_log(file)
        [{'step': 1, 'loss': 2.5}]

    Source: own.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no log {path}.")
    text = path.read_text(encoding="utf-8", errors="replace")
    records, lines = [], text.split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            record["step"] = int(record["step"])
        except (ValueError, KeyError, TypeError) as error:
            text = f"{path}: line {number} is no record of a step: {line[:60]!r}."
            raise ValueError(text) from error
        records.append(record)
    return records


def check_same(file: str, found: Any, wanted: Any, where: str = "") -> None:
    """Raises where a checkpoint was made with other settings."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted({*found, *wanted}):
            path = f"{where}.{key}" if where else key
            check_same(file, found.get(key), wanted.get(key), path)
    elif found != wanted:
        name = where or "metadata"
        words = [repr(found), repr(wanted)]
        if max(map(len, words)) > 80:
            words = ["another", "that of the data and settings at hand"]
        got, need = words
        raise ValueError(f"{file}: `{name}` must be {need}, but was {got}.")


def _line(record: Record) -> str:
    return json.dumps(_finite(record), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON knows no NaN: null."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_whole(path: Path, records: list[Record]) -> None:
    with replaced(path) as file:
        file.write("".join(map(_line, records)).encode())
