"""Transformers that are trained: how they start, how deep, how long; by name."""

from .._report import Experiment


_PLAYS, _TIME_SERIES = ("shakespeare",), ("ucr",)
EXPERIMENTS: dict[str, Experiment] = {
    "stable-start": Experiment(
        "training._stable_start",
        "heads of a new Transformer contract as was asked for, on text",
        data=_PLAYS,
    ),
    "continuous-depth": Experiment(
        "training._continuous",
        "depth as time: trained layers, and trained flows",
        data=_PLAYS,
    ),
    "long-sequences": Experiment(
        "training._long_sequences",
        "blocks that keep a structure, and plain ones, on long sequences",
        data=_PLAYS,
    ),
    "geometry": Experiment(
        "training._geometry",
        "terms of geometry in training, and whether they help",
        data=_PLAYS,
    ),
    "fewshot": Experiment(
        "training._fewshot",
        "a few examples a class, with geometric terms and without",
        data=_TIME_SERIES,
    ),
    "calibration": Experiment(
        "training._calibration",
        "Bayesian and common attention: calibration, and under shift",
        data=_TIME_SERIES,
    ),
}
