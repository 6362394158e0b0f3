"""The commutator: one product, without traces, in float32 at least."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax._core import commutator, skew, symmetric


D = 24
DTYPE = jnp.zeros(()).dtype


def matrices(shift=0.0, dtype=np.float64):
    """A random pair that nearly commutes where `shift` is large."""
    a, b = np.random.default_rng(0).standard_normal((2, D, D)) / np.sqrt(D)
    return tuple((m + shift * np.eye(D)).astype(dtype) for m in (a, b))


def exact(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    a, b = (m - np.trace(m) / D * np.eye(D) for m in (a, b))
    return a @ b - b @ a


def relative(got, expected):
    got = np.asarray(got, np.float64)
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def test_the_commutator_is_that_of_two_products(tol):
    a, b = matrices(dtype=DTYPE)
    assert relative(commutator(a, b), exact(a, b)) < tol.identity
    batch = jnp.stack([a, b])
    expected = np.stack([exact(a, b), exact(b, b)])
    got = np.asarray(jax.jit(commutator)(batch, b))  # broadcasts
    np.testing.assert_allclose(got, expected, rtol=0, atol=5 * tol.identity)


def test_it_is_one_matrix_product_in_float32_at_least():
    for dtype, wide in (("bfloat16", "float32"), ("float32", "float32")):
        a, b = (jnp.asarray(m, dtype) for m in matrices())
        text = str(jax.make_jaxpr(commutator)(a, b))
        assert text.count("dot_general") == 1
        assert f"preferred_element_type={wide}" in text


def test_multiples_of_the_identity_cost_no_digits():
    # u |a| |b| / |[a, b]| is what two products lose, here 1e4 times the rounding.
    a, b = matrices(100.0, np.float32)
    plain = relative(a @ b - b @ a, exact(a, b))
    assert plain > 1e-3
    assert relative(commutator(a, b), exact(a, b)) < 2e-6


def test_bfloat16_loses_what_one_rounding_loses():
    a, b = matrices(1.0)
    a, b = (jnp.asarray(m, jnp.bfloat16) for m in (a, a + 0.05 * b))  # nearly commute
    got = commutator(a, b)
    assert got.dtype == jnp.bfloat16
    expected = exact(a.astype(jnp.float32), b.astype(jnp.float32))
    error = np.abs(np.asarray(got, np.float64) - expected)
    assert (error <= 2.0**-8 * np.abs(expected) + 1e-6).all()
    # Two products in bfloat16 lose all digits of some entries.
    plain = np.asarray(a @ b - b @ a, np.float64)
    assert relative(plain, expected) > 5 * relative(got, expected)


def test_it_is_antisymmetric_traceless_and_jacobi_holds(tol):
    a, b = matrices(dtype=DTYPE)
    c = matrices(1.0, DTYPE)[0].T
    np.testing.assert_allclose(
        commutator(a, b), -commutator(b, a), atol=10 * tol.identity
    )
    assert abs(np.trace(commutator(a, b))) < 10 * tol.identity
    cyclic = ((a, b, c), (b, c, a), (c, a, b))
    total = sum(commutator(x, commutator(y, z)) for x, y, z in cyclic)
    np.testing.assert_allclose(total, np.zeros((D, D)), atol=50 * tol.identity)


def test_a_matrix_is_its_symmetric_and_its_skew_part(tol):
    a = jnp.asarray(matrices(dtype=DTYPE)[0])
    np.testing.assert_allclose(skew(a) + symmetric(a), a, atol=tol.identity)
    np.testing.assert_array_equal(skew(a), -skew(a).T)
    np.testing.assert_array_equal(symmetric(a), symmetric(a).T)


@pytest.mark.usefixtures("unchecked")
def test_the_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"`b` must have shape \(\.\.\., d, d\)"):
        commutator(np.eye(2), np.ones((2, 3)))
