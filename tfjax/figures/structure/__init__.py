"""Flows that keep a structure: Hamiltonian ones, and Lie brackets; by name."""

from .._report import Experiment


EXPERIMENTS: dict[str, Experiment] = {
    "hamiltonian": Experiment(
        "structure._hamiltonian",
        "symplectic methods keep the energy of a flow, others lose it",
    ),
    "lie": Experiment(
        "structure._lie", "brackets sort matrices, and keep their eigenvalues"
    ),
    "hnn": Experiment(
        "structure._hnn", "a network that learns an energy keeps it for long"
    ),
}
