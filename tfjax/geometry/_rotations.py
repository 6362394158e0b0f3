"""Rotation matrices and their Lie algebra, the skew matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .._core import (
    identity_like,
    matmul,
    require,
    safe_norm,
    sinc_sqrt,
    skew,
    square,
    symmetric,
    transpose,
    widen,
)


# Taylor coefficients of arcsin(sqrt(s)) / sqrt(s) in s: binom(2k, k) / (4^k (2k + 1)).
_ARCSIN = [1.0]
for _k in range(19):
    _ARCSIN.append(_ARCSIN[-1] * (2 * _k + 1) ** 2 / ((2 * _k + 2) * (2 * _k + 3)))

# Below |r - 1|^2 = 0.3 all angles of r are below pi / 8, where the series converges.
_NEAR = 0.3


def rotation_exp(a: Float[ArrayLike, "*batch d d"]) -> Float[Array, "*batch d d"]:
    r"""The rotation $e^a$ of a skew matrix.

    $$e^a = 1 + \frac{\sin\theta}{\theta} a + \frac{1 - \cos\theta}{\theta^2} a^2,
    \qquad \theta^2 = \tfrac12 |a|^2,$$

    for d = 2 and 3, and `jax.scipy.linalg.expm` above.

    **Arguments:**

    - `a`: matrices of shape (..., d, d), of which the skew part is taken.

    **Returns:**

    Rotations of shape (..., d, d).

    **Raises:** ValueError where `a` is not made of square matrices.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import rotation_exp
        >>> quarter = jnp.pi / 2 * jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> round(float(rotation_exp(quarter)[1, 0]), 6)
        1.0

    Source: Gallier and Xu, *Computing exponentials of skew-symmetric matrices and
    logarithms of orthogonal matrices*, 2003, equation (1).
    """
    (a,), dtype = widen(square("a", a))
    return exp_of_skew(skew(a)).astype(dtype)


def rotation_log(r: Float[ArrayLike, "*batch d d"]) -> Float[Array, "*batch d d"]:
    r"""The skew matrix of smallest norm whose exponential is a rotation.

    Where all angles are below $\pi / 8$ it is the series of
    $k\,(-k^2)^{-1/2} \arcsin (-k^2)^{1/2}$, with k the skew part of r, so that small
    angles keep all their digits. Larger angles are taken from the arctangent (d = 2),
    from the quaternion (d = 3), or from the third square root (digits are lost as
    1 / (pi - angle)), after the planes of which the angle is pi to rounding have been
    taken out. At an angle of exactly pi there are two logarithms or more: one of them
    is taken.

    **Arguments:**

    - `r`: rotations of shape (..., d, d).

    **Returns:**

    Skew matrices of shape (..., d, d).

    **Raises:** ValueError where `r` is not made of square matrices.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import rotation_log
        >>> quarter = jnp.array([[0.0, -1.0], [1.0, 0.0]])
        >>> round(float(rotation_log(quarter)[1, 0]), 5)
        1.5708

    Source: own; N. Higham, *Functions of Matrices*, SIAM 2008, section 11.5, for the
    method of repeated square roots.
    """
    (r,), dtype = widen(square("r", r))
    return log_of_rotation(r - identity_like(r)).astype(dtype)


def cayley(a: Float[ArrayLike, "*batch d d"]) -> Float[Array, "*batch d d"]:
    r"""The rotation $(1 - a/2)^{-1} (1 + a/2)$, $e^a$ up to O(|a|^3).

    **Arguments:**

    - `a`: matrices of shape (..., d, d), of which the skew part is taken.

    **Returns:**

    Rotations of shape (..., d, d), none of which has an angle of pi.

    **Raises:** ValueError where `a` is not made of square matrices.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import cayley
        >>> cayley(jnp.array([[0.0, -2.0], [2.0, 0.0]])).round(6).tolist()
        [[0.0, -1.0], [1.0, 0.0]]

    Source: E. Hairer, C. Lubich, G. Wanner, *Geometric Numerical Integration*, 2nd ed.,
    section IV.8.3.
    """
    (a,), dtype = widen(square("a", a))
    half = 0.5 * skew(a)
    one = identity_like(a)
    return jnp.linalg.solve(one - half, one + half).astype(dtype)


def cayley_inverse(r: Float[ArrayLike, "*batch d d"]) -> Float[Array, "*batch d d"]:
    r"""The skew matrix $2 (r + 1)^{-1} (r - 1)$ that [`cayley`][] takes to a rotation.

    **Arguments:**

    - `r`: rotations of shape (..., d, d) without an angle of pi.

    **Returns:**

    Skew matrices of shape (..., d, d).

    **Raises:** ValueError where `r` is not made of square matrices, or has an angle of
    pi (under jit, a run-time error).

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.geometry import cayley_inverse
        >>> cayley_inverse(jnp.array([[0.0, -1.0], [1.0, 0.0]])).round(6).tolist()
        [[0.0, -2.0], [2.0, 0.0]]

    Source: E. Hairer, C. Lubich, G. Wanner, *Geometric Numerical Integration*, 2nd ed.,
    section IV.8.3.
    """
    (r,), dtype = widen(square("r", r))
    one = identity_like(r)
    regular = jnp.linalg.det(one + r) != 0
    r = require(r, regular, "r", "be rotations without an angle of pi")
    return skew(2 * jnp.linalg.solve(r + one, r - one)).astype(dtype)


def exp_of_skew(a: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The exponential of a skew matrix."""
    if a.shape[-1] > 3:
        return jax.scipy.linalg.expm(a)
    angle = 0.5 * jnp.sum(a * a, axis=(-2, -1), keepdims=True)  # squared
    half = sinc_sqrt(0.25 * angle)
    return identity_like(a) + sinc_sqrt(angle) * a + 0.5 * half**2 * matmul(a, a)


