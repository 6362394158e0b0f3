"""The notebooks run as they stand, in a small mode, and lie in git without outputs."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_one_and_the_readme_links_it():
    assert [path.name for path in NOTEBOOKS] == ["01_clustering.ipynb"]
    assert "(notebooks/01_clustering.ipynb)" in (ROOT / "README.md").read_text()


@every_notebook
def test_no_outputs_are_stored(path):
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.fixture(scope="module")
def executed():
    """A function that runs a notebook in its small mode and returns its outputs."""

    def run(path):
        notebook = read(path)
        # The kernel is to import this very package, and to compute as we do.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TFJAX_NOTEBOOK_SMALL", "1")
            patch.setenv(
                "PYTHONPATH",
                os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            )
            NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
        return [output for cell in code_cells(notebook) for output in cell.outputs]

    return run


@pytest.mark.slow
def test_clustering(executed):
    outputs = executed(ROOT / "notebooks" / "01_clustering.ipynb")
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 4
    printed = "".join(o.text for o in outputs if o.output_type == "stream")
    errors = [o.text for o in outputs if o.get("name") == "stderr"]
    assert errors == []
    # Three and two of five tokens, then one cluster.
    assert re.search(r"level 0\.520\d from t = 4\.\d+ to (29|30)\d", printed)
    assert re.search(r"level 1\.0000 from t = 3[34]\d to 1e\+03", printed)
    slope, quotient = re.search(
        r"beta: (\S+) by autodiff, (\S+) by diff", printed
    ).groups()
    assert float(slope) == pytest.approx(float(quotient), abs=1e-6)
    assert len(re.findall(r"clusters for a time of", printed)) == 3
