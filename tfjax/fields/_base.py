"""What a vector field is."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float


@runtime_checkable
class VectorField(Protocol):
    """A right-hand side: a pure function `(t, x, args) -> dx/dt`.

    `t` is a scalar time, `x` the state of one set of particles and `args` a PyTree of
    parameters; the velocity has the shape and dtype of the state. Particle fields take
    `x` of shape (n, d). Batches are made with `jax.vmap` or `tfjax.solve_ensemble`.
    """

    def __call__(self, t: Float[Array, ""] | float, x: Any, args: Any, /) -> Any: ...
