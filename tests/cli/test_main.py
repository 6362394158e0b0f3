"""The command as a whole: help, exit codes, sentences."""

import os
import re
import subprocess
import sys

import pytest

from tfjax.cli import main


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["doctor"],
        ["fetch-weights"],
        ["fetch-data"],
        ["simulate"],
        ["train"],
        ["sample"],
    ],
)
def test_help(command, capsys):
    assert main([*command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "usage: tfjax" in printed
    assert "example" in printed


def test_help_of_demo_and_version(capsys):
    assert main(["demo", "--help"]) == 0
    assert "tfjax demo --out demo" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+|unknown", capsys.readouterr().out.strip())


def test_help_needs_no_jax():
    script = "import sys; from tfjax.cli import main; main(['simulate', '--help'])\n"
    script += "assert not {'jax', 'numpy', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "`tfjax` must be given a command; see `tfjax --help`."),
        (["fly"], "see `tfjax --help`."),
        (["simulate", "--wings", "2"], "--wings"),
        (["simulate", "--n"], "Argument --n: expected one argument"),
        (["simulate", "--bet", "2"], "--bet"),
    ],
)
def test_words_that_are_no_command(words, sentence, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


def test_exit_code_of_the_process():
    command = [sys.executable, "-m", "tfjax.cli", "simulate", "--n", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "`--n` must be an integer of at least 1, but was 0.\n"


def test_words_outside_the_encoding_of_the_terminal():
    script = "from tfjax.cli import main; main(['simulate', '--n', '0'])\n"
    script += "print('\\u03b2 \\u00b1')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, env=environment
    )
    assert done.stdout == b"? ?\n"


def test_a_reader_that_closes_early_is_no_traceback():
    words = ["-u", "-m", "tfjax.cli", "reproduce", "--list"]
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
