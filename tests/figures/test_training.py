"""The picture of a run: what it shows is what was measured."""

import numpy as np
import pytest

from tfjax.figures import plot_training


def records(steps=100):
    found = []
    for step in range(1, steps + 1):
        record = {"step": step, "loss": 1 / step, "gradient_norm": 2.0 / step}
        record |= {"skipped": False, "per_second": None if step == 1 else 5.0}
        if step % 20 == 0:
            record["validation"] = {"bits": 3.0 / step, "nats": 2.0 / step}
        found.append(record)
    return found


def test_it_shows_what_was_measured_beside_the_baselines():
    plot = plot_training(
        records(), metric="bits", baselines={"3-gram": 0.1}, unit="tokens"
    )
    data = plot.data
    np.testing.assert_array_equal(data["steps"], np.arange(1, 101))
    np.testing.assert_allclose(data["validation"], 3 / np.arange(20, 101, 20))
    assert np.isnan(data["per_second"][0])
    # Means of five steps, a twentieth of the run; of fewer at its beginning.
    loss = data["loss"]
    np.testing.assert_allclose(data["smooth"][[0, 3]], [loss[0], loss[:4].mean()])
    np.testing.assert_allclose(data["smooth"][50], loss[46:51].mean())
    left, right, *_, rate = plot.figure.axes
    np.testing.assert_array_equal(right.lines[0].get_ydata(), data["validation"])
    assert [text.get_text() for text in right.get_legend().get_texts()] == [
        "model", "3-gram",
    ]  # fmt: skip
    assert right.lines[1].get_ydata()[0] == 0.1
    assert rate.get_ylabel() == "tokens per second"
    assert all(axes.get_xlabel() == "step" for axes in plot.figure.axes)


def test_skipped_steps_and_losses_that_are_not_finite_are_seen():
    found = records(40)
    found[9] |= {"loss": None, "gradient_norm": None, "skipped": True}
    plot = plot_training(found, metric="nats")
    assert np.isnan(plot.data["loss"][9])
    # The loss that is missing counts for nothing, and spoils no mean.
    np.testing.assert_allclose(plot.data["smooth"][9], 1 / 9)
    assert len(plot.figure.axes[2].lines) == 2


def test_no_records_are_named():
    with pytest.raises(ValueError, match="`records` must have at least one step"):
        plot_training([])
