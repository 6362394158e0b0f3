"""The families of random matrices Q, K and V whose phase diagrams the paper draws."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...fields import AttentionParams


class Family(NamedTuple):
    """How B = Q^T K is drawn, and what V is beside it."""

    bilinear: str
    value: str


FAMILIES = {
    "Q, K Ginibre, V = I": Family("product", "identity"),
    "B Wigner, V = I": Family("wigner", "identity"),
    "B GOE, V = I": Family("symmetric", "identity"),
    "Q, K Ginibre, V Wishart": Family("product", "wishart"),
    "B Wigner, V Wishart": Family("wigner", "wishart"),
    "B GOE, V Wishart": Family("symmetric", "wishart"),
    "Q, K Ginibre, V = B / √d": Family("product", "same"),
    "B Wigner, V = B / √d": Family("wigner", "same"),
    "B GOE, V = B / √d": Family("symmetric", "same"),
    "Q, K Ginibre, V = -B / √d": Family("product", "opposite"),
    "B Wigner, V = -B / √d": Family("wigner", "opposite"),
    "B GOE, V = -B / √d": Family("symmetric", "opposite"),
}


def draw_weights(key: Array, family: Family, d: int) -> AttentionParams:
    """Query, key and value of one draw, with beta = 1; None is the identity.

    Off the diagonal the entries of B have variance 1, and so on it for Ginibre's and
    Wigner's; for GOE there 2. Wishart matrices have mean I.
    """
    first, second, third = jax.random.split(key, 3)
    q, k, g = (
        jax.random.normal(part, (d, d), jnp.float32) for part in (first, second, third)
    )
    if family.bilinear == "product":
        query, keys = q / d**0.25, k / d**0.25
        whole = query.T @ keys
    else:
        whole = (q + q.T) / np.sqrt(2.0).astype(np.float32)
        if family.bilinear == "wigner":
            whole = jnp.where(jnp.eye(d, dtype=bool), q, whole)
        query, keys = whole, None
    value = {
        "identity": None,
        "wishart": g @ g.T / d,
        "same": whole / d**0.5,
        "opposite": -whole / d**0.5,
    }[family.value]
    return AttentionParams(beta=1.0, query=query, key=keys, value=value)
