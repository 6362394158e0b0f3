"""The loss of a task with geometric terms: L + l1 isometry + l2 curvature + ..."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import count, is_concrete, must, widen
from ._isometry import distortion, pair_distortions
from ._layer_maps import LayerMaps, layer_maps
from ._paths import KINDS, bends, energies
from ._sections import one_of
from ._step import Loss


FORMS = ("pullback", "pairs")
# As of `isometry_loss` and `curvature_loss`.
SMOOTHING = 0.01


def geometric_loss(
    loss: Loss,
    *,
    isometry: float | Float[Array, ""] = 0.0,
    curvature: float | Float[Array, ""] = 0.0,
    kinetic: float | Float[Array, ""] = 0.0,
    form: str = "pullback",
    kind: str = "turning",
    probes: int = 4,
    sequences: int | None = 1,
    layers: int | None = 1,
    every: int = 1,
    inputs: Callable[[Any], Any] | None = None,
) -> Loss:
    r"""A loss with terms for the geometry of the layers, for [`make_step`][].

    $$L = L_\mathrm{task} + \lambda_1 L_\mathrm{isometry} + \lambda_2
      L_\mathrm{curvature} + \lambda_3 L_\mathrm{kinetic}$$

    Each term is the mean over the sequences of a batch; that of isometry is one over
    layers too. They are estimated from a few sequences and layers, drawn uniformly for
    each step, so that value and gradient have the expectation of the full ones. What
    the terms see drops nothing; the loss of the task draws what it draws without them.

    **Arguments:**

    - `loss`: of the task, such as [`language_loss`][] or [`classification_loss`][].
    - `isometry`, `curvature`, `kinetic`: the factors, at least 0; traced ones are not
      checked. Where all are 0 the loss comes back as it is.
    - `form`: of isometry. `"pullback"` is [`pullback_isometry_loss`][] of the layers,
      on the tangent spaces where tokens are normalised (`norm` `"post"` or `"ngpt"`);
      it needs a [`Transformer`][tfjax.nn.Transformer] or a
      [`ContinuousTransformer`][tfjax.nn.ContinuousTransformer] of equal steps, whose
      layers go from knot to knot. `"pairs"` is [`isometry_loss`][], for any model with
      `hidden_states`.
    - `kind`: of curvature, as in [`curvature_loss`][].
    - `probes`: as in [`pullback_isometry_loss`][].
    - `sequences`, `layers`: how many are drawn; None, or more than there are, takes
      all. `layers` is for isometry: the other terms cost next to nothing, and see all.
    - `every`: the terms are computed in one step out of so many, at random, and count
      as many times.
    - `inputs`: what the model takes of a batch. None is the first of a pair, or of
      sequences of tokens all but the last.

    **Returns:** a function `(model, batch, key) -> scalar`. With None as the key, to
    evaluate, it is the loss of the task.

    **Raises:** ValueError where an argument is of another kind; when called, where the
    model has no layers to differentiate.

    !!! example

        >>> import jax
        >>> from tfjax.nn import Transformer, TransformerConfig
        >>> from tfjax.train import geometric_loss, language_loss
        >>> config = TransformerConfig(vocabulary=9, layers=2, heads=1, head_dim=8)
        >>> model, key = Transformer(config, key=jax.random.key(0)), jax.random.key(1)
        >>> tokens = jax.random.randint(key, (3, 5), 0, 9)
        >>> loss = geometric_loss(language_loss, isometry=0.1, curvature=0.1)
        >>> bool(loss(model, tokens, key) > language_loss(model, tokens, key))
        True

    Source: own.
    """
    factors = {"isometry": isometry, "curvature": curvature, "kinetic": kinetic}
    for name, value in factors.items():
        if isinstance(value, str | None):
            raise must(name, "be a number", repr(value))
        if is_concrete(value) and not 0 <= value < float("inf"):
            raise must(name, "be at least 0 and finite", repr(value))
    one_of("form", form, FORMS)
    one_of("kind", kind, KINDS)
    count("probes", probes)
    often = count("every", every)
    for name, value in (("sequences", sequences), ("layers", layers)):
        if value is not None:
            count(name, value)
    used = {name for name, v in factors.items() if not is_concrete(v) or v}
    if not used:
        return loss
    pullback = "isometry" in used and form == "pullback"

    def terms(model, rows, key):
        """The mean of the terms over some sequences."""
        skey, lkey, pkey = jax.random.split(key, 3)
        rows = rows[_drawn(skey, len(rows), sequences)]
        maps = layer_maps(model) if pullback else None
        hidden = jnp.moveaxis(widen(model.hidden_states(rows))[0][0], 1, 0)
        found = jnp.zeros((), hidden.dtype)
        if "curvature" in used and hidden.shape[1] > 2:
            bent = jax.vmap(lambda h: jnp.mean(bends(h, kind, SMOOTHING)))(hidden)
            found = found + curvature * jnp.mean(bent)
        if "kinetic" in used:
            energy = jax.vmap(lambda h: jnp.sum(energies(h)))(hidden)
            found = found + kinetic * jnp.mean(energy)
        if "isometry" not in used:
            return found
        chosen = _drawn(lkey, hidden.shape[1] - 1, layers)
        if maps is not None:
            stretched = distortions(maps, hidden, chosen, pkey, probes)
            return found + isometry * jnp.mean(stretched)
        each = lambda h: jax.vmap(
            lambda l: pair_distortions(
                jax.lax.dynamic_slice_in_dim(h, l, 2), False, SMOOTHING
            )
        )(chosen)
        return found + isometry * jnp.mean(jax.lax.map(each, hidden))

    def regularized(model, batch, key):
        found = loss(model, batch, key)
        if key is None:
            return found
        rows = sequences_of((inputs or _inputs)(batch))
        ekey, tkey = jax.random.split(jax.random.fold_in(key, 1))
        if often == 1:
            more = terms(model, rows, tkey)
        else:
            shape = jax.eval_shape(lambda: terms(model, rows, tkey))
            more = jax.lax.cond(
                jax.random.bernoulli(ekey, 1 / often),
                lambda: often * terms(model, rows, tkey),
                lambda: jnp.zeros(shape.shape, shape.dtype),
            )
        return found + more.astype(found.dtype)

    return regularized


def distortions(
    maps: LayerMaps, hidden: Array, chosen: Array, key: Array, probes: int
) -> Array:
    """The pullback losses of some layers (l,) for sequences (s, layers, n, d): (l, s).

    One layer after the other, and one sequence after the other: together their
    derivatives would not fit into the cache.
    """
    parts = jax.tree.map(lambda leaf: leaf[chosen], maps.parts)
    keys = jax.random.split(key, (len(chosen), len(hidden)))

    def of_layer(given):
        part, tokens, keys = given
        inside = maps.tangent and functools.partial(maps.tangent, part)
        apply = lambda x: maps.apply(part, x)

        def of_sequence(given):
            x, key = given
            return distortion(apply, x, key, probes, inside)

        # Computed again for the derivative, in place of being stored.
        alone = len(tokens) * len(chosen) == 1
        each = of_sequence if alone else jax.checkpoint(of_sequence)
        return _each(each, (tokens, keys))

    return _each(of_layer, (parts, jnp.moveaxis(hidden, 1, 0)[chosen], keys))


def _each(function, given):
    """A loop over leading axes; of one, none, which is compiled better."""
    if len(jax.tree.leaves(given)[0]) == 1:
        return function(jax.tree.map(lambda leaf: leaf[0], given))[None]
    return jax.lax.map(function, given)


def _drawn(key, size, wanted):
    """So many of the numbers below `size`, each set of them alike."""
    if wanted is None or wanted >= size:
        return jnp.arange(size)
    return jax.random.choice(key, size, (wanted,), replace=False)


def _inputs(batch):
    return batch[0] if isinstance(batch, tuple) else batch[..., :-1]


def sequences_of(inputs):
    """Sequences along one leading axis."""
    inputs = jnp.asarray(inputs)
    own = 1 if jnp.issubdtype(inputs.dtype, jnp.integer) else 2
    return inputs.reshape(-1, *inputs.shape[inputs.ndim - own :])
