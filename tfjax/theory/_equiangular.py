"""The equiangular start: one number, the common inner product, tells the whole flow."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, count, is_concrete, must, require
from ..integrate import solve


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

    - `ts`: increasing times from 0 on, of shape (t,), or one time.
    - `n`: the number of tokens, at least 2.
    - `beta`: inverse temperature, a scalar.
    - `normalized`: SA if true, USA otherwise.
    - `gamma0`: γ(0), between -1/(n-1) and 1; 0 is the start of orthogonal tokens.

    **Returns:** γ, in the shape of `ts`. Near 1 use [`equiangular_log_gap`][], which
    keeps the digits of 1 - γ.

    **Raises:** ValueError where n or `gamma0` lies outside, or `ts` is not increasing.

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
    if ts.ndim > 1 or not ts.size:
        raise must("ts", "have shape (t,) or ()", f"of shape {ts.shape}")
    dtype = jnp.result_type(ts, beta, start)
    times = jnp.atleast_1d(ts).astype(dtype)
    tolerance = 1e-12 if jnp.finfo(dtype).bits == 64 else 1e-6
    sol: Any = solve(
        _rate_sa if normalized else _rate_usa,
        start.astype(dtype),
        jnp.stack([jnp.asarray(float(n)), beta]).astype(dtype),
        t1=times[-1],
        ts=times,
        solver=dfx.Dopri8(),
        rtol=tolerance,
        atol=tolerance,
        max_steps=100_000,
    )
    return sol.ys.reshape(ts.shape)


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
        >>> round(float(equiangular_time(0.999, 2, 4.0, gamma0=-0.5)), 4)
        61.3217

    Source: arXiv 2312.10794, theorem 6.8 and section 6.2.
    """
    n, beta, start = _start(n, beta, gamma0)
    gamma = as_float("gamma", gamma)
    if is_concrete(gamma, start):
        fits = (gamma < 1) & (gamma >= -jnp.expm1(start))
        require(gamma, fits, "gamma", "lie between gamma0 and 1")
    return _time(jnp.log1p(-gamma), start, n, beta, normalized)


def phase_curve(
    t: Float[ArrayLike, "..."], n: int, delta: Float[ArrayLike, ""] | float
) -> Float[Array, "..."]:
    r"""The curve beta(t) on which $\gamma_\beta(t) = 1 - \delta$, for SA.

    Below the curve random tokens of a high dimension have met by time t, above it they
    have not: $\Gamma_{\infty,\delta} = \{(t, \beta) : \gamma_\beta(t) = 1 - \delta\}$.

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
    end, start = jnp.log(delta), jnp.zeros_like(delta)
    first = _time(end, start, n, jnp.zeros_like(delta), True)
    if is_concrete(t, first):
        rule = f"be at least {float(first):.6g}, when beta = 0 has met"
        require(t, t >= first, "t", rule)

    def one(t):
        late = lambda log_beta, _: (
            jnp.log(_time(end, start, n, jnp.exp(log_beta), True)) - jnp.log(t)
        )
        eps = float(jnp.finfo(t.dtype).eps)
        # For large beta the time is beyond e^(beta - log(2 n)): an upper bound.
        upper = jnp.log(jnp.log(t) + jnp.log(8.0 * n) + 1)
        solver = optx.Bisection(rtol=8 * eps, atol=8 * eps, flip=False)
        options = {"lower": jnp.asarray(-40.0, t.dtype), "upper": upper.astype(t.dtype)}
        root = optx.root_find(late, solver, jnp.zeros_like(t), options=options)
        return jnp.exp(root.value)

    flat = jnp.reshape(t, (-1,))
    return jax.vmap(one)(flat).reshape(t.shape)


def _tokens(n: Any) -> int:
    if count("n", n) < 2:
        raise must("n", "be at least 2", n)
    return int(n)


def _start(n: Any, beta: Any, gamma0: Any) -> tuple[int, Array, Array]:
    """n, beta and log(1 - gamma0), checked."""
    n = _tokens(n)
    beta, gamma0 = as_float("beta", beta), as_float("gamma0", gamma0)
    for name, value in (("beta", beta), ("gamma0", gamma0)):
        if value.ndim:
            raise must(name, "be a scalar", f"of shape {value.shape}")
    if is_concrete(gamma0):
        fits = (gamma0 > -1 / (n - 1)) & (gamma0 < 1)
        require(
            gamma0, fits, "gamma0", f"lie between -1/(n - 1) = {-1 / (n - 1):g} and 1"
        )
    return n, beta, jnp.log1p(-gamma0)


def _rate_sa(t, s, args):
    n, beta = args
    gap = jnp.exp(s)
    return -2 * (n - (n - 1) * gap) / (jnp.exp(beta * gap) + n - 1)


def _rate_usa(t, s, args):
    n, beta = args
    gap = jnp.exp(s)
    return -2 / n * jnp.exp(beta * (1 - gap)) * (n - (n - 1) * gap)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def _time(end, start, n, beta, normalized):
    """The integral of ds / (ds/dt) from start to end: smooth, so Gauss's rule."""
    dtype = jnp.result_type(end, start, beta)
    nodes, weights = jnp.asarray(_NODES, dtype), jnp.asarray(_WEIGHTS, dtype)
    middle, half = (start + end) / 2, (end - start) / 2
    s = middle + half * nodes
    rate = (_rate_sa if normalized else _rate_usa)(0.0, s, (float(n), beta))
    return half * jnp.sum(weights / rate)
