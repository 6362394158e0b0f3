"""Events that end a solve: one cluster, a first merge, a steady state."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from .._core import (
    as_float,
    check_shape,
    connected_components,
    is_concrete,
    matmul,
    must,
)
from ._padding import existing_rows
from ._projected import Projected
from ._root import BracketedNewton


def one_cluster(threshold: Float[ArrayLike, ""] | float = 0.99) -> dfx.Event:
    r"""Ends a solve when all tokens on the sphere have come within one cap.

    The event occurs where
    $$\min_{i \ne j} \langle x_i, x_j \rangle - \text{threshold}$$
    becomes positive, over the tokens that exist by `args.mask`; at `t0` where it is
    so from the start. A root finder locates the time within the step, to rounding on
    the interpolated trajectory, which is as accurate as the solve.

    The time, `ts[-1]` of a record of `t1`, is differentiable by
    $dt^* = -(\partial_\theta g\, d\theta) / \dot g$ for the function $g$ above, except
    where several pairs attain the minimum (the gradient is then their average) and
    for an event at `t0` (it is then 0).

    **Arguments:**

    - `threshold`: the inner product that all pairs of tokens must exceed, in (-1, 1).

    **Returns:** a `diffrax.Event`, for `solve(event=)` or `diffrax.diffeqsolve`. The
    solution tells by `diffrax.is_event(solution.result)` whether it occurred; where it
    did not, the solve ran to `t1`.

    **Raises:** ValueError where `threshold` is not a scalar in (-1, 1).

    !!! example

        >>> import diffrax, jax.numpy as jnp, tfjax
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> from tfjax.geometry import Sphere
        >>> from tfjax.integrate import one_cluster
        >>> x0, args = jnp.eye(2), AttentionParams(beta=0.0)
        >>> kwargs = {"manifold": Sphere(2), "event": one_cluster(0.6)}
        >>> sol = tfjax.solve(self_attention, x0, args, t1=9.0, **kwargs)
        >>> bool(diffrax.is_event(sol.result)), f"{sol.ts[-1]:.4f}"
        (True, '0.6931')

    Source: own; the cluster of arXiv 2312.10794, section 6. The example is its
    equation (6.9) for two tokens: the inner product is tanh t, and artanh .6 = log 2.
    """
    return _upwards(_OneCluster(_threshold(threshold)))


def first_merge(
    threshold: Float[ArrayLike, ""] | float = 0.99,
    *,
    start: Float[ArrayLike, "n d"] | None = None,
) -> dfx.Event:
    r"""Ends a solve when two clusters on the sphere that started apart first meet.

    The event occurs where
    $$\max_{i, j \text{ apart}} \langle x_i, x_j \rangle - \text{threshold}$$
    becomes positive. Tokens are apart if they exist and are in different connected
    components of the graph of the pairs above the threshold at the start. So
    pairs that are close from the start are no merge; a set that starts as one cluster
    never has one. Time and derivatives are as in [`one_cluster`][].

    **Arguments:**

    - `threshold`: the inner product above which two tokens are joined, in (-1, 1).
    - `start`: the tokens at the start, of shape (n, d). `solve` and `solve_ensemble`
      take those of each solve where it is None; in a plain `diffrax.diffeqsolve`, and
      to go on with a solve that has begun earlier, it must be given.

    **Returns:** a `diffrax.Event`, as [`one_cluster`][].

    **Raises:** ValueError where `threshold` is not a scalar in (-1, 1), where `start`
    is not of shape (n, d), and in a plain `diffrax.diffeqsolve` where it is None.

    !!! example

        >>> import diffrax, jax, tfjax
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> from tfjax.geometry import Sphere
        >>> from tfjax.integrate import first_merge
        >>> x0, args = Sphere(3).random(jax.random.key(0), (8,)), AttentionParams(4.0)
        >>> kwargs = {"manifold": Sphere(3), "event": first_merge()}
        >>> sol = tfjax.solve(self_attention, x0, args, t1=50.0, **kwargs)
        >>> bool(diffrax.is_event(sol.result))
        True

    Source: own; the merges of metastable clusters are those of arXiv 2410.06833.
    """
    merge = _FirstMerge(_threshold(threshold), None)
    if start is not None:
        start = as_float("start", start)
        check_shape("start", start, 2, "(n, d)")
        merge = merge.starting(start)
    return _upwards(merge)


def steady_state(
    rtol: Float[ArrayLike, ""] | float = 1e-6,
    atol: Float[ArrayLike, ""] | float = 1e-6,
) -> dfx.Event:
    r"""Ends a solve at the first step after which the state hardly moves.

    The event occurs where $|f| < \text{atol} + \text{rtol}\, |y|$, with the root mean
    square over all entries of tokens that exist, and $f$ the velocity; on a manifold,
    given as `solve(manifold=)` or by [`Projected`][], its tangential part.

    This is a condition and not a function with a root: the time is the end of a
    step, the derivatives of which are 0, whatever the true time's are. Take the
    derivatives of the state, or of the time of another event.

    **Arguments:**

    - `rtol`: the speed that counts as rest, relative to the size of the state.
    - `atol`: the same in absolute terms; the larger of the two decides.

    **Returns:** a `diffrax.Event`, as [`one_cluster`][].

    **Raises:** ValueError where a tolerance is not a finite scalar, or is negative.

    !!! example

        >>> import diffrax, jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import steady_state
        >>> decay = lambda t, y, args: -y
        >>> event = steady_state(rtol=0.0, atol=1e-3)
        >>> sol = tfjax.solve(decay, jnp.ones(3), t1=100.0, event=event)
        >>> bool(diffrax.is_event(sol.result)), 6.9 < float(sol.ts[-1]) < 9.0
        (True, True)

    Source: the idea of `diffrax.steady_state_event`.
    """
    tolerances = []
    for name, value in (("rtol", rtol), ("atol", atol)):
        value = as_float(name, value)
        if value.ndim:
            raise must(name, "be a scalar", f"of shape {value.shape}")
        if is_concrete(value) and not 0 <= float(value) < np.inf:
            raise must(name, "be finite and not negative", float(value))
        tolerances.append(value)
    return dfx.Event(_SteadyState(*tolerances))


def starting(event: dfx.Event | None, y0: PyTree, args: PyTree) -> dfx.Event | None:
    """The event, told where the solve starts if it asks for that."""
    if event is None:
        return None
    asks = lambda c: isinstance(c, _FirstMerge) and c.apart is None
    told = lambda c: c.starting(y0, existing_rows(y0, args)) if asks(c) else c
    conditions = jax.tree.map(told, event.cond_fn, is_leaf=asks)
    return eqx.tree_at(lambda e: e.cond_fn, event, conditions)


def _threshold(value):
    threshold = as_float("threshold", value)
    if threshold.ndim:
        raise must("threshold", "be a scalar", f"of shape {threshold.shape}")
    if is_concrete(threshold) and not -1 < float(threshold) < 1:
        raise must("threshold", "lie between -1 and 1", float(threshold))
    return threshold


def _upwards(condition):
    """The event of a function that becomes positive, or is so from the start."""
    conditions = (condition, _Already(condition))
    return dfx.Event(conditions, BracketedNewton(), (True, None))


class _Already(eqx.Module):
    """Occurs at the start or never: later, the crossing occurs in the same step."""

    condition: Any

    def __call__(self, t, y, args, **kwargs):
        return self.condition(t, y, args, **kwargs) > 0


class _OneCluster(eqx.Module):
    threshold: Float[Array, ""]

    def __call__(self, t, y, args, **kwargs):
        products, pairs = _products(y, existing_rows(y, args))
        # One token is a cluster: it has no pair, and counts as close to itself.
        return jnp.min(jnp.where(pairs, products, 1.0)) - _cast(self.threshold, y)


class _FirstMerge(eqx.Module):
    threshold: Float[Array, ""]
    apart: Bool[Array, "n n"] | None

    def __call__(self, t, y, args, **kwargs):
        if self.apart is None:
            rule = "be given to first_merge outside of tfjax.solve"
            raise must("start", rule, "None")
        products, pairs = _products(y, existing_rows(y, args))
        if self.apart.shape != pairs.shape:
            n = self.apart.shape[0]
            raise must("start", f"hold the {len(y)} tokens of the state", f"of {n}")
        pairs = pairs & self.apart
        return jnp.max(jnp.where(pairs, products, -1.0)) - _cast(self.threshold, y)

    def starting(self, x, exists=None):
        products, pairs = _products(x, exists)
        labels = connected_components((products > _cast(self.threshold, x)) & pairs)
        return _FirstMerge(self.threshold, labels[:, None] != labels[None, :])


class _SteadyState(eqx.Module):
    rtol: Float[Array, ""]
    atol: Float[Array, ""]

    def __call__(self, t, y, args, *, terms, solver, **kwargs):
        velocity = solver.func(terms, t, y, args)
        if type(solver) is Projected:
            velocity = solver.manifold.tangent(solver.manifold.project(y), velocity)
        exists = existing_rows(y, args)
        speed, size = _root_mean_square(velocity, exists), _root_mean_square(y, exists)
        return speed < _cast(self.atol, speed) + _cast(self.rtol, speed) * size


def _cast(value, like):
    return value.astype(like.dtype)


def _products(x, exists):
    """The inner products, and which of them are of two tokens that exist."""
    if not isinstance(x, jax.Array) or x.ndim != 2:
        got = f"of shape {x.shape}" if isinstance(x, jax.Array) else repr(x)
        raise must("y0", "be tokens of shape (n, d) for an event of clusters", got)
    pairs = ~jnp.eye(x.shape[0], dtype=bool)
    if exists is not None:
        # What absent rows hold must not enter the products, nor their gradient.
        x = jnp.where(exists[:, None], x, 0.0)
        pairs = pairs & exists[:, None] & exists[None, :]
    return matmul(x, x.T), pairs


def _root_mean_square(tree, exists):
    if exists is not None:
        tree = jnp.where(exists[:, None], tree, 0.0)
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    square = jnp.mean(jnp.concatenate(leaves) ** 2)
    if exists is None:
        return jnp.sqrt(square)
    share = jnp.mean(exists, dtype=square.dtype)
    return jnp.sqrt(square / jnp.where(share > 0, share, 1.0))
