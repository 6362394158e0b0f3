"""Softmax attention in the log domain: dense, by chunks, in a band, over a few keys."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import count, matmul
from ._base import MaskLike
from ._chunked import Problem, attend_by_chunks
from ._chunks import plan
from ._dense import logits_of, shifted, taint
from ._door import Given, prepare
from ._top import attend_to_few


def attend(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    v: Float[ArrayLike, "n_k d_v"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    log_prior: Float[ArrayLike, "..."] | None = None,
    mask: MaskLike = None,
    chunk_size: int | None = None,
) -> Float[Array, "n_q d_v"]:
    r"""Softmax attention: the mean of the values under each query's weights.

    $$y_i = \sum_j w_{ij} v_j, \qquad
      w_{ij} \propto \pi_{ij} e^{\beta \langle q_i, k_j \rangle}$$

    **Arguments:**

    - `q`: queries, of shape (n_q, d_k).
    - `k`: keys, of shape (n_k, d_k).
    - `v`: values, of shape (n_k, d_v).
    - `beta`: inverse temperature, a scalar; `1/sqrt(d_k)` where None.
    - `log_prior`: log of the prior weights pi, of shape (n_k,) or (n_q, n_k); -inf
      forbids a key. None is the uniform prior.
    - `mask`: who may attend to whom: booleans of shape (n_k,) (which keys exist) or
      (n_q, n_k) (True where a query may attend to a key), a mask module such as
      [`Causal`][], [`Window`][] or [`TopK`][], any callable that makes such booleans of
      `(n_q, n_k)`, or a tuple of these, all of which must permit. Forbidden entries are
      selected away: even a NaN stored there does not leak.
    - `chunk_size`: how many queries are taken at a time, at most, so that memory is
      O(chunk_size n_k), in the backward pass too; where None, all at once, or what
      suits the band of a `Window`.

    **Returns:** the means, of shape (n_q, d_v), in the dtype of the arguments (half
    precision is accumulated in float32). A query without a permitted key gets 0,
    with zero gradient.

    **Raises:** ValueError where shapes do not fit or a mask is not boolean.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import attend
        >>> x = jnp.eye(2)
        >>> attend(x, x, x, beta=1000.0).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    Source: arXiv 2312.10794, equation (2.3).
    """
    given, dtype = prepare(q, k, v, beta, log_prior, mask)
    return _kernel(given, chunk_size, normalized=True).astype(dtype)


def log_weights(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    log_prior: Float[ArrayLike, "..."] | None = None,
    mask: MaskLike = None,
) -> Float[Array, "n_q n_k"]:
    r"""Logarithms of the softmax weights: log-posteriors over the keys.

    $$\log w_{ij} = \beta \langle q_i, k_j \rangle + \log \pi_{ij}
      - \log \sum_l \pi_{il} e^{\beta \langle q_i, k_l \rangle}$$

    **Arguments:** as for [`attend`][].

    **Returns:** the log-weights, of shape (n_q, n_k); -inf where a key is forbidden.

    **Raises:** ValueError where shapes do not fit or a mask is not boolean.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import log_weights
        >>> jnp.exp(log_weights(jnp.ones((1, 4)), jnp.ones((2, 4)))).tolist()
        [[0.5, 0.5]]

    Source: arXiv 2312.10794, equation (2.3).
    """
    given, dtype = prepare(q, k, k, beta, log_prior, mask)
    logits, tainted = logits_of(given)
    below, _, total = shifted(logits)
    log_total = jnp.log(jnp.where(total > 0, total, 1.0))
    out = jnp.where(below == -jnp.inf, below, below - log_total)
    return taint(out, tainted).astype(dtype)


def kernel_sum(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    v: Float[ArrayLike, "n_k d_v"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    mask: MaskLike = None,
    chunk_size: int | None = None,
) -> Float[Array, "n_q d_v"]:
    r"""Attention without its normaliser: `sum_j exp(beta <q_i, k_j>) v_j`.

    **Arguments:** as for [`attend`][].

    **Returns:** the sums, of shape (n_q, d_v). They overflow, to inf or NaN, where
    `beta <q_i, k_j>` exceeds the logarithm of the dtype's largest number.

    **Raises:** ValueError where shapes do not fit or a mask is not boolean.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import kernel_sum
        >>> kernel_sum(jnp.zeros((1, 2)), jnp.ones((3, 2)), jnp.ones((3, 1))).item()
        3.0

    Source: arXiv 2312.10794, section 3.3.
    """
    given, dtype = prepare(q, k, v, beta, None, mask)
    return _kernel(given, chunk_size, normalized=False).astype(dtype)


def _kernel(given: Given, chunk_size: int | None, *, normalized: bool):
    if chunk_size is not None:
        chunk_size = count("chunk_size", chunk_size)
    n_q, n_k, permits = given.q.shape[0], given.k.shape[0], given.permits
    if permits.top is not None:
        return attend_to_few(given, chunk_size, normalized=normalized)
    cut = plan(permits, n_q, n_k, chunk_size)
    if cut is not None:
        problem = Problem(permits, given.bad_q, given.bad_k, cut, normalized)
        return attend_by_chunks(problem, given.q, given.k, given.v, given.prior).mean
    logits, tainted = logits_of(given)
    if normalized:
        _, weights, total = shifted(logits)
        out = matmul(weights, given.v) / jnp.where(total > 0, total, 1.0)
    else:
        out = matmul(jnp.exp(logits), given.v)
    return taint(out, tainted)
