"""The curvature of the circle through three points."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .._core import as_float, must, normalize, safe_norm, widen


def menger_curvature(
    a: Float[ArrayLike, "*batch d"],
    b: Float[ArrayLike, "*batch d"],
    c: Float[ArrayLike, "*batch d"],
) -> Float[Array, "*batch"]:
    r"""One over the radius of the circle through three points: Menger's curvature.

    $$\kappa = \frac{4 \cdot \mathrm{area}}{|a - b|\, |b - c|\, |c - a|}
    = \frac{2 \sin\theta}{\ell}$$

    with $\theta$ the angle opposite the longest side $\ell$. Of points on a curve, h
    apart, it is the curvature of the curve up to O(h^2).

    The sine is $|u - v| |u + v| / 2$ of the unit vectors along the other two sides,
    which cancels nothing: no square root of a difference of squares is taken.

    **Arguments:**

    - `a`, `b`, `c`: points of shape (..., d), in any order.

    **Returns:**

    Curvatures, of shape (...), in one over the unit of the points: 0 where the points
    lie on a line. Where two of them coincide there is no circle; it is 0 then too, with
    gradient 0.

    **Raises:** ValueError where the points are not of one shape (..., d).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import menger_curvature
        >>> circle = lambda t: 2 * jnp.array([jnp.cos(t), jnp.sin(t)])
        >>> round(float(menger_curvature(circle(0.1), circle(0.5), circle(2.0))), 4)
        0.5

    Source: J. C. Leger, Menger curvature and rectifiability, Annals of Mathematics 149
    (1999).
    """
    a, b, c = as_float("a", a), as_float("b", b), as_float("c", c)
    if not a.ndim or not a.shape[-1]:
        raise must("a", "have shape (..., d)", f"of shape {a.shape}")
    for name, point in (("b", b), ("c", c)):
        if point.shape != a.shape:
            raise must(name, f"have shape {a.shape}, as `a`", f"of shape {point.shape}")
    (a, b, c), dtype = widen(a, b, c)
    sides = jnp.stack([c - b, a - c, b - a])  # opposite a, b, c
    lengths = safe_norm(sides)
    # Turned so that the longest side comes first: the angle opposite to it is the one
    # whose sides are best known.
    first = jnp.argmax(lengths, axis=0)
    turned = [(first + k) % 3 for k in range(3)]
    pick = lambda k: jnp.take_along_axis(sides, turned[k][None, ..., None], axis=0)[0]
    longest, u, v = safe_norm(pick(0)), normalize(pick(1)), normalize(pick(2))
    apart = jnp.all(lengths > 0, axis=0)
    safe = jnp.where(apart, longest, jnp.ones_like(longest))
    curvature = safe_norm(u - v) * safe_norm(u + v) / safe
    return jnp.where(apart, curvature, jnp.zeros_like(curvature)).astype(dtype)
