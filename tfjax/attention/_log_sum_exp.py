"""The logarithm of attention's normaliser, dense or by chunks."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, ArrayLike, Float

from .._core import count, matmul
from ._chunked import Problem, attend_by_chunks
from ._chunks import plan
from ._door import prepare


def log_sum_exp(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    chunk_size: int | None = None,
) -> Float[Array, " n_q"]:
    r"""The logarithm of the sum that softmax attention divides by.

    $$\ell_i = \log \sum_j e^{\beta \langle q_i, k_j \rangle}, \qquad
      \nabla_{q_i} \ell_i = \beta \sum_j w_{ij} k_j$$

    with the weights of [`attend`][], so that the energies made of it have attention in
    their forces.

    **Arguments:**

    - `q`: queries, of shape (n_q, d_k).
    - `k`: keys, of shape (n_k, d_k).
    - `beta`: inverse temperature, a scalar; `1/sqrt(d_k)` where None.
    - `chunk_size`: how many queries are taken at a time, at most, so that memory is
      O(chunk_size n_k), in the backward pass too; where None, all at once.

    **Returns:** the logarithms, of shape (n_q,), in the dtype of the arguments.

    **Raises:** ValueError where shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import log_sum_exp
        >>> round(float(log_sum_exp(jnp.ones((1, 4)), jnp.ones((1, 4)))[0]), 6)
        2.0

    Source: B. Hoover et al., Energy Transformer, arXiv 2302.07253, section 2.
    """
    if chunk_size is not None:
        chunk_size = count("chunk_size", chunk_size)
    given, dtype = prepare(q, k, k, beta, None, None)
    cut = plan(given.permits, given.q.shape[0], given.k.shape[0], chunk_size)
    if cut is None:
        return _at_once(given.q, given.k).astype(dtype)
    problem = Problem(given.permits, given.bad_q, given.bad_k, cut, True)
    nothing = jnp.zeros((given.k.shape[0], 1), given.k.dtype)  # in place of values
    rows = attend_by_chunks(problem, given.q, given.k, nothing, None)
    return (rows.top + jnp.log(rows.total))[:, 0].astype(dtype)


@jax.custom_jvp
def _at_once(
    q: Float[Array, "n_q d_k"], k: Float[Array, "n_k d_k"]
) -> Float[Array, " n_q"]:
    """The logarithms for logits `<q_i, k_j>`.

    The derivative is that of the formula: with `m_i = sum_j w_ij k_j` it is
    `<dq_i, m_i> + <q_i, sum_j w_ij dk_j>`, whose transpose has two products of matrices
    and no exponentials but those of the value.
    """
    top, weights = _unnormalised(q, k)
    return _logarithm(top, jnp.sum(weights, axis=0))


@functools.partial(_at_once.defjvp, symbolic_zeros=True)
def _rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (q, k), (dq, dk) = primals, tangents
    top, weights = _unnormalised(q, k)
    # The sums are a row of a product: alone, they would take the exponentials again.
    ones = jnp.ones((1, k.shape[0]), k.dtype)
    sums = matmul(jnp.concatenate([k.T, ones]), weights)
    total = sums[-1]
    slope = jnp.zeros_like(total)
    # What is not differentiated is left out, not multiplied by zeros.
    if not isinstance(dq, SymbolicZero):
        slope = slope + jnp.sum(dq.T * sums[:-1], axis=0)
    if not isinstance(dk, SymbolicZero):
        slope = slope + jnp.sum(q.T * matmul(dk.T, weights), axis=0)
    return _logarithm(top, total), slope / total


def _unnormalised(q, k):
    """The highest logit of each query, and exponentials of all less that, (n_k, n_q).

    With the queries last, maxima and sums over keys run along rows of them.
    """
    logits = matmul(k, q.T)
    # Where all logits are -inf, their differences to the highest would be NaN.
    lowest = jnp.finfo(logits.dtype).min
    top = jax.lax.stop_gradient(jnp.max(logits, axis=0, initial=lowest))
    return top, jnp.exp(logits - top[None, :])


def _logarithm(top, total):
    return jnp.where(top == jnp.inf, top, top + jnp.log(total))
