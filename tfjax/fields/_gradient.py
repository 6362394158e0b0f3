"""Gradient flows of energies on manifolds."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, must, widen
from ..geometry import AbstractManifold
from ._base import VectorField


def gradient_flow(
    energy: Callable[..., Any], manifold: AbstractManifold, sign: int = 1
) -> VectorField:
    r"""The field along which an energy increases fastest, on a manifold.

    $$\dot x = \pm \operatorname{grad} E(x), \qquad
      \operatorname{grad} E(x) = P_x \nabla E(x)$$

    with P the projection on the tangent space and the gradient of the embedding space.
    It is taken at the projected point. On products of equal manifolds, such as tokens
    of shape (n, d) on `Sphere(d)`, each row is projected alone.

    **Arguments:**

    - `energy`: a scalar function of the state, `energy(x)`. Where the field is called
      with parameters (not None), they are its last argument: `energy(x, args)`. It may
      be an `eqx.Module` with leaves of its own.
    - `manifold`: a manifold of `tfjax.geometry` in whose points the state is given.
    - `sign`: 1 climbs, -1 descends.

    **Returns:** a field `(t, x, args=None) -> dx/dt`, an `eqx.Module`; the velocities
    have the shape and dtype of `x`.

    **Raises:** ValueError where an argument is of another kind, or, by the field, where
    the energy is no scalar or the width of the state does not fit the manifold.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import gradient_flow
        >>> from tfjax.geometry import Sphere
        >>> height = lambda x: x[2]
        >>> climb = gradient_flow(height, Sphere(3))
        >>> climb(0.0, jnp.array([1.0, 0.0, 0.0])).tolist()
        [0.0, 0.0, 1.0]

    Source: arXiv 2312.10794, section 3.3, for the flow of the interaction energy.
    """
    if not callable(energy):
        raise must("energy", "be a scalar function of the state", repr(energy))
    if not isinstance(manifold, AbstractManifold):
        raise must("manifold", "be a manifold of tfjax.geometry", repr(manifold))
    if type(sign) is not int or sign not in (1, -1):
        raise must("sign", "be 1 or -1", repr(sign))
    return _GradientFlow(energy, manifold, int(sign))


class _GradientFlow(eqx.Module):
    energy: Callable[..., Any]
    manifold: AbstractManifold
    sign: int = eqx.field(static=True)

    def __call__(
        self, t: Any, x: Float[ArrayLike, "..."], args: Any = None
    ) -> Float[Array, "..."]:
        (wide,), dtype = widen(as_float("x", x))
        point = self.manifold.project(wide)
        gradient = jax.grad(self._scalar)(point, args)
        return (self.sign * self.manifold.tangent(point, gradient)).astype(dtype)

    def _scalar(self, x, args):
        value = self.energy(x) if args is None else self.energy(x, args)
        if jnp.shape(value) != ():
            rule = "return a scalar"
            raise must("energy", rule, f"an array of shape {jnp.shape(value)}")
        return value
