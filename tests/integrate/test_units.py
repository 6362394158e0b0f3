"""Physical units: steps h f have the units of the state, and no unit is preferred.

Where times grow c-fold and velocities fall so, t -> c t and f -> f / c, nothing else
changes. Powers of two do not round, so that it holds bit for bit.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import (
    AttentionParams,
    PiecewiseConstant,
    Scaled,
    double_bracket,
    self_attention,
)
from tfjax.geometry import SpecialOrthogonal, Sphere
from tfjax.integrate import (
    RKMK4,
    Geodesic,
    ImplicitMidpoint,
    Isospectral,
    Leapfrog,
    LieEuler,
    LieMidpoint,
    Projected,
    TaoLeapfrog,
    Yoshida4,
    Yoshida6,
)


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape))


M, N = random(3, 3), random(3, 3, seed=1)
TOKENS = Sphere(3).random(jax.random.key(1), (4,))


def pendulums(t, y, args):
    return (1 + 0.2 * jnp.sin(3 * t)) * y[1], -jnp.cos(t) * jnp.sin(y[0])


def turning(t, y, args):
    return jnp.cos(2 * t) * M @ y @ N


class Sorting:
    """A bracket whose generator changes in time."""

    def generator(self, t, L, args):
        return jnp.cos(2 * t) * double_bracket(N + N.T).generator(t, L)

    def __call__(self, t, L, args):
        B = self.generator(t, L, args)
        return B @ L - L @ B


class Slow:
    """A field in another unit of time: f / c, at t / c."""

    def __init__(self, field, c):
        self.field, self.c = field, c

    def __call__(self, t, y, args):
        return jax.tree.map(lambda v: v / self.c, self.field(t / self.c, y, args))

    def generator(self, t, L, args):
        return self.field.generator(t / self.c, L, args) / self.c


PAIR = (jnp.array([1.0, 0.5]), jnp.array([0.0, 1.0]))
TURNED = SpecialOrthogonal(3).random(jax.random.key(0))
ATTENTION = lambda t, x, args: jnp.cos(t) * self_attention(t, x, AttentionParams(2.0))
# The solver of a unit of time c, the field and the first state.
SOLVERS = {
    "Leapfrog": (lambda c: Leapfrog(), pendulums, PAIR),
    "Yoshida4": (lambda c: Yoshida4(), pendulums, PAIR),
    "Yoshida6": (lambda c: Yoshida6(), pendulums, PAIR),
    "ImplicitMidpoint": (lambda c: ImplicitMidpoint(), pendulums, PAIR),
    "TaoLeapfrog": (lambda c: TaoLeapfrog(5.0 / c), pendulums, PAIR),
    "LieEuler": (lambda c: LieEuler(), turning, TURNED),
    "LieMidpoint": (lambda c: LieMidpoint(), turning, TURNED),
    "RKMK4": (lambda c: RKMK4(), turning, TURNED),
    "Isospectral": (lambda c: Isospectral(), Sorting(), M + M.T),
    "Geodesic": (lambda c: Geodesic(dfx.Heun(), Sphere(3)), ATTENTION, TOKENS),
    "Projected": (lambda c: Projected(dfx.Tsit5(), Sphere(3)), ATTENTION, TOKENS),
}


def steps_in_unit(make, field, y0, unit=lambda y: y):
    """Two steps as a function of the unit of time: y0, and what they lead to."""

    @jax.jit
    def run(c):
        solver, y = make(c), y0
        term, args = dfx.ODETerm(Slow(field, c)), None
        times = [c * s for s in (0.25, 0.5, 0.75)]
        state = solver.init(term, times[0], times[1], y, args)
        for start, end in zip(times, times[1:], strict=False):
            y, _, _, state, _ = solver.step(term, start, end, y, args, state, False)
        return y

    return run


def biggest(tree):
    return max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree))


def difference(a, b):
    return biggest(jax.tree.map(jnp.subtract, a, b))


@pytest.mark.parametrize("name", SOLVERS)
def test_another_unit_of_time_changes_nothing(name):
    make, field, y0 = SOLVERS[name]
    run = steps_in_unit(make, field, y0)
    seconds, quarters = run(jnp.asarray(1.0)), run(jnp.asarray(4.0))
    assert difference(seconds, y0) > 0.01
    assert difference(seconds, quarters) == 0


@pytest.mark.parametrize("name", ["Leapfrog", "Yoshida4", "ImplicitMidpoint"])
def test_other_units_of_positions_and_momenta_change_nothing(name):
    """q = a Q, p = b P: radians and kg m^2 / s are no preferred units."""
    make, field, (q, p) = SOLVERS[name]
    one_step = jax.jit(lambda a, b: in_units(make(1.0), field, (q / a, p / b), a, b))
    ours = one_step(1.0, 1.0)
    assert difference(ours, (q, p)) > 0.01
    for a, b in ((2.0**20, 2.0**-16), (2.0**40, 2.0**40)):
        theirs = one_step(a, b)
        assert difference(ours, (a * theirs[0], b * theirs[1])) == 0


def test_the_binding_of_tao_adds_squares_of_both_so_that_their_units_matter():
    make, field, (q, p) = SOLVERS["TaoLeapfrog"]
    one_step = jax.jit(lambda a, b: in_units(make(1.0), field, (q / a, p / b), a, b))
    ours, alike, unlike = one_step(1.0, 1.0), one_step(8.0, 8.0), one_step(2.0, 0.5)
    assert difference(ours, (8 * alike[0], 8 * alike[1])) == 0
    assert 1e-3 < difference(ours, (2 * unlike[0], 0.5 * unlike[1])) < 0.1


def in_units(solver, field, y0, a, b):
    """Two steps of the field of (q / a, p / b)."""

    def scaled(t, y, args):
        dq, dp = field(t, (a * y[0], b * y[1]), args)
        return dq / a, dp / b

    return steps_in_unit(lambda c: solver, scaled, y0)(1.0)


def test_weights_that_change_in_time_keep_their_schedule():
    """PiecewiseConstant to c t, in a solve by steps that are c times as long."""
    values = random(3, 3, 3, seed=2)

    def end(c):
        pieces = AttentionParams(beta=jnp.array([1.0, 2.0, 3.0]), value=values)
        params = PiecewiseConstant(c * jnp.array([0.0, 0.25, 0.5]), pieces)
        field = Scaled(self_attention, 1 / c)
        options = {"t1": c, "dt0": c / 16, "solver": dfx.Heun()}
        return tfjax.solve(field, TOKENS, params, manifold=Sphere(3), **options).ys[-1]

    assert difference(end(1.0), TOKENS) > 0.1
    assert difference(end(1.0), end(4.0)) == 0
