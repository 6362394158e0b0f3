"""Hamilton's equations, with ports for damping and control."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._core import as_float, is_concrete, matmul, must, widen
from ._base import VectorField


def hamiltonian(
    H: Callable[..., Any],
    *,
    damping: Any = None,
    control: Callable[..., Any] | None = None,
) -> VectorField:
    r"""Hamilton's equations of positions q and momenta p, open to damping and control.

    $$\dot q = \frac{\partial H}{\partial p}, \qquad
      \dot p = -\frac{\partial H}{\partial q} + u - D \dot q$$

    Without ports the energy is conserved; with them it changes by the power that they
    supply, `dH/dt = <q', u - D q'>`.

    **Arguments:**

    - `H`: a scalar function `H(q, p)`, such as a
      [`Hamiltonian`][tfjax.energies.Hamiltonian]. Where the field is called with
      parameters (not None), they are its last argument: `H(q, p, args)`. It may be an
      `eqx.Module` with leaves of its own.
    - `damping`: D, a scalar; its diagonal, of shape (d,); or a matrix of shape (d, d)
      whose symmetric part is positive semidefinite. It acts on the last axis of the
      velocity. None is none.
    - `control`: a function `(t, (q, p), args) -> u`, a force of q's shape.

    **Returns:** a field `(t, (q, p), args=None) -> (dq/dt, dp/dt)`, an `eqx.Module`,
    for arrays q and p of one shape. Its attribute `separable` says whether dq/dt is
    free of q and dp/dt of p, as solvers such as
    [`Leapfrog`][tfjax.integrate.Leapfrog] need: True where H declares so and there are
    no ports, False where it is damped, None where it is not known.

    **Raises:** ValueError where an argument is of another kind, or, by the field, where
    H is no scalar or shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import Hamiltonian
        >>> from tfjax.fields import hamiltonian
        >>> H = Hamiltonian(lambda q: 0.5 * jnp.sum(q**2), mass=2.0)
        >>> field = hamiltonian(H, damping=0.1)
        >>> dq, dp = field(0.0, (jnp.array([1.0]), jnp.array([4.0])))
        >>> f"{dq[0]:.1f} {dp[0]:.1f}"
        '2.0 -1.2'

    Source: A. van der Schaft, D. Jeltsema, Port-Hamiltonian Systems Theory: An
    Introductory Overview, section 2.
    """
    if not callable(H):
        raise must("H", "be a scalar function (q, p)", repr(H))
    if control is not None and not callable(control):
        raise must("control", "be a function (t, (q, p), args)", repr(control))
    if damping is not None:
        damping = as_float("damping", damping)
        if is_concrete(damping):
            if not _is_passive(np.asarray(damping, np.float64)):
                rule = (
                    "be finite, and take energy: not negative, or v D v >= 0 for all v"
                )
                raise must("damping", rule, np.array(damping))
    return _HamiltonianField(H, damping, control)


def _is_passive(damping: np.ndarray) -> bool:
    if not np.all(np.isfinite(damping)):
        return False
    if damping.ndim != 2 or damping.shape[0] != damping.shape[1]:
        return bool(np.all(damping >= 0))  # the field refuses shapes that do not fit
    least = np.linalg.eigvalsh(damping + damping.T).min()
    return bool(least >= -1e-6 * np.abs(damping).max())


class _HamiltonianField(eqx.Module):
    H: Callable[..., Any]
    damping: Float[Array, "..."] | None
    control: Callable[..., Any] | None

    @property
    def separable(self) -> bool | None:
        if self.damping is not None:
            return False
        if self.control is not None:
            return None
        return getattr(self.H, "separable", None)

    def __call__(
        self, t: Any, y: tuple[Any, Any], args: Any = None
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        if type(y) is not tuple or len(y) != 2:
            raise must("y", "be a pair (q, p)", f"a {type(y).__name__}")
        q, p = as_float("y", y[0]), as_float("y", y[1])
        if q.shape != p.shape:
            got = f"of shapes {q.shape} and {p.shape}"
            raise must("y", "be a pair (q, p) of one shape", got)
        (q, p), dtype = widen(q, p)
        slope, velocity = jax.grad(self._scalar, (0, 1))(q, p, args)
        force = -slope
        if self.control is not None:
            push = as_float("control", self.control(t, (q, p), args))
            if push.shape != q.shape:
                rule = f"return a force of shape {q.shape}"
                raise must("control", rule, f"one of shape {push.shape}")
            force = force + push.astype(q.dtype)
        if self.damping is not None:
            force = force - _drag(self.damping, velocity)
        return velocity.astype(dtype), force.astype(dtype)

    def _scalar(self, q, p, args):
        more = () if args is None else (args,)
        value = self.H(q, p, *more)
        if jnp.shape(value) != ():
            got = f"an array of shape {jnp.shape(value)}"
            raise must("H", "return a scalar", got)
        return value


def _drag(damping, velocity):
    """D v, with D acting on the last axis."""
    damping = damping.astype(velocity.dtype)
    d = velocity.shape[-1] if velocity.ndim else None
    if damping.shape == (d,):
        damping = jnp.broadcast_to(damping, velocity.shape)
    elif damping.shape == (d, d):
        return matmul(velocity, damping.T)
    elif damping.ndim:
        rule = f"be a scalar, or of shape ({d},) or ({d}, {d})"
        raise must("damping", rule, f"of shape {damping.shape}")
    return damping * velocity
