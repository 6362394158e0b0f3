"""`tfjax train` and `tfjax sample`: from a file to a model that writes."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tfjax.cli import main
from tfjax.cli._training import _change
from tfjax.train import RunConfig, load_run, read_log


# Models of runs are in float32, whatever the default: once is enough.
pytestmark = pytest.mark.slow
CONFIG = """
[data]
name = "text"
path = {path!r}

[model]
context = 16
layers = 1
heads = 2
head_dim = 8

[training]
steps = {steps}
batch = 4
evaluate_every = 4
checkpoint_every = 2
"""


@pytest.fixture
def config(tmp_path):
    """A file; the text in it follows a rule with some chance in it."""
    text = tmp_path / "text.txt"
    draws = np.random.default_rng(0).integers(1, 3, 6000)
    text.write_text("".join("abcdefg"[k] for k in np.cumsum(draws) % 7))
    file = tmp_path / "mine.toml"
    file.write_text(CONFIG.format(path=str(text), steps=8))
    return file


def test_a_run_from_a_file_to_a_sample(config, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "--config", str(config), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    for name in ("this model", "3-gram", "4-gram", "5-gram"):
        assert name in printed.out
    assert "step 8/8" in printed.err
    names = {
        "checkpoint.npz", "config.json", "log.jsonl", "model.safetensors",
        "sample.txt", "summary.json", "training.png",
    }  # fmt: skip
    assert {file.name for file in out.iterdir()} == names
    summary = json.loads((out / "summary.json").read_text())
    assert summary["steps"] == 8
    assert set(summary["baselines"]) == {f"{n}-gram" for n in (3, 4, 5, 6)}
    # Steps of 1 or 2, at random: one bit a character, whatever the order.
    for bits in summary["baselines"].values():
        assert bits == pytest.approx(1.0, abs=0.05)
    assert f"{summary['validation']['bits']:.4f}" in printed.out
    assert [r["step"] for r in read_log(out / "log.jsonl")] == list(range(1, 9))

    words = ["sample", "--run", str(out), "--prompt", "acd", "--length", "20"]
    assert main([*words, "--seed", "3"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("acd")
    assert len(first) == 24
    assert main([*words, "--seed", "3"]) == 0
    assert capsys.readouterr().out == first
    assert main([*words, "--seed", "4"]) == 0
    assert capsys.readouterr().out != first
    assert main(["sample", "--run", str(out), "--prompt", "xyz a"]) == 2
    message = "`--prompt` must have characters that the model knows, but was given"
    assert f"{message} ' ', 'x', 'y', 'z'." in capsys.readouterr().err

    # Nothing is overwritten unasked; with --force it is said.
    assert main(["train", "--config", str(config), "--out", str(out)]) == 2
    assert "`--out` must be a new or empty directory" in capsys.readouterr().err
    words = ["train", "--config", str(config), "--out", str(out), "--force"]
    words += ["--set", "regularization.curvature=0.1"]
    words += ["--set", "regularization.metrics=true"]
    assert main([*words, "--set", "training.steps=2", "--seed", "1"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["config"]["regularization"]["curvature"] == 0.1
    assert len(summary["geometry"]["rank"]) == 1
    assert f"Replacing in {out}: checkpoint.npz" in capsys.readouterr().out
    assert load_run(out).config.seed == 1
    assert load_run(out).config.training.steps == 2
    # A run that is over is judged again.
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert "this model" in capsys.readouterr().out
    changed = ["--config", str(config), "--set", "training.batch=8"]
    assert main(["train", "--resume", "--out", str(out), *changed]) == 2
    message = "`config.regularization.curvature` must be 0.0, but was 0.1"
    assert message in capsys.readouterr().err
    assert main(["train", "--resume", "--out", str(out), "--seed", "2"]) == 2
    assert "`--resume` must be given alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    ["data.path=/nope", "model.context=100000", "training.batch=2000000000"],
)
def test_force_keeps_the_old_run_where_the_new_one_cannot_be(
    change, config, tmp_path, capsys
):
    out = tmp_path / "run"
    out.mkdir()
    for name in ("checkpoint.npz", "log.jsonl", "mine.txt"):
        (out / name).write_text("old")
    words = ["train", "--config", str(config), "--out", str(out), "--force"]
    assert main([*words, "--set", change]) == 2
    printed = capsys.readouterr()
    assert "Replacing" not in printed.out
    assert printed.err.count("\n") == 1
    assert {file.name for file in out.iterdir()} == {
        "checkpoint.npz", "log.jsonl", "mine.txt",
    }  # fmt: skip


def test_a_run_that_diverges_ends_with_a_summary(config, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "--config", str(config), "--out", str(out), "--quick"]
    wild = ["--set", "optimizer.learning_rate=1e4", "--set", "optimizer.clip=0"]
    assert main([*words, *wild]) == 1
    assert "The run diverged: its validation is not finite" in capsys.readouterr().err
    summary = json.loads((out / "summary.json").read_text())
    assert summary["validation"]["perplexity"] is None


def test_a_run_in_double_precision_is_sampled(config, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "--config", str(config), "--out", str(out), "--quick"]
    assert main([*words, "--set", "training.precision=float64"]) == 0
    capsys.readouterr()
    assert main(["sample", "--run", str(out), "--prompt", "a", "--length", "5"]) == 0
    assert len(capsys.readouterr().out) == 7


def test_ctrl_c_at_any_moment_and_going_on_comes_to_the_same_result(config, tmp_path):
    def command(out, *words):
        return [sys.executable, "-m", "tfjax.cli", "train", *words, "--out", str(out)]

    text = config.read_text().replace("steps = 8", "steps = 150")
    config.write_text(text.replace("baselines", "baselines = false\n#"))
    environment = os.environ | {"JAX_ENABLE_X64": "0"}
    run = lambda words: subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment
    )
    whole, part = tmp_path / "whole", tmp_path / "part"
    done = run(command(whole, "--config", str(config)))
    assert done.returncode == 0, done.stderr
    log, words = part / "log.jsonl", tmp_path / "words.txt"
    # Into a file: a pipe that nobody reads is full at some time, and stops the run.
    with (
        words.open("wb") as stream,
        subprocess.Popen(
            command(part, "--config", str(config)),
            stdout=stream,
            stderr=stream,
            env=environment,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while not (log.exists() and log.read_bytes().count(b"\n") > 20):
                assert time.monotonic() < deadline
                time.sleep(0.002)
            process.send_signal(signal.SIGINT)
            code = process.wait(timeout=120)
        finally:
            process.kill()
    errors = words.read_bytes()
    assert code == 130, errors
    step = load_run(part).step
    assert 20 < step < 150
    assert f"Interrupted after step {step} of 150".encode() in errors
    assert b"goes on." in errors
    done = run(command(part, "--resume"))
    assert done.returncode == 0, done.stderr
    one, two = (json.loads((d / "summary.json").read_text()) for d in (whole, part))
    assert one["validation"] == two["validation"]
    assert (whole / "sample.txt").read_text() == (part / "sample.txt").read_text()


def test_the_ready_configurations_are_listed(capsys):
    assert main(["train", "--list"]) == 0
    printed = capsys.readouterr().out
    for name in ("digits", "japanese-vowels", "shakespeare-char"):
        assert name in printed


def test_a_classifier_is_trained_and_has_nothing_to_say(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "--config", "digits", "--quick", "--out", str(out)]
    small = ["--set", "model.layers=1", "--set", "training.baselines=true"]
    assert main([*words, *small]) == 0
    printed = capsys.readouterr().out
    assert "validation, accuracy" in printed
    assert "nearest neighbour" in printed
    assert not (out / "sample.txt").exists()
    assert main(["sample", "--run", str(out)]) == 2
    assert "`--run` must be of a language model, but" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`--config` must be given: a file, or one of digits, japanese-vow"),
        (["--config", "nothing"], "There is no file nothing; there are ready digits"),
        (["--config", "digits", "--set", "steps"], "`--set` must be KEY=VALUE, such"),
        (["--config", "digits", "--set", "seed.a=1"], "`--set` must name a key of a"),
        (
            ["--config", "digits", "--set", "training.stps=1"],
            "`training.stps` is no key: there are steps, batch, accumulate",
        ),
        (
            ["--config", "digits", "--set", "training.steps=many"],
            "`training.steps` must be an integer, but was 'many'.",
        ),
        (
            ["--config", "digits", "--set", "model.heads=0"],
            "`model.heads` must be an integer of at least 1, but was 0.",
        ),
        (
            ["--config", "digits", "--set", "model.context=7"],
            "`model.context` must be at least 8, the length of the sequences",
        ),
        (
            ["--config", "digits", "--set", "training.batch=3000000000"],
            "`training.batch` must be at most 2147483647, but was 3e+09.",
        ),
        (
            ["--config", "digits", "--set", "model.layers=1000000"],
            "`model.layers` must be at most 100000, but was 1e+06.",
        ),
        (
            ["--config", "digits", "--set", "model.head_dim=1000000"],
            "`model` must be small enough to train in",
        ),
        (
            ["--config", "digits", "--set", "optimizer.learning_rate=inf"],
            "`optimizer.learning_rate` must be a finite number, but was inf.",
        ),
        (
            ["--config", "digits", "--set", f"optimizer.clip={10**400}"],
            "`optimizer.clip` must be a finite number, but was inf.",
        ),
        (["--resume"], "There is no run in run to go on with: no checkpoint.npz is th"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words, "--out", "run"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_text_that_is_missing_or_empty_is_named(config, tmp_path, capsys):
    words = ["train", "--config", str(config), "--out", str(tmp_path / "run")]
    (tmp_path / "text.txt").write_text("")
    assert main(words) == 2
    assert "text.txt" in capsys.readouterr().err
    (tmp_path / "text.txt").unlink()
    assert main(words) == 2
    assert "text.txt" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_told_before_the_work(config, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    out = tmp_path / "run"
    assert main(["train", "--config", str(config), "--out", str(out)]) == 1
    printed = capsys.readouterr().err
    message = f"The run could not be written to {out}: No space left on device."
    assert message in printed
    assert "step" not in printed


def test_a_change_may_be_in_a_section_that_was_left_out():
    values = RunConfig().to_dict()
    assert values["model"]["bayesian"] is None
    _change(values, "model.bayesian.prior=learned")
    _change(values, "model.bayesian.deviation=0.5")
    found = RunConfig.from_dict(values).transformer(vocabulary=9).bayesian
    assert (found.prior, found.deviation) == ("learned", 0.5)
