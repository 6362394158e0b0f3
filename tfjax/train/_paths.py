"""Losses of the paths that tokens take through the layers."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .._core import must, normalize
from ._isometry import rounding, states
from ._sections import one_of


KINDS = ("turning", "menger")


def curvature_loss(
    hidden: Float[ArrayLike, "layers n d"],
    *,
    kind: str = "turning",
    smoothing: float = 0.01,
) -> Float[Array, ""]:
    r"""How much the paths of tokens through the layers bend.

    The mean over tokens and over inner layers of

    $$1 - \cos\theta \quad (\text{turning}) \qquad\text{or}\qquad
      \kappa^2 = \frac{4 \sin^2\theta}{|u + v|^2} \quad (\text{menger})$$

    with u and v the steps before and after a layer, $\theta$ the angle between them
    and $\kappa$ the [`menger_curvature`][tfjax.geometry.menger_curvature] of three
    points in a row. Both are 0 on straight paths.

    `"turning"` is the one to train with. It lies in [0, 2] and has no unit, while
    $\kappa^2$ has that of one over a squared length: it falls when all tokens grow, as
    those of models with norms before the branches may do at no cost, and is unbounded
    where steps are short.

    A token that stays where it is has no direction, and costs nothing; near there each
    term is multiplied by $|u|^2 / (|u|^2 + \epsilon^2 m)$, and the same of v, with m
    the mean square of all steps, so that the loss has a continuous gradient. Hence
    nothing is said about a model whose every second layer does nothing; kinetic energy
    and isometry do. Of three points in a row whose last is the first again
    there is no circle: `"menger"` counts 0 there, although it tends to $4 / |u|^2$.

    **Arguments:**

    - `hidden`: the tokens that enter the first layer, and that leave each layer, of
      shape (layers, n, d).
    - `kind`: `"turning"` or `"menger"`.
    - `smoothing`: $\epsilon$, at least 0: steps much shorter than this share of the
      root mean square one do not count, nor do those within the rounding of the tokens.
      It lowers the loss of a step of mean length by a share of $2 \epsilon^2$. With 0
      the gradient is not bounded at short steps.

    **Returns:** a scalar, in float32 at least; 0 for fewer than three layers.

    **Raises:** ValueError where there are fewer than two layers, or an argument is of
    another kind.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import curvature_loss
        >>> corner = jnp.array([[[0.0, 0.0]], [[1.0, 0.0]], [[1.0, 1.0]]])
        >>> round(float(curvature_loss(corner)), 3)
        1.0

    Source: own.
    """
    one_of("kind", kind, KINDS)
    number = isinstance(smoothing, int | float)
    if not number or not 0 <= smoothing < float("inf"):
        raise must("smoothing", "be at least 0 and finite", repr(smoothing))
    hidden = states("hidden", hidden, 2)
    if len(hidden) < 3:
        return jnp.zeros((), hidden.dtype)
    return jnp.mean(bends(hidden, kind, float(smoothing)))


def bends(
    hidden: Float[Array, "layers n d"], kind: str, smoothing: float
) -> Float[Array, "inner n"]:
    """The terms of [`curvature_loss`][], of every inner layer and token."""
    steps = hidden[1:] - hidden[:-1]
    # In one unit, so that no square underflows; what is left is the same in any.
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(steps)))
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    steps = steps / size
    square = jnp.sum(steps * steps, axis=-1)
    floor = smoothing**2 * jnp.mean(square) + rounding(hidden / size)
    moves = square > 0
    weight = square / jnp.where(moves, square + floor, jnp.ones_like(square))
    both = weight[:-1] * weight[1:]
    direction = normalize(steps)
    apart = jnp.sum((direction[1:] - direction[:-1]) ** 2, axis=-1)
    if kind == "turning":
        return 0.5 * both * apart
    joint = jnp.sum((direction[1:] + direction[:-1]) ** 2, axis=-1)
    across = jnp.sum((steps[1:] + steps[:-1]) ** 2, axis=-1) + floor
    good = across > 0
    sine = both * apart * joint
    found = jnp.where(good, sine / jnp.where(good, across, 1.0), 0.0)
    return found / size**2


def kinetic_loss(hidden: Float[ArrayLike, "layers n d"]) -> Float[Array, ""]:
    r"""The kinetic energy of the tokens' way through the layers: the transport cost.

    $$\int_0^1 \frac1n \sum_i |\dot x_i|^2\, dt \approx
      L \sum_{l=1}^{L} \frac1n \sum_i |x_i^l - x_i^{l-1}|^2$$

    with L layers, each of which takes the time 1/L. Among all ways between given ends
    it is least on straight ones at constant speed, where it is the mean square of the
    way's length.

    **Arguments:**

    - `hidden`: the tokens that enter the first layer, and that leave each layer, of
      shape (L + 1, n, d).

    **Returns:** a scalar, in the square of the unit of the tokens, in float32 at least.

    **Raises:** ValueError where there are fewer than two layers.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import kinetic_loss
        >>> line = jnp.array([[[0.0, 0.0]], [[1.5, 2.0]], [[3.0, 4.0]]])
        >>> float(kinetic_loss(line))
        25.0

    Source: K. Kan, X. Li, S. Osher, OT-Transformer, arXiv 2501.18793, whose penalty it
    is up to a factor.
    """
    return jnp.sum(energies(states("hidden", hidden, 2)))


def energies(hidden: Float[Array, "layers n d"]) -> Float[Array, " steps"]:
    """What each layer adds to [`kinetic_loss`][]."""
    steps = hidden[1:] - hidden[:-1]
    return len(steps) * jnp.mean(jnp.sum(steps * steps, axis=-1), axis=-1)
