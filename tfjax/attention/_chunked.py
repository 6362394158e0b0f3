"""The softmax mean and the kernel sum in memory O(n), with a derivative that is too.

Of every row only the result and its normaliser are kept. The derivative is that of the
formula, not of the code: a chunk of the tangent needs nothing but what was kept, so
that its transpose, with the chunk computed anew, is the backward pass of flash
attention (arXiv 2205.14135, section 3.1 and appendix B). Since the rule for the tangent
is itself differentiable, forward mode and second derivatives work too.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float

from .._core import matmul
from ._base import Permits
from ._chunks import Plan, over_chunks


class Problem(eqx.Module):
    """All that has no derivative: masks, rows that are not finite, and the plan."""

    permits: Permits
    bad_q: Bool[Array, " n_q"] | None
    bad_k: Bool[Array, " n_k"] | None
    cut: Plan = eqx.field(static=True)
    normalized: bool = eqx.field(static=True)


class Rows(NamedTuple):
    """What is kept of each row: weights are `exp(logit - top) / total`.

    A row that sees what is not finite has a mean and a total of NaN. For a kernel sum
    `top` is 0, `total` is 1, and the "mean" is the sum.
    """

    mean: Float[Array, "n_q d_v"]
    top: Float[Array, "n_q 1"]
    total: Float[Array, "n_q 1"]


@jax.custom_jvp
def attend_by_chunks(
    problem: Problem,
    q: Float[Array, "n_q d_k"],
    k: Float[Array, "n_k d_k"],
    v: Float[Array, "n_k d_v"],
    prior: Float[Array, "..."] | None,
) -> Rows:
    """The rows for logits `<q_i, k_j> + prior_ij`, all operands finite."""
    return _values(problem, q, k, v, prior)


@functools.partial(attend_by_chunks.defjvp, symbolic_zeros=True)
def _rule(primals: Any, tangents: Any) -> tuple[Rows, Rows]:
    out = attend_by_chunks(*primals)
    # What is not differentiated is left out, not multiplied by zeros.
    moved = [None if isinstance(t, SymbolicZero) else t for t in tangents[1:]]
    return out, _tangents(*primals, out, moved)


@jax.jit  # or a loop outside jit is compiled anew by every call
def _values(problem, q, k, v, prior):
    nan = jnp.asarray(jnp.nan, q.dtype)
    if problem.bad_q is not None:
        q = jnp.where(problem.bad_q[:, None], nan, q)
    if problem.bad_k is not None:
        k = jnp.where(problem.bad_k[:, None], nan, k)

    def chunk(queries, keys, pairs, ok, _):
        logits = _logits(queries["q"], keys, pairs, ok)
        if not problem.normalized:
            weights = jnp.exp(logits)
            total = jnp.ones((weights.shape[0], 1), weights.dtype)
            if ok is not None:
                # As of a softmax: NaN where something that is seen is not finite.
                sick = jnp.any(jnp.isnan(logits), axis=1, keepdims=True)
                total = jnp.where(sick, nan, total)
            return Rows(matmul(weights, keys["v"].T), jnp.zeros_like(total), total)
        top = jnp.max(logits, axis=1, keepdims=True)
        top = jnp.where(top == -jnp.inf, 0.0, top)
        weights = jnp.exp(logits - top)
        total = jnp.sum(weights, axis=1, keepdims=True)
        total = jnp.where(total == 0, 1.0, total)
        return Rows(matmul(weights, keys["v"].T) / total, top, total)

    along_keys, along_both = _sorted(prior, {"k": k, "v": v}, "prior")
    return over_chunks(
        problem.cut, chunk, {"q": q}, along_keys, along_both, problem.permits
    )


@jax.jit
def _tangents(problem, q, k, v, prior, out, moved):
    dq, dk, dv, dprior = moved
    dead = None if problem.permits.nothing else jnp.isnan(out.total)
    if dead is not None:
        # Weights of 0; and what is NaN by right has gradient 0, see the end.
        fill = lambda value, array: jnp.where(dead, jnp.asarray(value, q.dtype), array)
        out = Rows(fill(0, out.mean), fill(jnp.inf, out.top), fill(1, out.total))

    def chunk(queries, keys, pairs, ok, _):
        q, out = queries["q"], queries["out"]
        logits = _logits(q, keys, pairs, ok)
        weights = jnp.exp(logits - out.top) / out.total
        change = []
        if dq is not None:
            change.append(matmul(queries["dq"], keys["k"]))
        if dk is not None:
            change.append(matmul(q, keys["dk"]))
        if dprior is not None:
            moved = keys.get("dprior", pairs.get("dprior"))
            change.append(moved[None, :] if moved.ndim == 1 else moved)
        mean, total = jnp.zeros_like(out.mean), jnp.zeros_like(out.total)
        if change:
            change = functools.reduce(jnp.add, change)
            weighted = weights * (change if ok is None else jnp.where(ok, change, 0.0))
            mean = matmul(weighted, keys["v"].T)
            if problem.normalized:
                slope = jnp.sum(weighted, axis=1, keepdims=True)
                mean, total = mean - slope * out.mean, slope * out.total
        if dv is not None:
            mean = mean + matmul(weights, keys["dv"].T)
        if dead is not None:
            mean = jnp.where(queries["dead"], jnp.zeros_like(mean), mean)
            total = jnp.where(queries["dead"], jnp.zeros_like(total), total)
        return Rows(mean, jnp.zeros_like(out.top), total)

    along_keys, along_both = _sorted(
        prior, {"k": k, "v": v, "dk": dk, "dv": dv}, "prior"
    )
    more, both = _sorted(dprior, {}, "dprior")
    return over_chunks(
        problem.cut,
        chunk,
        {"q": q, "dq": dq, "out": out, "dead": dead},
        along_keys | more,
        along_both | both,
        problem.permits,
    )


def _sorted(prior, keys, name):
    """The arrays along the keys, and those of pairs, with a prior where it belongs."""
    # Turned round, the sums over chunks in a backward pass are products of a small
    # transposed matrix with a large one as it lies: on CPU they take half the time.
    keys = jax.tree.map(jnp.transpose, keys)
    if prior is None:
        return keys, {}
    return (keys | {name: prior}, {}) if prior.ndim == 1 else (keys, {name: prior})


def _logits(q, keys, pairs, ok):
    logits = matmul(q, keys["k"])
    prior = keys.get("prior", pairs.get("prior"))
    if prior is not None:
        logits = logits + (prior[None, :] if prior.ndim == 1 else prior)
    return logits if ok is None else jnp.where(ok, logits, -jnp.inf)
