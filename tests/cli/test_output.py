"""The directory of results is complete, or as it was before."""

import json
import os
import re

import pytest

from tfjax.cli._errors import FailedRun, InputError
from tfjax.cli._output import claim, write_json, writing


KNOWN = ("a.txt", "b.txt")


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_new_directory_appears_whole(tmp_path):
    out = tmp_path / "deep" / "er"
    claim(out, force=False, known=KNOWN)
    with writing(out, KNOWN) as scratch:
        (scratch / "a.txt").write_text("1")
        assert not out.exists()
    assert names(out) == ["a.txt"]
    assert names(tmp_path) == ["deep"]
    assert out.stat().st_mode & 0o777 == (tmp_path / "deep").stat().st_mode & 0o777


def test_an_empty_directory_is_filled(tmp_path):
    claim(tmp_path, force=False, known=KNOWN)
    with writing(tmp_path, KNOWN) as scratch:
        (scratch / "a.txt").write_text("1")
    assert names(tmp_path) == ["a.txt"]


def test_content_is_refused_without_force(tmp_path):
    for name in "wxyz":
        (tmp_path / name).touch()
    message = "`--out` must be a new or empty directory (or be given with --force), "
    message += f"but was {tmp_path} with w, x, y, ... in it."
    with pytest.raises(InputError, match=re.escape(message)):
        claim(tmp_path, force=False, known=KNOWN)


def test_force_replaces_only_what_is_ours(tmp_path, capsys):
    for name in ("a.txt", "b.txt", "mine.txt"):
        (tmp_path / name).write_text("old")
    claim(tmp_path, force=True, known=KNOWN)
    assert not capsys.readouterr().out
    with writing(tmp_path, KNOWN) as scratch:
        (scratch / "a.txt").write_text("new")
    assert capsys.readouterr().out == f"Replacing in {tmp_path}: a.txt, b.txt.\n"
    # b.txt was of the earlier run, which must not be mixed with this one.
    assert names(tmp_path) == ["a.txt", "mine.txt"]
    assert (tmp_path / "a.txt").read_text() == "new"


def test_missing_matplotlib_is_said_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"need matplotlib.*tfjax\[viz\]"):
        claim(tmp_path / "out", force=False, known=KNOWN)
    assert names(tmp_path) == []


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, ValueError, FailedRun])
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_left_behind(tmp_path, trouble, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()
        (out / "a.txt").write_text("old")

    def half():
        with writing(out, KNOWN) as scratch:
            (scratch / "a.txt").write_text("half")
            raise trouble

    with pytest.raises(trouble):
        half()
    assert names(tmp_path) == (["out"] if there else [])
    if there:
        assert names(out) == ["a.txt"]
        assert (out / "a.txt").read_text() == "old"


def test_a_full_disk_is_a_failed_run(tmp_path):
    out = tmp_path / "out"
    message = f"The results could not be written to {out}: no space left on device."
    with pytest.raises(FailedRun, match=re.escape(message)), writing(out, KNOWN):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


def test_a_file_is_no_directory(tmp_path):
    file = tmp_path / "file"
    file.touch()
    message = f"`--out` must be a directory, but was the file {file}."
    with pytest.raises(InputError, match=re.escape(message)):
        claim(file, force=True, known=KNOWN)
    with pytest.raises(InputError, match="must be a directory that can be written"):
        claim(file / "below", force=True, known=KNOWN)


def test_a_directory_in_the_place_of_a_file(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(InputError, match=r"must hold no directory a\.txt"):
        claim(tmp_path, force=True, known=KNOWN)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="must be a directory that can be written"):
        claim(tmp_path / "out", force=False, known=KNOWN)


def test_json_is_strict(tmp_path):
    write_json(tmp_path / "a.json", {"β": [1.5, None]})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"β": [1.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", {"t": float("nan")})
    assert names(tmp_path) == ["a.json"]
