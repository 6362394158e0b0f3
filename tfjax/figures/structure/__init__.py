"""Flows that keep a structure: Hamiltonian ones, and Lie brackets; by name."""

from .._report import Experiment


EXPERIMENTS: dict[str, Experiment] = {
    "hnn": Experiment(
        "structure._hnn", "a network that learns an energy keeps it for long"
    ),
}
