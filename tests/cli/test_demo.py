"""`tfjax demo`: its table, and what it does when things are missing or wrong."""

import json
import re

import pytest

from tfjax.cli import _demo, main
from tfjax.cli._demo_parts import Part, Row
from tfjax.figures import plot_energy
from tfjax.nn import weights_directory


ROWS = [f"clusters at t = {t}, mean of 32 starts" for t in (2, 5, 20, 200)]
ROWS += ["exit time of five tokens, beta = 4", "their scaled energy at rest, t = 20"]
ROWS += ["d order / d beta: difference quotient, autodiff"]
WORDS = [f"clusters of words at t = {t}" for t in (2, 5, 10, 20, 50, 100, 200)]


@pytest.fixture
def tiny(monkeypatch):
    """A demo whose first three examples cost nothing; the fourth has no weights."""

    def part(*inputs):
        plot = plot_energy([1.0, 2.0], [0.1, 0.2])
        return Part([Row("a", 1.0, 0.1, 1.05)], ("clusters.png", "a curve", plot))

    def bare(*inputs):
        return Part([Row("b", 2.0, 0.1, 2.0)], text="a table")

    monkeypatch.setattr(_demo, "two_time_scales", part)
    monkeypatch.setattr(_demo, "metastable", bare)
    monkeypatch.setattr(_demo, "gradient", bare)

    def missing(text):
        raise FileNotFoundError("`path` must name weights that are on this machine.")

    monkeypatch.setattr(_demo, "embed", missing)
    return monkeypatch


def test_without_weights_it_says_so_and_goes_on(tiny, tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "4/4  real words: left out, since the weights cannot be had" in printed
    assert re.search(r"^a +1 ± 0\.1 +1\.05  ok$", printed, re.MULTILINE)
    assert f"{out / 'clusters.png'}: a curve" in printed
    assert sorted(file.name for file in out.iterdir()) == [
        "clusters.png",
        "summary.json",
    ]
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert [row["passed"] for row in summary["rows"]] == [True] * 3
    assert "weights" in summary["left_out"]


@pytest.mark.parametrize("found", [2.2, float("nan")])
def test_a_row_that_fails(found, tiny, tmp_path, capsys):
    wrong = Part([Row("b", 2.0, 0.1, found)])
    tiny.setattr(_demo, "gradient", lambda: wrong)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 1
    printed = capsys.readouterr()
    assert "FAIL" in printed.out
    assert printed.err == "1 of 3 rows of the table are not as expected.\n"


def test_an_example_that_breaks_leaves_nothing(tiny, tmp_path, capsys):
    def fail():
        raise RuntimeError("The solve stopped.\nDetails follow.")

    tiny.setattr(_demo, "gradient", fail)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 1
    assert capsys.readouterr().err == "The solve stopped.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_content(tiny, tmp_path, capsys):
    (tmp_path / "mine.txt").touch()
    (tmp_path / "words.png").touch()
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "`--out` must be a new or empty directory" in capsys.readouterr().err
    assert main(["demo", "--out", str(tmp_path), "--force"]) == 0
    assert f"Replacing in {tmp_path}: words.png." in capsys.readouterr().out
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["clusters.png", "mine.txt", "summary.json"]


def test_the_paragraph_ships_with_the_package():
    text = _demo.paragraph()
    assert text.startswith("The rain had stopped over the harbour, and the fishermen")
    assert "\n" not in text
    assert len(text.split()) == 56


# --- The real one ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "demo"
    return main(["demo", "--quick", "--out", str(out)]), out


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ROWS, *WORDS])
def test_row(name, quick):
    summary = json.loads((quick[1] / "summary.json").read_text("utf-8"))
    rows = {row["name"]: row for row in summary["rows"]}
    if name in WORDS and summary["left_out"]:
        pytest.skip(summary["left_out"])
    assert rows[name]["passed"], rows[name]


@pytest.mark.slow
def test_pictures(quick):
    code, out = quick
    assert code == 0
    files = {"clusters.png", "metastable.png", "summary.json"}
    if (weights_directory("minilm") / "model.safetensors").exists():
        files.add("words.png")
    assert {file.name for file in out.iterdir()} == files
