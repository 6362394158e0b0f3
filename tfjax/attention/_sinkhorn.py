"""Attention whose weights are doubly stochastic, by Sinkhorn's algorithm."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._core import (
    as_float,
    check_shape,
    count,
    is_concrete,
    matmul,
    must,
    require,
    widen,
)
from ._base import MaskLike
from ._door import prepare
from ._masks import existing_tokens, resolve_mask


class Sinkhorn(NamedTuple):
    r"""A doubly stochastic scaling, `log W_ij = f_i + g_j + L_ij`, and how good it is.

    `log_weights`: log W, of shape (n, n), -inf where forbidden. `row_potential` and
    `column_potential`: f and g, of shape (n,), of equal mean; 0 for absent tokens.
    `row_error` and `column_error`: the largest `|sum - 1|` of a row and a column of W.
    `converged`: whether both are within the tolerance. `steps`: how many were taken.
    """

    log_weights: Float[Array, "n n"]
    row_potential: Float[Array, " n"]
    column_potential: Float[Array, " n"]
    row_error: Float[Array, ""]
    column_error: Float[Array, ""]
    converged: Bool[Array, ""]
    steps: Int[Array, ""]


def sinkhorn(
    logits: Float[ArrayLike, "n n"],
    *,
    mask: MaskLike = None,
    symmetric: bool = False,
    tol: Float[ArrayLike, ""] | float | None = None,
    max_steps: int = 1000,
) -> Sinkhorn:
    r"""Scales `exp(logits)` so that its rows and columns sum to 1, in the log domain.

    $$\log W_{ij} = f_i + g_j + L_{ij}, \qquad
      f_i = -\log \sum_j e^{g_j + L_{ij}}, \quad g_j = -\log \sum_i e^{f_i + L_{ij}}$$

    The two equations are solved in turn. Symmetric logits have `f = g = u`, for which
    the step is `u_i <- (u_i - log sum_j exp(u_j + L_ij)) / 2`; it halves the error of
    positive definite kernels, such as that of tokens with themselves. The best
    potentials so far are kept: more steps never mean a larger error. Gradients are
    those of the solution (by the implicit function theorem), in both modes.

    **Arguments:**

    - `logits`: L, of shape (n, n).
    - `mask`: what `mask` of [`attend`][] may be, but for [`TopK`][]. Booleans of shape
      (n,) say which tokens exist: the others have neither row nor column.
    - `symmetric`: take the symmetric part of the logits (and of the mask).
    - `tol`: when to stop, by the largest error of a row or column sum; where None,
      `8 eps max(1, max |L|)`, with eps the rounding unit of the dtype.
    - `max_steps`: how many steps to take at most.

    **Returns:** a [`Sinkhorn`][]. Where it has not `converged`, it is the best found: a
    mask may leave no scaling at all, and kernels close to a permutation need many
    steps. Where such a kernel falls apart into blocks within rounding, the weights
    between the blocks are 0 and the gradients of their logarithms are not determined,
    unless it is symmetric.

    **Raises:** ValueError where logits are not square or a mask does not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import sinkhorn
        >>> scaled = sinkhorn(jnp.array([[0.0, -2.0], [-2.0, -1.0]]))
        >>> [round(float(w), 4) for w in jnp.exp(scaled.log_weights).ravel()]
        [0.8176, 0.1824, 0.1824, 0.8176]

    Source: arXiv 2110.11773, section 3; arXiv 2312.10794, remark 3.5.
    """
    logits = as_float("logits", logits)
    check_shape("logits", logits, 2, "(n, n)")
    n = logits.shape[0]
    if logits.shape[1] != n:
        raise must("logits", "have shape (n, n)", f"of shape {logits.shape}")
    (logits,), dtype = widen(logits)
    exists, allowed = resolve_mask(mask, n)
    if exists is None:
        exists = jnp.ones(n, bool)
    elif allowed is None:
        allowed = exists[:, None] & exists[None, :]
    if allowed is not None:
        logits = jnp.where(allowed, logits, -jnp.inf)
    if symmetric:
        logits = 0.5 * logits + 0.5 * logits.T
    # A constant changes nothing but the potentials; taking it away saves digits.
    shift = jnp.max(jnp.where(jnp.isfinite(logits), logits, -jnp.inf))
    shift = jax.lax.stop_gradient(jnp.where(jnp.isfinite(shift), shift, 0.0))
    logits = logits - shift
    tol = _tolerance(tol, logits)
    max_steps = count("max_steps", max_steps)
    f, g, errors, steps = _scale(symmetric, max_steps, logits, exists, tol)
    log_weights = f[:, None] + g[None, :] + logits
    f, g = (jnp.where(exists, each - 0.5 * shift, 0.0) for each in (f, g))
    row_error, column_error = errors.astype(dtype)
    return Sinkhorn(
        log_weights.astype(dtype),
        f.astype(dtype),
        g.astype(dtype),
        row_error,
        column_error,
        jnp.max(errors) <= tol,
        steps,
    )


def attend_sinkhorn(
    q: Float[ArrayLike, "n d_k"],
    k: Float[ArrayLike, "n d_k"],
    v: Float[ArrayLike, "n d_v"],
    *,
    beta: Float[ArrayLike, ""] | float | None = None,
    mask: MaskLike = None,
    symmetric: bool = False,
    tol: Float[ArrayLike, ""] | float | None = None,
    max_steps: int = 1000,
) -> Float[Array, "n d_v"]:
    r"""Sinkhorn attention: the values under doubly stochastic weights.

    $$y_i = \sum_j W_{ij} v_j, \qquad
      W = \text{the scaling of } e^{\beta \langle q_i, k_j \rangle}$$

    **Arguments:**

    - `q`, `k`, `v`, `beta`: as for [`attend`][], with as many queries as keys.
    - `mask`, `symmetric`, `tol`, `max_steps`: as for [`sinkhorn`][]. `q = k` is
      symmetric.

    **Returns:** the means, of shape (n, d_v), in the dtype of the arguments; 0 for
    absent tokens. NaN where the scaling has not converged, which only happens under
    jit.

    **Raises:** ValueError where shapes do not fit, or where the scaling does not
    converge (outside jit).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.attention import attend_sinkhorn
        >>> x = jnp.eye(2)
        >>> attend_sinkhorn(x, x, x, beta=0.0).tolist()
        [[0.5, 0.5], [0.5, 0.5]]

    Source: arXiv 2110.11773, section 3; arXiv 2312.10794, remark 3.5.
    """
    q, k, v = as_float("q", q), as_float("k", k), as_float("v", v)
    check_shape("k", k, 2, "(n, d_k)")
    n = k.shape[0]
    if q.shape[:1] != (n,):
        raise must("q", f"have {n} rows, as many as the keys", f"of shape {q.shape}")
    exists = existing_tokens(mask, n)
    if exists is not None and v.shape[:1] == (n,):
        q, k, v = (jnp.where(exists[:, None], each, 0.0) for each in (q, k, v))
    given, dtype = prepare(q, k, v, beta, None, None)
    logits = matmul(given.q, given.k.T)
    if is_concrete(logits):
        finite = jnp.all(jnp.isfinite(logits))
        require(q, finite, "q", "be finite, and so must k and their products")
    scaled = sinkhorn(
        logits,
        mask=mask,
        symmetric=symmetric,
        tol=tol,
        max_steps=max_steps,
    )
    out = matmul(jnp.exp(scaled.log_weights), given.v)
    if is_concrete(out, scaled) and not bool(scaled.converged):
        error = max(float(scaled.row_error), float(scaled.column_error))
        got = f"{max_steps}: a row or column sums to 1 within {error:.1e} only"
        raise must("max_steps", "let Sinkhorn's algorithm converge", got)
    nan = jnp.asarray(jnp.nan, out.dtype)
    return jnp.where(scaled.converged, out, nan).astype(dtype)


def _tolerance(value: Any, logits: Array) -> Array:
    if value is None:
        sizes = jnp.where(jnp.isfinite(logits), jnp.abs(logits), 0.0)
        size = jax.lax.stop_gradient(jnp.max(sizes))
        return 8.0 * float(jnp.finfo(logits.dtype).eps) * jnp.maximum(size, 1.0)
    tolerance = as_float("tol", value).astype(logits.dtype)
    if tolerance.ndim:
        raise must("tol", "be a scalar", f"of shape {tolerance.shape}")
    return require(tolerance, tolerance > 0, "tol", "be positive")


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _scale(symmetric, max_steps, logits, exists, tol):
    return _iterate(symmetric, max_steps, logits, exists, tol)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _iterate(symmetric, max_steps, logits, exists, tol):
    """The best f and g, the errors of their rows and columns, and how many steps."""
    n = logits.shape[0]

    def minus_log_sum(logits, potential):
        """-log sum_j exp(L_ij + potential_j); 0 for rows of which nothing is left."""
        logits = logits + potential[None, :]
        top = jnp.max(logits, axis=1)
        top = jnp.where(top == -jnp.inf, 0.0, top)
        total = jnp.sum(jnp.exp(logits - top[:, None]), axis=1)
        return jnp.where(total == 0, 0.0, -top - jnp.log(total))

    def errors(f, g):
        weights = jnp.exp(f[:, None] + g[None, :] + logits)
        sums = jnp.stack([jnp.sum(weights, axis=1), jnp.sum(weights, axis=0)])
        return jnp.max(jnp.where(exists[None, :], jnp.abs(sums - 1), 0.0), axis=1)

    def step(state):
        steps, g, best, least = state
        if symmetric:
            f = g = 0.5 * (g + minus_log_sum(logits, g))
        else:
            f = minus_log_sum(logits, g)
            g = minus_log_sum(logits.T, f)
        found = errors(f, g)
        better = jnp.max(found) < jnp.max(least)
        new = ((f, g), found)
        best, least = jax.tree.map(
            lambda a, b: jnp.where(better, a, b), new, (best, least)
        )
        return steps + 1, g, best, least

    def unfinished(state):
        steps, _, _, least = state
        return (steps < max_steps) & (jnp.max(least) > tol)

    zero = jnp.zeros(n, logits.dtype)
    none = jnp.full(2, jnp.inf, logits.dtype)
    state = (jnp.asarray(0), zero, (zero, zero), none)
    steps, _, (f, g), least = jax.lax.while_loop(unfinished, step, state)
    f, g = _centred(f, g, exists)
    return f, g, least, steps


def _centred(f, g, exists):
    """The same scaling with potentials of equal mean; what is absent stays 0."""
    number = jnp.maximum(jnp.sum(exists, dtype=f.dtype), 1.0)
    shift = 0.5 * jnp.sum(jnp.where(exists, f - g, 0.0)) / number
    return jnp.where(exists, f - shift, 0.0), jnp.where(exists, g + shift, 0.0)


@_scale.defjvp
def _scale_rule(symmetric, max_steps, primals, tangents):
    logits, exists, _ = primals
    out = _scale(symmetric, max_steps, *primals)
    f, g, errors, steps = out
    n = logits.shape[0]
    weights = jnp.exp(f[:, None] + g[None, :] + logits)
    change = jnp.where(logits == -jnp.inf, 0.0, tangents[0])
    rows, columns = jnp.sum(weights * change, 1), jnp.sum(weights * change, 0)
    # The system is singular where the kernel falls apart; the derivative of the
    # weights is right whichever solution is taken, and a ridge takes a finite one.
    ridge = n * float(jnp.finfo(logits.dtype).eps) * jnp.eye(n, dtype=logits.dtype)
    eye = jnp.eye(n, dtype=logits.dtype)
    if symmetric:
        df = dg = -_solve(eye + weights + ridge, rows)
    else:
        # Shifting f against g changes nothing: that direction is pinned at 0.
        one = exists.astype(logits.dtype)
        pinned = jnp.outer(one, one) / jnp.maximum(jnp.sum(one), 1.0)
        system = eye - matmul(weights, weights.T) + pinned + ridge
        df = _solve(system, matmul(weights, columns[:, None])[:, 0] - rows)
        dg = -columns - matmul(weights.T, df[:, None])[:, 0]
        df, dg = _centred(df, dg, exists)
    no_steps = jnp.zeros(steps.shape, jax.dtypes.float0)
    return out, (df, dg, jnp.zeros_like(errors), no_steps)


def _solve(matrix, right):
    return jnp.linalg.solve(matrix, right[:, None])[:, 0]
