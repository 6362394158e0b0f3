"""Heads as experts: the exact posterior where one head explains its query."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, check_shape, must, widen
from ._base import MaskLike
from ._dense import taint
from ._door import prepare
from ._posterior import (
    Kind,
    check_choices,
    check_prior,
    explain,
    log_total,
    precision,
)


class Mixture(NamedTuple):
    """What the queries of all heads say about the head and key that they came from.

    - `gate`: the probability of each head.
    - `weights`: within each head, the probability of each key.
    - `mean`: of the value, under both.
    - `covariance`: of the value; its diagonal, or None, where that was asked for.
    - `log_evidence`: the logarithm of the joint density of a token's queries.
    """

    gate: Float[Array, "h n_q"]
    weights: Float[Array, "h n_q n_k"]
    mean: Float[Array, "n_q d_v"]
    covariance: Float[Array, "n_q d_v d_v"] | Float[Array, "n_q d_v"] | None
    log_evidence: Float[Array, " n_q"]


def mixture(
    q: Float[ArrayLike, "h n_q d_k"],
    k: Float[ArrayLike, "h n_k d_k"],
    v: Float[ArrayLike, "h n_k d_v"],
    *,
    beta: Float[ArrayLike, "..."] | float | None = None,
    log_prior: Float[ArrayLike, "..."] | None = None,
    head_log_prior: Float[ArrayLike, " h"] | None = None,
    mask: MaskLike = None,
    covariance: Kind = "full",
) -> Mixture:
    r"""Multi-head attention as an exact mixture of experts.

    Head h is drawn with probability $\pi_h$. Its query comes from one of its keys, as
    in [`posterior`][], and the queries of the other heads are background,
    $N(0, \beta^{-1} I)$. Then the heads have the posterior

    $$g_h \propto \pi_h\, \frac{p_h(q_h)}{N(q_h; 0, \beta_h^{-1} I)}
      = \pi_h \sum_j \pi_{hj} \exp \Big( \beta_h \langle q_h, k_{hj} \rangle
      - \tfrac{\beta_h}{2} |k_{hj}|^2 \Big)$$

    and the value has mean $\sum_h g_h m_h$ and covariance
    $\sum_h g_h\, [C_h + (m_h - m)(m_h - m)^\top]$. It is one softmax over the keys of
    all heads, each with the prior $\pi_h \pi_{hj}$.

    The sum of heads of common multi-head attention is no such mixture: it weighs all
    heads alike, whether their keys explain the query or not.

    **Arguments:**

    - `q`, `k`, `v`: queries, keys and values of each head, of shapes (h, n_q, d_k),
      (h, n_k, d_k) and (h, n_k, d_v).
    - `beta`: the precision, positive: a scalar, or of shape (h,); `1/sqrt(d_k)` where
      None.
    - `log_prior`: log of the prior over keys, of shape (h, n_k) or (h, n_q, n_k), up to
      a constant for each head and query. None is the uniform prior.
    - `head_log_prior`: log of the prior over heads, of shape (h,), up to a constant; it
      is normalised over the heads in which a query has a permitted key. -inf forbids a
      head. None is the uniform prior.
    - `mask`: who may attend to whom in every head, as for [`posterior`][].
    - `covariance`: `"full"`, `"diagonal"` or `"none"`.

    **Returns:** a [`Mixture`][]: gate of shape (h, n_q), weights of (h, n_q, n_k), mean
    of (n_q, d_v), covariance of (n_q, d_v, d_v) or (n_q, d_v) or None, log_evidence of
    (n_q,), in the dtype of the arguments. A query without a permitted key gets 0 in
    all, and -inf for log_evidence, with zero gradient.

    **Raises:** ValueError as [`posterior`][] does.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import mixture
        >>> q = jnp.array([[[2.0]], [[2.0]]])
        >>> k = jnp.array([[[2.0]], [[-2.0]]])
        >>> found = mixture(q, k, k, beta=1.0)
        >>> f"{found.gate[0, 0]:.4f} {found.mean[0, 0]:.4f}"
        '0.9997 1.9987'

    Source: own; M. I. Jordan and R. A. Jacobs, Hierarchical mixtures of experts, Neural
    Computation 6 (1994), for gates that are posteriors.
    """
    check_choices(covariance, mask)
    check_prior("log_prior", log_prior)
    check_prior("head_log_prior", head_log_prior)
    q, k, v = as_float("q", q), as_float("k", k), as_float("v", v)
    check_shape("q", q, 3, "(h, n_q, d_k)")
    check_shape("k", k, 3, "(h, n_k, d_k)")
    check_shape("v", v, 3, "(h, n_k, d_v)")
    h, n_q, n_k = len(q), q.shape[1], k.shape[1]
    for name, array in (("k", k), ("v", v)):
        if len(array) != h:
            rule = f"have {h} heads, as `q` has"
            raise must(name, rule, f"of shape {array.shape}")
    (q, k, v), dtype = widen(q, k, v)
    beta = jnp.broadcast_to(precision(beta, k, (h,)), (h,))
    if log_prior is not None:
        log_prior = as_float("log_prior", log_prior)
        if log_prior.shape not in ((h, n_k), (h, n_q, n_k)):
            rule = f"have shape ({h}, {n_k}) or ({h}, {n_q}, {n_k})"
            raise must("log_prior", rule, f"of shape {log_prior.shape}")
    heads = jnp.zeros(h, q.dtype)
    if head_log_prior is not None:
        heads = as_float("head_log_prior", head_log_prior).astype(q.dtype)
        if heads.shape != (h,):
            rule = f"have shape ({h},)"
            raise must("head_log_prior", rule, f"of shape {heads.shape}")

    def one(q, k, v, beta, log_prior):
        given, _ = prepare(q, k, v, 1.0, log_prior, mask)
        found = explain(given, beta, covariance)
        return found, log_normal(given.q, beta)

    found, background = jax.vmap(one)(q, k, v, beta, log_prior)
    allowed = found.sees.T & (heads != -jnp.inf)[None, :]
    prior = jnp.where(allowed, heads[None, :], -jnp.inf)
    _, _, log_mass = log_total(prior)
    joint = jnp.where(allowed, prior + (found.log_evidence - background).T, -jnp.inf)
    unnormalised, total, log_sum = log_total(joint)
    gate = (unnormalised / total).T
    sees = jnp.any(allowed, axis=1, keepdims=True)
    log_evidence = log_sum - jnp.where(sees, log_mass, 0.0)
    log_evidence = log_evidence + jnp.sum(background, axis=0)[:, None]
    counts = allowed.T[:, :, None]
    means = jnp.where(counts, found.mean, 0.0)  # a forbidden head may be NaN
    mean = jnp.sum(gate[:, :, None] * means, axis=0)
    spread = found.covariance
    if spread is not None:
        spread = jnp.where(counts.reshape(h, n_q, *(1,) * (spread.ndim - 2)), spread, 0)
        apart = means - mean[None]
        if covariance == "diagonal":
            between = apart * apart
        else:
            between = apart[..., :, None] * apart[..., None, :]
        share = gate.reshape(h, n_q, *(1,) * (spread.ndim - 2))
        spread = jnp.sum(share * (spread + between), axis=0)
    bad = None
    if found.tainted is not None:
        bad = jnp.any(found.tainted & counts, axis=0)
    cast = lambda a: taint(a.reshape(n_q, -1), bad).astype(dtype).reshape(a.shape)
    each = jax.vmap(cast)
    return Mixture(
        each(gate),
        each(found.weights),
        cast(mean),
        None if spread is None else cast(spread),
        cast(log_evidence[:, 0]),
    )


def log_normal(x: Float[Array, "n d"], beta: Float[Array, ""]) -> Float[Array, " n"]:
    """The log-density of the normal distribution of precision beta around 0."""
    constant = 0.5 * x.shape[-1] * jnp.log(beta / (2 * jnp.pi))
    return constant - 0.5 * beta * jnp.sum(x * x, axis=-1)
