"""Integrating fields in time, on manifolds, alone or many at once.

- `solve(field, y0, args, t1=...)`: one solve, a `diffrax.Solution`.
- `solve_ensemble(field, y0, args, t1=...)`: many members.
- `solve_sde(drift, diffusion, y0, args, t1=..., dt0=..., key=...)`: with noise.
- `saved(solution)`: which of its records hold data.
- `one_cluster`, `first_merge`, `steady_state`: events that end a solve.
- `reverse_mode`, `forward_mode`, `second_order`, `reversible_mode`: how a solve is
  differentiated.
- `reduce_to_span(x)`: few tokens of many dimensions, in their span.
- `Projected(solver, manifold)`: any diffrax solver, kept on a manifold.
- `Geodesic(solver, manifold)`: an explicit Runge-Kutta solver, every stage of which
  lies on a manifold.
- `Leapfrog`, `Yoshida4`, `Yoshida6`: symplectic solvers of separable Hamiltonians.
- `ImplicitMidpoint`, `TaoLeapfrog`: symplectic solvers of every Hamiltonian.
- `LieEuler`, `LieMidpoint`, `RKMK4`: solvers of rotations; `Isospectral`: of Lax pairs,
  which keeps the eigenvalues.
- `SplitEuler`: one part of a sum of fields after the other, as in a Transformer.
"""

from ._adjoints import (
    forward_mode as forward_mode,
    reverse_mode as reverse_mode,
    second_order as second_order,
)
from ._ensemble import solve_ensemble as solve_ensemble
from ._events import (
    first_merge as first_merge,
    one_cluster as one_cluster,
    steady_state as steady_state,
)
from ._geodesic import Geodesic as Geodesic
from ._isospectral import Isospectral as Isospectral
from ._leapfrog import (
    Leapfrog as Leapfrog,
    Yoshida4 as Yoshida4,
    Yoshida6 as Yoshida6,
)
from ._lie import RKMK4 as RKMK4, LieEuler as LieEuler, LieMidpoint as LieMidpoint
from ._midpoint import ImplicitMidpoint as ImplicitMidpoint
from ._projected import Projected as Projected
from ._reversible import reversible_mode as reversible_mode
from ._saved import saved as saved
from ._sde import solve_sde as solve_sde
from ._solve import solve as solve
from ._span import reduce_to_span as reduce_to_span
from ._splitting import SplitEuler as SplitEuler
from ._tao import TaoLeapfrog as TaoLeapfrog
