"""Rules of thumb are exact in the models that their docstrings name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.nn import scaled_learning_rate, suggested_depth


LAYERS = (4, 16, 64)
EXPONENTS = (0.0, 0.5, 1.0)
every_model = pytest.mark.parametrize("exponent", EXPONENTS)


def after_rounds(before, start, hops, rounds):
    """Where `hops` jumps lead, each round composing what the last one found."""
    place, jump = start, before
    for k in range(rounds):
        if hops >> k & 1:
            place = jump[place]
        jump = jump[jump]
    return place


def test_the_suggested_depth_is_one_layer_and_the_rounds_that_doubling_needs():
    """k jumps take floor(log2 k) + 1 rounds; with one less, none of these arrives."""
    n = 200
    before = np.maximum(np.arange(n) - 1, 0)
    for hops in range(1, n):
        rounds = suggested_depth(hops) - 1
        assert after_rounds(before, n - 1, hops, rounds) == n - 1 - hops
        assert after_rounds(before, n - 1, hops, rounds - 1) != n - 1 - hops
        # Whatever is composed: r rounds reach no farther than 2^r - 1.
        assert 2 ** (rounds - 1) - 1 < hops <= 2**rounds - 1


def test_the_depth_of_one_hop_may_be_another():
    assert suggested_depth(1) == 2
    assert suggested_depth(64, first=3) == 9


def loss(w, exponent):
    return 0.5 * (jnp.prod(1 + w.size**-exponent * w) - 1) ** 2


@every_model
@pytest.mark.parametrize("layers", LAYERS)
def test_the_rate_is_two_over_the_largest_eigenvalue_of_the_hessian(
    layers, exponent, tol
):
    hessian = jax.hessian(loss)(jnp.zeros(layers), exponent)
    values = jnp.linalg.eigvalsh(hessian)
    rate = scaled_learning_rate(2.0, layers, exponent)
    assert float(rate * values[-1]) == pytest.approx(2, rel=10 * tol.identity)
    assert float(jnp.abs(values[:-1]).max()) < 10 * tol.identity * float(values[-1])
    expected = {0.0: 2 / layers, 0.5: 2.0, 1.0: 2.0 * layers}[exponent]
    assert float(rate) == pytest.approx(expected, rel=10 * tol.identity)


@every_model
@pytest.mark.parametrize("layers", LAYERS)
def test_gradient_descent_returns_below_the_rate_and_leaves_above_it(layers, exponent):
    threshold = float(scaled_learning_rate(2.0, layers, exponent))
    start = jnp.full(layers, 1e-4 * layers ** (exponent - 1))  # f - 1 is near 1e-4

    @jax.jit
    def descend(rate):
        step = lambda _, w: w - rate * jax.grad(loss)(w, exponent)
        return loss(jax.lax.fori_loop(0, 60, step, start), exponent)

    first = float(loss(start, exponent))
    # Errors are multiplied by 1 - 2 r for a rate of r thresholds.
    assert float(descend(0.97 * threshold)) < 0.05 * first
    assert float(descend(1.03 * threshold)) > 20 * first


def test_a_rate_is_carried_from_one_depth_to_another(tol):
    rates = jnp.array([0.1, 0.3])
    carried = scaled_learning_rate(rates, 24, 0.25, tuned_at=6)
    np.testing.assert_allclose(carried, rates / 2, rtol=10 * tol.identity)
    assert carried.dtype == rates.dtype
    there = scaled_learning_rate(carried, 6, 0.25, tuned_at=24)
    np.testing.assert_allclose(there, rates, rtol=10 * tol.identity)
    half = scaled_learning_rate(jnp.float16(0.5), 2, 0)
    assert half.dtype == jnp.float16


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: suggested_depth(0), "`hops` must be a positive integer, but was 0"),
        (lambda: suggested_depth(2.5), "`hops` must be a positive integer"),
        (lambda: suggested_depth(2, first=0), "`first` must be a positive integer"),
        (
            lambda: scaled_learning_rate(-1.0, 2, 0),
            "`rate` must be finite and positive, but was -1",
        ),
        (lambda: scaled_learning_rate(1.0, 0, 0), "`layers` must be a positive"),
        (
            lambda: scaled_learning_rate(1.0, 2, float("nan")),
            r"`branch_exponent` must be in \[0, inf\), but was nan",
        ),
        (
            lambda: scaled_learning_rate(1.0, 2, 0, tuned_at=-3),
            "`tuned_at` must be a positive integer, but was -3",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
