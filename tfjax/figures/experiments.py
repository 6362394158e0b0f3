"""Every experiment behind `tfjax reproduce`: data, figure, expected, found.

An experiment is a function `(*, seed=0, quick=False, progress=quiet) -> Report`. With
`quick` it takes seconds and its tolerances are wider. `EXPERIMENTS` names them all;
`load(name)` imports one; `tfjax reproduce` runs them.
"""

import importlib
from collections.abc import Callable

from . import paper, structure, training
from ._report import (
    Experiment as Experiment,
    Report as Report,
    Row as Row,
    Table as Table,
)


EXPERIMENTS: dict[str, Experiment] = (
    paper.EXPERIMENTS | structure.EXPERIMENTS | training.EXPERIMENTS
)


def load(name: str) -> Callable[..., Report]:
    """The function of an experiment, by its name.

    **Arguments:**

    - `name`: one of `EXPERIMENTS`.

    **Returns:** the function `(*, seed=0, quick=False, progress=quiet) -> Report`.

    **Raises:** KeyError where there is no such experiment.

    !!! example

        >>> from tfjax.figures.experiments import EXPERIMENTS, load
        >>> all(callable(load(name)) for name in EXPERIMENTS)
        True
    """
    module = importlib.import_module(f".{EXPERIMENTS[name].module}", __package__)
    return getattr(module, name.replace("-", "_"))
