"""Many solves at once: the one place where a batch is ours."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from .._core import count, is_concrete, must
from ..fields import VectorField
from ..geometry import AbstractManifold
from ._adjoints import explained
from ._door import as_state, floats_to_arrays, make_plan
from ._solve import failure, run_member


def solve_ensemble(
    field: VectorField,
    y0: PyTree[Any],
    args: PyTree[Any] = None,
    *,
    in_axes: Any = (0, None),
    batch_size: int | None = None,
    mesh: Mesh | None = None,
    t1: Any,
    t0: Any = 0.0,
    ts: Any = None,
    saveat: dfx.SaveAt | None = None,
    manifold: AbstractManifold | None = None,
    solver: dfx.AbstractSolver | None = None,
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: Any = None,
    atol: Any = None,
    dt0: Any = None,
    max_steps: int | None = 4096,
    adjoint: dfx.AbstractAdjoint | None = None,
    event: dfx.Event | None = None,
    progress: bool | dfx.AbstractProgressMeter = False,
    throw: bool = False,
) -> dfx.Solution:
    r"""Integrates many members of a field, each as [`solve`][] would alone.

    Every member has its own step sizes, and a member that fails is reported in
    `.result` and does not touch its neighbours.

    **Arguments:** as for [`solve`][], and

    - `y0`: the states, with a batch axis, for tokens (b, n, d).
    - `args`: the parameters; batched where `in_axes` says so.
    - `in_axes`: the batch axes of `(y0, args)`, as for `jax.vmap`: None is shared. In
      place of a whole tree of parameters a dict names the batched ones, as in
      `(0, {"beta": 0})`.
    - `batch_size`: how many members step together. One after another is fastest on a
      CPU, all together elsewhere; None chooses so by the backend.
    - `mesh`: a `jax.sharding.Mesh` over whose devices the members are spread; their
      number must be a multiple of the devices'.
    - `throw`: raise if any member fails. The default is to report it in `.result`.

    **Returns:** a `diffrax.Solution` with a leading batch axis on everything: `.ts`
    (b, t), `.ys` (b, t, n, d), `.stats` and `.result` (b,). Mask failed members by
    `diffrax.is_okay(solution.result)`: their unsaved states are inf.

    **Raises:** ValueError for arguments that do not fit; with `throw=True`,
    RuntimeError naming the members that failed.

    !!! example

        >>> import jax, tfjax
        >>> from tfjax.fields import AttentionParams, self_attention
        >>> from tfjax.geometry import Sphere
        >>> x0 = Sphere(3).random(jax.random.key(0), (4, 8))
        >>> args = AttentionParams(beta=1.0)
        >>> sol = tfjax.solve_ensemble(
        ...     self_attention, x0, args, t1=5.0, manifold=Sphere(3)
        ... )
        >>> sol.ys.shape
        (4, 1, 8, 3)

    Source: as for [`solve`][].
    """
    if not callable(field):
        raise must("field", "be a function (t, y, args) -> dy/dt", repr(field))
    y0, args, field = as_state(y0), floats_to_arrays(args), floats_to_arrays(field)
    batch, size = _split((y0, args), in_axes)
    first, _ = batch.member(jax.tree.map(lambda leaf: leaf[0], batch.batched))
    plan = make_plan(
        first,
        t1=t1,
        t0=t0,
        ts=ts,
        saveat=saveat,
        manifold=manifold,
        solver=solver,
        stepsize_controller=stepsize_controller,
        rtol=rtol,
        atol=atol,
        dt0=dt0,
        max_steps=max_steps,
        adjoint=adjoint,
        event=event,
        progress=progress,
        throw=throw,
    )
    if batch_size is None:
        batch_size = 1 if jax.default_backend() == "cpu" else size
    batch_size = count("batch_size", batch_size)
    if mesh is not None:
        if not isinstance(mesh, Mesh):
            raise must("mesh", "be a jax.sharding.Mesh or None", repr(mesh))
        if size % mesh.size:
            rule = f"have a number of devices that divides the {size} members"
            raise must("mesh", rule, f"{mesh.size} devices")
        # The caller's axes may be explicit ones; these must be the compiler's.
        mesh = Mesh(mesh.devices, mesh.axis_names)
    with explained(plan):
        solution, reached = _run(field, batch, plan, min(batch_size, size), mesh)
    if throw:
        okay = dfx.is_okay(solution.result)
        if not is_concrete(okay):
            return solution.result.error_if(solution, ~okay)
        if not okay.all():
            raise RuntimeError(_failures(solution, reached, plan))
    return solution


def _failures(solution, reached, plan):
    failed = np.flatnonzero(~np.asarray(dfx.is_okay(solution.result)))
    one = int(failed[0])
    first, time = jax.tree.map(lambda leaf: leaf[one], (solution, reached))
    names = ", ".join(map(str, failed[:10])) + (", ..." if failed.size > 10 else "")
    total = np.size(dfx.is_okay(solution.result))
    text = f"{failed.size} of {total} members failed (numbers {names}). "
    return text + f"Member {one}: {failure(first, time, plan)}"


class _Batch(eqx.Module):
    """A PyTree split into leaves with a leading batch axis and shared leaves."""

    batched: PyTree
    shared: PyTree

    def member(self, batched: PyTree) -> PyTree:
        return eqx.combine(batched, self.shared)


def _split(tree, in_axes):
    """Moves the batch axes to the front, and finds the number of members."""
    if not isinstance(in_axes, tuple | list) or len(in_axes) != 2:
        raise must("in_axes", "be a pair, for y0 and args", repr(in_axes))
    axes = tuple(_leaf_axes(a, t) for a, t in zip(in_axes, tree, strict=True))
    is_axis = lambda x: x is None
    leaves, structure = jax.tree.flatten(tree)
    axes = jax.tree.leaves(axes, is_leaf=is_axis)
    batched, sizes = [], set()
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is None:
            batched.append(None)
            continue
        if not eqx.is_array(leaf) or not -leaf.ndim <= axis < leaf.ndim:
            got = f"{axis} for a leaf of shape {np.shape(leaf)}"
            raise must("in_axes", "name an axis of each batched array", got)
        batched.append(jnp.moveaxis(leaf, axis, 0))
        sizes.add(leaf.shape[axis])
    if len(sizes) != 1 or 0 in sizes:
        rule = "select batch axes of one length, which is not 0"
        raise must("in_axes", rule, f"of lengths {sorted(sizes)}")
    shared = [l if b is None else None for l, b in zip(leaves, batched, strict=True)]
    unflatten = structure.unflatten
    return _Batch(unflatten(batched), unflatten(shared)), sizes.pop()


def _leaf_axes(axes, tree):
    """An axis (or None) for every leaf of `tree`; a dict names a module's fields."""
    if isinstance(axes, dict) and isinstance(tree, eqx.Module):
        names = [f.name for f in dataclasses.fields(tree)]
        unknown = set(axes) - set(names)
        if unknown:
            raise must("in_axes", f"name fields of {names}", sorted(unknown))
        parts = [(axes.get(name), getattr(tree, name)) for name in names]
        parts = [_leaf_axes(a, t) for a, t in parts if t is not None]
        return [axis for part in parts for axis in part]
    if axes is None or isinstance(axes, int):
        return [axes] * len(jax.tree.leaves(tree))
    is_none = lambda x: x is None
    spread = jax.tree.map(lambda a, t: _leaf_axes(a, t), axes, tree, is_leaf=is_none)
    is_axis = lambda x: x is None or isinstance(x, int)
    return jax.tree.leaves(spread, is_leaf=is_axis)


