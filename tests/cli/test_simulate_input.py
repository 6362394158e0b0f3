"""What `tfjax simulate` refuses, each in one sentence."""

import re

import numpy as np
import pytest

from tfjax.cli import _simulation, main
from tfjax.nn import weights_directory


needs_weights = pytest.mark.skipif(
    not (weights_directory("minilm") / "model.safetensors").exists(),
    reason="the weights are not here: run `tfjax fetch-weights`",
)


def simulate(out, *words):
    return main(["simulate", *words, "--out", str(out)])


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def refused(tmp_path, words, sentence, capsys):
    before = names(tmp_path)
    assert simulate(tmp_path / "out", *words) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--n 0", "`--n` must be an integer of at least 1, but was 0."),
        ("--n two", "`--n` must be an integer of at least 1, but was 'two'."),
        ("--d 1", "`--d` must be an integer of at least 2, but was 1."),
        ("--t1 0", "`--t1` must be a positive number, but was 0."),
        ("--t1 inf", "`--t1` must be a positive number, but was inf."),
        ("--t1 soon", "`--t1` must be a positive number, but was 'soon'."),
        ("--beta nan", "`--beta` must be a finite number, but was nan."),
        ("--ensemble 0", "`--ensemble` must be an integer of at least 1, but was 0."),
        ("--saves 1", "`--saves` must be an integer of at least 2, but was 1."),
        ("--rtol -1", "`--rtol` must be a positive number, but was -1."),
        ("--max-steps 0", "`--max-steps` must be an integer of at least 1, but was 0."),
        ("--threshold 1", "`--threshold` must lie between -1 and 1, but was 1."),
        (
            "--seed -1",
            "`--seed` must be an integer between 0 and 4294967295, but was -1.",
        ),
        (
            "--field magnetic",
            "`--field` must be one of self_attention, unnormalized_self_attention, "
            "but was 'magnetic'.",
        ),
        ("--mask dark", "`--mask` must be one of none, causal, but was 'dark'."),
        (
            "--layer 2",
            "`--layer` must be given with --text only, but was given without.",
        ),
        (
            "--no-special",
            "`--no-special` must be given with --text only, but was given without.",
        ),
        ("--text x --n 4", "`--n` must not be given with --text, but was 4."),
        ("--text x --ensemble 2", "`--ensemble` must not be given with --text"),
        (
            "--text x --init y.npy",
            "`--init` must not be given with --text, but was y.npy",
        ),
        (
            "--init y.npy --d 4",
            "`--d` must not be given with --init FILE.npy, but was 4.",
        ),
    ],
)
def test_bad_options(words, sentence, tmp_path, capsys):
    refused(tmp_path, words.split(), sentence, capsys)


def test_tiny_rows_count_by_their_direction(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3) * 1e-200)
    words = ["--init", str(tmp_path / "x.npy"), "--t1", "1", "--saves", "2"]
    assert simulate(tmp_path / "out", *words) == 0
    with np.load(tmp_path / "out" / "trajectory.npz") as file:
        np.testing.assert_allclose(file["xs"][0], np.eye(3))


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.ones(3), "n at least 1 and d at least 2, but was of shape (3,)."),
        (np.ones((3, 1)), "n at least 1 and d at least 2, but was of shape (3, 1)."),
        (np.ones((0, 3)), "n at least 1 and d at least 2, but was of shape (0, 3)."),
        (np.ones((3, 3), complex), "`--init` must hold real numbers of shape (n, d)"),
        (np.array([[1.0, np.nan]]), "finite numbers, but was nan at index (0, 1)."),
        (np.array([[1, 0], [0, 0]]), "put on the sphere, but was 0 in row 1."),
        (np.array([["a", "b"]]), "`--init` must hold real numbers of shape (n, d)"),
        (np.array([[None, 1]]), "which cannot be read as one."),
    ],
)
def test_bad_starts(array, sentence, tmp_path, capsys):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    refused(tmp_path, ["--init", str(tmp_path / "x.npy")], sentence, capsys)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({}, "hold arrays named Q, K or V and no others, but was with none."),
        ({"W": np.eye(3)}, "named Q, K or V and no others, but was with W."),
        (
            {"Q": np.ones((2, 4))},
            "`--weights` must hold Q of shape (d_k, d) or (heads, d_k, d) with d = 3, "
            "but was of shape (2, 4).",
        ),
        ({"Q": np.ones((0, 3))}, "must hold Q of shape (d_k, d)"),
        ({"V": np.ones((2, 3))}, "must hold V of shape (d, d) or (heads, d, d)"),
        ({"V": np.ones(3)}, "must hold V of shape (d, d) or (heads, d, d)"),
        ({"V": np.full((3, 3), np.inf)}, "`--weights` must hold finite numbers in V"),
        ({"V": np.eye(3, dtype=complex)}, "`--weights` must hold real numbers in V"),
        (
            {"Q": np.ones((2, 1, 3)), "V": np.ones((4, 3, 3))},
            "hold as many heads in each array, but was with {'Q': 2, 'V': 4}.",
        ),
        (
            {"Q": np.ones((2, 3))},
            "Q and K with the same d_k (d where one is absent), but was with "
            "{'Q': 2, 'K': 3}.",
        ),
    ],
)
def test_bad_weights(arrays, sentence, tmp_path, capsys):
    np.savez(tmp_path / "w.npz", **arrays)
    refused(tmp_path, ["--weights", str(tmp_path / "w.npz")], sentence, capsys)


