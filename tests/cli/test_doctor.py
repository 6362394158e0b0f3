"""`tfjax doctor` and `tfjax fetch-weights`."""

from pathlib import Path

import jax
import pytest

import tfjax.nn
from tfjax._core import _canary
from tfjax._core._canary import Check
from tfjax.cli import main


def test_doctor_on_a_sound_installation(capsys):
    precision = jax.dtypes.canonicalize_dtype(float).name
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for word in ("python", f"jax          {jax.__version__}", "[viz]", "matplotlib"):
        assert word in printed
    for word in ("weights", "MiniLM", f"precision    {precision}", "backend"):
        assert word in printed
    assert "All 5 checks passed." in printed
    assert jax.dtypes.canonicalize_dtype(float).name == precision


def test_doctor_on_a_broken_installation(capsys, monkeypatch):
    checks = (Check("wrong rows", False, 3.0, 0.0), Check("time", True, 16.0, 64.0))
    monkeypatch.setattr(_canary, "self_check", lambda: checks)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL wrong rows: 3 (expected 0)" in printed
    assert "ok   time: 16 (expected 64)" in printed
    assert "1 of 2 checks failed" in printed


@pytest.mark.parametrize(
    ("trouble", "shown"),
    [
        (FileNotFoundError("x"), "MiniLM missing (tfjax fetch-weights)"),
        (ValueError("damaged"), "MiniLM cannot be read: damaged"),
        (ImportError("no tokenizers"), "MiniLM cannot be read: no tokenizers"),
    ],
)
def test_doctor_without_weights(trouble, shown, capsys, monkeypatch):
    def fail(name):
        raise trouble

    monkeypatch.setattr(_canary, "self_check", lambda: ())
    monkeypatch.setattr(tfjax.nn, "load_pretrained", fail)
    assert main(["doctor"]) == 0
    assert shown in capsys.readouterr().out


def test_fetch_weights(capsys, monkeypatch, tmp_path):
    asked = []

    def fetch(name, *, destination, force):
        asked.append((name, destination, force))
        return tmp_path

    monkeypatch.setattr(tfjax.nn, "fetch_weights", fetch)
    assert main(["fetch-weights"]) == 0
    assert main(["fetch-weights", "--destination", "there", "--force"]) == 0
    assert asked == [("minilm", None, False), ("minilm", Path("there"), True)]
    assert f"The weights lie in {tmp_path}." in capsys.readouterr().out
    asked.clear()
    assert main(["fetch-weights", "albert", "minilm", "albert"]) == 0
    assert [name for name, *_ in asked] == ["albert", "minilm"]
    asked.clear()
    assert main(["fetch-weights", "--all"]) == 0
    assert [name for name, *_ in asked] == list(tfjax.nn.WEIGHTS)
    assert "antiberty (AntiBERTy, antibodies): looking for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gpt"], "`NAME` must be of minilm, albert, antiberty, but was gpt."),
        (["albert", "--all"], "Names must not be given beside --all."),
        (
            ["--all", "--destination", "x"],
            "must be given with one NAME, but was with 3",
        ),
    ],
)
def test_fetch_weights_refuses(words, sentence, capsys):
    assert main(["fetch-weights", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_the_help_of_fetch_weights_names_every_model_and_its_size(capsys):
    assert main(["fetch-weights", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, source in tfjax.nn.WEIGHTS.items():
        assert f"{name} ({source.megabytes} MB)" in text


def test_fetch_weights_refuses_a_directory_with_other_content(capsys, tmp_path):
    (tmp_path / "thesis.tex").touch()
    assert main(["fetch-weights", "--destination", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("`--destination` must be new, empty or an earlier download")
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    "trouble", [RuntimeError("pip failed"), ImportError("no pip"), OSError("full")]
)
def test_fetch_weights_fails(trouble, capsys, monkeypatch):
    def fail(*args, **kwargs):
        raise trouble

    monkeypatch.setattr(tfjax.nn, "fetch_weights", fail)
    assert main(["fetch-weights"]) == 1
    assert str(trouble) in capsys.readouterr().err
