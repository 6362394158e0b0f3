"""Attention as inference: the exact posterior over the keys, given a query."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from .._core import as_float, is_concrete, matmul, must, require, symmetric
from ._base import MaskLike, parts
from ._dense import restricted, shifted, taint
from ._door import Given, prepare
from ._masks import TopK


KINDS = ("full", "diagonal", "none")
Kind = Literal["full", "diagonal", "none"]


class Posterior(NamedTuple):
    """What a query says about the key that it came from.

    - `weights`: the probability of each key.
    - `mean`: of the value, under these.
    - `covariance`: of the value; its diagonal, or None, where that was asked for.
    - `log_evidence`: the logarithm of the density of the query.
    """

    weights: Float[Array, "n_q n_k"]
    mean: Float[Array, "n_q d_v"]
    covariance: Float[Array, "n_q d_v d_v"] | Float[Array, "n_q d_v"] | None
    log_evidence: Float[Array, " n_q"]


def posterior(
    q: Float[ArrayLike, "n_q d_k"],
    k: Float[ArrayLike, "n_k d_k"],
    v: Float[ArrayLike, "n_k d_v"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    log_prior: Float[ArrayLike, "..."] | None = None,
    mask: MaskLike = None,
    covariance: Kind = "full",
) -> Posterior:
    r"""The exact posterior over keys of a Gaussian mixture that drew the queries.

    A query comes from key z, with prior probability $\pi_z$ and a Gaussian error of
    precision $\beta$ in each coordinate:

    $$p(z = j \mid q) = \frac{\pi_j\, N(q; k_j, \beta^{-1} I)}{p(q)}
      \propto \pi_j \exp\Big( \beta \langle q, k_j \rangle
      - \tfrac{\beta}{2} |k_j|^2 \Big), \qquad
      p(q) = \sum_j \pi_j\, N(q; k_j, \beta^{-1} I)$$

    Attention is the posterior mean of $v_z$. [`attend`][] has the same posterior for
    the prior $\propto \pi_j e^{\beta |k_j|^2 / 2}$; for keys of one length that is
    $\pi$ itself, and where queries have unit length too, the mixture is one of
    von Mises-Fisher distributions. With values $v = k$, the mean less the query is
    $\nabla \log p(q) / \beta$.

    It is a local mean (Nadaraya-Watson), not the mean of a Gaussian process, which
    would need the inverse of the keys' kernel matrix. The covariance is that of the
    value of one unknown key: it does not fall with more data.

    **Arguments:**

    - `q`, `k`, `v`: queries, keys and values, as for [`attend`][].
    - `beta`: the precision, a positive scalar; `1/sqrt(d_k)` where None.
    - `log_prior`: log of the prior, of shape (n_k,) or (n_q, n_k), up to a constant: it
      is normalised over the keys that a query may see. -inf forbids a key. None is the
      uniform prior.
    - `mask`: who may attend to whom, as for [`attend`][], but for [`TopK`][], as a
      prior does not depend on the query.
    - `covariance`: `"full"`, `"diagonal"` or `"none"`. The full one takes memory of
      O(n_q (n_k + d_v) d_v), the diagonal one forms no matrix of d_v x d_v. All take
      O(n_q n_k d_k) for the differences of queries and keys, where [`attend`][] takes
      O(n_q n_k).

    **Returns:** a [`Posterior`][]: weights of shape (n_q, n_k), mean of (n_q, d_v),
    covariance of (n_q, d_v, d_v) or (n_q, d_v) or None, log_evidence of (n_q,), in the
    dtype of the arguments (half precision is computed in float32). A query without a
    permitted key gets 0 in all, and -inf for log_evidence, with zero gradient.

    **Raises:** ValueError where shapes do not fit, a mask is not boolean, or `beta` is
    not positive (under jit, a run-time error).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import posterior
        >>> k = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> found = posterior(jnp.array([[0.5, 1.0]]), k, k)
        >>> found.weights.tolist(), found.covariance[0].tolist()
        ([[0.5, 0.5]], [[0.25, -0.5], [-0.5, 1.0]])

    Source: C. M. Bishop, Pattern Recognition and Machine Learning, section 6.3.1, for
    the mean; the evidence is that of the mixture, its section 9.2.
    """
    check_choices(covariance, mask)
    check_prior("log_prior", log_prior)
    # Scaled later: the same beta is in the squares of the keys.
    given, dtype = prepare(q, k, v, 1.0, log_prior, mask)
    beta = precision(beta, given.k, ())
    found = explain(given, beta, covariance)
    rows = lambda a: taint(a.reshape(len(a), -1), found.tainted)
    cast = lambda a: rows(a).astype(dtype).reshape(a.shape)
    return Posterior(
        cast(found.weights),
        cast(found.mean),
        None if found.covariance is None else cast(found.covariance),
        cast(found.log_evidence),
    )


class Explained(NamedTuple):
    """A posterior whose rows are not yet made NaN where that is right.

    `sees` says which queries have a permitted key.
    """

    weights: Float[Array, "n_q n_k"]
    mean: Float[Array, "n_q d_v"]
    covariance: Float[Array, "n_q ..."] | None
    log_evidence: Float[Array, " n_q"]
    sees: Bool[Array, " n_q"]
    tainted: Bool[Array, "n_q 1"] | None


def explain(given: Given, beta: Float[Array, ""], kind: str) -> Explained:
    """The posterior for operands whose queries are not scaled."""
    (n_q, d), n_k = given.q.shape, given.k.shape[0]
    allowed = given.permits.dense(n_q, n_k)
    allowed = jnp.ones((n_q, n_k), bool) if allowed is None else allowed
    allowed = jnp.broadcast_to(allowed, (n_q, n_k))
    prior = jnp.zeros((n_k,), given.k.dtype) if given.prior is None else given.prior
    prior = prior if prior.ndim == 2 else prior[None, :]
    _, _, log_mass = log_total(jnp.where(allowed, prior, -jnp.inf))
    # Differences first: squares less products would cancel far from the origin, and
    # where beta is large.
    apart = given.q[:, None] - given.k[None]
    squares = jnp.where(allowed, jnp.sum(apart * apart, axis=-1), 0.0)
    log_joint, tainted = restricted(given, prior - 0.5 * beta * squares)
    unnormalised, total, log_sum = log_total(log_joint)
    sees = jnp.any(allowed, axis=1)
    log_mass = jnp.where(sees[:, None], log_mass, 0.0)
    constant = 0.5 * d * jnp.log(beta / (2 * jnp.pi))
    log_evidence = (log_sum - log_mass)[:, 0] + constant
    weights = unnormalised / total
    mean = matmul(weights, given.v)
    spread = _covariance(weights, given.v, mean, kind)
    return Explained(weights, mean, spread, log_evidence, sees, tainted)


def log_total(
    logits: Float[Array, "m n"],
) -> tuple[Float[Array, "m n"], Float[Array, "m 1"], Float[Array, "m 1"]]:
    """Exponentials, what to divide them by, and the logarithm of the sum of each row.

    Where all are -inf these are 0, 1 and -inf, with zero gradient.
    """
    _, unnormalised, total = shifted(logits)
    safe = jnp.where(total > 0, total, 1.0)
    # `shifted` has stopped the gradient of the highest logit too.
    top = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
    return unnormalised, safe, top + jnp.log(safe)


def precision(
    beta: Any, k: Float[Array, "*h n_k d_k"], shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """The precision as an array, a scalar or of a shape, checked to be positive."""
    beta = as_float("beta", k.shape[-1] ** -0.5 if beta is None else beta)
    beta = beta.astype(k.dtype)
    if beta.shape not in ((), shape):
        rule = f"be a scalar or have shape {shape}" if shape else "be a scalar"
        raise must("beta", rule, f"of shape {beta.shape}")
    positive = (beta > 0) & jnp.isfinite(beta)
    return require(beta, positive, "beta", "be finite and positive")


def check_choices(covariance: str, mask: Any) -> None:
    """Raises where there is no such covariance, or no such prior."""
    if covariance not in KINDS:
        rule = f"be one of {', '.join(map(repr, KINDS))}"
        raise must("covariance", rule, repr(covariance))
    for part in parts(mask):
        if isinstance(part, TopK):
            rule = "be known without the scores: a prior does not depend on them"
            raise must("mask", rule, repr(part))


def check_prior(name: str, log_prior: Any) -> None:
    """Raises where a prior that is known is no logarithm of a finite mass."""
    if log_prior is not None and is_concrete(log_prior):
        array = as_float(name, log_prior)
        require(array, array < jnp.inf, name, "be less than infinity, and not NaN")


def _covariance(weights, v, mean, kind):
    """Around the mean of each query: the difference of moments would cancel."""
    if kind == "none":
        return None
    apart = v[None] - mean[:, None]
    weighted = weights[:, :, None] * apart
    if kind == "diagonal":
        return jnp.sum(weighted * apart, axis=1)
    return symmetric(matmul(jnp.swapaxes(weighted, 1, 2), apart))
