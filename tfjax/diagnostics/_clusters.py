"""Clusters of one state: groups of tokens that point the same way."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._core import (
    as_float,
    check_shape,
    connected_components,
    is_concrete,
    matmul,
    must,
    require,
    widen,
)


def inner_products(x: Float[ArrayLike, "n d"]) -> Float[Array, "n n"]:
    r"""The inner products of all pairs of tokens, `<x_i, x_j>`, i = j included.

    **Arguments:**

    - `x`: tokens, of shape (n, d).

    **Returns:** the Gram matrix, of shape (n, n), in the dtype of `x`.

    **Raises:** ValueError where `x` is not of shape (n, d).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import inner_products
        >>> inner_products(jnp.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    Source: arXiv 2312.10794, figure 1.
    """
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    (wide,), dtype = widen(x)
    return matmul(wide, wide.T).astype(dtype)


def cluster_labels(
    x: Float[ArrayLike, "n d"],
    threshold: Float[ArrayLike, ""] | float = 0.99,
    *,
    mask: Bool[ArrayLike, " n"] | None = None,
) -> Int[Array, " n"]:
    r"""Which cluster each token is in.

    Clusters are the connected components of the graph that joins i and j where
    `<x_i, x_j> > threshold`: a chain of close tokens is one cluster.

    **Arguments:**

    - `x`: tokens on the unit sphere, of shape (n, d).
    - `threshold`: the inner product above which two tokens are joined.
    - `mask`: which tokens exist, of shape (n,); all where None.

    **Returns:** labels of shape (n,): the smallest index in the token's cluster, -1
    for absent tokens, and -1 for all where a token that exists is not finite.

    **Raises:** ValueError where `x` is not of shape (n, d), and outside jit where a
    token that exists is not finite (as in a failed member of an ensemble).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import cluster_labels
        >>> cluster_labels(jnp.array([[1.0, 0], [0, 1], [1, 0]])).tolist()
        [0, 1, 0]

    Source: own; the components of arXiv 2312.10794, figure 4.
    """
    x = as_float("x", x)
    check_shape("x", x, 2, "(n, d)")
    exists = jnp.ones(x.shape[0], bool) if mask is None else jnp.asarray(mask)
    if exists.shape != x.shape[:1] or exists.dtype != bool:
        rule = f"be boolean of shape ({x.shape[0]},)"
        raise must("mask", rule, f"{exists.dtype} of shape {exists.shape}")
    (x,), _ = widen(x)  # half precision would round 0.99 and the products
    threshold = as_float("threshold", threshold).astype(x.dtype)
    if threshold.ndim:
        raise must("threshold", "be a scalar", f"of shape {threshold.shape}")
    if is_concrete(threshold):
        require(threshold, jnp.isfinite(threshold), "threshold", "be finite")
    finite = jnp.all(jnp.isfinite(x) | ~exists[:, None])
    if is_concrete(x, finite):
        x = require(x, finite, "x", "be finite")
    products = inner_products(jnp.where(exists[:, None], x, 0.0))
    pairs = exists[:, None] & exists[None, :]
    labels = connected_components((products > threshold) & pairs)
    return jnp.where(exists & finite, labels, -1)


def count_clusters(
    x: Float[ArrayLike, "n d"],
    threshold: Float[ArrayLike, ""] | float = 0.99,
    *,
    mask: Bool[ArrayLike, " n"] | None = None,
) -> Int[Array, ""]:
    r"""How many clusters the tokens form.

    **Arguments:** as for [`cluster_labels`][].

    **Returns:** the number of connected components of `<x_i, x_j> > threshold` among
    the tokens that exist; -1 where one of them is not finite.

    **Raises:** as [`cluster_labels`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import count_clusters
        >>> int(count_clusters(jnp.array([[1.0, 0], [0, 1], [1, 0]])))
        2

    Source: own; the components of arXiv 2312.10794, figure 4.
    """
    labels = cluster_labels(x, threshold, mask=mask)
    count = jnp.sum(labels == jnp.arange(labels.shape[0]))
    some = True if mask is None else jnp.any(jnp.asarray(mask))
    return jnp.where(some & (count == 0), -1, count)
