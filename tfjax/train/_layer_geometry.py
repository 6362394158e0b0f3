"""What every layer does to the geometry of the tokens, as numbers to watch."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from .._core import count, matmul, normalize, safe_norm, widen
from ..geometry import menger_curvature
from ._geometric_loss import SMOOTHING, distortions, sequences_of
from ._isometry import pair_distortions
from ._layer_maps import layer_maps
from ._paths import bends, energies


class LayerGeometry(NamedTuple):
    """What [`layer_geometry`][] returns: for every layer, means over sequences.

    - `isometry`: [`pullback_isometry_loss`][] of the layer; on the tangent spaces where
      tokens are normalised.
    - `pairs`: [`isometry_loss`][] from before the layer to after it.
    - `turning`: `1 - cos` of the turn that tokens take between the layer before and
      this one; 0 for the first.
    - `menger`: the curvature of the circle through the tokens before, between and after
      these two layers; 0 for the first.
    - `kinetic`: the layer's part of [`kinetic_loss`][].
    - `norm`: the mean length of the tokens that leave the layer.
    - `cosine`: the mean cosine between two of them: 1 where all have one direction.
    - `rank`: over how many directions they are spread, `(tr K)^2 / tr K^2` of their
      inner products K, from 1 to the lesser of n and d; 0 where all are 0.
    """

    isometry: Float[Array, " layers"]
    pairs: Float[Array, " layers"]
    turning: Float[Array, " layers"]
    menger: Float[Array, " layers"]
    kinetic: Float[Array, " layers"]
    norm: Float[Array, " layers"]
    cosine: Float[Array, " layers"]
    rank: Float[Array, " layers"]

    def to_dict(self) -> dict[str, list[float]]:
        """Lists by name, as JSON has them and [`fit`][] takes them."""
        return {name: array.tolist() for name, array in self._asdict().items()}


def layer_geometry(
    model: Any,
    inputs: Shaped[Array, "..."],
    *,
    key: Key[Array, ""],
    probes: int = 4,
) -> LayerGeometry:
    """The geometry of every layer of a model, on given sequences, without dropout.

    **Arguments:**

    - `model`: a [`Transformer`][tfjax.nn.Transformer], or a
      [`ContinuousTransformer`][tfjax.nn.ContinuousTransformer] of equal steps, whose
      layers go from knot to knot.
    - `inputs`: sequences, as the model takes them. The derivatives take as long as some
      dozens of steps of training on so many; a few will do.
    - `key`: a random key, for the probes.
    - `probes`: as in [`pullback_isometry_loss`][].

    **Returns:** a [`LayerGeometry`][], in float32 at least.

    **Raises:** ValueError where the model has no layers to differentiate, or the inputs
    do not fit.

    !!! example

        >>> import jax
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import layer_geometry
        >>> config = TransformerConfig(vocabulary=9, layers=2, heads=1, head_dim=8)
        >>> model, key = Transformer(config, key=jax.random.key(0)), jax.random.key(1)
        >>> found = layer_geometry(model, jax.numpy.arange(6), key=key)
        >>> found.rank.shape, sorted(found.to_dict())[:2]
        ((2,), ['cosine', 'isometry'])

    Source: own.
    """
    return _measured(model, sequences_of(inputs), key, count("probes", probes))


@eqx.filter_jit
def _measured(model, rows, key, probes):
    maps = layer_maps(model)
    hidden = jnp.moveaxis(widen(model.hidden_states(rows))[0][0], 1, 0)
    chosen = jnp.arange(hidden.shape[1] - 1)
    isometry = jnp.mean(distortions(maps, hidden, chosen, key, probes), axis=1)

    def of_sequence(h):
        start = jnp.zeros(1, h.dtype)
        turns = jnp.mean(bends(h, "turning", SMOOTHING), axis=-1)
        circles = jnp.mean(menger_curvature(h[:-2], h[1:-1], h[2:]), axis=-1)
        return (
            pair_distortions(h, False, SMOOTHING),
            jnp.concatenate([start, turns]),
            jnp.concatenate([start, circles]),
            energies(h),
            *jax.vmap(_spread)(h[1:]),
        )

    each = jax.lax.map(of_sequence, hidden)
    means = [jnp.mean(array, axis=0) for array in each]
    return LayerGeometry(isometry, *means)


def _spread(x: Float[Array, "n d"]) -> tuple[Array, Array, Array]:
    """Mean length, mean cosine of two tokens, and participation ratio."""
    n, unit = len(x), normalize(x)
    cosines = matmul(unit, unit.T)
    cosine = (jnp.sum(cosines) - jnp.trace(cosines)) / max(n * (n - 1), 1)
    size = jnp.max(jnp.abs(x))
    scaled = x / jnp.where(size > 0, size, jnp.ones_like(size))
    gram = matmul(scaled, scaled.T)
    square = jnp.sum(gram * gram)
    safe = jnp.where(square > 0, square, jnp.ones_like(square))
    return jnp.mean(safe_norm(x)), cosine, jnp.trace(gram) ** 2 / safe
