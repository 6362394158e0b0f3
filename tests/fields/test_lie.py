"""Flows of matrices: closed forms, what stays, where they tend, and what is refused."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tfjax
from tfjax import fields
from tfjax.fields import (
    AttentionParams,
    Scaled,
    double_bracket,
    lax_pair,
    lie_bracket,
    rectangular_bracket,
    toda,
)


needs_float64 = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="the digits are those of float64"
)


def random(*shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape))


def turning(d, seed):
    a = random(d, d, seed=seed)
    return 0.5 * (a - a.T)


def symmetric(d, seed):
    a = random(d, d, seed=seed)
    return 0.5 * (a + a.T)


def solved(field, y0, t1, args=None):
    """By a method of high order that knows nothing of the structure."""
    kwargs = {"rtol": 1e-12, "atol": 1e-12, "solver": dfx.Dopri8()}
    return np.asarray(tfjax.solve(field, y0, args, t1=t1, **kwargs).ys[-1])


def spectrum(H):
    return np.sort_complex(np.linalg.eigvals(np.asarray(H)))


def singular(H):
    return np.linalg.svd(np.asarray(H), compute_uv=False)


def gap(a, b):
    return np.max(np.abs(np.asarray(a) - np.asarray(b)))


# --- Closed forms ---------------------------------------------------------------------

N_TOKENS, D = 4, 3
H0 = random(N_TOKENS, D, seed=1)
A, B = turning(N_TOKENS, 2), turning(D, 3)
W = random(D, D, seed=4)


def velocity_of(path, t):
    """A path of matrices and its derivative."""
    return jax.jvp(path, (jnp.asarray(t),), (jnp.ones(()),))


def test_both_sides_turn_by_exponentials(tol):
    """d/dt e^{-At} H e^{Bt} is the field there."""
    expm = jax.scipy.linalg.expm
    H, dH = velocity_of(lambda t: expm(-A * t) @ H0 @ expm(B * t), 0.7)
    assert gap(rectangular_bracket(A, B)(0.7, H), dH) < 10 * tol.identity
    assert gap(rectangular_bracket(-A, -B)(0.7, H), dH) > 1


def test_a_bracket_conjugates(tol):
    """d/dt e^{-Wt} H e^{Wt} is the field there; with the other sign it is not."""
    expm, start = jax.scipy.linalg.expm, H0[:D]
    H, dH = velocity_of(lambda t: expm(-W * t) @ start @ expm(W * t), 0.7)
    scale = np.abs(dH).max()
    assert gap(lie_bracket(W)(0.7, H), dH) < 10 * tol.identity * scale
    assert gap(lie_bracket(-W)(0.7, H), dH) > scale


def test_a_force_is_added_and_takes_the_parameters(tol):
    H = H0[:D]
    bracket = lie_bracket(W)(0.0, H)
    cubic = lie_bracket(W, lambda H: -H @ H @ H)(0.0, H)
    assert gap(cubic, bracket - H @ H @ H) < 10 * tol.identity
    scaled = lie_bracket(W, lambda H, k: k * H)(0.0, H, jnp.asarray(3.0))
    assert gap(scaled, bracket + 3 * H) < 10 * tol.identity


def test_the_covariance_of_turned_tokens_follows_a_bracket(tol):
    def covariance(t):
        X = H0 @ jax.scipy.linalg.expm(B * t)
        return X.T @ X / N_TOKENS

    C, dC = velocity_of(covariance, 0.7)
    assert gap(lie_bracket(B)(0.7, C), dC) < 10 * tol.identity
    assert gap(lie_bracket(-B)(0.7, C), dC) > 0.1


@needs_float64
def test_skew_sides_keep_the_singular_values_of_a_solve():
    H = solved(rectangular_bracket(A, B), H0, 2.0)
    exact = scipy.linalg.expm(-2 * A) @ H0 @ scipy.linalg.expm(2 * B)
    assert gap(H, exact) < 1e-9
    assert gap(singular(H), singular(H0)) < 1e-9
    assert gap(H, H0) > 0.5


@needs_float64
def test_any_bracket_keeps_eigenvalues_but_not_the_norm():
    start = H0[:D]
    bracket = lambda t, H, W: lie_bracket(W)(t, H)
    H = solved(bracket, start, 1.0, W)
    assert gap(spectrum(H), spectrum(start)) < 1e-9
    assert abs(np.linalg.norm(H) / np.linalg.norm(start) - 1) > 0.1
    turned = solved(bracket, start, 1.0, B + 2 * jnp.eye(D))
    assert abs(np.linalg.norm(turned) / np.linalg.norm(start) - 1) < 1e-10
    forced = solved(lie_bracket(W, lambda H: -H), start, 1.0)
    assert gap(spectrum(forced), np.exp(-1) * spectrum(start)) < 1e-9


def test_attention_is_of_this_form_and_moves_the_singular_values(tol):
    """A = -P(H), which is not skew, and B = 0."""
    weights = lambda H: -jax.nn.softmax(1.3 * H @ H.T, axis=-1)
    field = rectangular_bracket(A=weights)
    params = AttentionParams(beta=1.3)
    expected = fields.euclidean_attention(0.0, H0, params)
    assert gap(field(0.0, H0), expected) < 10 * tol.identity
    euler = H0 + 0.01 * field(0.0, H0)
    rate = (singular(euler) - singular(H0)) / 0.01
    assert np.max(np.abs(rate)) > 0.1
    skew = H0 + 0.01 * rectangular_bracket(A, B)(0.0, H0)
    drift = (singular(skew) - singular(H0)) / 0.01
    assert np.max(np.abs(drift)) < 0.05  # of the order of the step


def test_functions_of_the_state_take_the_parameters(tol):
    field = rectangular_bracket(lambda H, k: k * H @ H.T, lambda H, k: H.T @ H / k)
    got = field(0.0, H0, jnp.asarray(2.0))
    expected = H0 @ (H0.T @ H0) * (0.5 - 2)
    assert gap(got, expected) < 100 * tol.identity


# --- Lax pairs ------------------------------------------------------------------------

L0 = symmetric(4, 5)
ORDER = jnp.array([3.0, 1.0, 4.0, 2.0])


def test_the_brackets_are_lax_pairs_of_their_generators(tol):
    for field in (toda, double_bracket(symmetric(4, 6)), lie_bracket(random(4, 4))):
        generator = field.generator
        pair = lax_pair(lambda L, g=generator: g(0.0, L))
        assert gap(field(0.0, L0), pair(0.0, L0)) < 100 * tol.identity
    assert lie_bracket(W, lambda H: H).generator is None
    skew = toda.generator(0.0, L0)
    np.testing.assert_array_equal(skew, -skew.T)


@functools.cache
def lattice(t1):
    return solved(toda, L0, t1)


@needs_float64
def test_toda_is_the_flow_of_the_qr_algorithm():
    """L(1) = Q^T L Q with e^L = Q R; the flow of [L, B] is another one."""
    Q, R = np.linalg.qr(scipy.linalg.expm(np.asarray(L0)))
    Q = Q * np.sign(np.diag(R))
    assert gap(lattice(1.0), Q.T @ L0 @ Q) < 1e-10
    assert gap(lattice(-1.0), Q.T @ L0 @ Q) > 1


@needs_float64
def test_toda_tends_to_descending_eigenvalues():
    values = np.linalg.eigvalsh(L0)
    assert np.diff(values).min() > 0.5
    assert gap(lattice(30.0), np.diag(values[::-1])) < 1e-6
    assert gap(lattice(-30.0), np.diag(values)) < 1e-6


def test_the_double_bracket_climbs_the_trace(tol):
    """d tr(N H)/dt = |[H, N]|^2."""
    N = symmetric(4, 7)
    rate = jnp.sum(N * double_bracket(N)(0.0, L0))
    square = np.sum(np.asarray(L0 @ N - N @ L0) ** 2)
    assert abs(rate / square - 1) < 10 * tol.identity


@needs_float64
def test_the_double_bracket_sorts_like_its_matrix():
    H = solved(double_bracket(jnp.diag(ORDER)), L0, 30.0)
    values = np.linalg.eigvalsh(L0)
    assert gap(H, np.diag(values[np.asarray(ORDER, int) - 1])) < 1e-6


def test_batches_of_matrices_are_flows_of_each(tol):
    batch = jnp.stack([L0, 2 * L0])
    for field in (toda, double_bracket(L0 @ L0), lie_bracket(random(4, 4))):
        got = field(0.0, batch)
        for one, matrix in zip(got, batch, strict=True):
            assert gap(one, field(0.0, matrix)) < 100 * tol.identity


def test_another_unit_of_time_scales_the_field_alone(tol):
    field, c = double_bracket(symmetric(4, 7)), 60.0
    euler = lambda f, h: L0 + h * f(0.0, L0)
    assert gap(euler(field, 0.1), euler(Scaled(field, 1 / c), 0.1 * c)) < (
        100 * tol.identity
    )


# --- Refusals -------------------------------------------------------------------------

REFUSED = {
    "lie_bracket": (lambda: lie_bracket(jnp.ones((2, 3))), "`W` must have shape"),
    "stack": (lambda: lie_bracket(jnp.ones((2, 3, 3))), "`W` must have shape"),
    "force": (lambda: lie_bracket(W, 2.0), "`F` must be a function of H"),
    "force's shape": (
        lambda: lie_bracket(W, lambda H: jnp.zeros(2))(0.0, H0[:D]),
        r"`F` must return a matrix of shape \(3, 3\), but was one of shape \(2,\)",
    ),
    "other size": (
        lambda: lie_bracket(W)(0.0, L0),
        r"`W` must have shape \(4, 4\) here, but was of shape \(3, 3\)",
    ),
    "not square": (lambda: toda(0.0, H0), "`L` must have shape"),
    "nothing": (lambda: rectangular_bracket(), "`A` must be given where B is not"),
    "side": (
        lambda: rectangular_bracket(B=W)(0.0, jnp.ones((2, 2))),
        r"`B` must have shape \(2, 2\) here",
    ),
    "function": (
        lambda: rectangular_bracket(lambda H: H)(0.0, H0),
        r"`A` must return a matrix of shape \(4, 4\)",
    ),
    "tokens": (
        lambda: rectangular_bracket(A)(0.0, jnp.ones(4)),
        r"`H` must have shape \(n, d\)",
    ),
    "lax_pair": (lambda: lax_pair(W), "`B` must be a function of L"),
    "pair's shape": (
        lambda: lax_pair(lambda L: L[0])(0.0, L0),
        r"`B` must return a matrix of shape \(4, 4\)",
    ),
    "double_bracket": (lambda: double_bracket(jnp.ones(3)), "`N` must have shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_named(case, unchecked):
    call, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        call()
