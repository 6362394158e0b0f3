"""The interaction energy: closed forms, limits, and where its exponential ends."""

import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfjax.energies import interaction_energy, log_interaction_energy


REFERENCE = np.load(Path(__file__).parents[1] / "reference" / "fields.npz")
STATES = ("n10_d3_b1", "n16_d8_b2", "n32_d2_b9", "n32_d3_b1", "n32_d3_b4")
N, D = 6, 3


@functools.cache
def tokens():
    x = np.random.default_rng(0).standard_normal((N, D))
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x.astype(jnp.zeros(()).dtype)


@functools.cache
def jet(function, **options):
    """(value, gradient in x, gradient in beta), compiled."""
    f = lambda x, beta: function(x, beta, **options)
    jet = lambda x, beta: (f(x, beta), *jax.grad(f, (0, 1))(x, beta))
    return jax.jit(jet)


def energy(x, beta):
    return float(jet(interaction_energy)(x, beta)[0])


def equiangular(n, gamma):
    gram = (1 - gamma) * np.eye(n) + gamma
    return np.linalg.cholesky(gram).astype(jnp.zeros(()).dtype)


def relative(expected, tolerance):
    return pytest.approx(expected, rel=tolerance)


# --- Closed forms ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beta", "expected"),
    [(1.0, 1.3591409142), (4.0, 6.8247687541), (9.0, 450.1713293097)],
)
def test_one_token_has_the_energy_of_a_dirac(beta, expected, tol):
    one = tokens()[:1]
    assert energy(one, beta) == relative(np.exp(beta) / (2 * beta), 5 * tol.identity)
    assert energy(one, beta) == relative(expected, max(1e-9, 5 * tol.identity))
    log = log_interaction_energy(one, beta)
    assert float(log) == relative(0.5, 5 * tol.identity)


def test_orthogonal_tokens(tol):
    n, beta = N, 2.0
    expected = (n * np.exp(beta) + n * (n - 1)) / (2 * beta * n**2)
    assert energy(np.eye(n), beta) == relative(expected, tol.identity)


@pytest.mark.parametrize("gamma", [-0.19, 0.3, 0.999])
@pytest.mark.parametrize("beta", [-1.5, 0.5, 4.0])
def test_equiangular_tokens(gamma, beta, tol):
    x = equiangular(N, gamma)
    expected = np.exp(beta) + (N - 1) * np.exp(beta * gamma)
    expected = expected / (2 * beta * N)
    assert energy(x, beta) == relative(expected, 5 * tol.identity)
    log = np.log(2 * beta * expected) / (2 * beta)
    got = jet(log_interaction_energy)(x, beta)[0]
    assert float(got) == relative(log, 5 * tol.identity)
    got = jet(interaction_energy, centred=True)(x, beta)[0]
    assert float(got) == relative(expected - 1 / (2 * beta), 10 * tol.identity)


def test_a_bilinear_form_takes_the_place_of_the_inner_product(tol):
    x, beta = tokens(), 1.3
    b = np.random.default_rng(1).standard_normal((D, D))
    s = np.array([[(b @ x[i]) @ x[j] for j in range(N)] for i in range(N)])
    b = b.astype(x.dtype)
    plain = np.mean(np.exp(beta * s)) / (2 * beta)
    centred = np.mean(np.expm1(beta * s)) / (2 * beta)
    log = np.log(np.mean(np.exp(beta * s))) / (2 * beta)
    got = interaction_energy(x, beta, bilinear=b)
    assert float(got) == relative(plain, 5 * tol.identity)
    got = interaction_energy(x, beta, bilinear=b, centred=True)
    assert float(got) == relative(centred, 5 * tol.identity)
    got = log_interaction_energy(x, beta, bilinear=b)
    assert float(got) == relative(log, 5 * tol.identity)


def test_the_gradient_in_a_bilinear_form_at_0_is_the_square_of_the_sum(tol):
    # d/dB of sum_ij <B x_i, x_j> / (2 n^2), with n = 2.
    x = tokens()[:2]
    f = lambda b: interaction_energy(x, 1.0, bilinear=b)
    gradient = jax.jit(jax.grad(f))(np.zeros((D, D), x.dtype))
    total = x.sum(axis=0)
    np.testing.assert_allclose(
        gradient, np.outer(total, total) / 8, rtol=5 * tol.identity
    )


