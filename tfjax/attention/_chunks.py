"""Work on queries by chunks, each with the keys that it may see."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._base import Permits, every


class Plan(NamedTuple):
    """How n_q queries are cut: into `number` chunks of `size` rows.

    Where `band` is (below, above), the rows from a to b get the keys from a - below to
    b + above only, those outside 0..n_k as zeros; all keys where it is None.
    """

    number: int
    size: int
    band: tuple[int, int] | None


# Below this many rows a product of matrices runs far from its best speed.
_SMALLEST_BAND_CHUNK = 128


def plan(permits: Permits, n_q: int, n_k: int, chunk_size: int | None) -> Plan | None:
    """The plan for these masks; None where everything is to be done at once."""
    ends = [rule.reach for rule in permits.rules]
    below = min((b for b, _ in ends if b is not None), default=None)
    above = min((a for _, a in ends if a is not None), default=None)
    if below is not None and above is not None:
        # A chunk as long as the window wastes least; more keys than it has, nothing.
        size = chunk_size or max(_SMALLEST_BAND_CHUNK, below + above)
        number = math.ceil(n_q / size)
        size = math.ceil(n_q / number)
        if below + size + above < n_k:
            return Plan(number, size, (below, above))
    if chunk_size is None:
        return None
    number = math.ceil(n_q / chunk_size)
    return Plan(number, math.ceil(n_q / number), None)


def over_chunks(
    cut: Plan,
    function: Callable[..., Any],
    queries: Any,
    keys: Any,
    pairs: Any,
    permits: Permits,
) -> Any:
    """Calls `function` on every chunk and joins the results, one row for each query.

    **Arguments:**

    - `function`: takes what belongs to a chunk of `queries`, `keys` and `pairs`; which
      of its pairs may attend, of shape (size, l) or (1, l), or None for all; and the
      places of its l keys. It returns a tree of arrays of `size` rows.
    - `queries`, `keys`, `pairs`: trees of arrays: of n_q rows; of n_k columns, which is
      the last axis; of shape (n_q, n_k).
    - `permits`: who may attend to whom, but for `top`.

    **Returns:** the tree of arrays of n_q rows.
    """
    n_k = jax.tree.leaves(keys)[0].shape[-1]
    exists, allowed = permits.keys, permits.pairs
    if cut.band is not None and exists is None:
        exists = jnp.ones(n_k, bool)  # what pads the keys does not exist
    pairs = jax.tree.map(lambda a: _rows(a, cut), pairs)
    whole = {"keys": keys, "exists": exists}
    split = {"start": jnp.arange(cut.number) * cut.size}
    if cut.band is not None:
        pairs = jax.tree.map(lambda a: _columns(a, cut), pairs)
        split, whole = split | jax.tree.map(lambda a: _bands(a, cut), whole), {}

    def chunk(queries, pairs, split):
        given = split | whole
        i = given["start"] + jnp.arange(cut.size)
        if cut.band is None:
            j = jnp.arange(n_k)
        else:
            j = given["start"] - cut.band[0] + jnp.arange(_width(cut))
        ok = [rule.permits(i[:, None], j[None, :]) for rule in permits.rules]
        if given["exists"] is not None:
            ok.append(given["exists"][None, :])
        if allowed is not None:
            ok.append(_some(allowed, i, None if cut.band is None else j))
        return function(queries, given["keys"], pairs, every(ok), j)

    return over_rows(cut, chunk, queries, pairs, split)


def over_rows(
    cut: Plan, function: Callable[..., Any], queries: Any, *split: Any
) -> Any:
    """Calls `function` on the queries of every chunk, and joins what it returns.

    `split` are further trees, of a first axis of `cut.number`: an entry for each chunk.
    A backward pass computes the function anew and keeps none of its values.
    """
    n_q = jax.tree.leaves(queries)[0].shape[0]
    queries = jax.tree.map(lambda a: _rows(a, cut), queries)
    # Nothing is merged across the passes of a loop: the default guard only costs.
    again = jax.checkpoint(function, prevent_cse=False)
    out = jax.lax.map(lambda given: again(*given), (queries, *split))
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:n_q], out)


def _rows(array, cut):
    """An array of n_q rows by chunks, of shape (number, size, ...)."""
    # The last row is repeated: it is harmless, whatever is computed from it.
    more = cut.number * cut.size - array.shape[0]
    array = jnp.concatenate([array, jnp.repeat(array[-1:], more, axis=0)])
    return array.reshape(cut.number, cut.size, *array.shape[1:])


def _width(cut):
    return cut.band[0] + cut.size + cut.band[1]


def _some(allowed, i, j):
    """The rows i and columns j of a mask of pairs; places outside take the nearest."""
    if j is None:
        return jnp.take(allowed, i, axis=0, mode="clip")
    n_q, n_k = allowed.shape
    i, j = jnp.clip(i, 0, n_q - 1), jnp.clip(j, 0, n_k - 1)
    return allowed[i[:, None], j[None, :]]


def _padded(array, axis, low, length):
    """The array with `low` zeros before an axis, cut or filled up to a length."""
    config = [(0, 0, 0)] * array.ndim
    config[axis] = (low, length - low - array.shape[axis], 0)
    return jax.lax.pad(array, jnp.zeros((), array.dtype), config)


def _bands(array, cut):
    """Each chunk's band of an array of n_k columns: shape (number, ..., width).

    It is put together from whole blocks, since slices at any place would turn into slow
    scattered additions in a backward pass.
    """
    (below, above), size = cut.band, cut.size
    low, high = math.ceil(below / size), math.ceil(above / size)
    length = (low + cut.number + high) * size
    blocks = _padded(array, array.ndim - 1, low * size, length)
    blocks = blocks.reshape(*array.shape[:-1], -1, size)
    pieces = []
    for shift in range(-low, high + 1):
        begin = max(0, -below - shift * size)
        end = min(size, size + above - shift * size)
        at = low + shift
        pieces.append(blocks[..., at : at + cut.number, begin:end])
    return jnp.moveaxis(jnp.concatenate(pieces, axis=-1), -2, 0)


def _columns(array, cut):
    """Each chunk's band of its rows, of an array of shape (number, size, n_k)."""
    width = _width(cut)
    array = _padded(array, 2, cut.band[0], (cut.number - 1) * cut.size + width)
    start = jnp.arange(cut.number) * cut.size
    cut_out = lambda rows, at: jax.lax.dynamic_slice_in_dim(rows, at, width, axis=1)
    return jax.vmap(cut_out)(array, start)
