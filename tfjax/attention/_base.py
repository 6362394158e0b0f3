"""A mask that is known by a rule, and what a mask says once it has been read."""

import abc
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Int

from .._core import must


class AbstractMask(eqx.Module):
    """Who may attend to whom, by a rule that needs the places of the tokens only.

    A rule is evaluated where it is needed, a chunk at a time; it has no leaves, so that
    the parameters which hold it can be differentiated.
    """

    @abc.abstractmethod
    def permits(
        self, i: Int[ArrayLike, "..."], j: Int[ArrayLike, "..."]
    ) -> Bool[Array, "..."]:
        """Whether token i may attend to token j; `i` and `j` broadcast."""

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How far before and after itself a token sees; None where there is no end."""
        return None, None

    def __call__(self, n_q: int, n_k: int) -> Bool[Array, "n_q n_k"]:
        i, j = jnp.arange(n_q)[:, None], jnp.arange(n_k)[None, :]
        return jnp.broadcast_to(self.permits(i, j), (n_q, n_k))


MaskLike = (
    Bool[ArrayLike, "..."] | Callable[[int, int], Array] | eqx.Module | tuple | None
)


class Permits(eqx.Module):
    """A mask that has been read: a query sees a key if every entry lets it.

    `keys`: which keys exist, of shape (n_k,). `pairs`: who may attend to whom, of
    shape (n_q, n_k). `rules`: masks that are known by a rule. `top`: how many of the
    permitted keys a query sees, those of the highest score. None restricts nothing.
    """

    keys: Bool[Array, " n_k"] | None = None
    pairs: Bool[Array, "n_q n_k"] | None = None
    rules: tuple[AbstractMask, ...] = ()
    top: int | None = eqx.field(static=True, default=None)

    @property
    def by_key(self) -> bool:
        """Whether every query may see the same keys, as far as the masks go."""
        return self.pairs is None and not self.rules and self.top is None

    @property
    def nothing(self) -> bool:
        """Whether nothing is restricted."""
        return self.by_key and self.keys is None

    def dense(self, n_q: int, n_k: int) -> Bool[Array, "..."] | None:
        """The mask as an array that broadcasts to (n_q, n_k), but for `top`."""
        keys = None if self.keys is None else self.keys[None, :]
        rules = [rule(n_q, n_k) for rule in self.rules]
        return every([keys, self.pairs, *rules])


def every(masks: Iterable[Bool[Array, "..."] | None]) -> Bool[Array, "..."] | None:
    """The conjunction of the masks that are not None; None where all are."""
    masks = [mask for mask in masks if mask is not None]
    return functools.reduce(operator.and_, masks) if masks else None


def parts(mask: Any) -> list[Any]:
    """The masks of a tuple, of tuples in it too, without those that are None."""
    if isinstance(mask, tuple):
        return [part for each in mask for part in parts(each)]
    if isinstance(mask, type):
        raise must("mask", "be boolean, or a mask module", f"the class {mask.__name__}")
    return [] if mask is None else [mask]


def boolean(mask: Any) -> Bool[Array, "..."]:
    """A mask that is an array, checked for its dtype."""
    if isinstance(mask, str | eqx.Module):
        raise must("mask", "be boolean, or a mask module", repr(mask))
    array = jnp.asarray(mask)
    if array.dtype != bool:
        raise must("mask", "be boolean", f"of dtype {array.dtype}")
    return array
