"""Sums, multiples and bound fields: linear, nested, differentiable in their leaves."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.energies import Hamiltonian
from tfjax.fields import (
    AttentionParams,
    Bound,
    Kuramoto,
    Scaled,
    Sum,
    double_bracket,
    hamiltonian,
    kuramoto,
    lax_pair,
    lie_bracket,
    self_attention,
    toda,
    unnormalized_self_attention,
)


DTYPE = jnp.zeros(()).dtype
X = np.random.default_rng(0).standard_normal((5, 3)).astype(DTYPE)
PARAMS = AttentionParams(beta=1.5)


def rotation(t, x, args):
    return jnp.stack([-x[..., 1], x[..., 0]], axis=-1)


def close(actual, expected, tol):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5 * tol.identity)


def test_a_sum_is_linear_and_passes_the_same_arguments_to_every_part(tol):
    sa, usa = self_attention, unnormalized_self_attention
    a, b = sa(0.0, X, PARAMS), usa(0.0, X, PARAMS)
    close(Sum(sa, usa)(0.0, X, PARAMS), a + b, tol)
    close(Sum(sa, Scaled(Sum(usa, sa), -2.0))(0.0, X, PARAMS), -a - 2 * b, tol)
    time = lambda t, x, args: t * jnp.ones_like(x)
    close(Sum(time, sa)(0.25, X, PARAMS), a + 0.25, tol)


def test_a_bound_field_heeds_its_own_parameters_only(tol):
    own = Bound(self_attention, AttentionParams(beta=0.0))
    expected = self_attention(0.0, X, AttentionParams(beta=0.0))
    np.testing.assert_array_equal(own(0.0, X, PARAMS), expected)
    np.testing.assert_array_equal(own(0.0, X), expected)
    both = Sum(own, self_attention)(0.0, X, PARAMS)
    close(both, expected + self_attention(0.0, X, PARAMS), tol)


def test_what_a_field_tells_solvers_is_told_by_what_is_made_of_it(tol):
    """[B, L] + c [C, L] = [B + c C, L]; and sums of separable fields are separable."""
    N, L = jnp.diag(jnp.array([1.0, 3.0, 2.0])), jnp.asarray(X[:3] + X[:3].T)
    own = Bound(lax_pair(lambda L, k: k * toda.generator(0.0, L)), jnp.asarray(2.0))
    field = Sum(double_bracket(N), Scaled(own, -0.5))
    pair = lax_pair(lambda L: field.generator(0.0, L))
    np.testing.assert_allclose(
        field(0.0, L), pair(0.0, L), rtol=0, atol=200 * tol.identity
    )
    assert Sum(toda, lambda t, L, args: L).generator is None
    assert Scaled(lie_bracket(N, lambda L: L), 2.0).generator is None
    assert Bound(self_attention, PARAMS).generator is None

    still, bent = (
        hamiltonian(Hamiltonian(jnp.sum)),
        hamiltonian(Hamiltonian(jnp.sum, heavy)),
    )
    for made in (lambda f: Scaled(f, 2.0), lambda f: Bound(f, None)):
        assert made(still).separable is True
        assert made(bent).separable is False
        assert made(self_attention).separable is None
    assert Sum(still, Scaled(still, 2.0)).separable is True
    assert Sum(still, bent).separable is None


def heavy(q):
    return 1 + jnp.sum(q**2)


def test_states_may_be_trees(tol):
    field = lambda t, y, args: (y[1], -y[0])
    q, p = X[0], X[1]
    velocity = Sum(field, Scaled(field, 2.0))(0.0, (q, p))
    close(velocity[0], 3 * p, tol)
    close(velocity[1], -3 * q, tol)


def test_half_precision_is_summed_in_float32_and_rounded_once():
    # In bfloat16, 256 + 1 + 1 stays 256 if each sum is rounded.
    const = lambda value: lambda t, x, args: jnp.full_like(x, value)
    x = jnp.zeros(2, jnp.bfloat16)
    velocity = Sum(const(256.0), const(1.0), const(1.0))(0.0, x)
    assert velocity.dtype == jnp.bfloat16
    assert velocity.tolist() == [258, 258]
    assert Scaled(const(1.0), 3.0)(0.0, x).dtype == jnp.bfloat16


def test_leaves_are_differentiated_at_every_depth(tol):
    omega = jnp.array([1.0, 2.0])
    drift = Bound(kuramoto, Kuramoto(coupling=0.0, frequencies=omega))
    field = Sum(Scaled(drift, 3.0), Scaled(drift, 0.5))
    total = lambda field: jnp.sum(field(0.0, jnp.zeros(2)))
    gradient = eqx.filter_grad(total)(field)
    first, second = gradient.fields
    close(first.factor, 3.0, tol)
    close(first.field.args.frequencies, [3, 3], tol)
    close(second.field.args.frequencies, [0.5, 0.5], tol)


def test_a_factor_is_swept_through_solve_and_vmap_without_a_new_trace():
    traces = []

    def counted(t, x, args):
        traces.append(None)
        return rotation(t, x, args)

    x0 = jnp.array([1.0, 0.0])
    how = {"t1": 1.0, "dt0": 0.1, "solver": dfx.Dopri8()}
    angles, counts = [], []
    for factor in (0.5, 1.0, 2.0):
        end = tfjax.solve(Scaled(counted, factor), x0, **how).ys[-1]
        angles.append(float(jnp.arctan2(end[1], end[0])))
        counts.append(len(traces))
    assert counts[0] == counts[-1] > 0
    np.testing.assert_allclose(angles, [0.5, 1.0, 2.0], rtol=1e-5)
    many = jax.vmap(lambda c: Scaled(rotation, c)(0.0, x0))(jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(many, [[0, 2], [0, 3]], atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    with pytest.raises(ValueError, match="^`fields` must be at least one field"):
        Sum()
    for make in (Sum, lambda f: Scaled(f, 1.0), lambda f: Bound(f, None)):
        with pytest.raises(
            ValueError, match=r"^`fields?` must be a function \(t, x, a"
        ):
            make(3)
    with pytest.raises(ValueError, match="^`factor` must be a scalar, but was of sha"):
        Scaled(rotation, np.ones(2))(0.0, X)
    with pytest.raises(ValueError, match="^`factor` must be a real array, but was"):
        Scaled(rotation, "twice")
