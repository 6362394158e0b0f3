"""High-dimensional trajectories brought into the plane."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._core import must


class Principal(NamedTuple):
    """Points along their principal axes.

    - `points`: coordinates, of shape (..., k).
    - `axes`: orthonormal directions, of shape (k, d).
    - `mean`: the centre, of shape (d,).
    - `explained`: each axis's share of the variance, of shape (k,).
    """

    points: np.ndarray
    axes: np.ndarray
    mean: np.ndarray
    explained: np.ndarray


def pca(xs: ArrayLike, k: int = 2) -> Principal:
    r"""Principal components of points, by a singular value decomposition.

    $$X - \mathbb 1 \bar x^T = U S W^T, \qquad
      \text{points} = U_k S_k, \quad \text{axes} = W_k^T$$

    **Arguments:**

    - `xs`: points, of shape (..., d); all leading axes together are the sample.
    - `k`: how many components.

    **Returns:** a [`Principal`][] with `points` of shape (..., k). The sign of an axis
    is chosen so that its largest entry is positive.

    **Raises:** ValueError where `xs` is not finite or `k` is not in 1..d.

    !!! example

        >>> from tfjax.figures import pca
        >>> pca([[0.0, 1.0], [0.0, -1.0]], 1).points.round(6).tolist()
        [[1.0], [-1.0]]

    Source: K. Pearson, *Phil. Mag.* 2 (1901).
    """
    array = np.asarray(xs, dtype=float)
    if array.ndim < 2 or 0 in array.shape:
        raise must("xs", "have shape (..., d)", f"of shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise must("xs", "be finite", "not in some place")
    d = array.shape[-1]
    if isinstance(k, bool) or not 1 <= k <= d:
        raise must("k", f"be an integer in 1..{d}", repr(k))
    flat = array.reshape(-1, d)
    mean = flat.mean(axis=0)
    # A row of zeros for each axis: a sample smaller than k still has k directions.
    padded = np.concatenate([flat - mean, np.zeros((k, d))])
    _, s, axes = np.linalg.svd(padded, full_matrices=False)
    axes = axes[:k]
    largest = axes[np.arange(k), np.argmax(np.abs(axes), axis=1)]
    axes = axes * np.where(largest < 0, -1.0, 1.0)[:, None]
    total = np.sum(s**2)
    explained = s[:k] ** 2 / (total if total > 0 else 1.0)
    points = ((flat - mean) @ axes.T).reshape(*array.shape[:-1], k)
    return Principal(points, axes, mean, explained)
