"""Elementary functions that stay finite, with their derivatives, at the sharp points.

The rule for dtypes: half precision (float16, bfloat16) is widened to float32 inside
and rounded once at the end; float32 and float64 are kept.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def widen(*arrays: Float[Array, "..."]) -> tuple[tuple[Array, ...], jnp.dtype]:
    """The arrays in the dtype to compute in, and the dtype to return the result in."""
    dtype = jnp.result_type(*arrays)
    wide = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype
    return tuple(array.astype(wide) for array in arrays), dtype


def matmul(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """`a @ b` at full precision on every backend (TF32 would break |x| = 1)."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def normalize(x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """`x / |x|` over the last axis; a zero vector stays zero, with zero gradient."""
    # Scaling by the largest entry first keeps the squares from under- or overflowing.
    scale = jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    scale = jnp.where(scale > 0, scale, jnp.ones_like(scale))
    x = x / scale
    square = jnp.sum(x * x, axis=-1, keepdims=True)
    zero = square == 0
    norm = jnp.sqrt(jnp.where(zero, jnp.ones_like(square), square))
    return jnp.where(zero, jnp.zeros_like(x), x / norm)


def normalize_exactly(x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """[`normalize`][] whose length is 1 within the rounding of its entries alone."""
    y = normalize(x)
    square = y * y
    # |y|^2 - 1 to more digits than y has: the leading half of every square lies on a
    # grid, so that its sum is exact, and the rest is small.
    grid = 2.0 ** (jnp.finfo(y.dtype).nmant // 2)
    high = jnp.round(square * grid) / grid
    over = jnp.sum(high, axis=-1, keepdims=True) - 1
    over = over + jnp.sum(square - high, axis=-1, keepdims=True)
    return y - jax.lax.stop_gradient(0.5 * over) * y


def safe_norm(x: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
    """`|x|` over the last axis, with gradient 0 at `x = 0`."""
    scale = jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    scale = jnp.where(scale > 0, scale, jnp.ones_like(scale))
    square = jnp.sum((x / scale) ** 2, axis=-1)
    zero = square == 0
    norm = jnp.sqrt(jnp.where(zero, jnp.ones_like(square), square))
    return jnp.where(zero, jnp.zeros_like(norm), norm * scale[..., 0])


def _series(s: Float[Array, "..."], coefficients: list[float]) -> Float[Array, "..."]:
    total = jnp.full_like(s, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * s + jnp.asarray(c, s.dtype)
    return total


def _piecewise(s, threshold, coefficients, far):
    """A power series where |s| is small, `far(s)` elsewhere; both branches safe."""
    near = jnp.abs(s) < threshold
    series = _series(jnp.where(near, s, jnp.zeros_like(s)), coefficients)
    return jnp.where(near, series, far(jnp.where(near, jnp.ones_like(s), s)))


def _alternating(first: int, count: int) -> list[float]:
    """Coefficients (-1)^k / (2k + first)! of cos(sqrt s) and sin(sqrt s)/sqrt s."""
    terms, term = [], 1.0
    for k in range(count):
        terms.append(term)
        term /= -float((2 * k + first + 1) * (2 * k + first + 2))
    return terms


_COS, _SINC = _alternating(0, 9), _alternating(1, 9)


def cos_sqrt(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """`cos(sqrt(s))`, smooth at `s = 0`."""
    return _piecewise(s, 0.5, _COS, lambda r: jnp.cos(jnp.sqrt(r)))


def sinc_sqrt(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """`sin(sqrt(s)) / sqrt(s)`, smooth at `s = 0`."""
    return _piecewise(s, 0.5, _SINC, lambda r: jnp.sin(jnp.sqrt(r)) / jnp.sqrt(r))


def _reciprocal_factorials(count: int) -> list[float]:
    terms, term = [], 1.0
    for k in range(count):
        term /= k + 1
        terms.append(term)
    return terms


_EXPM1 = _reciprocal_factorials(11)
_LOG1P = [(-1.0) ** k / (k + 1) for k in range(16)]


def expm1_over(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """`(e^z - 1) / z`, smooth at `z = 0`."""
    return _piecewise(z, 0.1, _EXPM1, lambda r: jnp.expm1(r) / r)


def log1p_over(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """`log(1 + z) / z`, smooth at `z = 0`."""
    return _piecewise(z, 0.1, _LOG1P, lambda r: jnp.log1p(r) / r)
