"""Losses of maps and of layers that are 0 where distances are kept."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from .._core import as_float, check_shape, matmul, must, normalize, widen
from ..geometry import PullbackMoments, pullback_moments


Tangent = Callable[[Array, Array], Array]


def isometry_loss(
    hidden: Float[ArrayLike, "layers n d"],
    *,
    scale_free: bool = False,
    smoothing: float = 0.01,
) -> Float[Array, ""]:
    r"""How far layers are from keeping the distances between tokens.

    The mean over consecutive layers and over pairs of tokens of $r_{ij}^2$, with

    $$r_{ij} = \tfrac12 \log \frac{d_{ij}'^2 + \epsilon^2 m}{d_{ij}^2 + \epsilon^2 m}$$

    of the distances d before a layer and d' after it, and m the mean of $d^2$. It is 0
    where a layer is a rotation, a reflection or a shift of all tokens together, and the
    same for tokens in another unit.

    Collapse costs without a bound but for the smoothing: $\log^2 c$ for tokens that
    shrink by c, and about $\log^2 \epsilon$ where they come to lie in one point, for
    each layer that does so. A pair that already coincides before a layer, such as the
    same letter without its position, has no ratio: pairs have the weight
    $d^2 / (d^2 + \epsilon^2 m)$, and layers whose tokens all coincide before them
    cost 0.

    **Arguments:**

    - `hidden`: the tokens that enter the first layer, and that leave each layer, of
      shape (layers, n, d), such as a model's `hidden_states`.
    - `scale_free`: take the variance of $r_{ij}$ over the pairs of a layer, so that
      a change of scale is free. So is collapse by a mere change of scale, up to the
      point, which counts 0; collapse onto a line or into clusters costs as before. The
      unit of $\epsilon$ is then each layer's own m.
    - `smoothing`: $\epsilon$, positive: distances much shorter than this share of the
      root mean square one are not told apart, nor are any shorter than the rounding of
      the tokens.

    **Returns:** a scalar, at least 0, in float32 at least; 0 for one token.

    **Raises:** ValueError where there are fewer than two layers, or the smoothing is
    not positive.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.train import isometry_loss
        >>> x = jax.random.normal(jax.random.key(0), (5, 2))
        >>> turned, halved = x[:, ::-1] + 1, 0.5 * x
        >>> [bool(isometry_loss(jnp.stack([x, y])) < 1e-9) for y in (turned, halved)]
        [True, False]

    Source: own.
    """
    hidden = states("hidden", hidden, 2)
    smooth = positive("smoothing", smoothing)
    return jnp.mean(pair_distortions(hidden, scale_free, smooth))


def pair_distortions(
    hidden: Float[Array, "layers n d"], scale_free: bool, smoothing: float
) -> Float[Array, " steps"]:
    """[`isometry_loss`][] of every layer alone."""

    def one(before, after):
        # In one unit, so that no square underflows; the loss is the same in any.
        size = jax.lax.stop_gradient(jnp.max(jnp.abs(before - before[:1])))
        size = jnp.where(size > 0, size, jnp.ones_like(size))
        before, after = before / size, after / size
        s, later = squared_distances(before), squared_distances(after)
        pairs = ~jnp.eye(len(before), dtype=bool)
        mean = lambda a: jnp.sum(a) / max(a.size - len(a), 1)
        floor = smoothing**2 * mean(s) + rounding(before)
        above = smoothing**2 * mean(later) + rounding(after)
        top = later + (above if scale_free else floor)
        bottom = s + floor
        told = pairs & (bottom > 0) & (top > 0)
        safe = lambda a: jnp.where(told, a, jnp.ones_like(a))
        weight = jnp.where(told, s, jnp.zeros_like(s)) / safe(bottom)
        total = jnp.sum(weight)
        share = weight / jnp.where(total > 0, total, jnp.ones_like(total))
        ratio = 0.5 * (jnp.log(safe(top)) - jnp.log(safe(bottom)))
        if scale_free:
            ratio = ratio - jnp.sum(share * ratio)
        return jnp.sum(share * ratio**2)

    return jax.vmap(one)(hidden[:-1], hidden[1:])


def rounding(x: Float[Array, "..."]) -> Float[Array, ""]:
    """The square of a distance that means nothing between tokens of such entries."""
    unit = 8 * jnp.finfo(x.dtype).eps
    return jax.lax.stop_gradient(unit**2 * jnp.mean(jnp.sum(x * x, axis=-1)))


def squared_distances(x: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """Between all tokens, by one product of matrices, exactly 0 on the diagonal."""
    x = x - jnp.mean(x, axis=0, keepdims=True)
    gram = matmul(x, x.T)
    square = jnp.diagonal(gram)
    return jnp.maximum(square[:, None] + square[None, :] - 2 * gram, 0)


def pullback_isometry_loss(
    layer: Callable[[Array], Array],
    x: Float[ArrayLike, "n d"],
    *,
    key: Key[Array, ""],
    probes: int = 4,
    tangent: Tangent | None = None,
) -> Float[Array, ""]:
    r"""How far a layer is from stretching all directions by one factor.

    $$\frac{N\, E|G v|^2}{(E\, v^\top G v)^2} - 1
      = \frac{N\, \mathrm{tr}\, G^2}{(\mathrm{tr}\, G)^2} - 1$$

    with $G = J^\top J$ of the layer's Jacobian J, as a map of all $N = n d$ numbers
    together, and v of random signs. It is 0 if and only if the layer keeps all lengths
    and angles to first order, up to one factor, which is free. A layer of rank r costs
    at least $N / r - 1$, with equality where the r directions that it keeps are
    stretched alike; the most is $N - 1$. The zero map, which has no factor, counts
    $N - 1$ too, with gradient 0.

    $E|G v|^2$ and $E\, v^\top G v$ are estimated without bias, from the same v; the
    ratio has a bias of O(1/probes), and no error where G is diagonal, as at an
    isometry, whatever the key.

    **Arguments:**

    - `layer`: a function of tokens (n, d) that returns tokens.
    - `x`: where, of shape (n, d).
    - `key`: a random key.
    - `probes`: the number of vectors v. Each takes one forward and one reverse
      derivative of the layer.
    - `tangent`: a function (x, v) that projects v orthogonally onto the directions
      in which tokens x can differ, such as `Sphere(d).tangent` or
      [`layer_norm_tangent`][]; then $G$ becomes $P G P$ and N the trace of P, estimated
      with the same v, so that an isometry of these directions gives 0 whatever the key.
      Of tokens after LayerNorm, None counts two directions of each as collapsed: a
      layer costs $d / (d - 2) - 1$ at least.

    **Returns:** a scalar, at least 0 up to the error of the estimates, in float32 at
    least.

    **Raises:** ValueError where `x` has not two axes, or `probes` is not a positive
    integer.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.train import pullback_isometry_loss
        >>> x, key = jnp.ones((3, 2)), jax.random.key(0)
        >>> scaled, flat = lambda x: 3 * x, lambda x: x * jnp.array([[1.0, 0.0]])
        >>> [float(pullback_isometry_loss(f, x, key=key)) for f in (scaled, flat)]
        [0.0, 1.0]

    Source: Y. Lee et al., Regularized autoencoders for isometric representation
    learning, ICLR 2022, section 3, of the joint map of all tokens.
    """
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    (x,), _ = widen(x)
    return distortion(layer, x, key, probes, tangent)


def distortion(
    layer: Callable[[Array], Array],
    x: Float[Array, "n d"],
    key: Key[Array, ""],
    probes: int,
    tangent: Tangent | None,
) -> Float[Array, ""]:
    """[`pullback_isometry_loss`][] of checked tokens."""
    moments = restricted_moments(layer, x, key, probes, tangent)
    size = jnp.asarray(x.size, x.dtype)
    if tangent is not None:
        # Of the same vectors: its error is theirs, and cancels at an isometry.
        size = restricted_moments(lambda x: x, x, key, probes, tangent).trace
    good = moments.trace > 0
    trace = jnp.where(good, moments.trace, jnp.ones_like(moments.trace))
    # Divided twice: the square of the trace might not fit into the dtype.
    found = size * (moments.square / trace / trace) - 1
    return jnp.where(good, found, jax.lax.stop_gradient(size) - 1)


def restricted_moments(
    layer: Callable[[Array], Array],
    x: Float[Array, "n d"],
    key: Key[Array, ""],
    probes: int,
    tangent: Tangent | None,
) -> PullbackMoments:
    """Estimates of tr G and tr G^2, of G between projections if there are any."""
    if tangent is None:
        return pullback_moments(layer, x, key=key, probes=probes)
    # The pullback metric of w -> f(x + P w) at 0 is P G P.
    along = lambda w: layer(x + tangent(x, w))
    return pullback_moments(along, jnp.zeros_like(x), key=key, probes=probes)


def layer_norm_tangent(
    x: Float[ArrayLike, "*batch d"],
    v: Float[ArrayLike, "*batch d"],
    scale: Float[ArrayLike, " d"] | None = None,
) -> Float[Array, "*batch d"]:
    r"""The part of v along which tokens can move that LayerNorm has made.

    LayerNorm puts tokens y on a sphere across the vector of ones, and a learned scale s
    makes $x = s y$ of it: an ellipsoid. Its normals at x are $1/s$ and $x/s^2$, which
    are taken out of v.

    **Arguments:**

    - `x`: tokens after LayerNorm, of shape (..., d).
    - `v`: vectors of that shape.
    - `scale`: s, of shape (d,); None is 1. Zeros are taken for very small scales.

    **Returns:** the projections, of the shape of v: two dimensions fewer.

    **Raises:** ValueError where shapes do not fit, or d is less than 3.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.train import layer_norm_tangent
        >>> x, v = jnp.array([1.0, -1.0, 0.0]), jnp.array([2.0, 2.0, -1.0])
        >>> [round(float(y), 4) for y in layer_norm_tangent(x, v)]
        [1.0, 1.0, -2.0]

    Source: own.
    """
    x, v = as_float("x", x), as_float("v", v)
    if not x.ndim or x.shape[-1] < 3:
        rule = "have shape (..., d), d at least 3"
        raise must("x", rule, f"of shape {x.shape}")
    if v.shape != x.shape:
        raise must("v", f"have shape {x.shape}, as `x`", f"of shape {v.shape}")
    d = x.shape[-1]
    s = jnp.ones(d, x.dtype) if scale is None else as_float("scale", scale)
    if s.shape != (d,):
        raise must("scale", f"have shape ({d},)", f"of shape {s.shape}")
    (x, v, s), dtype = widen(x, v, s.astype(x.dtype))
    # Normals matter up to a factor: in units of the smallest scale none overflows.
    size = jnp.abs(s)
    least = jnp.maximum(size, 1e-3 * jnp.max(size))
    least = jnp.where(least > 0, least, jnp.ones_like(least))
    inverse = jnp.where(s < 0, -1 / least, 1 / least).reshape(
        (1,) * (x.ndim - 1) + (d,)
    )
    for normal in _orthonormal(jnp.broadcast_to(inverse, x.shape), x * inverse**2):
        v = v - jnp.sum(normal * v, axis=-1, keepdims=True) * normal
    return v.astype(dtype)


def _orthonormal(a, b):
    a = normalize(a)
    return a, normalize(b - jnp.sum(a * b, axis=-1, keepdims=True) * a)


def distance_variance(
    a: Float[ArrayLike, "*batch n d"], b: Float[ArrayLike, "*batch n d"]
) -> Float[Array, ""]:
    r"""The variance of all distances $|a_i - b_j|$: an example of a bad loss.

    As `distance_variance(hidden[:-1], hidden[1:])` it has been proposed to keep layers
    close to isometries. It does not: its least value, 0, is reached where all tokens of
    all layers coincide, while rotations, which are isometries, cost as much as tokens
    that have nothing to do with each other. Whoever minimises it rewards collapse; use
    [`isometry_loss`][] or [`pullback_isometry_loss`][].

    **Arguments:**

    - `a`, `b`: tokens of shape (..., n, d).

    **Returns:** a scalar, in the square of the unit of the tokens.

    **Raises:** ValueError where shapes do not fit.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.train import distance_variance
        >>> x = jax.random.normal(jax.random.key(0), (8, 2))
        >>> same = jnp.ones((8, 2))
        >>> float(distance_variance(same, same)), bool(distance_variance(x, -x) > 0.5)
        (0.0, True)

    Source: own.
    """
    a, b = as_float("a", a), as_float("b", b)
    if a.ndim < 2:
        raise must("a", "have shape (..., n, d)", f"of shape {a.shape}")
    if b.shape != a.shape:
        raise must("b", f"have shape {a.shape}, as `a`", f"of shape {b.shape}")
    (a, b), dtype = widen(a, b)
    square = jnp.sum((a[..., :, None, :] - b[..., None, :, :]) ** 2, axis=-1)
    apart = square > 0
    distance = jnp.sqrt(jnp.where(apart, square, jnp.ones_like(square)))
    return jnp.var(jnp.where(apart, distance, jnp.zeros_like(square))).astype(dtype)


def states(name: str, hidden: ArrayLike, least: int) -> Float[Array, "layers n d"]:
    """The tokens of at least so many layers, in float32 at least."""
    array = as_float(name, hidden)
    check_shape(name, array, 3, "(layers, n, d)")
    if array.shape[0] < least:
        rule = f"have shape (layers, n, d) with at least {least} layers"
        raise must(name, rule, f"of shape {array.shape}")
    return widen(array)[0][0]


def positive(name: str, value: float) -> float:
    """A positive number."""
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise must(name, "be positive and finite", repr(value))
    return float(value)
