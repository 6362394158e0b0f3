"""The equiangular start: one number, the common inner product, tells the whole flow.

In the variable w = log((1 + (n-1) γ) / (1 - γ)) the flow is w' = 2 where β = 0. In
general t(w) is the integral of a function that is analytic in a wide strip and tends
to a constant, so that quadrature is exact to rounding, next to consensus too; γ(t) is
found by inverting it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, must, require


def equiangular(
    ts: Float[ArrayLike, "..."],
    n: int,
    beta: Float[ArrayLike, ""] | float,
    *,
    normalized: bool = True,
    gamma0: Float[ArrayLike, ""] | float = 0.0,
) -> Float[Array, "..."]:
    r"""The common inner product γ(t) of tokens that start with equal inner products.

    $$\dot\gamma = \frac{2 e^{\beta\gamma} (1 - \gamma) ((n - 1)\gamma + 1)}
      {e^\beta + (n - 1) e^{\beta\gamma}} \ \text{(SA)}, \qquad
      \dot\gamma = \tfrac2n e^{\beta\gamma} (1 - \gamma) ((n - 1)\gamma + 1)
      \ \text{(USA)}$$

    **Arguments:**

    - `ts`: times, of any shape, not negative.
    - `n`: the number of tokens, at least 2.
    - `beta`: inverse temperature, a scalar.
    - `normalized`: SA if true, USA otherwise.
    - `gamma0`: γ(0), between -1/(n-1) and 1; 0 is the start of orthogonal tokens.

    **Returns:** γ, in the shape of `ts`, differentiable in both modes and twice. Near 1
    use [`equiangular_log_gap`][], which keeps the digits of 1 - γ. At beta = 0 it is
    $(e^{2t} q - 1) / (e^{2t} q + n - 1)$ with
    $q = (1 + (n - 1) \gamma_0) / (1 - \gamma_0)$.

    **Raises:** ValueError where n or `gamma0` lies outside, `beta` is not finite, or a
    time is negative or not finite.

    !!! example

        >>> from tfjax.theory import equiangular
        >>> round(float(equiangular(1.0, 32, 1.0)), 3)
        0.152

    Source: arXiv 2312.10794, theorem 6.8.
    """
    gap = equiangular_log_gap(ts, n, beta, normalized=normalized, gamma0=gamma0)
    return -jnp.expm1(gap)


def equiangular_log_gap(
    ts: Float[ArrayLike, "..."],
    n: int,
    beta: Float[ArrayLike, ""] | float,
    *,
    normalized: bool = True,
    gamma0: Float[ArrayLike, ""] | float = 0.0,
) -> Float[Array, "..."]:
    r"""The logarithm of 1 - γ(t), whose digits survive however close the tokens are.

    $$s = \log(1 - \gamma), \qquad
      \dot s = -\frac{2 ((n - 1)\gamma + 1)}{e^{\beta (1 - \gamma)} + n - 1}
      \ \text{(SA)}$$

    **Arguments:** as for [`equiangular`][].

    **Returns:** s, in the shape of `ts`.

    **Raises:** as [`equiangular`][].

    !!! example

        >>> from tfjax.theory import equiangular_log_gap
        >>> round(float(equiangular_log_gap(100.0, 32, 1.0)), 1)
        -196.4

    Source: arXiv 2312.10794, theorem 6.8.
    """
    n, beta, start = _start(n, beta, gamma0)
    ts = as_float("ts", ts)
    if is_concrete(ts):
        fits = jnp.all(jnp.isfinite(ts) & (ts >= 0))
        require(ts, fits, "ts", "be finite and not negative")
    dtype = jnp.result_type(ts, beta, start)
    times, beta, start = (each.astype(dtype) for each in (ts, beta, start))
    one = lambda t: _logistic_at(t, start, n, beta, normalized)
    w = jax.vmap(one)(times.reshape(-1)).reshape(times.shape)
    return np.log(n) - jnp.logaddexp(w, np.log(n - 1))


def equiangular_time(
    gamma: Float[ArrayLike, ""] | float,
    n: int,
    beta: Float[ArrayLike, ""] | float,
    *,
    normalized: bool = True,
    gamma0: Float[ArrayLike, ""] | float = 0.0,
) -> Float[Array, ""]:
    r"""When the common inner product reaches γ, by quadrature: it may be 1e9 or more.

    With n = 2 it is the merge time of two tokens that start at inner product `gamma0`;
    for large beta that is of the order of $e^{\beta (1 - \gamma_0)}$.

    **Arguments:**

    - `gamma`: the inner product to reach, from `gamma0` to below 1.
    - `n`, `beta`, `normalized`, `gamma0`: as for [`equiangular`][].

    **Returns:** the time, a scalar.

    **Raises:** ValueError where n, `gamma` or `gamma0` lies outside.

    !!! example

        >>> from tfjax.theory import equiangular_time
        >>> round(float(equiangular_time(0.999, 2, 4.0, gamma0=-0.5)), 1)
        61.3

    Source: arXiv 2312.10794, theorem 6.8 and section 6.2.
    """
    n, beta, start = _start(n, beta, gamma0)
    gamma = as_float("gamma", gamma)
    end = _logistic(gamma, n)
    if is_concrete(gamma, start):
        fits = (gamma < 1) & (end >= start)
        require(gamma, fits, "gamma", "lie between gamma0 and 1")
    return _time(end, start, n, beta, normalized)


def phase_curve(
    t: Float[ArrayLike, "..."], n: int, delta: Float[ArrayLike, ""] | float
) -> Float[Array, "..."]:
    r"""The curve beta(t) on which $\gamma_\beta(t) = 1 - \delta$, for SA.

    Below the curve random tokens of a high dimension have met by time t, above it they
    have not: $\Gamma_{\infty,\delta} = \{(t, \beta) : \gamma_\beta(t) = 1 - \delta\}$.
    (The paper's $\Gamma_{d,\delta}$ for finite d asks for a probability of
    $1 - 2 n^2 d^{-1/64}$, which is negative in any dimension within reach; the
    experiment `phase-diagrams` shows the probability itself.)

    **Arguments:**

    - `t`: times, of any shape, later than the meeting at beta = 0.
    - `n`: the number of tokens, at least 2.
    - `delta`: how close the tokens are to have met, between 0 and 1.

    **Returns:** beta, in the shape of `t`; differentiable.

    **Raises:** ValueError where n or `delta` lies outside, or where a time is so early
    that no beta >= 0 reaches $1 - \delta$ by then.

    !!! example

        >>> from tfjax.theory import phase_curve
        >>> round(float(phase_curve(30.0, 32, 1e-3)), 4)
        6.9065

    Source: arXiv 2312.10794, equation (6.12).
    """
    n = _tokens(n)
    t, delta = as_float("t", t), as_float("delta", delta)
    if is_concrete(delta):
        require(delta, (delta > 0) & (delta < 1), "delta", "lie between 0 and 1")
    end, start = jnp.log(n - (n - 1) * delta) - jnp.log(delta), jnp.zeros_like(delta)
    first = _time(end, start, n, jnp.zeros_like(delta), True)
    if is_concrete(t, first):
        rule = f"be finite, and at least {float(first):.6g}, when beta = 0 has met"
        require(t, jnp.isfinite(t) & (t >= first), "t", rule)

    def one(t):
        late = lambda log_beta: (
            jnp.log(_time(end, start, n, jnp.exp(log_beta), True)) - jnp.log(t)
        )
        # For large beta the time is beyond e^(beta - log(2 n)): an upper bound.
        upper = jnp.log(jnp.log(t) + jnp.log(8.0 * n) + 1)
        return jnp.exp(_increasing_root(late, jnp.full_like(t, -40.0), upper))

    flat = jnp.reshape(t, (-1,))
    return jax.vmap(one)(flat).reshape(t.shape)


def _tokens(n: Any) -> int:
    if count("n", n) < 2:
        raise must("n", "be at least 2", n)
    return int(n)


def _start(n: Any, beta: Any, gamma0: Any) -> tuple[int, Array, Array]:
    """n, beta and the start in the variable w, checked."""
    n = _tokens(n)
    beta, gamma0 = as_float("beta", beta), as_float("gamma0", gamma0)
    for name, value in (("beta", beta), ("gamma0", gamma0)):
        if value.ndim:
            raise must(name, "be a scalar", f"of shape {value.shape}")
    if is_concrete(beta):
        require(beta, jnp.isfinite(beta), "beta", "be finite")
    if is_concrete(gamma0):
        fits = (gamma0 > -1 / (n - 1)) & (gamma0 < 1)
        require(
            gamma0, fits, "gamma0", f"lie between -1/(n - 1) = {-1 / (n - 1):g} and 1"
        )
    return n, beta, _logistic(gamma0, n)


def _logistic(gamma, n):
    return jnp.log1p((n - 1) * gamma) - jnp.log1p(-gamma)


# Sixteen panels of 24 nodes: the integrand has its poles at a distance of pi.
_PANELS = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_NODES = ((_NODES + 1) / 2 + np.arange(_PANELS)[:, None]).ravel() / _PANELS
_WEIGHTS = np.tile(_WEIGHTS, _PANELS) / (2 * _PANELS)


def _time(end, start, n, beta, normalized):
    r"""The time from w = start to w = end.

    $$2t = w - w_0 + \frac1n \int_{w_0}^w (e^{\beta (1 - \gamma)} - 1)\, dw
      \ \text{(SA)}$$

    with $1 - \gamma = n / (e^w + n - 1)$; USA: without 1/n, and divided by $e^\beta$.
    """
    dtype = jnp.result_type(end, start, beta)
    nodes, weights = jnp.asarray(_NODES, dtype), jnp.asarray(_WEIGHTS, dtype)
    # From there on the integrand is below rounding.
    last = np.log(n) + 40 + jnp.log1p(jnp.abs(beta))
    stop = jnp.maximum(jnp.minimum(end, last), start)
    w = start + (stop - start) * nodes
    gap = jnp.exp(np.log(n) - jnp.logaddexp(w, np.log(n - 1)))
    excess = (stop - start) * jnp.sum(weights * jnp.expm1(beta * gap))
    if normalized:
        return (end - start + excess / n) / 2
    return jnp.exp(-beta) * (end - start + excess) / 2


def _logistic_at(t, start, n, beta, normalized):
    """The w at time t: its rate lies between those at the start and at consensus."""
    gap = jnp.exp(np.log(n) - jnp.logaddexp(start, np.log(n - 1)))
    if normalized:
        first, last = 2 * n / (jnp.exp(beta * gap) + n - 1), jnp.full_like(beta, 2.0)
    else:
        first, last = 2 * jnp.exp(beta * (1 - gap)), 2 * jnp.exp(beta)
    lower = start + t * jnp.minimum(first, last)
    upper = start + t * jnp.maximum(first, last)
    late = lambda w: _time(w, start, n, beta, normalized) - t
    return _increasing_root(late, lower, upper)


def _increasing_root(function, lower, upper) -> Array:
    """The root of an increasing function, by bisection, with implicit derivatives."""
    lower, upper = jax.lax.stop_gradient((lower, upper))

    def bisect(function, _):
        def halve(_, bracket):
            low, high = bracket
            middle = (low + high) / 2
            late = function(middle) > 0
            return jnp.where(late, low, middle), jnp.where(late, middle, high)

        # Halvings beyond the digits of the dtype change nothing.
        low, high = jax.lax.fori_loop(0, 80, halve, (lower, upper))
        return (low + high) / 2

    linear = lambda slope, y: y / slope(jnp.ones_like(y))
    return jax.lax.custom_root(function, lower, bisect, linear)
