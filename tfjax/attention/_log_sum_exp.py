"""The logarithm of attention's normaliser, dense or by chunks."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import count
from ._chunked import Problem, attend_by_chunks
from ._chunks import plan
from ._dense import logits_of
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
        logits, _ = logits_of(given)
        return jax.nn.logsumexp(logits, axis=1).astype(dtype)
    problem = Problem(given.permits, given.bad_q, given.bad_k, cut, True)
    nothing = jnp.zeros((given.k.shape[0], 1), given.k.dtype)  # in place of values
    rows = attend_by_chunks(problem, given.q, given.k, nothing, None)
    return (rows.top + jnp.log(rows.total))[:, 0].astype(dtype)
