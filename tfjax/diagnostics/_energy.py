"""The energy along a trajectory."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, is_concrete, require
from ..energies import interaction_energy


def energy_along(
    xs: Float[ArrayLike, "t n d"],
    beta: Float[ArrayLike, ""] | float,
    *,
    bilinear: Float[ArrayLike, "d d"] | None = None,
    centred: bool = False,
) -> Float[Array, " t"]:
    r"""The interaction energy at every time of a trajectory.

    **Arguments:**

    - `xs`: tokens, of shape (t, n, d).
    - `beta`, `bilinear`, `centred`: as for `tfjax.energies.interaction_energy`.

    **Returns:** the energies, of shape (t,). Along SA and USA with symmetric V = B
    they never decrease, with V = -B they never increase.

    **Raises:** as `tfjax.energies.interaction_energy`; what depends on the value of
    `beta` is a run-time error here.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import energy_along
        >>> energy_along(jnp.stack([jnp.eye(2), jnp.ones((2, 2))]), 1.0).shape
        (2,)

    Source: arXiv 2312.10794, equation (3.6) and lemma 3.7.
    """
    xs = as_float("xs", xs)
    check_shape("xs", xs, 3, "(t, n, d)")
    beta = as_float("beta", beta)
    if is_concrete(xs):
        xs = require(xs, jnp.isfinite(xs), "xs", "be finite")
    if bilinear is not None:
        bilinear = as_float("bilinear", bilinear)
    return _along(xs, beta, bilinear, centred)


@eqx.filter_jit
def _along(xs, beta, bilinear, centred):
    def energy(x):
        return interaction_energy(x, beta, bilinear=bilinear, centred=centred)

    return jax.lax.map(energy, xs)