def test_independent_uniform_tokens_have_the_energy_of_the_uniform_measure():
    # The mean over i != j estimates E of the uniform measure: sinh(beta)/(2 beta^2).
    n, beta, estimates = 40, 1.0, []
    random = np.random.default_rng(2)
    batch = random.standard_normal((200, n, D))
    batch /= np.linalg.norm(batch, axis=-1, keepdims=True)
    energies = jax.jit(jax.vmap(lambda x: interaction_energy(x, beta)))(batch)
    estimates = (n * np.asarray(energies) - np.exp(beta) / (2 * beta)) / (n - 1)
    error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    assert abs(estimates.mean() - np.sinh(beta) / (2 * beta**2)) < 5 * error


@pytest.mark.parametrize("name", STATES)
def test_energies_of_reference_states(name, tol):
    # Computed with numpy in float64 along trajectories of SA.
    beta = float(REFERENCE[f"{name}/beta"])
    run = jax.jit(interaction_energy)
    got = [run(x, beta) for x in REFERENCE[f"{name}/states"]]
    bound = 1e-12 if jax.config.jax_enable_x64 else 1e-6 * (1 + beta)
    np.testing.assert_allclose(got, REFERENCE[f"{name}/energies"], rtol=bound)


# --- Limits ---------------------------------------------------------------------------


def test_the_centred_energy_at_beta_0_is_half_the_squared_mean(tol):
    x = tokens()
    mean, gram = x.mean(axis=0), x @ x.T
    value, in_x, in_beta = jet(interaction_energy, centred=True)(x, 0.0)
    assert float(value) == relative(mean @ mean / 2, 5 * tol.identity)
    expected = np.broadcast_to(mean / N, x.shape)
    np.testing.assert_allclose(in_x, expected, rtol=5 * tol.identity, atol=tol.identity)
    assert float(in_beta) == relative(np.mean(gram**2) / 4, 5 * tol.identity)


def test_the_log_energy_at_beta_0_is_half_the_squared_mean(tol):
    x = tokens()
    mean, gram = x.mean(axis=0), x @ x.T
    value, in_x, in_beta = jet(log_interaction_energy)(x, 0.0)
    assert float(value) == relative(mean @ mean / 2, 5 * tol.identity)
    expected = np.broadcast_to(mean / N, x.shape)
    np.testing.assert_allclose(in_x, expected, rtol=5 * tol.identity, atol=tol.identity)
    variance = np.mean(gram**2) - np.mean(gram) ** 2
    assert float(in_beta) == relative(variance / 4, 5 * tol.identity)


@pytest.mark.parametrize("beta", [1e-8, -1e-5, 1e-3])
def test_small_beta_loses_no_digits(beta, tol):
    # Two terms of the power series in beta; the next is below beta^2.
    x = tokens()
    gram = np.asarray(x @ x.T, np.float64)
    first, second, third = (np.mean(gram**k) for k in (1, 2, 3))
    bound = max(5 * tol.identity, abs(beta) ** 3)
    centred = first / 2 + beta * second / 4 + beta**2 * third / 12
    got, _, slope = jet(interaction_energy, centred=True)(x, beta)
    assert float(got) == relative(centred, bound)
    assert float(slope) == relative(second / 4 + beta * third / 6, max(bound, beta**2))
    variance = second - first**2
    skewness = third - 3 * first * second + 2 * first**3
    log = first / 2 + beta * variance / 4 + beta**2 * skewness / 12
    got, _, slope = jet(log_interaction_energy)(x, beta)
    assert float(got) == relative(log, bound)
    expected = variance / 4 + beta * skewness / 6
    assert float(slope) == relative(expected, max(bound, beta**2))


@pytest.mark.parametrize("beta", [0.999, 1.001, -0.999, -1.001, 7.0])
def test_the_log_energy_and_its_gradients_on_both_sides_of_the_switch(beta, tol):
    # |beta <x_i, x_j>| is at most |beta|, and 1 is where the series gives way.
    x = tokens()
    gram = np.asarray(x @ x.T, np.float64)
    kernel = np.exp(beta * gram)
    log = np.log(kernel.mean())
    value, in_x, in_beta = jet(log_interaction_energy)(x, beta)
    bound = 10 * tol.identity
    assert float(value) == relative(log / (2 * beta), bound)
    expected = kernel @ x / kernel.sum()
    np.testing.assert_allclose(in_x, expected, rtol=bound, atol=bound)
    slope = (np.sum(kernel * gram) / kernel.sum() - log / beta) / (2 * beta)
    np.testing.assert_allclose(in_beta, slope, rtol=bound, atol=bound)


