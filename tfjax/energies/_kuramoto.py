"""The energy of Kuramoto's oscillators."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, must, widen


def kuramoto_energy(
    theta: Float[ArrayLike, " n"], coupling: Float[ArrayLike, ""] | float = 1.0
) -> Float[Array, ""]:
    r"""The energy that coupled oscillators increase, through their mean field.

    $$F(\theta) = \frac{K}{2 n^2} \sum_{i,j} \cos(\theta_i - \theta_j)
      = \frac{K}{2} \Bigl| \frac1n \sum_j e^{i \theta_j} \Bigr|^2$$

    Kuramoto's field is `omega_i + n dF/dtheta_i`.

    **Arguments:**

    - `theta`: angles in radians, of shape (n,).
    - `coupling`: the strength K of the coupling, a scalar.

    **Returns:** the energy, a scalar in the dtype of `theta`.

    **Raises:** ValueError where shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import kuramoto_energy
        >>> round(float(kuramoto_energy(jnp.array([0.3, 0.3]))), 6)
        0.5

    Source: arXiv 2312.10794, section 7.
    """
    theta = as_float("theta", theta)
    check_shape("theta", theta, 1, "(n,)")
    (theta,), dtype = widen(theta)
    coupling = as_float("coupling", coupling).astype(theta.dtype)
    if coupling.ndim:
        raise must("coupling", "be a scalar", f"of shape {coupling.shape}")
    square = jnp.mean(jnp.cos(theta)) ** 2 + jnp.mean(jnp.sin(theta)) ** 2
    return (0.5 * coupling * square).astype(dtype)
