"""Softmax attention, computed in the log domain, dense or by chunks of queries."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from .._core import as_float, check_shape, count, matmul, must, widen


def attend(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    v: Float[ArrayLike, "n_k d_v"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    log_prior: Float[ArrayLike, "..."] | None = None,
    mask: Bool[ArrayLike, "..."] | None = None,
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
    - `mask`: True where a query may attend to a key, of shape (n_k,) or (n_q, n_k).
      Forbidden entries are selected away: even a NaN stored there does not leak.
    - `chunk_size`: how many queries are taken at a time, so that memory is
      O(chunk_size n_k), in the backward pass too; all at once where None.

    **Returns:** the means, of shape (n_q, d_v), in the dtype of the arguments (half
    precision is accumulated in float32). A query without a permitted key gets 0,
    with zero gradient.

    **Raises:** ValueError where shapes do not fit or the mask is not boolean.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import attend
        >>> x = jnp.eye(2)
        >>> attend(x, x, x, beta=1000.0).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    Source: arXiv 2312.10794, equation (2.3).
    """
    q, k, v, beta, prior, mask, dtype = _prepare(q, k, v, beta, log_prior, mask)

    def rows(q, prior, mask):
        q, keys, values, tainted = _select(q, k, v, mask)
        logits = _logits(q, keys, beta, prior, mask)
        _, unnormalised, total = _shifted(logits)
        mean = matmul(unnormalised, values) / jnp.where(total > 0, total, 1.0)
        if tainted is None:
            return mean
        return jnp.where(tainted, jnp.asarray(jnp.nan, mean.dtype), mean)

    if chunk_size is None:
        return rows(q, prior, mask).astype(dtype)
    chunk_size = count("chunk_size", chunk_size)

    split, shared = {"q": q}, {}
    for name, array in (("prior", prior), ("mask", mask)):
        if array is not None:
            (shared if array.ndim == 1 else split)[name] = array

    def row(operands):
        every = {name: array[None] for name, array in operands.items()} | shared
        return rows(every["q"], every.get("prior"), every.get("mask"))[0]

    mean = jax.lax.map(jax.checkpoint(row), split, batch_size=chunk_size)
    return mean.astype(dtype)


def log_weights(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    log_prior: Float[ArrayLike, "..."] | None = None,
    mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "n_q n_k"]:
    r"""Logarithms of the softmax weights: log-posteriors over the keys.

    $$\log w_{ij} = \beta \langle q_i, k_j \rangle + \log \pi_{ij}
      - \log \sum_l \pi_{il} e^{\beta \langle q_i, k_l \rangle}$$

    **Arguments:** as for [`attend`][].

    **Returns:** the log-weights, of shape (n_q, n_k); -inf where a key is forbidden.

    **Raises:** ValueError where shapes do not fit or the mask is not boolean.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import log_weights
        >>> jnp.exp(log_weights(jnp.ones((1, 4)), jnp.ones((2, 4)))).tolist()
        [[0.5, 0.5]]

    Source: arXiv 2312.10794, equation (2.3).
    """
    q, k, _, beta, prior, mask, dtype = _prepare(q, k, k, beta, log_prior, mask)
    q, keys, _, tainted = _select(q, k, k, mask)
    shifted, _, total = _shifted(_logits(q, keys, beta, prior, mask))
    log_total = jnp.log(jnp.where(total > 0, total, 1.0))
    out = jnp.where(shifted == -jnp.inf, shifted, shifted - log_total)
    if tainted is not None:
        out = jnp.where(tainted, jnp.asarray(jnp.nan, out.dtype), out)
    return out.astype(dtype)


