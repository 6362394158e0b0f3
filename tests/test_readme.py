"""The README's snippets run as they stand."""

import re
from pathlib import Path

import jax
import pytest

from tfjax.nn import weights_directory


README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_five_tasks_are_five():
    tasks = README.read_text().split("## Five tasks")[1].split("\n## ")[0]
    assert tasks.count("```python") == 5


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs(number, capsys):
    code = SNIPPETS[number]
    if "load_pretrained" in code and not weights_directory("minilm").is_dir():
        pytest.skip("the weights are not here: run `tfjax fetch-weights`")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(code, f"README.md snippet {number}", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_pictures_are_there():
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README.read_text())
    assert pictures
    assert all((README.parent / picture).is_file() for picture in pictures)