def log_of_rotation(gap: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The logarithm of the rotation `1 + gap`: of a small gap, no digit is lost."""
    if gap.shape[-1] == 1:
        return jnp.zeros_like(gap)
    near = jnp.sum(gap * gap, axis=(-2, -1), keepdims=True) < _NEAR
    if gap.shape[-1] not in (2, 3):
        half_turns, rest = _split_half_turns(gap)
        root = identity_like(gap) + rest
        for _ in range(3):
            root = _square_root(root)
        k = jnp.where(near, skew(gap), skew(root))
        scale = jnp.where(near, 1.0, 8.0).astype(gap.dtype)
        return half_turns + scale * _arcsine(k)
    safe = jnp.where(near, gap, jnp.zeros_like(gap))
    far = _planar_log if gap.shape[-1] == 2 else _quaternion_log
    return jnp.where(near, _arcsine(skew(safe)), far(gap, near))


def _arcsine(k: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The skew matrix a, of angles below pi / 8, of which `k` is sin a."""
    one = identity_like(k)
    s = -matmul(k, k)
    total = _ARCSIN[-1] * one
    for coefficient in _ARCSIN[-2::-1]:
        total = matmul(total, s) + coefficient * one
    return skew(matmul(k, total))


def _split_half_turns(gap):
    """The logarithm in the planes of angle pi, to rounding; and the gap without them.

    There r = -e^{-a} for a small a, and log r = pi j - a with j a quarter turn of the
    planes that commutes with a. Both are 0 where no angle is pi.
    """
    planes, quarter = _half_turns(jax.lax.stop_gradient(gap))
    k = matmul(matmul(planes, skew(gap)), planes)
    # The arcsine of k, which is of the size of sqrt(eps), is k - k^3 / 6.
    log = jnp.pi * quarter - k + matmul(k, matmul(k, k)) / 6
    others = identity_like(gap) - planes
    clear = jnp.any(planes != 0, axis=(-2, -1), keepdims=True)
    rest = jnp.where(clear, matmul(matmul(others, gap), others), gap)
    return jnp.where(clear, log, jnp.zeros_like(gap)), rest


def _half_turns(gap):
    """The projector on the planes of angle pi, and a quarter turn j of them.

    j is oriented so that no angle is above pi.
    """
    p, eps = gap.shape[-1] // 2, float(jnp.finfo(gap.dtype).eps)
    cosines, q = jnp.linalg.eigh(symmetric(gap))  # less 1; the lowest come in pairs
    pairs = cosines[..., : 2 * p].reshape(*gap.shape[:-2], p, 2)
    turned = jnp.mean(pairs, axis=-1) < -2 + 16 * gap.shape[-1] * eps
    turned = jnp.concatenate([turned, turned], axis=-1).astype(gap.dtype)
    columns = [q[..., 0 : 2 * p : 2], q[..., 1 : 2 * p : 2]]
    basis = jnp.concatenate(columns, axis=-1) * turned[..., None, :]
    k = skew(matmul(matmul(transpose(basis), gap), basis))
    one = turned[..., None] * identity_like(k)
    # The turns within the pairs, each in the sense of k.
    sense = jnp.where(jnp.diagonal(k, -p, -2, -1) < 0, -1.0, 1.0).astype(gap.dtype)
    lower = one[..., p:, p:] * sense[..., None]
    none = jnp.zeros_like(lower)
    simple = jnp.concatenate(
        [jnp.concatenate([none, -lower], -1), jnp.concatenate([lower, none], -1)], -2
    )
    # Pairs of equal cosines may mix the planes, the polar factor of k does not; the
    # simple turn, in the size of a rounding error, decides where k has no orientation.
    mixed = k + 4 * eps * simple
    size = jnp.max(jnp.abs(mixed), axis=(-2, -1), keepdims=True, initial=eps)
    quarter = skew(nearest_rotation(mixed / size + identity_like(k) - one))
    for _ in range(2):
        quarter = _polish_quarter(quarter, one)
    miss = jnp.abs(matmul(quarter, quarter) + one)
    fits = jnp.max(miss, axis=(-2, -1), keepdims=True, initial=0.0) < eps**0.5
    quarter = _polish_quarter(jnp.where(fits, quarter, simple), one)
    lift = lambda a: matmul(matmul(basis, a), transpose(basis))
    return lift(one), skew(lift(quarter))


def _polish_quarter(j, one):
    """A skew matrix whose square is nearly -1, made so by a step of Newton's."""
    return j - 0.5 * matmul(j, one + matmul(j, j))


def _planar_log(gap, near):
    """Rotations of the plane, by their angle."""
    cosine = 1 + 0.5 * jnp.trace(gap, axis1=-2, axis2=-1)
    angle = jnp.arctan2(skew(gap)[..., 1, 0], cosine)
    zero = jnp.zeros_like(angle)
    rows = [jnp.stack(row, axis=-1) for row in ((zero, -angle), (angle, zero))]
    return jnp.stack(rows, axis=-2)


def _quaternion_log(gap, near):
    """Rotations of space, by the row of 4 q q^T, q the quaternion, that is longest."""
    r, trace = identity_like(gap) + gap, jnp.trace(gap, axis1=-2, axis2=-1)[..., None]
    axis = _vector(r - transpose(r))
    twice = r + transpose(r)
    diagonal = jnp.diagonal(twice, axis1=-2, axis2=-1)
    # Off the diagonal R_ij + R_ji, on it 1 + 2 R_ii - tr R.
    corner = twice + identity_like(r) * (-2 - trace)[..., None]
    first = jnp.concatenate([4 + trace, axis], axis=-1)[..., None, :]
    rows = jnp.concatenate([axis[..., None], corner], axis=-1)
    rows = jnp.concatenate([first, rows], axis=-2)
    longest = jnp.argmax(
        jnp.concatenate([4 + trace, diagonal - 2 - trace], axis=-1), axis=-1
    )
    q = jnp.take_along_axis(rows, longest[..., None, None], axis=-2)[..., 0, :]
    q = jnp.where(q[..., :1] < 0, -q, q)
    v = q[..., 1:]
    near = near[..., 0]
    size = jnp.where(near, 1.0, safe_norm(v)[..., None])
    return _matrix(2 * jnp.arctan2(size, q[..., :1]) / size * v)


def _vector(a):
    """The vector w with `a x = w x x`, of a skew matrix of space."""
    return jnp.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], axis=-1)


