"""Integrating fields in time, on manifolds, alone or many at once."""

from ._ensemble import solve_ensemble as solve_ensemble
from ._projected import Projected as Projected
from ._solve import solve as solve
