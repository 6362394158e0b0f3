"""The other predictions, against closed forms, series, and listed figures."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from tfjax.energies import interaction_energy
from tfjax.fields import (
    NGPT,
    AttentionParams,
    LNScaling,
    MixNorm,
    PeriNorm,
    PostNorm,
    PreNorm,
    unnormalized_self_attention,
)
from tfjax.geometry import Sphere
from tfjax.theory import (
    circle_growth_rate,
    critical_noise,
    dirac_energy,
    log_concentration_bound,
    long_context_cosine,
    long_context_limit,
    merging_angle,
    metastability,
    noisy_kuramoto_order,
    normalized_log_variance,
    sphere_growth_rate,
    tricritical_beta,
    uniform_energy,
    wendel,
)


X64 = jax.config.jax_enable_x64
needs_x64 = pytest.mark.skipif(not X64, reason="figures to more digits than float32")
RTOL = 1e-12 if X64 else 2e-6


# --- The uniform measure --------------------------------------------------------------


def series(d, beta):
    """The energy of the uniform measure by the power series, whose terms are > 0."""
    terms, term = [], 1.0
    for m in range(2000):
        terms.append(term)
        term *= (beta / 2) ** 2 / ((m + 1) * (m + d / 2))
    return math.fsum(terms) / (2 * beta)


@pytest.mark.parametrize("beta", [0.1, 1.0, 9.0, 20.0])
@pytest.mark.parametrize("d", [2, 3, 8, 32, 65, 66, 345, 1024, 10**5, 10**6])
def test_the_energy_of_the_uniform_measure_is_the_sum_of_its_series(d, beta):
    assert float(uniform_energy(d, beta)) == pytest.approx(series(d, beta), rel=RTOL)


@needs_x64
@pytest.mark.parametrize("d", [2, 3, 65, 66, 345, 1024, 10**5])
def test_the_energy_keeps_its_digits_at_large_beta(d):
    got = float(uniform_energy(d, 700.0))
    assert got == pytest.approx(series(d, 700.0), rel=1e-10)


@needs_x64
def test_the_energies_are_those_of_the_table():
    table = {
        2: (0.6330329389, 1.412740244, 60.754908584),
        3: (0.5876005968, 0.8528099124, 25.0095179141),
        8: (0.5320421982, 0.3128696042, 2.3655937517),
        32: (0.5078702117, 0.160213727, 0.1886371977),
    }
    for d, values in table.items():
        got = uniform_energy(d, np.array([1.0, 4.0, 9.0]))
        np.testing.assert_allclose(got, values, rtol=1e-9)
    dirac = dirac_energy(np.array([1.0, 4.0, 9.0]))
    expected = (1.3591409142, 6.8247687541, 450.1713293097)
    np.testing.assert_allclose(dirac, expected, rtol=1e-10)


def test_no_tokens_have_less_energy_than_the_uniform_measure_or_more_than_one_point():
    for seed in range(20):
        x = Sphere(3).random(jax.random.key(seed), (16,))
        energy = float(interaction_energy(x, 4.0))
        assert float(uniform_energy(3, 4.0)) < energy < float(dirac_energy(4.0))


def test_the_energy_of_many_random_tokens_is_that_of_the_uniform_measure():
    x = Sphere(3).random(jax.random.key(0), (64, 500))
    energies = np.asarray(jax.lax.map(lambda x: interaction_energy(x, 4.0), x))
    # The n pairs i = i are excess: (e^beta / (2 beta) - E) / n.
    excess = (float(dirac_energy(4.0)) - float(uniform_energy(3, 4.0))) / 500
    error = energies.mean() - excess - float(uniform_energy(3, 4.0))
    assert abs(error) < 5 * energies.std() / 8


# --- Growth on the uniform measure ----------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize("beta", [0.3, 5.0, 30.0])
def test_growth_rates_on_the_circle_are_bessel_functions(k, beta):
    usa = k**2 * scipy.special.iv(k, beta) / beta
    assert float(circle_growth_rate(k, beta)) == pytest.approx(usa, rel=4 * RTOL)
    sa = usa / scipy.special.iv(0, beta)
    got = float(circle_growth_rate(k, beta, normalized=True))
    assert got == pytest.approx(sa, rel=4 * RTOL)


@pytest.mark.parametrize(("k", "d"), [(1, 3), (2, 3), (3, 8)])
def test_growth_rates_on_the_sphere_are_bessel_functions(k, d):
    beta = 4.0
    coefficient = math.gamma(d / 2) * (2 / beta) ** (d / 2 - 1)
    coefficient *= scipy.special.iv(k + d / 2 - 1, beta)
    expected = k * (k + d - 2) * coefficient / beta
    assert float(sphere_growth_rate(k, d, beta)) == pytest.approx(
        expected, rel=10 * RTOL
    )


def test_the_growth_rate_is_finite_at_beta_zero():
    """USA at beta = 0 is x' = P m: only the mean grows, at the rate (d - 1)/d."""
    assert float(sphere_growth_rate(1, 3, 0.0)) == pytest.approx(2 / 3, rel=1e-6)
    assert float(sphere_growth_rate(2, 3, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("beta", "fastest"), [(1.0, 1), (4.0, 3), (5.0, 3), (7.0, 4), (9.0, 4)]
)
def test_the_wave_that_grows_fastest_is_that_of_the_paper(beta, fastest):
    rates = [float(circle_growth_rate(k, beta)) for k in range(1, 9)]
    assert int(np.argmax(rates)) + 1 == fastest


@needs_x64
@pytest.mark.parametrize(
    ("beta", "k", "rate"), [(5.0, 3, 18.59607), (7.0, 4, 116.5800)]
)
def test_a_wave_of_particles_grows_at_the_rate(beta, k, rate):
    """The derivative of USA along a wave of 256 evenly spaced tokens."""
    assert float(circle_growth_rate(k, beta)) == pytest.approx(rate, rel=1e-5)
    theta = 2 * np.pi * np.arange(256) / 256
    wave = np.sin(k * theta)

    def speed(size):
        angle = theta + size * wave
        x = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        v = unnormalized_self_attention(0.0, x, AttentionParams(beta=beta))
        return jnp.sum(v * jnp.stack([-jnp.sin(angle), jnp.cos(angle)], axis=1), axis=1)

    _, growth = jax.jvp(speed, (0.0,), (1.0,))
    np.testing.assert_allclose(growth, rate * wave, atol=1e-4 * rate)


# --- Random starts and metastability --------------------------------------------------


def test_wendels_probabilities():
    assert wendel(8, 3) == 0.2265625
    assert wendel(10, 4) == 0.25390625
    assert wendel(6, 2) == 0.1875
    assert wendel(5, 5) == wendel(3, 7) == 1.0
    # On the circle: n half-circles, one for each point that comes first.
    assert all(wendel(n, 2) == n / 2 ** (n - 1) for n in range(1, 12))


def test_the_concentration_bound_falls_with_the_dimension_and_holds_at_the_start():
    bounds = [float(log_concentration_bound(0.0, 8, d, 1.0)) for d in (64, 1024)]
    assert bounds[0] > bounds[1]
    expected = np.log(2 * np.sqrt(np.log(64) / 64))
    assert bounds[0] == pytest.approx(expected, rel=1e-6)
    later = float(log_concentration_bound(2.0, 8, 64, 3.0))
    assert later - bounds[0] == pytest.approx(10 * 3 * 8 * 2, rel=1e-6)


def test_the_bounds_of_metastability_are_those_of_the_example():
    bounds = metastability(4, 0.39004, 0.01, 25.0)
    assert float(bounds.margin) == pytest.approx(0.2071, abs=1e-4)
    assert float(bounds.gathered) == pytest.approx(115.74, abs=0.01)
    assert float(bounds.escape) == pytest.approx(10484.6, rel=1e-3)


@pytest.mark.parametrize("beta", [1.0, 9.0, 1e4])
def test_the_pull_is_greatest_at_the_merging_angle(beta):
    angle = float(merging_angle(beta))
    assert (beta + 0.5) ** -0.5 < angle < beta**-0.5
    pull = lambda x: math.exp(-2 * beta * math.sin(x / 2) ** 2) * math.sin(x)
    assert pull(angle) >= max(pull(angle * 1.01), pull(angle * 0.99))


# --- Noise ----------------------------------------------------------------------------


@needs_x64
def test_the_constants_of_the_noisy_circle_are_those_listed():
    noise = critical_noise(1, np.array([1.0, 2.0, 3.0, 5.0]))
    np.testing.assert_allclose(noise, [0.565159, 0.795318, 1.31779, 4.86713], rtol=2e-6)
    assert tricritical_beta() == pytest.approx(2.44692, abs=1e-5)
    beta = tricritical_beta()
    ratio = scipy.special.iv(2, beta) / scipy.special.iv(1, beta)
    assert ratio == pytest.approx(0.5, abs=1e-12)
    normalized = float(critical_noise(2, 3.0, normalized=True))
    expected = scipy.special.iv(2, 3.0) / 3.0 / scipy.special.iv(0, 3.0)
    assert normalized == pytest.approx(expected, rel=1e-12)


def test_the_order_of_noisy_kuramoto_is_the_solution_of_its_equation():
    noise = np.array([0.2, 0.3, 0.4, 0.49, 0.5, 0.8])
    got = np.asarray(noisy_kuramoto_order(noise))
    np.testing.assert_allclose(got[:3], [0.87682, 0.77313, 0.58971], atol=1e-5)
    z = got[:4] / noise[:4]
    expected = scipy.special.i1e(z) / scipy.special.i0e(z)
    np.testing.assert_allclose(got[:4], expected, atol=1e-10 if X64 else 1e-5)
    assert np.all(got[4:] == 0)
    assert np.all(np.diff(got[:5]) < 0)


@needs_x64
@pytest.mark.parametrize("d", [3, 4, 16])
def test_noise_on_spheres_is_told_by_bessel_functions_of_their_order(d):
    """lambda_k / beta; the mean of von Mises and Fisher; lambda_2 / lambda_1 = 1/d."""
    iv, nu = scipy.special.iv, d / 2 - 1
    scale = math.gamma(d / 2) * (2 / 3.0) ** nu
    for k in (1, 2):
        got = float(critical_noise(k, 3.0, d=d))
        assert got == pytest.approx(scale * iv(k + nu, 3.0) / 3.0, rel=1e-12)
        got = float(critical_noise(k, 3.0, normalized=True, d=d))
        assert got == pytest.approx(iv(k + nu, 3.0) / iv(nu, 3.0) / 3.0, rel=1e-12)
    assert float(critical_noise(1, 0.0, d=d)) == pytest.approx(1 / d, rel=1e-12)
    beta = tricritical_beta(d)
    assert iv(2 + nu, beta) / iv(1 + nu, beta) == pytest.approx(1 / d, rel=1e-12)
    noise = np.array([0.3, 0.9, 1.0, 2.0]) / d
    got = np.asarray(noisy_kuramoto_order(noise, d=d))
    z = got[:2] / noise[:2]
    expected = iv(nu + 1, z) / iv(nu, z)
    np.testing.assert_allclose(got[:2], expected, atol=1e-10)
    assert np.all(got[2:] == 0)
    if d == 3:
        np.testing.assert_allclose(got[:2], 1 / np.tanh(z) - 1 / z, atol=1e-10)


@needs_x64
def test_the_order_is_differentiable_in_the_noise():
    slope = jax.grad(noisy_kuramoto_order)(0.3)
    h = 1e-5
    up, down = (float(noisy_kuramoto_order(0.3 + s * h)) for s in (1, -1))
    assert float(slope) == pytest.approx((up - down) / (2 * h), rel=1e-6)


# --- Layers ---------------------------------------------------------------------------


@needs_x64
def test_the_cosines_of_a_long_context_are_those_listed():
    got = long_context_cosine(1e4, 0.5, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(got, [0.999904, 0.800028, 0.504975], atol=1e-6)


def test_the_cosine_is_that_of_a_layer_of_attention():
    from tfjax.attention import attend

    n, rho, scale = 16, 0.3, 1.2
    x = np.linalg.cholesky((1 - rho) * np.eye(n) + rho)
    y = np.asarray(attend(x, x, x, beta=scale * np.log(n)))
    cosine = y[0] @ y[1] / np.linalg.norm(y[0]) / np.linalg.norm(y[1])
    got = float(long_context_cosine(float(n), rho, scale))
    assert got == pytest.approx(float(cosine), rel=1e-5)


@pytest.mark.parametrize(("scale", "limit"), [(1.0, 1.0), (2.0, 0.8), (4.0, 0.5)])
def test_the_cosine_tends_to_its_limit(scale, limit):
    assert float(long_context_limit(0.5, scale)) == pytest.approx(limit)
    gaps = [
        abs(float(long_context_cosine(10.0**k, 0.5, scale)) - limit) for k in (2, 6)
    ]
    assert gaps[1] < gaps[0]
    assert gaps[1] < 2e-3


CLOCKS = {
    "post": (PostNorm(), lambda t: 2 * t),
    "nGPT": (NGPT(0.5), lambda t: t),
    "pre": (PreNorm(), lambda t: 2 * np.log(t + 1)),
    "peri": (PeriNorm(), lambda t: 2 * np.log(t + 1)),
    "LN-scaling": (LNScaling(), lambda t: 4 * (np.sqrt(t + 1) - 1)),
    "mix": (
        MixNorm(1.0),
        lambda t: np.where(t <= 1, 2 * t, 2 + 2 * np.log(np.maximum(t, 1))),
    ),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_the_variance_falls_by_the_clock_of_the_scheme(name):
    scheme, clock = CLOCKS[name]
    ts = np.array([0.0, 0.5, 2.0, 20.0])
    got = normalized_log_variance(ts, scheme)
    tolerance = 1e-3 if name == "mix" else 1e-6 if X64 else 1e-4
    np.testing.assert_allclose(got, -clock(ts), rtol=tolerance, atol=tolerance)


def test_a_larger_radius_slows_pre_norm_down():
    ts = np.array([4.0])
    got = float(normalized_log_variance(ts, PreNorm(), radius=2.0)[0])
    assert got == pytest.approx(-2 * np.log(3.0), rel=1e-4)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uniform_energy(1, 1.0), "`d` must be at least 2, but was 1"),
        (lambda: uniform_energy(3, 0.0), "`beta` must be positive, but was 0"),
        (lambda: dirac_energy(1e4), "`beta` must be below .*, or exp"),
        (lambda: circle_growth_rate(0, 1.0), "`k` must be a positive integer"),
        (lambda: circle_growth_rate(1, -1.0), "`beta` must not be negative"),
        (lambda: wendel(0, 3), "`n` must be a positive integer, but was 0"),
        (lambda: metastability(4, 0.1, 0.0, 9.0), "`epsilon` must lie between 0 and 1"),
        (lambda: metastability(4, 0.1, 0.1, 1.0), "`beta` must be finite, and above 1"),
        (lambda: merging_angle(0.0), "`beta` must be positive"),
        (
            lambda: noisy_kuramoto_order(1e-4),
            "`diffusivity` must be .* at least 0.0002",
        ),
        (lambda: metastability(4, 2.0, 0.1, 9.0), r"`alpha` must lie in \[-1, 1\)"),
        (lambda: metastability(4, 0.1, 0.1, 9.0, rate=-1.0), "`rate` must be .* pos"),
        (lambda: circle_growth_rate(3, 800.0), "`beta` must be finite, and below 7|8"),
        (lambda: normalized_log_variance(3.0, PreNorm()), r"`ts` must have shape \(t,"),
        (lambda: critical_noise(1, 1.0, d=1), "`d` must be at least 2, but was 1"),
        (lambda: tricritical_beta(0), "`d` must be a positive integer, but was 0"),
        (lambda: long_context_cosine(1, 0.5, 1.0), "`n` must be at least 2"),
        (lambda: long_context_cosine(9, 1.0, 1.0), r"`rho` must lie in \[0, 1\)"),
    ],
)
def test_what_lies_outside_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_order_at_little_noise_is_near_one():
    """1 - r tends to D / 2 on the circle."""
    got = float(noisy_kuramoto_order(5e-4))
    assert (1 - got) / 2.5e-4 == pytest.approx(1, rel=2e-3 if X64 else 2e-2)


@needs_x64
def test_the_cosine_of_a_long_context_is_differentiable_at_any_length():
    slope = jax.grad(long_context_cosine, 2)(1e16, 0.5, 100.0)
    assert float(slope) == 0.0
