"""A Transformer whose depth is time: tokens that flow through weights of depth."""

import functools
import math
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key, Shaped

from .._core import count, must, widen
from ..fields import Sum
from ..integrate import reverse_mode, solve
from ._branches import Tokens
from ._transformer import Transformer
from ._transformer_config import TransformerConfig


WEIGHTS = ("linear", "constant")
NORMS = ("pre", "peri")
_MOST_STEPS = 256


class ContinuousTransformer(eqx.Module):
    r"""A Transformer whose depth is time.

    The tokens follow, in depth t from 0 to 1,

    $$\dot x = L^{1 - a} \, [f(x; W(t)) + g(x; W(t))]$$

    with attention f and the feed-forward map g of a layer, each after its norm, and a
    the `branch_exponent`. W is made of L sets of weights, those of the L layers of a
    [`Transformer`][tfjax.nn.Transformer] with as many parameters, which come before and
    after the flow as they do there. Layer k lies at depth k/L. Between these knots
    weights are interpolated; after the last one they are constant.

    A step of length 1/L of Euler's method, `solver=diffrax.Euler()`, is a layer that
    adds both branches at once, and one of [`SplitEuler`][tfjax.integrate.SplitEuler] is
    a layer of the Transformer, to rounding. Shorter steps, or other solvers, are other
    ways to the same flow. The flow is cut at the knots, so that every solver has its
    order.

    For any a this is a differential equation. When L grows with weights that sample
    one function of depth, the equations have a limit where a is 1, with errors of
    O(1/L) in tokens and gradients, and none for smaller a: velocities grow with L.
    Weights that are drawn anew for each layer, as they are here at first, sample no
    function: for them a = 1 tends to no motion at all, and a = 1/2 to noise, not to an
    equation.

    A batch is one state. With constant steps each sequence is what it is alone, and a
    place sees earlier ones only where it should. With tolerances all sequences and
    places share the steps, so that both hold to within the tolerances; under `jax.vmap`
    each sequence has steps of its own.

    **Arguments:**

    - `config`: a [`TransformerConfig`][], with `norm` `"pre"` or `"peri"`, `block`
      `"residual"`, and no stochastic scores. A share of entries that is dropped is the
      same from knot to knot.
    - `key`: draws the weights: those of the Transformer of the same key.
    - `dtype`: of the parameters, as there. The branches are computed in it, and summed
      in float32 at least.
    - `weights`: `"linear"` between knots, or `"constant"`, which jump at the next one.
    - `solver`: of diffrax or `tfjax.integrate`; None is `diffrax.Midpoint()`, or
      `diffrax.Tsit5()` with tolerances.
    - `steps`: how many equal steps there are from knot to knot, one where None; with
      tolerances how many there may be, 256 where None.
    - `rtol`, `atol`: tolerances of a step, for adaptive ones: either or both, where the
      other is 1e-6.
    - `adjoint`: how the flow is differentiated, as in `tfjax.solve`: None keeps the
      state at every equal step and computes the rest again
      ([`reverse_mode`][tfjax.integrate.reverse_mode]), which on CPU is faster than
      keeping it. `diffrax.BacksolveAdjoint()` solves the adjoint equation back in time:
      its gradient is off by an error of the solver's order.

    **Arguments of the call, returns:** as for [`Transformer`][tfjax.nn.Transformer].

    **Raises:** ValueError where an argument is impossible, or `config` has no flow;
    when called, as the Transformer does, and RuntimeError where a flow with tolerances
    takes too many steps. Constant steps that overflow give logits that are not finite.

    !!! example

        >>> import jax
        >>> from tfjax.nn import ContinuousTransformer, TransformerConfig
        >>> config = TransformerConfig(vocabulary=65, layers=2, heads=2, head_dim=16)
        >>> model = ContinuousTransformer(config, key=jax.random.key(0), steps=2)
        >>> model(jax.numpy.zeros((3, 10), int)).shape
        (3, 10, 65)

    Source: arXiv 1806.07366; for Transformers, arXiv 1906.02762, section 3, and for
    the limit of deep ones, arXiv 2206.14929.
    """

    transformer: Transformer
    solver: dfx.AbstractSolver
    adjoint: dfx.AbstractAdjoint | None
    weights: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)
    atol: float | None = eqx.field(static=True)

    def __init__(
        self,
        config: TransformerConfig,
        *,
        key: Key[Array, ""],
        dtype: DTypeLike | None = None,
        weights: str = "linear",
        solver: dfx.AbstractSolver | None = None,
        steps: int | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        adjoint: dfx.AbstractAdjoint | None = None,
    ):
        check_flow(config)
        if weights not in WEIGHTS:
            rule = f"be one of {', '.join(map(repr, WEIGHTS))}"
            raise must("weights", rule, repr(weights))
        for name, tolerance in (("rtol", rtol), ("atol", atol)):
            number = isinstance(tolerance, int | float)
            if tolerance is not None and not (number and 0 <= tolerance < math.inf):
                rule = "be finite and not negative, or None"
                raise must(name, rule, repr(tolerance))
        adaptive = not (rtol is None and atol is None)
        if solver is None:
            solver = dfx.Tsit5() if adaptive else dfx.Midpoint()
        if not isinstance(solver, dfx.AbstractSolver):
            raise must("solver", "be a diffrax solver, or None", repr(solver))
        if adaptive and not isinstance(solver, dfx.AbstractAdaptiveSolver):
            rule = "be one that estimates its error, for rtol and atol"
            raise must("solver", rule, type(solver).__name__)
        if adjoint is not None and not isinstance(adjoint, dfx.AbstractAdjoint):
            raise must("adjoint", "be a diffrax adjoint, or None", repr(adjoint))
        if steps is None:
            steps = _MOST_STEPS if adaptive else 1
        self.transformer = Transformer(config, key=key, dtype=dtype)
        self.solver, self.adjoint, self.weights = solver, adjoint, weights
        self.steps, self.rtol, self.atol = count("steps", steps), rtol, atol

    @classmethod
    def from_transformer(
        cls, transformer: Transformer, **options: Any
    ) -> "ContinuousTransformer":
        """The flow through the layers of a Transformer, whose arrays it shares.

        **Arguments:**

        - `transformer`: which comes back as `.transformer`.
        - `options`: `weights`, `solver`, `steps`, `rtol`, `atol`, `adjoint`.

        **Returns:** a `ContinuousTransformer`.

        **Raises:** ValueError as the constructor.
        """
        make = functools.partial(cls, transformer.config, **options)
        shape = eqx.filter_eval_shape(lambda key: make(key=key), jr.key(0))
        return eqx.tree_at(lambda model: model.transformer, shape, transformer)

    @property
    def config(self) -> TransformerConfig:
        """The sizes and choices, as of the Transformer."""
        return self.transformer.config

    def __call__(
        self,
        inputs: Shaped[Array, "..."],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "..."]:
        return self.logits(_flow(self, self.embed(inputs), key, keep=False))

    def hidden_states(
        self, inputs: Shaped[Array, "..."], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, "layers_plus_1 *batch n d"]:
        """The tokens at the knots, depths 0, 1/L, ..., and at the end, depth 1."""
        return _flow(self, self.embed(inputs), key, keep=True)

    def embed(self, inputs: Shaped[Array, "..."]) -> Tokens:
        """The tokens at depth 0."""
        return self.transformer.embed(inputs)

    def logits(self, x: Tokens) -> Float[Array, "..."]:
        """What the tokens at depth 1 say, as of the Transformer."""
        return self.transformer.logits(x)

    def velocity(self, t: Any, x: Tokens, args: Any = None) -> Tokens:
        """The velocity of tokens in depth, as a field `(t, x, args)`, without dropout.

        **Arguments:**

        - `t`: the depth, in [0, 1].
        - `x`: tokens, of shape (..., n, d).
        - `args`: is not read.

        **Returns:** dx/dt, of the shape of x.
        """
        L = self.config.layers
        place = L * jnp.asarray(t).astype(widen(x)[0][0].dtype)
        k = jnp.clip(jnp.floor(place).astype(int), 0, L - 1)
        here, there, static = _knots(self)
        pick = lambda tree: jax.tree.map(lambda leaf: leaf[k], tree)
        ends = eqx.combine(pick(here), static), eqx.combine(pick(there), static)
        return L * _FIELD(place - k.astype(place.dtype), x, (*ends, None))


