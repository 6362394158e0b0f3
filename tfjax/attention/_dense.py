"""All pairs at once: their logits, and what a softmax needs of them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core import matmul
from ._base import every
from ._door import Given
from ._top import among_the_highest


def logits_of(
    given: Given,
) -> tuple[Float[Array, "n_q n_k"], Bool[Array, "n_q 1"] | None]:
    """All logits, -inf where forbidden; and which rows are NaN by right, if any may."""
    logits = matmul(given.q, given.k.T)
    if given.prior is not None:
        logits = logits + (
            given.prior if given.prior.ndim == 2 else given.prior[None, :]
        )
    return restricted(given, logits)


def restricted(
    given: Given, logits: Float[Array, "n_q n_k"]
) -> tuple[Float[Array, "n_q n_k"], Bool[Array, "n_q 1"] | None]:
    """Logits made -inf where forbidden; and which rows are NaN by right, if any may."""
    if given.bad_q is None:
        return logits, None  # nothing is masked
    bad = given.bad_q[:, None]
    if given.bad_k is not None:
        bad = bad | given.bad_k[None, :]
    allowed = given.permits.dense(*logits.shape)
    if given.permits.top is not None:
        chosen = among_the_highest(logits, allowed, bad, given.permits.top)
        allowed = every([allowed, chosen])
    assert allowed is not None
    logits = jnp.where(allowed, logits, -jnp.inf)
    return logits, jnp.any(allowed & bad, axis=1, keepdims=True)


def taint(
    out: Float[Array, "n_q m"], tainted: Bool[Array, "n_q 1"] | None
) -> Float[Array, "n_q m"]:
    """The rows that are NaN by right made NaN, with zero gradient."""
    if tainted is None:
        return out
    return jnp.where(tainted, jnp.asarray(jnp.nan, out.dtype), out)


def shifted(
    logits: Float[Array, "n_q n_k"],
) -> tuple[Float[Array, "n_q n_k"], Float[Array, "n_q n_k"], Float[Array, "n_q 1"]]:
    """Logits less their row maximum, their exponentials and the sums of these."""
    top = jnp.max(logits, axis=1, keepdims=True)
    top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0.0, top))
    below = logits - top
    unnormalised = jnp.exp(below)
    return below, unnormalised, jnp.sum(unnormalised, axis=1, keepdims=True)
