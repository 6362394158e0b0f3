"""Fields made of fields: sums, multiples, and fields with parameters of their own."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._core import as_float, must, widen
from ._base import VectorField


class Sum(eqx.Module):
    r"""The sum of fields: `(t, x, args) -> f_1(t, x, args) + f_2(t, x, args) + ...`

    Every part is called with the same parameters; [`Bound`][] gives a part its own.
    Half precision is summed in float32 and rounded once. A sum of Lax pairs is one, and
    a sum of separable fields is separable: solvers are told, by multiples too.

    **Arguments:**

    - `fields`: at least one field; sums of sums are fine. Leaves of the parts are
      leaves of the sum.

    **Returns, when called:** the velocity, of the structure of the state.

    **Raises:** ValueError where a part is no function.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import Bound, Kuramoto, Sum, kuramoto
        >>> drift = Bound(kuramoto, Kuramoto(0.0, jnp.array([1.0, 2.0])))
        >>> Sum(kuramoto, drift)(0.0, jnp.zeros(2)).tolist()
        [1.0, 2.0]
    """

    fields: tuple[VectorField, ...]

    def __init__(self, *fields: VectorField):
        if not fields:
            raise must("fields", "be at least one field", "none")
        self.fields = tuple(_field("fields", field) for field in fields)

    @property
    def parts(self) -> tuple[VectorField, ...]:
        """The fields, for solvers that take one after the other."""
        return self.fields

    @property
    def separable(self) -> bool | None:
        """True where all parts are; elsewhere None, for what some have may cancel."""
        return True if all(_separable(field) for field in self.fields) else None

    @property
    def generator(self) -> Callable[..., Any] | None:
        """The sum of the generators, where all parts have one."""
        parts = [_generator(field) for field in self.fields]
        if any(part is None for part in parts):
            return None
        return lambda t, L, args=None: sum(part(t, L, args) for part in parts if part)

    def __call__(self, t: Any, x: Any, args: Any = None) -> Any:
        wide = _widened(x)
        total = self.fields[0](t, wide, args)
        shapes = lambda tree: jax.tree.map(jnp.shape, tree)
        for field in self.fields[1:]:
            more = field(t, wide, args)
            if shapes(more) != shapes(total):
                got = f"of shapes {shapes(total)} and {shapes(more)}"
                raise must("fields", "return velocities of one shape", got)
            total = jax.tree.map(lambda a, b: a + b, total, more)
        return _narrowed(total, x)


class Scaled(eqx.Module):
    r"""A multiple of a field: `(t, x, args) -> factor f(t, x, args)`.

    **Arguments:**

    - `field`: a field.
    - `factor`: a scalar, a leaf: it may be differentiated, or vmapped over.

    **Returns, when called:** the velocity, of the structure of the state.

    **Raises:** ValueError where `field` is no function, or `factor` is not real; when
    called, where `factor` is no scalar.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import Scaled
        >>> decay = lambda t, x, args: -x
        >>> Scaled(decay, 3.0)(0.0, jnp.ones(2)).tolist()
        [-3.0, -3.0]
    """

    field: VectorField
    factor: Float[Array, "..."]

    def __init__(self, field: VectorField, factor: Float[ArrayLike, "..."] | float):
        self.field = _field("field", field)
        self.factor = as_float("factor", factor)

    @property
    def separable(self) -> bool | None:
        """As the field is."""
        return _separable(self.field)

    @property
    def generator(self) -> Callable[..., Any] | None:
        """The multiple of the generator, where the field has one."""
        part = _generator(self.field)
        if part is None:
            return None
        return lambda t, L, args=None: self._times(part(t, L, args))

    def __call__(self, t: Any, x: Any, args: Any = None) -> Any:
        velocity = self.field(t, _widened(x), args)
        return _narrowed(jax.tree.map(self._times, velocity), x)

    def _times(self, v: Array) -> Array:
        if self.factor.ndim:
            raise must("factor", "be a scalar", f"of shape {self.factor.shape}")
        return self.factor.astype(v.dtype) * v


class Bound(eqx.Module):
    r"""A field with parameters of its own: `(t, x, args) -> f(t, x, own args)`.

    What it is called with does not matter. So a field becomes one value with its
    parameters as leaves, and the parts of a [`Sum`][] may have different ones. Absent
    tokens are told to `tfjax.solve` by its own `args`: what is bound here is not seen.

    **Arguments:**

    - `field`: a field.
    - `args`: its parameters, a PyTree.

    **Returns, when called:** the velocity, of the structure of the state.

    **Raises:** ValueError where `field` is no function.

    !!! example

        >>> import jax.numpy as jnp
        >>> from tfjax.fields import AttentionParams, Bound, self_attention
        >>> field = Bound(self_attention, AttentionParams(beta=0.0))
        >>> field(0.0, jnp.eye(2)).tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """

    field: VectorField
    args: Any

    def __init__(self, field: VectorField, args: Any):
        self.field = _field("field", field)
        self.args = args

    @property
    def separable(self) -> bool | None:
        """As the field is."""
        return _separable(self.field)

    @property
    def generator(self) -> Callable[..., Any] | None:
        """The generator with the own parameters, where the field has one."""
        part = _generator(self.field)
        return None if part is None else lambda t, L, args=None: part(t, L, self.args)

    def __call__(self, t: Any, x: Any, args: Any = None) -> Any:
        return self.field(t, x, self.args)


def _field(name: str, value: Any) -> VectorField:
    if not callable(value):
        raise must(name, "be a function (t, x, args) -> dx/dt", repr(value))
    return value


def _separable(field: VectorField) -> bool | None:
    """What a field of pairs (q, p) says of itself to solvers, as `hamiltonian` does."""
    return getattr(field, "separable", None)


def _generator(field: VectorField) -> Callable[..., Any] | None:
    """B of a field that is a Lax pair [B, L], as `lax_pair` and its kind are."""
    return getattr(field, "generator", None)


def _widened(x: Any) -> Any:
    return jax.tree.map(lambda leaf: widen(as_float("x", leaf))[0][0], x)


def _narrowed(velocity: Any, x: Any) -> Any:
    """Every leaf in the dtype of the state's."""
    to = lambda v, leaf: v.astype(as_float("x", leaf).dtype)
    return jax.tree.map(to, velocity, x)
