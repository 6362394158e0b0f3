"""What the wrappers that keep solvers on manifolds share."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..geometry import AbstractManifold


class PresentRows(eqx.Module):
    """A manifold for the rows that exist; the absent ones rest at 0 meanwhile.

    Used inside `solve` for padded token sets: what is stored in absent rows (NaN, say)
    never enters the solver, and `restore` puts it back into what is saved.
    """

    manifold: Any
    exists: Bool[Array, " n"]
    absent: Float[Array, "n d"]

    def project(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return self._present(self.manifold.project(x))

    def tangent(self, x: Float[Array, "n d"], v: Float[Array, "n d"]):
        return self._present(self.manifold.tangent(x, v))

    def exp(self, x: Float[Array, "n d"], v: Float[Array, "n d"]):
        return self._present(self.manifold.exp(self._filled(x), v))

    def log(self, x: Float[Array, "n d"], y: Float[Array, "n d"]):
        return self._present(self.manifold.log(self._filled(x), self._filled(y)))

    def restore(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return jnp.where(self.exists[:, None], x, self.absent)

    def _present(self, x):
        return jnp.where(self.exists[:, None], x, 0.0)

    def _filled(self, x):
        # 0 may be no point: a row that exists is, and keeps derivatives finite.
        return jnp.where(self.exists[:, None], x, x[jnp.argmax(self.exists)][None, :])


def restored(manifold: Any, y: Any) -> Any:
    """The state as a caller sees it, absent rows as they went in."""
    return manifold.restore(y) if isinstance(manifold, PresentRows) else y


class Inside(eqx.Module):
    """The wrapped solver's interpolation; its class is static, the rest are arrays."""

    inner: dict[str, Any]
    manifold: AbstractManifold | PresentRows
    interpolation: Callable[..., Any] = eqx.field(static=True)

    def evaluate(self, t0: Any, t1: Any, t: Any, left: bool) -> Any:
        inner = self.interpolation(t0=t0, t1=t1, **self.inner)
        return inner.evaluate(t, left=left)


class AbstractOnManifold(dfx.AbstractWrappedSolver):
    """Another solver, kept on a manifold; diffrax is told what it asks of that one."""

    solver: eqx.AbstractVar[dfx.AbstractSolver]
    manifold: eqx.AbstractVar[AbstractManifold | PresentRows]

    @property
    def term_structure(self):
        return self.solver.term_structure

    @property
    def term_compatible_contr_kwargs(self):
        return self.solver.term_compatible_contr_kwargs

    # isinstance sees through this wrapper, so diffrax also asks it for these.
    @property
    def root_finder(self):
        return self.solver.root_finder  # type: ignore[attr-defined]

    @property
    def root_find_max_steps(self):
        return self.solver.root_find_max_steps  # type: ignore[attr-defined]

    @property
    def scan_kind(self):
        return self.solver.scan_kind  # type: ignore[attr-defined]

    def order(self, terms):
        return self.solver.order(terms)

    def strong_order(self, terms):
        return self.solver.strong_order(terms)

    def error_order(self, terms):
        return self.solver.error_order(terms)
