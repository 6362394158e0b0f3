"""Every adjoint through every structure-preserving solver: one derivative."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import pytest

import tfjax
from tfjax.fields import lax_pair, toda
from tfjax.geometry import rotation_exp
from tfjax.integrate import (
    RKMK4,
    ImplicitMidpoint,
    Isospectral,
    Leapfrog,
    LieEuler,
    LieMidpoint,
    TaoLeapfrog,
    Yoshida4,
    Yoshida6,
    forward_mode,
    second_order,
)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not jax.config.jax_enable_x64, reason="derivatives to 1e-10"),
]
L0 = jnp.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.7], [0.0, 0.7, -1.0]])


def pair(rate):
    return rate * jnp.array([1.0, 0.5]), jnp.array([0.0, 1.0])


def rotation(rate):
    return rotation_exp(rate * L0 @ jnp.triu(L0))


def pendulums(t, y, rate):
    return rate * y[1], -jnp.sin(rate * y[0])


def spinning(t, y, rate):
    return rate * (L0 @ y @ jnp.triu(L0))


# Solver, field, and the first state: both depend on the rate.
PROBLEMS = {
    "Leapfrog": (Leapfrog(), pendulums, pair),
    "Yoshida4": (Yoshida4(), pendulums, pair),
    "Yoshida6": (Yoshida6(), pendulums, pair),
    "ImplicitMidpoint": (ImplicitMidpoint(), pendulums, pair),
    "TaoLeapfrog": (TaoLeapfrog(2.0), pendulums, pair),
    "LieEuler": (LieEuler(), spinning, rotation),
    "LieMidpoint": (LieMidpoint(), spinning, rotation),
    "RKMK4": (RKMK4(), spinning, rotation),
    "Isospectral": (
        Isospectral(),
        lax_pair(lambda L, rate: rate * toda.generator(0.0, L)),
        lambda rate: rate * L0,
    ),
}


def end(name, rate, adjoint=None):
    solver, field, start = PROBLEMS[name]
    options = {"t1": 0.5, "dt0": 0.25, "solver": solver, "max_steps": 2}
    ys = tfjax.solve(field, start(rate), rate, adjoint=adjoint, **options).ys
    return sum(jnp.sum(jnp.sin(3 * leaf)) for leaf in jax.tree.leaves(ys))


RATE, STEP = jnp.asarray(0.8), 1e-4
# The steps of the others are made of the same parts, and compile for longer.
DIRECT = ("Leapfrog", "ImplicitMidpoint", "TaoLeapfrog", "LieEuler")


@functools.cache
def value_and_slope(name):
    """One program for the value and the derivative by the default adjoint."""
    return jax.jit(jax.value_and_grad(lambda rate: end(name, rate)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_adjoint_gives_the_difference_quotient(name):
    value = lambda rate: value_and_slope(name)(rate)[0]
    far, near = (value(RATE + s) - value(RATE - s) for s in (2 * STEP, STEP))
    quotient = float(8 * near - far) / (12 * STEP)  # of fourth order
    by_rate = lambda adjoint: lambda rate: end(name, rate, adjoint)
    found = {
        "the default": value_and_slope(name)(RATE)[1],
        "forward": jax.jit(jax.jacfwd(by_rate(forward_mode())))(RATE),
    }
    if name in DIRECT:
        found["direct"] = jax.jit(jax.grad(by_rate(dfx.DirectAdjoint())))(RATE)
    assert abs(quotient) > 0.1
    for adjoint, derivative in found.items():
        assert float(derivative) == pytest.approx(quotient, rel=1e-9), adjoint


def test_a_second_derivative_is_the_difference_quotient():
    by_rate = lambda rate: end("Leapfrog", rate, second_order())
    twice = jax.jit(jax.hessian(by_rate))(RATE)
    slope = lambda rate: value_and_slope("Leapfrog")(rate)[1]
    quotient = float(slope(RATE + STEP) - slope(RATE - STEP)) / (2 * STEP)
    assert float(twice) == pytest.approx(quotient, rel=1e-6)
