"""What is measured along trajectories, one state at a time to spare memory."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..diagnostics import cluster_labels, order_parameter
from ..energies import log_interaction_energy
from ..fields import AttentionParams


class Measures(NamedTuple):
    """Numbers along one trajectory or, with a leading axis, along many."""

    labels: np.ndarray  # (t, n), -1 in failed members
    clusters: np.ndarray  # (t,), -1 in failed members
    energy: np.ndarray  # (t,)
    order: np.ndarray  # (t,)


def measure(xs: Array, args: AttentionParams, threshold: float) -> Measures:
    """Labels, counts, energy and order parameter of `xs`, of shape (..., t, n, d)."""
    *batch, n, d = xs.shape
    flat = xs.reshape(-1, n, d)
    found = _measure(flat, _forms(args, flat.dtype), args.beta, jnp.asarray(threshold))
    labels, energy, order = (np.asarray(each) for each in found)
    clusters = np.sum(labels == np.arange(n), axis=1)
    clusters = np.where(labels[:, 0] < 0, -1, clusters)
    shape = tuple(batch)
    return Measures(
        labels.reshape(*shape, n),
        clusters.reshape(shape),
        energy.reshape(shape),
        order.reshape(shape),
    )


@eqx.filter_jit
def _measure(xs, forms, beta, threshold):
    def one(x):
        energies = jax.vmap(lambda b: log_interaction_energy(x, beta, bilinear=b))
        one_form = lambda: log_interaction_energy(x, beta)
        energy = one_form() if forms is None else jnp.mean(energies(forms))
        return cluster_labels(x, threshold), energy, order_parameter(x)

    return jax.lax.map(one, xs)


def _forms(args: AttentionParams, dtype: jnp.dtype) -> Array | None:
    """B with <B x_i, x_j> = <Q x_j, K x_i> for each head, of shape (h, d, d)."""
    one = args.query if args.key is None else args.key
    if one is None:
        return None
    eye = jnp.eye(one.shape[-1], dtype=dtype)
    query = eye if args.query is None else args.query.astype(dtype)
    key = eye if args.key is None else args.key.astype(dtype)
    form = jnp.swapaxes(key, -1, -2) @ query
    return form if form.ndim == 3 else form[None]