class _Branch(eqx.Module):
    """What one branch of a layer adds per layer of depth, at a place between knots.

    It is called with the layers at both ends, of which the later one may be None, and
    with the key that drops entries, or None.
    """

    index: int

    def __call__(self, s: Any, x: Tokens, args: Any) -> Tokens:
        here, there, key = args
        layer = here if there is None else _between(s, here, there)
        n, kind = x.shape[-2], layer.attention.qkv.dtype
        earlier = here.config.sees_earlier_only
        mask = jnp.tril(jnp.ones((n, n), bool)) if earlier else None
        return layer.branches(mask, key)[self.index](x.astype(kind)).astype(x.dtype)


_FIELD = Sum(_Branch(0), _Branch(1))


def _between(s: Any, here: Any, there: Any) -> Any:
    """Weights at the place s in [0, 1] between two layers."""

    def mixed(a, b):
        if not eqx.is_inexact_array(a):
            return a
        (wide, other), dtype = widen(a, b)
        place = jnp.asarray(s).astype(wide.dtype)
        return (wide + place * (other - wide)).astype(dtype)

    return jax.tree.map(mixed, here, there)


def _knots(model: ContinuousTransformer) -> tuple[Any, Any, Any]:
    """The arrays of all layers, those of the knots after them, and what is no array."""
    layers, L = model.transformer.layers, model.config.layers
    if not model.config.scan:
        arrays, static = eqx.partition(layers, eqx.is_array)
        layers = eqx.combine(
            jax.tree.map(lambda *each: jnp.stack(each), *arrays), static[0]
        )
    here, static = eqx.partition(layers, eqx.is_array)
    if model.weights == "constant":
        return here, here, static
    after = jnp.minimum(jnp.arange(L) + 1, L - 1)
    return here, jax.tree.map(lambda leaf: leaf[after], here), static


