"""Flows that keep a structure: Hamiltonian ones, and Lie brackets; by name."""

from .._report import Experiment


EXPERIMENTS: dict[str, Experiment] = {}
