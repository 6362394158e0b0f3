"""Riesz's energies: points that repel each other by a power of their distance."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import (
    as_float,
    check_shape,
    is_concrete,
    must,
    require,
    safe_norm,
    widen,
)


def riesz_energy(
    x: Float[ArrayLike, "n d"], s: Float[ArrayLike, ""] | float
) -> Float[Array, ""]:
    r"""Riesz's energy of points that repel each other, summed over all pairs.

    $$E_s(x) = \sum_{i < j} |x_i - x_j|^{-s}, \qquad
      E_0(x) = -\sum_{i < j} \log |x_i - x_j|$$

    On the sphere of R^3, s = 1 is Thomson's problem, the energy of electrons. The
    logarithmic energy of s = 0 is the derivative of $E_s$ in s there, not its limit.

    Where two points coincide, the energy is infinite and has no gradient: that which is
    returned is finite, of the other pairs alone.

    **Arguments:**

    - `x`: points, of shape (n, d). One alone has energy 0.
    - `s`: the exponent, a scalar, not negative.

    **Returns:** the energy, a scalar in the dtype of `x`; inf where it leaves that.

    **Raises:** ValueError where shapes do not fit, where `x` is not finite, or where s
    is negative or not finite; under jit the last is a run-time error.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import riesz_energy
        >>> square = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> round(float(riesz_energy(square, 1.0)), 5)  # 1 + 2 sqrt(2)
        3.82843

    Source: D. Hardin, E. Saff, *Discretizing manifolds via minimum energy points*,
    Notices of the AMS 51 (2004), whose sum is over ordered pairs: twice this one.
    """
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    if is_concrete(x):
        require(x, jnp.isfinite(x), "x", "be finite")
    (x,), dtype = widen(x)
    s = as_float("s", s).astype(x.dtype)
    if s.ndim:
        raise must("s", "be a scalar", f"of shape {s.shape}")
    s = require(s, (s >= 0) & jnp.isfinite(s), "s", "be finite and not negative")
    i, j = np.triu_indices(x.shape[0], 1)
    r = safe_norm(x[i] - x[j])

    def repulsion(r):
        return jnp.where(s == 0, -jnp.log(r), r**-s)

    # Nearer than this, the force s / r^(s + 1) leaves the dtype.
    nearest = jnp.exp(-jnp.log(jnp.finfo(r.dtype).max / (s + 1)) / (s + 1))
    near = r <= nearest
    apart = repulsion(jnp.where(near, 1.0, r))
    terms = jnp.where(near, jax.lax.stop_gradient(repulsion(r)), apart)
    return jnp.sum(terms).astype(dtype)