def kernel_sum(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    v: Float[ArrayLike, "n_k d_v"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "n_q d_v"]:
    r"""Attention without its normaliser: `sum_j exp(beta <q_i, k_j>) v_j`.

    **Arguments:** as for [`attend`][].

    **Returns:** the sums, of shape (n_q, d_v). They overflow, to inf or NaN, where
    `beta <q_i, k_j>` exceeds the logarithm of the dtype's largest number.

    **Raises:** ValueError where shapes do not fit or the mask is not boolean.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import kernel_sum
        >>> kernel_sum(jnp.zeros((1, 2)), jnp.ones((3, 2)), jnp.ones((3, 1))).item()
        3.0

    Source: arXiv 2312.10794, section 3.3.
    """
    q, k, v, beta, _, mask, dtype = _prepare(q, k, v, beta, None, mask)
    q, keys, values, tainted = _select(q, k, v, mask)
    out = matmul(jnp.exp(_logits(q, keys, beta, None, mask)), values)
    if tainted is not None:
        out = jnp.where(tainted, jnp.asarray(jnp.nan, out.dtype), out)
    return out.astype(dtype)


def _prepare(q, k, v, beta, log_prior, mask):
    """Checks the shapes and widens half precision; the last item is the dtype out."""
    q, k, v = as_float("q", q), as_float("k", k), as_float("v", v)
    check_shape("q", q, 2, "(n_q, d_k)")
    check_shape("k", k, 2, "(n_k, d_k)")
    check_shape("v", v, 2, "(n_k, d_v)")
    n_q, (n_k, d_k) = q.shape[0], k.shape
    if q.shape[1] != d_k:
        rule = f"have shape (n_q, {d_k}), as wide as the keys"
        raise must("q", rule, f"of shape {q.shape}")
    if v.shape[0] != n_k:
        rule = f"have shape ({n_k}, d_v), a value for each key"
        raise must("v", rule, f"of shape {v.shape}")
    (q, k, v), dtype = widen(q, k, v)
    beta = as_float("beta", d_k**-0.5 if beta is None else beta).astype(q.dtype)
    if beta.ndim:
        raise must("beta", "be a scalar", f"of shape {beta.shape}")
    if log_prior is not None:
        log_prior = as_float("log_prior", log_prior).astype(q.dtype)
        _check_pairs("log_prior", log_prior, n_q, n_k)
    if mask is not None:
        if isinstance(mask, str):
            raise must("mask", "be a boolean array", repr(mask))
        mask = jnp.asarray(mask)
        if mask.dtype != bool:
            raise must("mask", "be boolean", f"of dtype {mask.dtype}")
        _check_pairs("mask", mask, n_q, n_k)
    if log_prior is not None:
        # A key of prior mass 0 is forbidden, whatever is stored there.
        allowed = log_prior != -jnp.inf
        log_prior = jnp.where(allowed, log_prior, 0.0)
        if mask is not None and mask.ndim != allowed.ndim:
            mask, allowed = _rows(mask), _rows(allowed)
        mask = allowed if mask is None else mask & allowed
    return q, k, v, beta, log_prior, mask, dtype


def _check_pairs(name, array, n_q, n_k):
    if array.shape not in ((n_k,), (n_q, n_k)):
        rule = f"have shape ({n_k},) or ({n_q}, {n_k})"
        raise must(name, rule, f"of shape {array.shape}")


def _select(q, k, v, mask):
    """Zeroes what the mask forbids to enter a product, so that 0 * NaN cannot arise.

    Under a mask, queries that are not finite are zeroed too (padded ones may be: their
    gradients must not spread), and under a mask of pairs so are keys and values. The
    queries that this concerns are named in the last result: those are NaN by right,
    the others must not be.
    """
    if mask is None:
        return q, k, v, None
    asks = jnp.all(jnp.isfinite(q), axis=1)
    if mask.ndim == 1:
        seen, asks = mask[:, None], asks[:, None]
        k, v = jnp.where(seen, k, 0.0), jnp.where(seen, v, 0.0)
        return jnp.where(asks, q, 0.0), k, v, ~asks
    finite = jnp.all(jnp.isfinite(k), axis=1) & jnp.all(jnp.isfinite(v), axis=1)
    asks = asks & jnp.any(mask, axis=1)
    unfit = ~(finite[None, :] & asks[:, None])
    tainted = jnp.any(mask & unfit, axis=1, keepdims=True)
    k, v = jnp.where(finite[:, None], k, 0.0), jnp.where(finite[:, None], v, 0.0)
    return jnp.where(asks[:, None], q, 0.0), k, v, tainted


def _logits(q, k, beta, log_prior, mask):
    # Scaling the query first keeps the product small (it may be a long sum).
    logits = matmul(q * beta, k.T)
    if log_prior is not None:
        logits = logits + _rows(log_prior)
    return logits if mask is None else jnp.where(_rows(mask), logits, -jnp.inf)


def _rows(array):
    return array[None, :] if array.ndim == 1 else array


def _shifted(logits):
    """Logits less their row maximum, their exponentials and the sums of these."""
    top = jnp.max(logits, axis=1, keepdims=True)
    top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0.0, top))
    shifted = logits - top
    unnormalised = jnp.exp(shifted)
    return shifted, unnormalised, jnp.sum(unnormalised, axis=1, keepdims=True)
