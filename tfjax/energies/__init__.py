"""Scalars of states: energies that the flows raise or lower.

- `interaction_energy(x, beta)`: the energy of which attention is a gradient flow.
- `log_interaction_energy(x, beta)`: its logarithm, finite for every beta.
- `kuramoto_energy(theta, coupling)`: that of coupled oscillators.
- `riesz_energy(x, s)`: that of points that repel each other; s = 1 is Thomson's.
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
from ._riesz import riesz_energy as riesz_energy
