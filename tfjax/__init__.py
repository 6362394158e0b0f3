"""Transformers as dynamical systems: differentiable physics of attention in JAX.

Tokens are particles, depth is time, attention is the interaction. A field is a function
`(t, x, args)`, `solve` integrates it, and everything is differentiable.

- `solve(field, y0, args, t1=...)` integrates a field, `solve_ensemble` many at once,
  `solve_sde` one with noise.
- `fields`: attention as a vector field, and its parameters.
- `geometry`: manifolds as values. `attention`: kernels. `energies`: scalars of states.
- `integrate`: the solvers. `diagnostics`: clusters, merges, energies, order.
- `meanfield`: measures in place of tokens. `theory`: what theorems predict.
- `nn`: pretrained models, Transformers to be trained. `train`: training them.
- `figures`: plots.

Each is imported when it is first used; `import tfjax` alone loads nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from . import (
        attention as attention,
        diagnostics as diagnostics,
        energies as energies,
        fields as fields,
        figures as figures,
        geometry as geometry,
        integrate as integrate,
        meanfield as meanfield,
        nn as nn,
        theory as theory,
        train as train,
    )
    from .integrate import (
        solve as solve,
        solve_ensemble as solve_ensemble,
        solve_sde as solve_sde,
    )

    __version__: str


_ROOMS = (
    "attention",
    "diagnostics",
    "energies",
    "fields",
    "figures",
    "geometry",
    "integrate",
    "meanfield",
    "nn",
    "theory",
    "train",
)
_HOME_OF = dict.fromkeys(("solve", "solve_ensemble", "solve_sde"), "integrate")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    elif name == "__version__":
        from importlib.metadata import version

        value = version(__name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_ROOMS, *_HOME_OF, "__version__"])
