"""Residual blocks that are one step of a solver which preserves structure."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import (
    as_float,
    check_shape,
    is_concrete,
    matmul,
    must,
    require,
    widen,
)
from ..energies import Hamiltonian
from ..fields import hamiltonian
from ..geometry import cayley
from ..integrate import Leapfrog


Pair = tuple[Float[Array, "..."], Float[Array, "..."]]


class LeapfrogBlock(eqx.Module):
    r"""One kick, drift and kick of positions q and momenta p: a symplectic block.

    $$p_{1/2} = p - \tfrac h2 \nabla \Phi(q), \quad q' = q + h M^{-1} p_{1/2}, \quad
      p' = p_{1/2} - \tfrac h2 \nabla \Phi(q')$$

    It is a step of [`Leapfrog`][tfjax.integrate.Leapfrog] for
    $H = \tfrac12 \langle p, M^{-1} p \rangle + \Phi(q)$, so that L of them in a row are
    a solve of L steps. Whatever the potential, it preserves phase volume, and `inverse`
    undoes it up to rounding; the energy errs by O(h^2), without drift, as long as h is
    a small part of the shortest period.

    **Arguments:**

    - `potential`: the function Phi of q, which returns a scalar. An `eqx.Module`, such
      as an [`AttentionPotential`][tfjax.energies.AttentionPotential], is trained.
    - `mass`: M, as of a [`Hamiltonian`][tfjax.energies.Hamiltonian], but no function; 1
      where None.
    - `step`: the length h, a scalar; a leaf, so that it is trained too.

    **Arguments of the call and of `inverse`:** `y`, a pair (q, p) of arrays of one
    shape.

    **Returns, when called:** the next pair.

    **Raises:** ValueError where the mass is a function, the step is no finite scalar,
    or, when called, `y` is no pair of one shape.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.energies import AttentionPotential
        >>> from tfjax.nn import LeapfrogBlock
        >>> block = LeapfrogBlock(AttentionPotential(confinement=2.0), step=0.1)
        >>> y = (jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.zeros((2, 2)))
        >>> change = block.hamiltonian(*block(y)) - block.hamiltonian(*y)
        >>> bool(abs(change) < 1e-4)
        True

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    section I.1.4.
    """

    hamiltonian: Hamiltonian
    step: Float[Array, "..."]

    def __init__(
        self,
        potential: Callable[..., Any],
        mass: Any = None,
        *,
        step: Float[ArrayLike, ""] | float = 0.1,
    ):
        self.hamiltonian = Hamiltonian(potential, mass)
        if not self.hamiltonian.separable:
            raise must("mass", "be no function of q for LeapfrogBlock", repr(mass))
        self.step = _step(step)

    def __call__(self, y: tuple[Any, Any]) -> Pair:
        return self._moved(y, 1)

    def inverse(self, y: tuple[Any, Any]) -> Pair:
        """The pair that the block takes to `y`: a step of -h."""
        return self._moved(y, -1)

    def _moved(self, y, direction):
        (q, p), dtype = widen(*_pair(y))
        h = direction * self.step.astype(q.dtype)
        field: Any = hamiltonian(self.hamiltonian)
        step = (dfx.ODETerm(field), jnp.zeros_like(h), h, (q, p), None, None)
        # There is no force of a step before: `made_jump` has it computed.
        (q, p), *_ = Leapfrog().step(*step, made_jump=True)
        return q.astype(dtype), p.astype(dtype)


class CouplingBlock(eqx.Module):
    r"""Additive coupling: each half of the stream moves by a function of the other.

    $$q' = q + f(p), \qquad p' = p + g(q')$$

    For any f and g it preserves volume, and `inverse` undoes it up to rounding. It is
    symplectic if and only if the Jacobians of f and g are symmetric, that is where both
    are gradients; attention is not one.

    **Arguments:**

    - `f`: a function of p that returns an array of q's shape, such as an `eqx.Module`.
    - `g`: a function of q that returns an array of p's shape.

    **Arguments of the call and of `inverse`:** `y`, a pair (q, p) of arrays.

    **Returns, when called:** the next pair.

    **Raises:** ValueError where f or g is no function, or, when called, `y` is no pair
    or shapes do not fit.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.nn import CouplingBlock
        >>> block = CouplingBlock(jnp.cos, jnp.sin)
        >>> q, p = block.inverse(block((jnp.array([1.0]), jnp.array([2.0]))))
        >>> f"{q[0]:.4f} {p[0]:.4f}"
        '1.0000 2.0000'

    Source: A. N. Gomez et al., The Reversible Residual Network, arXiv 1707.04585,
    equation (6).
    """

    f: Callable[..., Any]
    g: Callable[..., Any]

    def __check_init__(self):
        for name in ("f", "g"):
            if not callable(getattr(self, name)):
                raise must(name, "be a function", repr(getattr(self, name)))

    def __call__(self, y: tuple[Any, Any]) -> Pair:
        (q, p), dtype = widen(*_pair(y))
        q = q + _push("f", self.f, p, q)
        p = p + _push("g", self.g, q, p)
        return q.astype(dtype), p.astype(dtype)

    def inverse(self, y: tuple[Any, Any]) -> Pair:
        """The pair that the block takes to `y`."""
        (q, p), dtype = widen(*_pair(y))
        p = p - _push("g", self.g, q, p)
        q = q - _push("f", self.f, p, q)
        return q.astype(dtype), p.astype(dtype)


class RotationBlock(eqx.Module):
    r"""Tokens turned by a rotation, which keeps the length of each.

    $$x' = \bigl(1 - \tfrac h2 W\bigr)^{-1} \bigl(1 + \tfrac h2 W\bigr)\, x,
      \qquad W = \tfrac12 (A - A^\top)$$

    for an unconstrained matrix A: a step of the implicit midpoint rule for
    $\dot x = W x$. The residual $x + h W x$ lengthens every token that W moves.

    A may be a function of a `context` that the block does not change: a condition, or
    the other half of the stream. The lengths stay, and `inverse` undoes the block, up
    to rounding, all the same.

    **Arguments:**

    - `generator`: the matrix A, of shape (d, d), a leaf; or a function of the context
      that returns a matrix, or one for each token, of shape (n, d, d).
    - `step`: the length h, a scalar; a leaf, so that it is trained too.

    **Arguments of the call and of `inverse`:** `x`, tokens of shape (n, d); `context`,
    the argument of a generator that is a function.

    **Returns, when called:** the turned tokens, of shape (n, d).

    **Raises:** ValueError where the generator is neither, the step is no finite scalar,
    shapes do not fit, or a context is given to a generator that is a matrix.

    !!! example

        >>> import jax, jax.numpy as jnp
        >>> from tfjax.nn import RotationBlock
        >>> block = RotationBlock(jax.random.normal(jax.random.key(0), (2, 2)))
        >>> lengths = jnp.linalg.norm(block(jnp.array([[3.0, 4.0]])), axis=1)
        >>> f"{lengths[0]:.4f}"
        '5.0000'

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration, 2nd ed.,
    section IV.8.3.
    """

    generator: Float[Array, "..."] | Callable[..., Any]
    step: Float[Array, "..."]

    def __init__(
        self,
        generator: Float[ArrayLike, "d d"] | Callable[..., Any],
        *,
        step: Float[ArrayLike, ""] | float = 0.1,
    ):
        if not callable(generator):
            generator = as_float("generator", generator)
            if generator.ndim != 2 or generator.shape[0] != generator.shape[1]:
                rule = "have shape (d, d), or be a function of the context"
                raise must("generator", rule, f"of shape {generator.shape}")
        self.generator = generator
        self.step = _step(step)

    def __call__(
        self, x: Float[ArrayLike, "n d"], context: Any = None
    ) -> Float[Array, "n d"]:
        return self._turned(x, context, 1)

    def inverse(
        self, x: Float[ArrayLike, "n d"], context: Any = None
    ) -> Float[Array, "n d"]:
        """The tokens that the block takes to `x`, in the same context."""
        return self._turned(x, context, -1)

    def _turned(self, x, context, direction):
        x = as_float("x", x)
        check_shape("x", x, 2, "(n, d)")
        (x,), dtype = widen(x)
        generator, (n, d) = self.generator, x.shape
        if callable(generator):
            generator = as_float("generator", generator(context))
        elif context is not None:
            raise must("context", "be None for a generator that is a matrix", "given")
        if generator.shape not in ((d, d), (n, d, d)):
            rule = f"give a matrix of shape ({d}, {d}) or ({n}, {d}, {d})"
            raise must("generator", rule, f"one of shape {generator.shape}")
        h = direction * self.step.astype(x.dtype)
        rotation = cayley(h * generator.astype(x.dtype))
        if rotation.ndim == 2:
            return matmul(x, rotation.T).astype(dtype)
        return matmul(rotation, x[..., None])[..., 0].astype(dtype)


def _step(value: Any) -> Array:
    step = as_float("step", value)
    if step.ndim:
        raise must("step", "be a scalar", f"of shape {step.shape}")
    if is_concrete(step):
        require(step, jnp.isfinite(step), "step", "be finite")
    return step


def _pair(y: Any) -> Pair:
    if type(y) is not tuple or len(y) != 2:
        raise must("y", "be a pair (q, p)", f"a {type(y).__name__}")
    return as_float("y", y[0]), as_float("y", y[1])


def _push(name: str, function: Callable[..., Any], x: Array, moved: Array) -> Array:
    """What a function of one half adds to the other."""
    push = as_float(name, function(x))
    if push.shape != moved.shape:
        rule = f"return an array of shape {moved.shape}"
        raise must(name, rule, f"one of shape {push.shape}")
    return push.astype(moved.dtype)