@eqx.filter_jit
def _flow(model, x, key, keep):
    """The tokens at depth 1, or at all knots.

    From knot to knot time runs from 0 to 1: one program solves all layers, and its
    parameters are those of two of them, for an adjoint equation that is no longer.
    """
    L, dtype = model.config.layers, x.dtype
    here, there, static = _knots(model)
    if model.weights == "constant":
        there = None
    adaptive = not (model.rtol is None and model.atol is None)
    adjoint = model.adjoint
    if adjoint is None and not adaptive:
        adjoint = reverse_mode(checkpoints=model.steps)

    def advance(x, given):
        here, there, key = given
        there = None if there is None else eqx.combine(there, static)
        solution = solve(
            _FIELD,
            x,
            (eqx.combine(here, static), there, key),
            t1=1.0,
            dt0=None if adaptive else 1 / model.steps,
            solver=model.solver,
            rtol=model.rtol,
            atol=model.atol,
            adjoint=adjoint,
            max_steps=model.steps,
            # Constant steps fail by overflow only, which the logits show.
            throw=adaptive,
        )
        ys: Any = solution.ys
        x = ys[-1]
        return x, x if keep else None

    start = widen(x)[0][0]
    keys = None if key is None else jr.split(key, L)
    last, later = jax.lax.scan(advance, start, (here, there, keys))
    states = last if later is None else jnp.concatenate([start[None], later])
    return states.astype(dtype)


def check_flow(config: Any) -> None:
    """Raises where a Transformer of these choices is no flow."""
    if not isinstance(config, TransformerConfig):
        raise must("config", "be a TransformerConfig", repr(config))
    if config.block != "residual":
        rule = "be 'residual' for a flow, whose velocity is the sum of the branches"
        raise must("block", rule, repr(config.block))
    if config.norm not in NORMS:
        rule = "be 'pre' or 'peri' for a flow, which normalises no sum"
        raise must("norm", rule, repr(config.norm))
    bayesian = config.bayesian
    if bayesian is not None and bayesian.scores == "stochastic":
        rule = "have exact scores for a flow, which has no divergence of them"
        raise must("bayesian", rule, repr(bayesian.scores))
