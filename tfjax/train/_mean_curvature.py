"""The extrinsic curvature of what a layer makes, as a loss that never raises."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from .._core import as_float, count, widen
from ._isometry import positive


def mean_curvature_loss(
    layer: Callable[[Array], Array],
    x: Float[ArrayLike, "..."],
    *,
    key: Key[Array, ""],
    probes: int = 4,
    iterations: int = 10,
    damping: float = 1e-4,
) -> Float[Array, ""]:
    r"""The squared mean curvature of the image of a map, $|H|^2 / m^2$.

    $$H = (1 - J J^+)\, E\, \partial^2 f[J^+ u, J^+ u], \qquad m = E\, |J J^+ u|^2$$

    over vectors u of random signs. The image of dimension m may be all that the map
    reaches (J of full rank) or less. On a sphere of any dimension and radius r it is
    $1/r^2$, whatever the key; on a flat image, however it is stretched, H is 0. A map
    onto a space of the same dimension has no normal, and H = 0 wherever J has full
    rank, so that it says something of charts, of a few coordinates into many, and of
    layers that end in a norm, but nothing of a residual layer as it is.

    $J^+ u$ is found by a fixed number of conjugate gradient iterations for
    $(J^\top J + \delta)\, w = J^\top u$, with $\delta$ a small share of the mean
    squared singular value: directions that the map all but forgets are damped, and
    nothing is raised where there are any. What damping leaves grows with the condition
    of J, and with it zeros are none: layers whose largest singular value is hundreds of
    times the smallest, as those of trained Transformers, need float64, a smaller
    damping and more iterations. With p probes and k iterations it takes about
    $2 p (k + 2)$ forward and as many reverse derivatives, and three times that for its
    gradient: hence it is no part of [`geometric_loss`][].

    **Arguments:**

    - `layer`: a map of arrays of any shape, such as tokens (n, d).
    - `x`: where.
    - `key`: a random key.
    - `probes`: the number of vectors u. Where curvature depends on the direction, the
      estimate is too large by O(1/probes).
    - `iterations`: of conjugate gradients; as many as J has different singular values
      are exact.
    - `damping`: $\delta$ over the mean eigenvalue of $J^\top J$, positive.

    **Returns:** a scalar, in one over the square of the unit of the image, in float32
    at least; 0 for a constant map.

    **Raises:** ValueError where `probes` or `iterations` is not a positive integer, or
    the damping not positive.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.train import mean_curvature_loss
        >>> sphere = lambda x: 2 * x / jnp.linalg.norm(x)
        >>> x, key = jnp.array([1.0, 2.0, 2.0]), jax.random.key(0)
        >>> round(float(mean_curvature_loss(sphere, x, key=key)), 4)
        0.25

    Source: own.
    """
    (x,), _ = widen(as_float("x", x))
    many, rounds = count("probes", probes), count("iterations", iterations)
    share = positive("damping", damping)
    image, pull = jax.vjp(layer, x)
    push = lambda x, v: jax.jvp(layer, (x,), (v,))[1]
    signs = jax.random.rademacher(key, (many, *image.shape), image.dtype)
    pulled = jax.vmap(lambda u: pull(u)[0])(signs)
    floor = share * jnp.mean(pulled**2)

    def inverse(b):
        """J^+ of what b was pulled from."""
        return _solve(lambda w: pull(push(x, w))[0] + floor * w, b, rounds)

    def bend(b):
        w = inverse(b)
        along, second = jax.jvp(lambda y: push(y, w), (x,), (w,))
        return along, second

    along, second = jax.vmap(bend)(pulled)
    second = jnp.mean(second, axis=0)
    normal = second - push(x, inverse(pull(second)[0]))
    # E |J J^+ u|^2 is the trace of a projection.
    dimension = jnp.sum(along**2) / many
    reached = dimension > 0
    safe = jnp.where(reached, dimension, jnp.ones_like(dimension))
    found = jnp.sum((normal / safe) ** 2)
    return jnp.where(reached, found, jnp.zeros_like(found))


def _solve(apply, b, rounds):
    """So many iterations of conjugate gradients, which stand still once they are there.

    What is left then is rounding, whose quotients have no derivative worth having.
    """
    inner = lambda u, v: jnp.sum(u * v)
    # In a unit of its own: b may be rounding alone, whose squares would underflow.
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(b)))
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    b = b / size
    first = inner(b, b)
    least = jnp.finfo(b.dtype).eps ** 2 * first

    def step(carry, _):
        w, r, p, square = carry
        image = apply(p)
        bend = inner(p, image)
        going = (square > least) & (bend > 0)
        safe = lambda a: jnp.where(going, a, jnp.ones_like(a))
        rate = jnp.where(going, square / safe(bend), jnp.zeros_like(bend))
        w, r = w + rate * p, r - rate * image
        new = inner(r, r)
        turn = jnp.where(going, new / safe(square), jnp.zeros_like(new))
        return (w, r, r + turn * p, new), None

    start = jnp.zeros_like(b), b, b, first
    return size * jax.lax.scan(step, start, length=rounds)[0][0]
