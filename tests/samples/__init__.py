"""Samples of every public field, energy and manifold, for the protocol tests."""

from .base import Sample
from .circle import FIELDS as CIRCLE_FIELDS
from .composed import FIELDS as COMPOSED_FIELDS
from .energies import ENERGIES as SCALARS
from .hamiltonian import ENERGIES as HAMILTONIANS, FIELDS as HAMILTONIAN_FIELDS
from .manifolds import MANIFOLDS, ManifoldSample
from .matrices import FIELDS as MATRIX_FIELDS
from .tokens import FIELDS as TOKEN_FIELDS


ENERGIES: dict[str, dict[str, Sample]] = {**SCALARS, **HAMILTONIANS}
FIELDS: dict[str, dict[str, Sample]] = {
    **TOKEN_FIELDS,
    **CIRCLE_FIELDS,
    **COMPOSED_FIELDS,
    **HAMILTONIAN_FIELDS,
    **MATRIX_FIELDS,
}