@pytest.mark.parametrize("option", ["--init", "--weights", "--text"])
def test_missing_files(option, tmp_path, capsys):
    for path, reason in (
        (tmp_path / "no", "no such file"),
        (tmp_path, "is a directory"),
    ):
        sentence = f"`{option}` must name a readable file, but was {path} ({reason}"
        refused(tmp_path, [option, str(path)], sentence, capsys)


@pytest.mark.parametrize(
    ("option", "content", "sentence"),
    [
        ("--init", b"", "`--init` must be a .npy file of numpy"),
        ("--init", b"1 2 3\n", "`--init` must be a .npy file of numpy"),
        (
            "--weights",
            b"PK\x03\x04 cut off",
            "`--weights` must be a .npz file of numpy",
        ),
        ("--text", b"na\xefve", "text in UTF-8, but was"),
        ("--text", b" \n\t", "`--text` must hold at least one word"),
    ],
)
def test_damaged_files(option, content, sentence, tmp_path, capsys):
    (tmp_path / "file").write_bytes(content)
    refused(tmp_path, [option, str(tmp_path / "file")], sentence, capsys)


def test_the_other_kind_of_file(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.eye(3))
    np.savez(tmp_path / "x.npz", Q=np.eye(3))
    sentence = "must be a .npy file of numpy, but was"
    refused(tmp_path, ["--init", str(tmp_path / "x.npz")], sentence, capsys)
    sentence = "must be a .npz file of numpy, but was"
    refused(tmp_path, ["--weights", str(tmp_path / "x.npy")], sentence, capsys)


def test_what_does_not_fit_into_memory(tmp_path, capsys, monkeypatch):
    refused(tmp_path, ["--n", "1000000"], "`--n` must have at most ", capsys)
    words = ["--ensemble", "1000000000"]
    refused(tmp_path, words, "`--ensemble` must be smaller", capsys)
    np.save(tmp_path / "x.npy", np.eye(3))
    monkeypatch.setattr(_simulation, "_BOUND", 300)
    words = ["--init", str(tmp_path / "x.npy"), "--saves", "2"]
    refused(tmp_path, words, "`--init` must have at most 1 tokens, since", capsys)


def test_the_limit_is_where_it_is_said_to_be(tmp_path, capsys):
    assert simulate(tmp_path / "out", "--n", "1000000", "--d", "7") == 2
    found = re.search(r"at most (\d+) tokens", capsys.readouterr().err)
    assert found is not None
    limit = int(found[1])
    assert 1000 < limit < 20000

    def start(*args):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_simulation, "_random_start", start)
        assert simulate(tmp_path / "out", "--n", str(limit), "--d", "7") == 130
        assert simulate(tmp_path / "out", "--n", str(limit + 1), "--d", "7") == 2


@pytest.mark.pretrained
@needs_weights
def test_a_text_or_a_layer_too_far(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("bread " * 511, encoding="utf-8")
    sentence = "`--text` must have at most 512 tokens, the positions that the model "
    sentence += "knows, but was of 513 tokens."
    refused(tmp_path, ["--text", str(tmp_path / "a.txt")], sentence, capsys)
    (tmp_path / "a.txt").write_text("bread", encoding="utf-8")
    words = ["--text", str(tmp_path / "a.txt"), "--layer", "7"]
    refused(tmp_path, words, "0 (the embedding) and 6 (the last layer)", capsys)
