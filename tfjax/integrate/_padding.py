"""Padded token sets: which rows exist, and how the others stay out of the way."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._core import must
from ..fields import TokenParams, present_tokens
from ._on_manifold import PresentRows


class PresentNorm(eqx.Module):
    """An error norm over the rows that exist: padding must not change the steps."""

    exists: Bool[Array, " n"]
    norm: Any

    def __call__(self, error):
        share = jnp.mean(self.exists, dtype=error.dtype)
        scale = jnp.sqrt(jnp.where(share > 0, share, 1.0))
        return self.norm(jnp.where(self.exists[:, None], error, 0.0)) / scale


class _Restored(eqx.Module):
    """A function of the state that sees the absent rows as they went in."""

    fn: Any
    rows: PresentRows

    def __call__(self, t, y, args, **kwargs):
        return self.fn(t, self.rows.restore(y), args, **kwargs)


def restoring(
    saveat: dfx.SaveAt, event: dfx.Event | None, rows: PresentRows
) -> tuple[dfx.SaveAt, dfx.Event | None]:
    """Whatever looks at the state of a padded solve, made to see all of it."""

    def sub(subsaveat):
        return eqx.tree_at(lambda s: s.fn, subsaveat, _Restored(subsaveat.fn, rows))

    is_sub = lambda x: isinstance(x, dfx.SubSaveAt)
    subs = jax.tree.map(sub, saveat.subs, is_leaf=is_sub)
    is_none = lambda x: x is None
    saveat = eqx.tree_at(lambda s: s.subs, saveat, subs, is_leaf=is_none)
    if event is not None:
        restored = lambda condition: _Restored(condition, rows)
        conditions = jax.tree.map(restored, event.cond_fn, is_leaf=callable)
        event = eqx.tree_at(lambda e: e.cond_fn, event, conditions)
    return saveat, event


def existing_rows(y0: Any, args: Any) -> Bool[Array, " n"] | None:
    """Which rows of the state are tokens that exist; None where all of them do."""
    if isinstance(y0, jax.Array) and y0.ndim in (1, 2):
        # Angles, one number a token, are not protected: absent ones must be finite.
        return present_tokens(args, 0.0, y0.shape[0]) if y0.ndim == 2 else None
    if isinstance(args, TokenParams) and args.mask is not None:
        raise must("y0", "have shape (n, d) where args has a mask", f"{y0}")
    return None
