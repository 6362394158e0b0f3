"""Scalars of states: energies that the flows raise or lower."""

from ._interaction import (
    interaction_energy as interaction_energy,
    log_interaction_energy as log_interaction_energy,
)
