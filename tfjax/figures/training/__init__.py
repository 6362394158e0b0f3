"""Transformers that are trained: how they start, how deep, how long; by name."""

from .._report import Experiment


EXPERIMENTS: dict[str, Experiment] = {
    "continuous-depth": Experiment(
        "training._continuous", "depth as time: trained layers, and trained flows"
    ),
}