def _matrix(w):
    """The skew matrix with `a x = w x x`."""
    x, y, z = w[..., 0], w[..., 1], w[..., 2]
    zero = jnp.zeros_like(x)
    rows = ((zero, -z, y), (z, zero, -x), (-y, x, zero))
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def _square_root(r: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The rotation by half the angles: the polar factor of `1 + r`."""
    return nearest_rotation(identity_like(r) + r)


@jax.custom_jvp
def nearest_rotation(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """The rotation r for which |x - r| is least, also exactly at rotations."""
    u, _, v = jnp.linalg.svd(x, full_matrices=False)
    flip = jnp.where(jnp.linalg.det(matmul(u, v)) < 0, -1.0, 1.0).astype(x.dtype)
    u = u.at[..., -1].multiply(flip[..., None])
    return polish(matmul(u, v))


@nearest_rotation.defjvp
def _nearest_rotation_jvp(primals, tangents):
    # x = r s with s symmetric; the derivative of singular vectors, which does not exist
    # where singular values coincide, never enters.
    (x,), (dx,) = primals, tangents
    r = nearest_rotation(x)
    s = symmetric(matmul(transpose(r), x))
    return r, matmul(r, _turn(s, 2 * skew(matmul(transpose(r), dx))))


def _turn(s, m):
    """The skew matrix w with `w s + s w = m`, for s symmetric and m skew."""

    def solve(_, m):
        values, q = jnp.linalg.eigh(s)
        sums = values[..., :, None] + values[..., None, :]
        least = 8 * jnp.finfo(s.dtype).eps * jnp.max(jnp.abs(values), axis=-1)
        unique = jnp.abs(sums) > least[..., None, None]
        inner = matmul(matmul(transpose(q), m), q)
        inner = jnp.where(unique, inner / jnp.where(unique, sums, 1.0), 0.0)
        return matmul(matmul(q, inner), transpose(q))

    # A linear solve, so that the eigenvectors are never differentiated.
    return jax.lax.custom_linear_solve(
        lambda w: matmul(w, s) + matmul(s, w), m, solve, symmetric=True
    )


def polish(r: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """A matrix that is nearly orthogonal, made so by a step of Newton and Schulz."""
    return r - 0.5 * matmul(r, matmul(transpose(r), r) - identity_like(r))


def singular_gap(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch"]:
    """How far, relative to |x|, `x` is from having two nearest rotations."""
    values = jnp.linalg.svd(x, compute_uv=False)
    flip = jnp.where(jnp.linalg.det(x) < 0, -1.0, 1.0).astype(x.dtype)
    gap = values[..., -2] + flip * values[..., -1]
    largest = values[..., 0]
    return gap / jnp.where(largest > 0, largest, 1.0)
