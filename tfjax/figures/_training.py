"""A run of training: loss, validation beside baselines, gradient, rate."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core import must
from ._base import BLUE, FAINT, GREY, INK, PALETTE, RED, Plot, new_figure, style


def plot_training(
    records: Sequence[Mapping[str, Any]],
    *,
    metric: str = "nats",
    baselines: Mapping[str, float] | None = None,
    unit: str = "steps",
) -> Plot:
    """Loss and validation against steps, with gradients and throughput below.

    **Arguments:**

    - `records`: those of [`tfjax.train.fit`][], or of `tfjax.train.read_log`.
    - `metric`: which number of `validation` is drawn.
    - `baselines`: values of it that others reach, by name: dashed lines.
    - `unit`: what throughput counts.

    **Returns:** a [`Plot`][] with `data` `steps`, `loss`, `smooth`, `gradient_norm`,
    `per_second` of shape (s,), and `validation_steps`, `validation` of shape (v,);
    NaN where nothing was measured.

    **Raises:** ValueError where there is no record.

    !!! example

        >>> from tfjax.figures import plot_training
        >>> records = [{"step": s, "loss": 1 / s, "gradient_norm": 1.0,
        ...     "skipped": False, "per_second": 5.0} for s in (1, 2, 3)]
        >>> plot_training(records).data["loss"].tolist()
        [1.0, 0.5, 0.3333333333333333]

    Source: own.
    """
    if not records:
        raise must("records", "have at least one step", "empty")
    column = lambda name: np.array([_number(r.get(name)) for r in records])
    steps, loss = column("step"), column("loss")
    judged = [r for r in records if metric in (r.get("validation") or {})]
    where = np.array([r["step"] for r in judged], float)
    found = np.array([_number(r["validation"][metric]) for r in judged])
    smooth = _smooth(loss)
    figure = new_figure(8, 6)
    left, right, low, low_right = figure.subplots(2, 2).ravel()
    left.plot(steps, loss, color=FAINT, linewidth=0.8, label="batch")
    left.plot(steps, smooth, color=BLUE, linewidth=1.8, label="smooth")
    left.set_ylabel("loss (nats)")
    left.legend(frameon=False)
    right.plot(where, found, color=RED, marker="o", markersize=3, label="model")
    for k, (name, value) in enumerate((baselines or {}).items()):
        colour = PALETTE[(k + 4) % len(PALETTE)]
        right.axhline(value, color=colour, linestyle="--", linewidth=1, label=name)
    right.set_ylabel(f"validation {metric.replace('_', ' ')}")
    right.legend(frameon=False)
    norm = column("gradient_norm")
    low.plot(steps, norm, color=INK, linewidth=0.8)
    lost = [r["step"] for r in records if r.get("skipped")]
    for k, step in enumerate(lost):
        low.axvline(step, color=RED, linewidth=0.8, label=None if k else "skipped")
    if lost:
        low.legend(frameon=False)
    if np.any(norm > 0):
        low.set_yscale("log")
    low.set_ylabel("norm of the gradient")
    rate = column("per_second")
    low_right.plot(steps, rate, color=GREY, linewidth=1.2)
    low_right.set_ylabel(f"{unit} per second")
    low_right.set_ylim(bottom=0)
    for axes in (left, right, low, low_right):
        axes.set_xlabel("step")
        style(axes)
    data = {
        "steps": steps,
        "loss": loss,
        "smooth": smooth,
        "gradient_norm": norm,
        "per_second": rate,
        "validation_steps": where,
        "validation": found,
    }
    return Plot(data, figure)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _smooth(values: np.ndarray) -> np.ndarray:
    """Means of the steps before, a twentieth of the run; NaN counts for nothing."""
    width = max(len(values) // 20, 1)
    good = np.isfinite(values)
    total = np.cumsum(np.where(good, values, 0.0))
    number = np.cumsum(good)
    before = np.arange(len(values)) - width
    earlier = lambda sums: np.where(before >= 0, sums[np.maximum(before, 0)], 0)
    amount = number - earlier(number)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(amount > 0, (total - earlier(total)) / amount, np.nan)
