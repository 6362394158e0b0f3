"""Every experiment in its quick form: its claims hold, its figure is whole."""

import importlib.util
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from tfjax.figures._report import above, below, near, reported, within
from tfjax.figures.experiments import EXPERIMENTS, Report, load
from tfjax.figures.paper._pretrained_models import _EXPECTED
from tfjax.figures.paper._texts import WORD_COUNTS, WORD_TIMES, paragraph
from tfjax.nn import find_weights


@pytest.fixture(autouse=True)
def _forget_experiment():
    """Frees what an experiment compiled: all of them together hold gigabytes."""
    yield
    jax.clear_caches()


def marked(name):
    """What needs weights is marked so."""
    marks = [pytest.mark.pretrained] if EXPERIMENTS[name].weights else []
    return pytest.param(name, marks=marks)


@pytest.mark.skipif(not jax.config.jax_enable_x64, reason="experiments are in float64")
@pytest.mark.slow
@pytest.mark.parametrize("name", [marked(name) for name in EXPERIMENTS])
def test_the_claims_of_the_quick_experiment_hold(name):
    try:
        for weights in EXPERIMENTS[name].weights:
            find_weights(weights)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    fractions = []
    report = load(name)(seed=0, quick=True, progress=fractions.append)
    assert isinstance(report, Report)
    assert [row.claim for row in report.rows if not row.passed] == []
    assert any(not row.reported for row in report.rows)
    claims = [row.claim for row in report.rows]
    assert len(set(claims)) == len(claims)
    for key, array in report.data.items():
        assert isinstance(array, np.ndarray), key
    for axes in report.figure.axes:
        if axes.get_label() != "<colorbar>" and axes.axison:
            assert axes.get_xlabel() or axes.name == "3d" or axes.get_title()
    assert fractions == sorted(fractions)
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert load(name).__doc__


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_a_title_of_one_line(name):
    title = EXPERIMENTS[name].title
    assert 10 < len(title) < 80
    assert not title.endswith(".")
    assert name == name.lower()


@pytest.mark.parametrize("name", ["pretrained-models", "words"])
def test_an_experiment_without_its_weights_says_what_to_run(
    name, monkeypatch, tmp_path
):
    monkeypatch.setenv("TFJAX_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(FileNotFoundError, match="run `tfjax fetch-weights minilm`"):
        load(name)(quick=True)


def test_the_tables_of_the_texts_are_those_of_the_reference():
    file = Path(__file__).parents[1] / "reference" / "minilm_paragraph.json"
    reference = json.loads(file.read_text("utf-8"))
    assert paragraph() == reference["text"]
    counts = reference["clusters_threshold_099"]
    assert counts.pop("t") == list(WORD_TIMES)
    assert counts == {f"beta_{b:g}": list(row) for b, row in WORD_COUNTS.items()}
    means = [layer["mean_cosine"] for layer in reference["layers"]]
    assert means == list(_EXPECTED["minilm"])


NAN = math.nan


@pytest.mark.parametrize(
    ("row", "passed"),
    [
        (near("a", 1.05, 1.0, 0.1), True),
        (near("a", 1.15, 1.0, 0.1), False),
        (near("a", NAN, 1.0, 0.1), False),
        (below("a", 0.5, 1.0), True),
        (below("a", 1.0, 1.0), False),
        (below("a", NAN, 1.0), False),
        (above("a", 1.5, 1.0), True),
        (above("a", NAN, 1.0), False),
        (within("a", 1.0, 1.0, 2.0), True),
        (within("a", 2.5, 1.0, 2.0), False),
        (within("a", NAN, 1.0, 2.0), False),
        (reported("a", NAN, "about 3"), True),
    ],
)
def test_a_row_passes_where_the_claim_holds_and_never_for_nan(row, passed):
    assert row.passed is passed
    json = row.as_json()
    assert json["found"] is None or math.isfinite(json["found"])
