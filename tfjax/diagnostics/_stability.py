"""How far weights of attention are from the threshold of contraction."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, matmul, must, require, widen


class StabilityMargins(NamedTuple):
    """By which factor weights may grow before contraction is no longer certain.

    Above 1 a query contracts, below 1 it may expand.

    - `worst_case`: for any keys within the radius.
    - `typical`: for keys that point in all directions alike, on which the weights are
      nearly uniform; d times as large.
    """

    worst_case: Float[Array, "..."]
    typical: Float[Array, "..."]


def stability_margins(
    query: Float[ArrayLike, "..."] | None,
    key: Float[ArrayLike, "..."] | None,
    value: Float[ArrayLike, "..."] | None,
    *,
    temperature: Float[ArrayLike, ""] | float = 1.0,
    radius: Float[ArrayLike, ""] | float = 1.0,
) -> StabilityMargins:
    r"""How far attention is from the threshold where a query stops contracting.

    With p the softmax weights of a query x over keys y, of logits
    $\langle Q x, K y \rangle / (\tau \sqrt{d_k})$,

    $$\frac{\partial}{\partial x} \sum_j p_j V y_j
      = \frac{V \operatorname{Cov}_p(y) K^\top Q}{\tau \sqrt{d_k}}, \qquad
      |\operatorname{Cov}_p(y)| \le R^2$$

    for keys of norm at most R, so that attention contracts where

    $$|K^\top Q| \, |V| \, R^2 < \tau \sqrt{d_k}$$

    in spectral norms; the margin is the right-hand side over the left. It is sharp: two
    keys at distance R from 0 attain it. For keys in all directions alike the covariance
    is $R^2 / d$, which is 1 for LayerNorm's $R = \sqrt d$, and the margin d times as
    large: a rule for what is typical, no bound. It takes many more keys than
    dimensions: of n keys at random, the covariance has a norm near
    $(1 + \sqrt{d / n})^2 R^2 / d$.

    It is the keys that are fixed here. Where they move with the query, as in
    self-attention, see [`attention_lipschitz`][].

    **Arguments:**

    - `query`, `key`: Q and K, of shape (d_k, d), or (h, d_k, d) for h heads; the
      identity where None.
    - `value`: V, of shape (m, d) or (h, m, d), likewise.
    - `temperature`: tau, positive.
    - `radius`: R, the largest norm of a key, positive: sqrt(d) after LayerNorm without
      scales.

    **Returns:** [`StabilityMargins`][], two scalars, or two arrays of shape (h,);
    infinite where a matrix is 0.

    **Raises:** ValueError where all matrices are None, shapes do not fit, or the
    temperature or radius is not positive.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import stability_margins
        >>> margins = stability_margins(jnp.eye(4), jnp.eye(4), 4 * jnp.eye(4))
        >>> float(margins.worst_case), float(margins.typical)
        (0.5, 2.0)

    Source: own; the covariance is the derivative of the softmax mean.
    """
    matrices, (temperature, radius), dtype = _checked(
        query, key, value, temperature, radius
    )
    query, key, value = matrices
    d_k, d = query.shape[-2:]
    product = _spectral(matmul(jnp.swapaxes(key, -1, -2), query)) * _spectral(value)
    worst = temperature * d_k**0.5 / (product * radius**2)
    return StabilityMargins(worst.astype(dtype), (d * worst).astype(dtype))


def attention_lipschitz(
    query: Float[ArrayLike, "..."] | None,
    key: Float[ArrayLike, "..."] | None,
    value: Float[ArrayLike, "..."] | None,
    n: int,
    *,
    temperature: Float[ArrayLike, ""] | float = 1.0,
    radius: Float[ArrayLike, ""] | float = 1.0,
) -> Float[Array, "..."]:
    r"""A bound on how much self-attention of n tokens stretches, where all tokens move.

    $$|D f(x)| \le \sqrt3 \, |V| \, \bigl( |A|^2 R^4 (4 n + 1) + n \bigr)^{1/2},
      \qquad A = \frac{K^\top Q}{\tau \sqrt{d_k}}$$

    for tokens in the ball of radius R, in spectral norms; over the whole space there is
    no bound.

    **Arguments:** as for [`stability_margins`][], and

    - `n`: the number of tokens.

    **Returns:** the bound, a scalar, or of shape (h,).

    **Raises:** ValueError as [`stability_margins`][].

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.diagnostics import attention_lipschitz
        >>> one = jnp.eye(1)
        >>> round(float(attention_lipschitz(one, one, one, 3)), 3)
        6.928

    Source: V. Castin, P. Ablin, G. Peyre, How Smooth Is Attention?, arXiv 2312.14820,
    section 3.
    """
    matrices, (temperature, radius), dtype = _checked(
        query, key, value, temperature, radius
    )
    query, key, value = matrices
    tokens, scale = count("n", n), temperature * query.shape[-2] ** 0.5
    product = _spectral(matmul(jnp.swapaxes(key, -1, -2), query)) / scale
    inner = product**2 * radius**4 * (4 * tokens + 1) + tokens
    return (3**0.5 * _spectral(value) * jnp.sqrt(inner)).astype(dtype)


def _checked(query: Any, key: Any, value: Any, temperature: Any, radius: Any):
    """Matrices of one number of heads, and positive scalars, wide; and the dtype."""
    named = {"query": query, "key": key, "value": value}
    given = {name: as_float(name, m) for name, m in named.items() if m is not None}
    if not given:
        raise must("value", "be given where `query` and `key` are not", "None")
    d = next(iter(given.values())).shape[-1:]
    heads = {m.shape[0] for m in given.values() if m.ndim == 3}
    for name, m in given.items():
        fits = m.ndim in (2, 3) and m.shape[-1:] == d and 0 not in m.shape
        if not fits or (m.ndim == 3 and len(heads) > 1):
            rule = "have shape (m, d), or (h, m, d), with the d and h of the others"
            raise must(name, rule, f"of shape {m.shape}")
    scalars = {"temperature": temperature, "radius": radius}
    scalars = {name: as_float(name, s) for name, s in scalars.items()}
    for name, s in scalars.items():
        if s.ndim:
            raise must(name, "be a scalar", f"of shape {s.shape}")
        if is_concrete(s):
            require(s, jnp.isfinite(s) & (s > 0), name, "be finite and positive")
    wide, dtype = widen(*given.values(), *scalars.values())
    given = dict(zip(given, wide, strict=False))
    one = jnp.eye(d[0], dtype=wide[0].dtype)
    matrices = tuple(given.get(name, one) for name in named)
    if matrices[0].shape[-2] != matrices[1].shape[-2]:
        rule = f"have as many rows as `query`, {matrices[0].shape[-2]}"
        raise must("key", rule, f"of shape {matrices[1].shape}")
    return matrices, wide[-2:], dtype


def _spectral(matrix: Float[Array, "*h m d"]) -> Float[Array, "*h"]:
    return jnp.linalg.norm(matrix, ord=2, axis=(-2, -1))