@pytest.mark.parametrize(("beta", "bound"), [(1.0, None), (1e3, 1e-3), (1e6, 1e-5)])
def test_s06_the_log_energy_at_very_large_beta_is_finite(beta, bound):
    x = jnp.asarray([[1.0, 0.0], [0.6, 0.8]], jnp.float32)
    value, in_x, in_beta = jet(log_interaction_energy)(x, beta)
    assert value.dtype == jnp.float32
    assert np.isfinite(in_x).all()
    assert np.isfinite(in_beta)
    if bound is None:
        expected = np.log((2 * np.exp(1.0) + 2 * np.exp(0.6)) / 4) / 2
        assert float(value) == pytest.approx(expected, abs=1e-6)
    else:
        assert float(value) == pytest.approx(0.5, abs=bound)


def test_the_logarithm_of_the_energy_is_the_log_energy(tol):
    x, beta = tokens(), 3.0
    expected = np.log(2 * beta * energy(x, beta)) / (2 * beta)
    got = jet(log_interaction_energy)(x, beta)[0]
    assert float(got) == relative(expected, 5 * tol.identity)


# --- Where the exponential ends -------------------------------------------------------

LARGEST = {"float16": 11.0, "bfloat16": 88.0, "float32": 88.0, "float64": 709.0}


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("centred", [False, True])
def test_it_raises_naming_beta_where_the_exponential_leaves_the_dtype(dtype, centred):
    if dtype == "float64" and not jax.config.jax_enable_x64:
        pytest.skip("needs JAX_ENABLE_X64: there is no float64 without it")
    one = jnp.asarray([[1.0, 0.0]], dtype)
    last = LARGEST[dtype]
    value = interaction_energy(one, last, centred=centred)
    assert value.dtype == dtype
    assert np.isfinite(value)
    message = (
        r"^`beta` must keep exp\(beta <B x_i, x_j>\) and the energy within their dtype "
        rf"\(use `log_interaction_energy`\), but was {last + 1:g}.$"
    )
    with pytest.raises(ValueError, match=message):
        interaction_energy(one, last + 1, centred=centred)
    # What the product is decides, not beta alone.
    assert np.isfinite(interaction_energy(one / 2, last + 1, centred=centred))
    assert np.isfinite(log_interaction_energy(one, last + 1))


def test_under_jit_it_raises_at_run_time():
    run = eqx.filter_jit(lambda x, beta: interaction_energy(x, beta))
    assert np.isfinite(run(np.eye(2), jnp.array(10.0)))
    with pytest.raises(RuntimeError, match="`beta` must keep exp"):
        run(np.eye(2), jnp.array(1000.0))
    with pytest.raises(RuntimeError, match="`beta` must not be 0 unless"):
        run(np.eye(2), jnp.array(0.0))


def test_beta_0_is_refused_unless_centred():
    message = "^`beta` must not be 0 unless the energy is centred, but was 0.$"
    with pytest.raises(ValueError, match=message):
        interaction_energy(tokens(), 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_tokens_that_are_not_finite_are_named_and_not_beta(bad):
    x = np.eye(2, dtype=tokens().dtype)
    x[1, 0] = bad
    with pytest.raises(ValueError, match="^`x` must be finite, but was"):
        interaction_energy(x, 1.0)


# --- Input ----------------------------------------------------------------------------

ERRORS = {
    "rank": (
        {"x": np.ones(3)},
        r"`x` must have shape \(n, d\), but was of shape \(3,\)",
    ),
    "no tokens": ({"x": np.ones((0, 3))}, r"`x` must .* but was of shape \(0, 3\)"),
    "beta": ({"beta": np.ones(1)}, r"`beta` must be a scalar, but was of shape \(1,\)"),
    "bilinear": (
        {"bilinear": np.ones((3, 2))},
        r"`bilinear` must have shape \(3, 3\), but was of shape \(3, 2\)",
    ),
    "text": ({"x": "tokens"}, "`x` must be a real array, but was a str"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("function", [interaction_energy, log_interaction_energy])
@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS)
def test_bad_input_is_refused_by_name(function, change, message):
    arguments = {"x": np.eye(3), "beta": 1.0} | change
    with pytest.raises(ValueError, match=message):
        function(**arguments)


@pytest.mark.parametrize("beta", [88.5, 88.6])
def test_a_sum_that_leaves_the_dtype_is_refused_though_each_term_fits(beta):
    x = np.tile(np.array([[1.0, 0.0]], np.float32), (4, 1))
    assert np.isfinite(np.exp(np.float32(beta)))
    with pytest.raises(ValueError, match="`beta` must keep exp"):
        interaction_energy(x, beta)


def test_an_energy_that_float16_cannot_hold_is_refused():
    x = np.eye(2, dtype=np.float16)
    with pytest.raises(ValueError, match="`beta` must keep exp"):
        interaction_energy(x, 1e-6)


def test_a_bilinear_form_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="`bilinear` must be finite"):
        interaction_energy(np.eye(2), 1.0, bilinear=np.full((2, 2), np.nan))
