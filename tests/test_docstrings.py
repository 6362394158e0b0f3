"""Every example in a docstring runs and prints what it says.

The examples are found in the source, so that decorators cannot hide any.
"""

import ast
import doctest
from pathlib import Path

import pytest


PACKAGE = Path(__file__).parents[1] / "tfjax"

# Where `# doctest: +SKIP` is heeded, and why; elsewhere the flag is ignored.
MAY_SKIP = {
    "tfjax.nn._download.fetch_weights": "downloads",
    "tfjax.nn._weights.find_weights": "needs weights that have to be downloaded",
    "tfjax.nn._pretrained.load_pretrained": "needs weights that have to be downloaded",
    "tfjax.train._data.fetch_data": "downloads",
    "tfjax.train._data.find_data": "needs data that have to be downloaded",
    "tfjax.train._examples.load_ucr": "needs data that have to be downloaded",
    "tfjax.train._text.load_shakespeare": "needs data that have to be downloaded",
}


def docstrings():
    """(dotted name, docstring, path, line) of everything in the package with one."""
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE.parent).with_suffix("")
        module = ".".join(p for p in relative.parts if p != "__init__")
        stack = [(module, ast.parse(path.read_text(encoding="utf-8")))]
        while stack:
            name, node = stack.pop()
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield name, ast.get_docstring(node), path, node.body[0].lineno
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    stack.append((f"{name}.{child.name}", child))


EXAMPLES = {name: rest for name, *rest in docstrings() if ">>>" in rest[0]}


def run(name, text, path="text", line=0):
    """Runs the examples of a docstring; returns (how many, the report of failures)."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, str(path), line)
    for example in test.examples:
        if name not in MAY_SKIP:
            example.options.pop(doctest.SKIP, None)
    report = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    return len(test.examples), "".join(report)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    count, report = run(name, *EXAMPLES[name])
    assert count > 0
    assert not report, report


def test_every_example_that_may_skip_a_line_exists_and_does():
    skipping = {name for name, (text, *_) in EXAMPLES.items() if "+SKIP" in text}
    assert set(MAY_SKIP) <= skipping


def test_a_wrong_example_is_seen():
    assert run("right", ">>> 1 + 1\n2\n") == (1, "")
    assert "Expected" in run("skips", ">>> 1 + 1  # doctest: +SKIP\n3\n")[1]
    count, report = run("wrong", ">>> 1 + 1\n3\n")
    assert count == 1
    assert "Expected:\n    3\nGot:\n    2" in report
    assert "ZeroDivisionError" in run("raises", ">>> 1 / 0\n")[1]


def test_the_examples_of_every_kind_of_owner_are_found():
    found = set(EXAMPLES)
    assert "tfjax.geometry._sphere.Sphere" in found
    assert "tfjax.attention._softmax.attend" in found
    assert "tfjax.integrate._solve.solve" in found
