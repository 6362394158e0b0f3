"""Scalars of states: energies that the flows raise or lower.

- `interaction_energy(x, beta)`: the energy of which attention is a gradient flow.
- `log_interaction_energy(x, beta)`: its logarithm, finite for every beta.
- `kuramoto_energy(theta, coupling)`: that of coupled oscillators.
- `Hamiltonian(potential, mass)`: that of positions and momenta.
- `AttentionPotential(beta)`: a potential whose force is attention, both ways.
"""

from ._hamiltonian import (
    AttentionPotential as AttentionPotential,
    Hamiltonian as Hamiltonian,
)
from ._interaction import (
    interaction_energy as interaction_energy,
    log_interaction_energy as log_interaction_energy,
)
from ._kuramoto import kuramoto_energy as kuramoto_energy
