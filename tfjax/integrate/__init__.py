"""Integrating fields in time, on manifolds, alone or many at once.

- `solve(field, y0, args, t1=...)`: one solve, a `diffrax.Solution`.
- `solve_ensemble(field, y0, args, t1=...)`: many members.
- `Projected(solver, manifold)`: any diffrax solver, kept on a manifold.
"""

from ._ensemble import solve_ensemble as solve_ensemble
from ._projected import Projected as Projected
from ._solve import solve as solve
