"""A self-check that finds a broken installation of jax before it ruins a result.

Two releases of jax compiled programs of the kind that we live on wrongly for the CPU:
one gave wrong numbers for quadratic forms over many rows, one copied the whole stack of
outputs in every step of a scan. `self_check` looks for both, in a second or two.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array


@dataclass(frozen=True)
class Check:
    """What one check found, beside what a sound installation gives.

    `found` equals `expected` where the name says nothing else; a name that ends in
    "at most" has a bound in `expected`.
    """

    name: str
    passed: bool
    found: float
    expected: float


def self_check() -> tuple[Check, ...]:
    """Run every check; a sound installation passes them all.

    **Returns:**

    One `Check` for each of the two precisions and two numbers of rows, and one for the
    time of a scan. The global configuration of jax stays as it is.
    """
    quadratic = (
        check_quadratic_forms(rows, x64=x64)
        for x64 in (False, True)
        for rows in (20_000, 40_000)
    )
    return *quadratic, check_scan_time()


# The mat-vec is a product and a sum, not `matrix @ row`: only so did the compiler fuse
# the two sums and go wrong (jax 0.10.2, float32; `@` was right there).
def quadratic_forms(matrix: Array, rows: Array) -> Array:
    """The quadratic form $x_i^T A x_i$ of every row, as a vmapped mat-vec and a sum.

    **Arguments:**

    - `matrix`: $A$, of shape `(d, d)`.
    - `rows`: the points $x_i$, of shape `(n, d)`.

    **Returns:**

    One number a row, of shape `(n,)`.
    """

    def one(row: Array) -> Array:
        return jnp.sum(row * jnp.sum(matrix * row[None, :], axis=-1))

    return jax.vmap(one)(rows)


_MATRIX = ((2.0, 1.0, 0.0), (1.0, 3.0, -1.0), (0.0, -1.0, 4.0))
_DIRECTIONS = ((1.0, 2.0, 3.0), (2.0, -1.0, 1.0), (-3.0, 1.0, 0.0))
# u^T A u of the three directions u, by hand.
_FORMS = (42.0, 13.0, 15.0)
_PERIOD = 8


def check_quadratic_forms(
    rows: int,
    *,
    x64: bool,
    form: Callable[[Array, Array], Array] = quadratic_forms,
) -> Check:
    r"""Count the rows whose jitted quadratic form is not exactly right.

    Row $i$ is $x_i = k_i u_i$ with $k_i = i \bmod 8$ and $u_i$ one of three directions,
    so $x_i^T A x_i = k_i^2\, u_i^T A u_i$: small integers, exact in either precision.

    **Arguments:**

    - `rows`: how many rows.
    - `x64`: compute in float64 rather than float32.
    - `form`: what is checked, a function `(matrix, rows) -> forms`.

    **Returns:**

    A `Check` that holds the number of wrong rows, of which there should be none.
    """
    scales = [float(i % _PERIOD) for i in range(rows)]
    points = [[scale * u for u in _DIRECTIONS[i % 3]] for i, scale in enumerate(scales)]
    exact = [scale**2 * _FORMS[i % 3] for i, scale in enumerate(scales)]
    with jax.enable_x64(x64):
        dtype = jnp.dtype("float64" if x64 else "float32")
        matrix, points = jnp.array(_MATRIX, dtype), jnp.array(points, dtype)
        # Compared in Python: what counts the errors must not be what made them.
        found = jax.jit(form)(matrix, points).tolist()
    wrong = sum(a != b for a, b in zip(found, exact, strict=True))
    name = f"wrong rows among {rows} quadratic forms in {dtype.name}"
    return Check(name, wrong == 0, float(wrong), 0.0)


_SHORT, _LONG = 1_000, 16_000


def check_scan_time(seconds: Callable[[int], float] | None = None) -> Check:
    """Compare the times of a long and a short scan that stack small outputs.

    A sound installation takes at most 16 times as long for 16 times the steps; one that
    copies the stack in each step takes more than 200 times as long. The bound is 64.

    Noise on a busy machine can only lengthen a run. So the least of at least three runs
    of each length counts, and up to twelve are made before a verdict of "too slow".

    **Arguments:**

    - `seconds`: a function that takes a length and returns the time of one run of it.

    **Returns:**

    A `Check` that holds the ratio of the times and its bound.
    """
    measure = _scan_stopwatch() if seconds is None else seconds
    bound = 4.0 * _LONG / _SHORT
    short = long = ratio = float("inf")
    for run in range(12):
        short = min(short, measure(_SHORT))
        long = min(long, measure(_LONG))
        ratio = long / short
        if run >= 2 and ratio <= bound:
            break
    name = f"time of a scan of {_LONG} steps over that of {_SHORT}, at most"
    return Check(name, ratio <= bound, ratio, bound)


def _scan_stopwatch() -> Callable[[int], float]:
    """A function `length -> seconds` that times a compiled scan of that length."""
    start = jnp.zeros((4, 3))

    def compiled(length: int) -> Callable[[Array], Array]:
        def step(x: Array, _: None) -> tuple[Array, Array]:
            return 0.5 * x + 1.0, x

        def run(x: Array) -> Array:
            return jax.lax.scan(step, x, None, length=length)[1]

        return jax.jit(run).lower(start).compile()

    programs = {length: compiled(length) for length in (_SHORT, _LONG)}

    def seconds(length: int) -> float:
        begin = time.perf_counter()
        programs[length](start).block_until_ready()
        return time.perf_counter() - begin

    return seconds