@eqx.filter_jit
def _run(field, batch, plan, batch_size, mesh):
    quiet = eqx.tree_at(lambda p: p.meter, plan, dfx.NoProgressMeter())

    def member(batched):
        y0, args = batch.member(batched)
        out = run_member(field, y0, args, quiet)
        # Numbers in the statistics get the batch axis like everything else.
        number = lambda x: isinstance(x, int | float | np.ndarray | np.generic)
        return jax.tree.map(lambda x: jnp.asarray(x) if number(x) else x, out)

    if mesh is None:
        return _map(member, batch.batched, batch_size, plan.meter)
    # Devices take neighbouring members; each maps over its own share.
    axis, devices = mesh.axis_names, mesh.size

    def shard(leaf, *spec):
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.lax.with_sharding_constraint(leaf, sharding)

    def scatter(leaf):
        leaf = leaf.reshape(devices, -1, *leaf.shape[1:])
        return shard(jnp.swapaxes(leaf, 0, 1), None, axis)

    def gather(leaf):
        leaf = jnp.swapaxes(shard(leaf, None, axis), 0, 1)
        return shard(leaf.reshape(-1, *leaf.shape[2:]), axis)

    shares = jax.tree.map(scatter, batch.batched)
    out = _map(jax.vmap(member), shares, batch_size, plan.meter)
    return jax.tree.map(gather, out)


def _map(function, xs, batch_size, meter):
    """`jax.lax.map` by chunks of `batch_size`, with a progress meter over chunks."""
    size = jax.tree.leaves(xs)[0].shape[0]
    if batch_size >= size:
        return jax.vmap(function)(xs)
    chunks, rest = divmod(size, batch_size)
    step = function if batch_size == 1 else jax.vmap(function)

    def body(state, chunk):
        done, meter_state = state
        out = step(chunk)
        done = done + jnp.asarray(1.0, done.dtype)
        return (done, meter.step(meter_state, done / chunks)), out

    width = () if batch_size == 1 else (batch_size,)
    cut = lambda leaf: leaf[: chunks * batch_size].reshape(
        chunks, *width, *leaf.shape[1:]
    )
    init = (jnp.zeros((), jnp.float32), meter.init())
    (_, state), out = jax.lax.scan(body, init, jax.tree.map(cut, xs))
    meter.close(state)
    if batch_size > 1:
        out = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), out)
    if rest:
        last = jax.tree.map(lambda leaf: leaf[chunks * batch_size :], xs)
        join = lambda a, b: jnp.concatenate([a, b])
        out = jax.tree.map(join, out, jax.vmap(function)(last))
    return out
