"""How aligned tokens are: the order parameter of synchronisation."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, must, safe_norm, widen


def order_parameter(
    theta: Float[ArrayLike, " n"] | Float[ArrayLike, "n d"],
) -> Float[Array, ""]:
    r"""The length of the mean direction: 1 if all agree, 0 if they balance.

    $$R = \Bigl| \frac1n \sum_j e^{i \theta_j} \Bigr|
      \quad \text{or} \quad R = \Bigl| \frac1n \sum_j x_j \Bigr|$$

    **Arguments:**

    - `theta`: angles in radians, of shape (n,), or points on the unit sphere, of shape
      (n, d).

    **Returns:** R in [0, 1], a scalar; its gradient at R = 0 is 0.

    **Raises:** ValueError where the shape is another.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import order_parameter
        >>> round(float(order_parameter(jnp.array([jnp.pi - 0.1, 0.1 - jnp.pi]))), 6)
        0.995004

    Source: Y. Kuramoto (1975); arXiv 2312.10794, section 7.
    """
    mean, dtype = _mean_direction(theta)
    return safe_norm(mean).astype(dtype)


def mean_phase(theta: Float[ArrayLike, " n"]) -> Float[Array, ""]:
    r"""The angle of the mean direction, `arg(1/n sum_j exp(i theta_j))`.

    **Arguments:**

    - `theta`: angles in radians, of shape (n,).

    **Returns:** an angle in (-pi, pi], in radians; 0 where the angles balance.

    **Raises:** ValueError where the shape is another.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import mean_phase
        >>> round(float(abs(mean_phase(jnp.array([jnp.pi - 0.1, 0.1 - jnp.pi])))), 5)
        3.14159

    Source: Y. Kuramoto (1975).
    """
    if jnp.ndim(theta) != 1:
        raise must("theta", "have shape (n,)", f"of shape {jnp.shape(theta)}")
    mean, dtype = _mean_direction(theta)
    balanced = jnp.all(mean == 0)
    x = jnp.where(balanced, 1.0, mean[0])
    return jnp.arctan2(jnp.where(balanced, 0.0, mean[1]), x).astype(dtype)


def _mean_direction(theta):
    theta = as_float("theta", theta)
    if theta.ndim not in (1, 2) or 0 in theta.shape:
        rule = "have shape (n,) or (n, d), with no axis of length 0"
        raise must("theta", rule, f"of shape {theta.shape}")
    (theta,), dtype = widen(theta)
    if theta.ndim == 1:
        theta = jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=1)
    return jnp.mean(theta, axis=0), dtype
