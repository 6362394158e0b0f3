"""Attention to the few keys of the highest scores."""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._core import matmul
from ._chunks import Plan, over_chunks, over_rows, plan
from ._door import Given


_CHUNK = 128


@functools.partial(jax.jit, static_argnames=("chunk_size", "normalized"))
def attend_to_few(
    given: Given, chunk_size: int | None, *, normalized: bool
) -> Float[Array, "n_q d_v"]:
    """The softmax mean, or the kernel sum, over the `given.permits.top` highest keys.

    The scores of all keys are computed once, to find out which are the highest. What is
    differentiated is a mean of so few gathered values.
    """
    n_q, n_k = given.q.shape[0], given.k.shape[0]
    size = chunk_size or _CHUNK
    cut = plan(given.permits, n_q, n_k, size)
    assert cut is not None
    index, seen, tainted = _highest(jax.lax.stop_gradient(given), cut)

    queries = {"q": given.q, "index": index, "seen": seen}
    if given.prior is not None and given.prior.ndim == 2:
        queries["prior"] = jnp.take_along_axis(given.prior, index, axis=1)

    def chunk(queries):
        index = queries["index"]
        # (size, top, d) times (size, d, 1): a score for each key that was chosen.
        logits = matmul(given.k[index], queries["q"][:, :, None])[:, :, 0]
        if given.prior is not None:
            logits += queries["prior"] if "prior" in queries else given.prior[index]
        logits = jnp.where(queries["seen"], logits, -jnp.inf)
        weights, total = jnp.exp(logits), 1.0
        if normalized:
            top = jnp.max(logits, axis=1, keepdims=True)
            top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0.0, top))
            weights = jnp.exp(logits - top)
            total = jnp.sum(weights, axis=1, keepdims=True)
            total = jnp.where(total > 0, total, 1.0)
        return matmul(weights[:, None, :], given.v[index])[:, 0] / total

    # As many rows as gather no more numbers than the scores of a chunk have.
    gathered = index.shape[1] * max(given.k.shape[1], given.v.shape[1])
    number = math.ceil(n_q / max(1, size * n_k // gathered))
    out = over_rows(Plan(number, math.ceil(n_q / number), None), chunk, queries)
    return jnp.where(tainted, jnp.asarray(jnp.nan, out.dtype), out)


def among_the_highest(
    logits: Float[Array, "n_q n_k"],
    allowed: Bool[Array, "..."] | None,
    bad: Bool[Array, "..."],
    top: int,
) -> Bool[Array, "n_q n_k"]:
    """Which keys are among the `top` allowed ones of the highest logits."""
    logits = jnp.where(bad, jnp.asarray(jnp.nan, logits.dtype), logits)
    index, seen, _ = _pick(jax.lax.stop_gradient(logits), allowed, top)
    rows = jnp.arange(logits.shape[0])[:, None]
    return jnp.zeros(logits.shape, bool).at[rows, index].set(seen)


def _highest(given, cut):
    """The places of the highest keys, whether each counts, and which rows are NaN."""
    nan = jnp.asarray(jnp.nan, given.q.dtype)
    q = jnp.where(given.bad_q[:, None], nan, given.q)
    k = jnp.where(given.bad_k[:, None], nan, given.k)
    keys, pairs, top = {"k": k.T}, {}, given.permits.top
    if given.prior is not None:
        (keys if given.prior.ndim == 1 else pairs)["prior"] = given.prior

    def chunk(queries, keys, pairs, ok, j):
        logits = matmul(queries["q"], keys["k"])
        if given.prior is not None:
            logits += pairs["prior"] if "prior" in pairs else keys["prior"][None, :]
        index, seen, tainted = _pick(logits, ok, min(top, logits.shape[1]))
        # Places in a band may lie outside: what is there is not seen.
        return jnp.clip(j[index], 0, given.k.shape[0] - 1), seen, tainted

    return over_chunks(cut, chunk, {"q": q}, keys, pairs, given.permits)


def _pick(logits, allowed, top) -> tuple[Int[Array, "n k"], Bool[Array, "n k"], Array]:
    if allowed is not None:
        logits = jnp.where(allowed, logits, -jnp.inf)
    highest, index = jax.lax.top_k(logits, top)
    tainted = jnp.any(jnp.isnan(logits), axis=1, keepdims=True)
    return index, highest != -jnp.inf, tainted
