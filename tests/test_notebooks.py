"""The notebooks run as they stand, in a small mode, and lie in git without outputs."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tfjax.train import find_data


ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@every_notebook
def test_the_readme_links_it(path):
    assert f"(notebooks/{path.name})" in (ROOT / "README.md").read_text()


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


@pytest.mark.slow
def test_structure(executed):
    outputs = executed(ROOT / "notebooks" / "02_structure.ipynb")
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 5
    printed = "".join(o.text for o in outputs if o.output_type == "stream")
    assert [o.text for o in outputs if o.get("name") == "stderr"] == []

    def numbers(pattern):
        return [float(text) for text in re.search(pattern, printed).groups()]

    attention, potential = (
        numbers(rf"of {name}: (\S+)")[0] for name in ("attention", "force of the pot.*")
    )
    assert potential < 1e-12 < 0.1 < attention
    for name in ("Leapfrog", "Yoshida4"):
        early, late = numbers(rf"{name}: energy errs by (\S+) in one half, (\S+) in")
        assert late < 2 * early < 0.01
    assert numbers(r"back return to the start up to (\S+)")[0] < 1e-13
    assert "h = 0.1: 2.7048138294, (1 + h^2)^100 = 2.7048138294" in printed
    areas = numbers(r"Leapfrog: areas (\S+) \S+ \S+ (\S+)")
    assert areas[0] == pytest.approx(areas[1], abs=2e-4)
    areas = numbers(r"Euler: areas (\S+) \S+ \S+ (\S+)")
    assert areas[1] > 1.2 * areas[0]
    assert numbers(r"Isospectral: eigenvalues move by (\S+)")[0] < 1e-12
    assert numbers(r"Heun: eigenvalues move by (\S+)")[0] > 1e-6
    assert "[2 5 1 4 3]  order found: [2 5 1 4 3]" in printed
    assert numbers(r"skew A and B: singular values move by (\S+)")[0] < 1e-7
    assert numbers(r"attention: singular values move by (\S+)")[0] > 0.1
    slope, quotient = numbers(r"d beta: (\S+) by autodiff, (\S+) by diff")
    assert slope == pytest.approx(quotient, rel=1e-5)


@pytest.mark.slow
@pytest.mark.data
def test_training(executed):
    try:
        find_data("shakespeare")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    outputs = executed(ROOT / "notebooks" / "03_training.ipynb")
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2
    printed = "".join(o.text for o in outputs if o.output_type == "stream")
    assert [o.text for o in outputs if o.get("name") == "stderr"] == []
    assert "37 plays" in printed
    counted = float(re.search(r"3-gram: (\S+) bits", printed).group(1))
    assert counted == pytest.approx(2.849, abs=0.001)
    trained = float(re.search(r"(\S+) bits per character of", printed).group(1))
    # 82 characters, all alike, would be 6.4 bits.
    assert counted < trained < 6
    assert "Enter the KING" in printed
    assert len(re.findall(r"(worst_case|typical|measured) +from", printed)) == 6


@pytest.mark.slow
def test_inference(executed):
    outputs = executed(ROOT / "notebooks" / "04_inference.ipynb")
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 5
    printed = "".join(o.text for o in outputs if o.output_type == "stream")
    assert [o.text for o in outputs if o.get("name") == "stderr"] == []
    for sentence in ("against the score over beta", "plain attention and its prior"):
        apart = re.search(rf"{sentence}: (\S+) apart", printed).group(1)
        assert float(apart) < 1e-5
    gates = re.findall(r"gate \[\s*(\S+)\s+(\S+?)\s*\]", printed)
    assert len(gates) == 5
    assert all(abs(float(a) + float(b) - 1) < 0.02 for a, b in gates)
    # Ten classes, all alike, would be right in a tenth of the cases.
    assert float(re.search(r"'accuracy': ([\d.]+)", printed).group(1)) > 0.2
