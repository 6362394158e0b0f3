"""Which records of a solution were really saved."""

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._core import must


def saved(solution: dfx.Solution) -> PyTree[Bool[Array, "..."]]:
    r"""Which records of a solution hold data; the others are infinite.

    Arrays have a fixed length, so that a record of all steps has `max_steps` slots, and
    times after an event or a failure stay empty. Select by `where=`, or by `jnp.where`
    before anything else: a product with the mask would give NaN, in gradients too.

    **Arguments:**

    - `solution`: what `solve`, `solve_ensemble` or `diffrax.diffeqsolve` returned.

    **Returns:** booleans of the shape of `solution.ts`, (t,) or (b, t); where there are
    several records (`diffrax.SaveAt(subs=)`), a tree of these. In a solve that
    failed, the records before the failure count, at the times in `ts`; whether it
    came to its end is `diffrax.is_okay(solution.result)`.

    **Raises:** ValueError where nothing was saved but dense output.

    !!! example

        >>> import diffrax, jax, jax.numpy as jnp, tfjax
        >>> from tfjax.integrate import saved
        >>> def mean(y0):
        ...     field, steps = lambda t, y, args: -y, diffrax.SaveAt(steps=True)
        ...     kwargs = {"t1": 1.0, "dt0": 0.25, "saveat": steps, "max_steps": 16}
        ...     sol = tfjax.solve(field, y0, **kwargs)
        ...     return jnp.mean(sol.ys, where=saved(sol))
        >>> value, gradient = jax.value_and_grad(mean)(jnp.asarray(1.0))
        >>> f"{value:.4f} {gradient:.4f}"
        '0.5564 0.5564'

    Source: own; the mean of exp(-t) at t = .25, .5, .75, 1.
    """
    if not isinstance(solution, dfx.Solution):
        raise must("solution", "be a diffrax.Solution", f"a {type(solution).__name__}")
    if solution.ts is None:
        rule = "hold records at times (ts, steps, t0 or t1)"
        raise must("solution", rule, "one of dense output only")
    lost = solution.result == dfx.RESULTS.nonfinite

    def one(ts, ys):
        # The last state that a lost solve kept is not finite, though its time is.
        finite = jnp.ones(ts.shape, bool)
        for leaf in jax.tree.leaves(ys):
            axes = tuple(range(ts.ndim, leaf.ndim))
            finite = finite & jnp.all(jnp.isfinite(leaf), axis=axes)
        return jnp.isfinite(ts) & (finite | ~jnp.expand_dims(lost, -1))

    return jax.tree.map(one, solution.ts, solution.ys)
