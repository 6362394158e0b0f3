"""`tfjax reproduce`: what it runs, prints, writes and refuses."""

import json
import sys

import numpy as np
import pytest

from tfjax.cli import _page, _reproduction, main
from tfjax.figures import experiments as registry
from tfjax.figures._report import Report, Table, near
from tfjax.figures.experiments import Experiment


@pytest.fixture
def experiments(monkeypatch):
    """In place of the real ones: one that holds, one that does not, one that breaks."""
    from matplotlib.figure import Figure

    def make(found):
        def run(*, seed, quick, progress):
            progress(0.5)
            if found is None:
                raise RuntimeError("The solve stopped.\nMore.")
            rows = [near("the answer", found, 42.0, 0.5)]
            data = {"seed": np.asarray(seed), "quick": np.asarray(quick)}
            table = Table("By hand", ("way", "|x|"), (("plain", "1.25"), ("new", "3")))
            return Report(rows, Figure(), data, "A note.", (table,))

        return run

    functions = {"holds": make(42.1), "fails": make(41.0), "breaks": make(None)}
    table = {name: Experiment("_x", f"what {name} in one line") for name in functions}
    for module in (registry, _page, _reproduction):
        monkeypatch.setattr(module, "EXPERIMENTS", table)
    monkeypatch.setattr(_reproduction, "load", functions.__getitem__)


@pytest.mark.usefixtures("experiments")
def test_the_list_names_every_experiment_in_a_line(capsys):
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["holds", "fails", "breaks"]
    assert all("in one line" in line for line in lines)


@pytest.mark.usefixtures("experiments")
def test_a_run_prints_its_claims_and_writes_figure_arrays_and_summary(tmp_path, capsys):
    out = tmp_path / "new"
    words = ["reproduce", "holds", "--quick", "--seed", "3", "--out", str(out)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "the answer" in text
    assert "42 ± 0.5" in text
    assert "ok" in text
    assert "A note." in text
    assert "     By hand\n     way    |x|\n     plain  1.25\n     new    3\n" in text
    files = sorted(path.name for path in (out / "holds").iterdir())
    assert files == ["arrays.npz", "figure.png", "summary.json"]
    summary = json.loads((out / "holds" / "summary.json").read_text())
    assert summary["passed"] is True
    assert summary["rows"][0]["found"] == 42.1
    assert summary["command"] == "tfjax reproduce holds --quick --seed 3"
    with np.load(out / "holds" / "arrays.npz") as arrays:
        assert int(arrays["seed"]) == 3
        assert bool(arrays["quick"])


@pytest.mark.usefixtures("experiments")
def test_a_claim_that_does_not_hold_makes_the_command_fail_after_writing(
    tmp_path, capsys
):
    assert main(["reproduce", "fails", "holds", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "FAIL" in captured.out
    assert captured.err == "Not as expected: fails: the answer.\n"
    for name in ("fails", "holds"):
        assert (tmp_path / name / "summary.json").exists()
    summary = json.loads((tmp_path / "fails" / "summary.json").read_text())
    assert summary["passed"] is False


@pytest.mark.usefixtures("experiments")
def test_an_experiment_that_breaks_writes_nothing_and_the_others_are_run(
    tmp_path, capsys
):
    assert main(["reproduce", "breaks", "holds", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "FAILED: The solve stopped.\n" in captured.out
    sentence = "Not as expected: breaks could not be run: The solve stopped.\n"
    assert captured.err == sentence
    assert not (tmp_path / "breaks").exists()
    assert (tmp_path / "holds" / "summary.json").exists()


@pytest.mark.usefixtures("experiments")
def test_a_page_shows_every_summary_in_the_directory(tmp_path):
    main(["reproduce", "holds", "--out", str(tmp_path)])
    main(["reproduce", "fails", "--out", str(tmp_path), "--force"])
    page = (tmp_path / "reproduction.md").read_text("utf-8")
    assert "1 of 2 claims hold in 2 experiments" in page
    assert "| the answer | 42 ± 0.5 | 42.1 | holds |" in page
    assert "| the answer | 42 ± 0.5 | 41 | FAILS |" in page
    assert "![fails](fails/figure.png)" in page
    assert "**By hand**\n\n| way | \\|x\\| |\n| --- | --- |\n| plain | 1.25 |" in page
    assert "`tfjax reproduce holds --seed 0`" in page


@pytest.mark.usefixtures("experiments")
def test_a_damaged_summary_is_named(tmp_path, capsys):
    (tmp_path / "fails").mkdir()
    (tmp_path / "fails" / "summary.json").write_text("{")
    assert main(["reproduce", "holds", "--out", str(tmp_path), "--force"]) == 1
    assert "fails/summary.json is no summary" in capsys.readouterr().err
    assert (tmp_path / "holds" / "summary.json").exists()


@pytest.mark.usefixtures("experiments")
@pytest.mark.parametrize(
    ("needs", "command"),
    [
        ({"weights": ("albert",)}, "fetch-weights albert"),
        ({"data": ("shakespeare",)}, "fetch-data shakespeare"),
    ],
)
def test_what_is_missing_ends_the_command_before_the_first_experiment(
    needs, command, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path / "cache"))
    needy = Experiment("_x", "what needs more than others in one line", **needs)
    monkeypatch.setitem(registry.EXPERIMENTS, "needy", needy)
    assert main(["reproduce", "holds", "needy", "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert "needy could not be run: " in captured.err
    assert f"(run `tfjax {command}`)" in captured.err
    assert "the answer" not in captured.out


@pytest.mark.usefixtures("experiments")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "An experiment must be named, or --all"),
        (["none"], "`NAME` must be of holds, fails, breaks, but was none."),
        (["holds", "--all"], "Names must not be given beside --all."),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("experiments")
def test_results_are_replaced_only_with_force(tmp_path, capsys):
    words = ["reproduce", "holds", "--out", str(tmp_path)]
    assert main(words) == 0
    assert main(words) == 2
    assert "(or be given with --force)" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


@pytest.mark.usefixtures("experiments")
def test_the_progress_bar_is_shown_on_a_terminal_only(tmp_path, monkeypatch, capsys):
    main(["reproduce", "holds", "--out", str(tmp_path)])
    assert "%" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    main(["reproduce", "holds", "--out", str(tmp_path), "--force"])
    assert " 50 %" in capsys.readouterr().err
