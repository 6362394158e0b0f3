"""The page of results says what the experiments found, all of them."""

import json
import runpy
from pathlib import Path

import pytest

from tfjax.figures.experiments import EXPERIMENTS
from tfjax.figures.training import EXPERIMENTS as TRAINED


DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def summaries():
    files = (DOCS / "reproduction").glob("*/summary.json")
    return {file.parent.name: json.loads(file.read_text("utf-8")) for file in files}


def test_the_page_is_the_one_that_the_summaries_give():
    made = runpy.run_path(str(DOCS / "make_reproduction.py"))["reproduction"]()
    assert (DOCS / "reproduction.md").read_text("utf-8") == made


def test_every_experiment_has_a_summary_of_its_full_form_and_every_claim_holds(
    summaries,
):
    assert set(summaries) == set(EXPERIMENTS)
    for name, summary in summaries.items():
        assert summary["passed"] is True, name
        assert summary["parameters"]["quick"] is False, name
        assert summary["title"] == EXPERIMENTS[name].title
        assert (DOCS / "reproduction" / name / "figure.png").is_file()


def test_flows_take_less_than_45_minutes_together_and_trained_models_each(summaries):
    seconds = {name: summary["seconds"] for name, summary in summaries.items()}
    assert sum(seconds[name] for name in set(seconds) - set(TRAINED)) < 45 * 60
    assert max(seconds[name] for name in TRAINED) < 45 * 60
