"""A step of a sum of fields, one summand after the other."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax as dfx
import equinox as eqx
import jax

from .._core import must
from ._phase_space import moved
from ._terms import check_term


class SplitEuler(dfx.AbstractSolver):
    r"""Euler's method for a sum of fields, one summand after the other: order 1.

    $$y \leftarrow y + h f_1(t_0, y), \quad y \leftarrow y + h f_2(t_0, y), \ \dots$$

    It is the splitting of Lie and Trotter, with Euler's method for each part. A layer
    of a Transformer is such a step of length 1: attention moves the tokens, then the
    feed-forward map moves them from where they have come to.

    The field is a `tfjax.fields.Sum`, or another function with an attribute `parts`,
    the fields that it is the sum of, in their order. Constant steps only (`dt0`), in
    `tfjax.solve` and in `diffrax.diffeqsolve`.

    **Raises:** ValueError, when the solve starts, where the field has no parts, where
    there is noise, or for `diffrax.BacksolveAdjoint`.

    !!! example

        >>> import jax.numpy as jnp, tfjax
        >>> from tfjax.fields import Sum
        >>> from tfjax.integrate import SplitEuler
        >>> field = Sum(lambda t, y, args: -y, lambda t, y, args: 2 * y)
        >>> kwargs = {"t1": 1.0, "dt0": 0.5, "solver": SplitEuler()}
        >>> float(tfjax.solve(field, jnp.array(1.0), **kwargs).ys[-1])  # (0.5 * 2)^2
        1.0

    Source: H. F. Trotter, On the product of semi-groups of operators, 1959; for layers,
    arXiv 1906.02762.
    """

    term_structure: ClassVar = dfx.AbstractTerm
    interpolation_cls: ClassVar[Callable[..., Any]] = dfx.LocalLinearInterpolation

    def order(self, terms):
        return 1

    def init(self, terms, t0, t1, y0, args):
        field = check_term(self, terms)
        if not getattr(field, "parts", None):
            rule = "be a Sum, or have `parts`, for SplitEuler"
            raise must("field", rule, type(getattr(field, "field", field)).__name__)
        return None

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, y1 = terms.contr(t0, t1), y0
        for part in check_term(self, terms).parts:
            velocity = part(t0, y1, args)
            _check_shapes(y0, velocity)
            y1 = moved(y1, h, velocity)
        dense_info = {"y0": y0, "y1": y1}
        return y1, None, dense_info, None, dfx.RESULTS.successful


def _check_shapes(y, velocity):
    shapes = lambda tree: jax.tree.map(lambda leaf: leaf.shape, tree)
    if not eqx.tree_equal(shapes(y), shapes(velocity)):
        rule = f"have parts that return the state's shape {shapes(y)}"
        raise must("field", rule, f"one of shape {shapes(velocity)}")
