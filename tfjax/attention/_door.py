"""What every kernel does first: check, widen, and take out what is not finite."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import as_float, check_shape, is_concrete, must, require, widen
from ._base import Permits, every
from ._masks import read_mask


class Given(NamedTuple):
    """The operands of a kernel, whose logits are `<q_i, k_j> + prior_ij`.

    Queries are scaled by beta already. Where anything is masked, what is not finite is
    zeroed: a padded row may hold NaN, and no mask may multiply that by 0. `bad_q` and
    `bad_k` name the rows which that concerns and which are not masked as keys: a query
    is NaN by right if it is bad or sees a bad key, and must not be otherwise.
    """

    q: Float[Array, "n_q d_k"]
    k: Float[Array, "n_k d_k"]
    v: Float[Array, "n_k d_v"]
    prior: Float[Array, "..."] | None
    permits: Permits
    bad_q: Bool[Array, " n_q"] | None
    bad_k: Bool[Array, " n_k"] | None


def prepare(
    q: Any, k: Any, v: Any, beta: Any, log_prior: Any, mask: Any
) -> tuple[Given, jnp.dtype]:
    """The operands, and the dtype of the result."""
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
    if is_concrete(beta):
        require(beta, jnp.isfinite(beta), "beta", "be finite")
    permits = read_mask(mask, n_q, n_k)
    if log_prior is not None:
        log_prior = as_float("log_prior", log_prior).astype(q.dtype)
        if log_prior.shape not in ((n_k,), (n_q, n_k)):
            rule = f"have shape ({n_k},) or ({n_q}, {n_k})"
            raise must("log_prior", rule, f"of shape {log_prior.shape}")
        # A key of prior mass 0 is forbidden, whatever is stored there.
        allowed = log_prior != -jnp.inf
        log_prior = jnp.where(allowed, log_prior, 0.0)
        along = "keys" if allowed.ndim == 1 else "pairs"
        allowed = every([getattr(permits, along), allowed])
        permits = dataclasses.replace(permits, **{along: allowed})
    q, k, v, bad_q, bad_k = _finite(q, k, v, permits)
    # Scaling the query first keeps the product small (it may be a long sum).
    return Given(q * beta, k, v, log_prior, permits, bad_q, bad_k), dtype


def _finite(q, k, v, permits):
    if permits.nothing:
        return q, k, v, None, None
    bad_q = ~jnp.all(jnp.isfinite(q), axis=1)
    q = jnp.where(bad_q[:, None], 0.0, q)
    if permits.keys is not None:
        seen = permits.keys[:, None]
        k, v = jnp.where(seen, k, 0.0), jnp.where(seen, v, 0.0)
    if permits.by_key:
        return q, k, v, bad_q, None
    bad_k = ~(jnp.all(jnp.isfinite(k), axis=1) & jnp.all(jnp.isfinite(v), axis=1))
    bad = bad_k[:, None]
    return q, jnp.where(bad, 0.0, k), jnp.where(bad, 0.0, v), bad_q, bad_k
