"""The equiangular curve against closed forms, the paper's table and the particles."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import tfjax
from tfjax.fields import AttentionParams, self_attention, unnormalized_self_attention
from tfjax.geometry import Sphere
from tfjax.theory import (
    equiangular,
    equiangular_log_gap,
    equiangular_time,
    phase_curve,
)


X64 = jax.config.jax_enable_x64
needs_x64 = pytest.mark.skipif(not X64, reason="figures to more digits than float32")


@pytest.mark.parametrize("n", [2, 32])
def test_at_beta_zero_the_curve_has_a_closed_form(n):
    ts = np.linspace(0.0, 5.0, 11)
    expected = (np.exp(2 * ts) - 1) / (np.exp(2 * ts) + n - 1)
    got = equiangular(ts, n, 0.0)
    np.testing.assert_allclose(got, expected, atol=1e-9 if X64 else 2e-6)


@needs_x64
@pytest.mark.parametrize(
    ("beta", "values"),
    [
        (0.1, (0.1654, 0.6237, 0.9985)),
        (1.0, (0.15185, 0.58977, 0.99828)),
        (4.0, (0.03544, 0.11807, 0.95277)),
    ],
)
def test_the_curve_of_32_tokens_is_that_of_the_table(beta, values):
    got = equiangular(np.array([1.0, 2.0, 5.0]), 32, beta)
    np.testing.assert_allclose(got, values, atol=1e-4)


@needs_x64
@pytest.mark.parametrize(
    ("n", "beta", "gamma", "time"),
    [
        (32, 0.1, 0.5, 1.7530),
        (32, 0.1, 0.999, 5.1921),
        (32, 1.0, 0.9, 2.91556),
        (32, 4.0, 0.999, 6.9535),
        (32, 6.0, 0.999, 15.9953),
        (467, 1.0, 0.9, 4.18221),
        (128, 4.0, 0.999, 6.5696),
        (467, 9.0, 0.5, 34.106),
    ],
)
def test_the_time_to_an_angle_is_that_of_the_table(n, beta, gamma, time):
    got = float(equiangular_time(gamma, n, beta))
    assert got == pytest.approx(time, abs=5e-4)
    # By the differential equation too, which is solved in another way.
    assert float(equiangular(got, n, beta)) == pytest.approx(gamma, abs=1e-9)


@needs_x64
@pytest.mark.parametrize(
    ("beta", "sa", "usa"),
    [
        (0.0, 4.3495073, 4.3495073),
        (1.0, 5.5260522, 2.4657477),
        (2.0, 9.0098373, 1.8500560),
        (4.0, 61.321651, 2.1666264),
        (9.0, 48744.790, 12.030633),
        (16.0, 1.0320761e9, 232.28973),
    ],
)
def test_two_tokens_merge_at_the_times_of_the_table(beta, sa, usa):
    for normalized, expected in ((True, sa), (False, usa)):
        got = equiangular_time(0.999, 2, beta, gamma0=-0.5, normalized=normalized)
        assert float(got) == pytest.approx(expected, rel=1e-6)


@needs_x64
@pytest.mark.parametrize("gamma0", [-0.1, 0.0, 0.4])
@pytest.mark.parametrize("normalized", [True, False])
def test_particles_that_start_equiangular_follow_the_curve(gamma0, normalized):
    """n = 8 in R^8, to t = 10: hypothesis equal inner products, conclusion gamma."""
    n, beta = 8, 2.0
    gram = (1 - gamma0) * np.eye(n) + gamma0
    field = self_attention if normalized else unnormalized_self_attention
    ts = np.linspace(0.0, 10.0 if normalized else 10.0 * np.exp(-beta), 6)
    sol = tfjax.solve(
        field,
        np.linalg.cholesky(gram),
        AttentionParams(beta=beta),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(n),
        solver=dfx.Dopri8(),
        rtol=1e-11,
        atol=1e-11,
    )
    curve = equiangular(ts, n, beta, normalized=normalized, gamma0=gamma0)
    inner = np.einsum("tid,tjd->tij", sol.ys, sol.ys)[:, ~np.eye(n, dtype=bool)]
    assert np.abs(inner - np.asarray(curve)[:, None]).max() < 1e-9


@needs_x64
def test_unequal_inner_products_do_not_follow_it():
    """The hypothesis dropped: the pairs part."""
    x0 = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    x0[1] = Sphere(8).project(x0[1] + x0[0])
    sol = tfjax.solve(
        self_attention, x0, AttentionParams(beta=2.0), t1=1.0, manifold=Sphere(8)
    )
    inner = (sol.ys[-1] @ sol.ys[-1].T)[~np.eye(8, dtype=bool)]
    assert inner.max() - inner.min() > 0.1


def test_the_gap_keeps_its_digits_far_beyond_rounding():
    """At beta = 0 the gap is n / (e^(2t) + n - 1)."""
    got = float(equiangular_log_gap(300.0, 32, 0.0))
    assert got == pytest.approx(np.log(32.0) - 600.0, rel=1e-9 if X64 else 1e-5)
    assert float(equiangular(300.0, 32, 0.0)) == 1.0


@needs_x64
@pytest.mark.parametrize(
    ("n", "beta", "gamma0", "gamma"),
    [
        (10**6, 1.0, 0.0, 0.999),
        (32, 50.0, 0.0, 0.999),
        (2, 9.0, -1 + 1e-9, 0.999),
        (32, 4.0, -1 / 31 + 1e-9, 0.9),
        (8, -3.0, 0.0, 1 - 1e-12),
    ],
)
@pytest.mark.parametrize("normalized", [True, False])
def test_times_are_those_of_many_digits_near_every_end(
    n, beta, gamma0, gamma, normalized
):
    """The integral of dγ over its rate, by scipy, in the logistic variable."""

    def slowness(w):
        gap = n / (np.exp(w) + n - 1)
        if normalized:
            return (np.exp(beta * gap) + n - 1) / (2 * n)
        return np.exp(beta * (gap - 1)) / 2

    start, end = (np.log1p((n - 1) * g) - np.log1p(-g) for g in (gamma0, gamma))
    cuts = [start, *(c for c in range(-40, 60, 2) if start < c < end), end]
    options = {"epsabs": 0.0, "epsrel": 1e-13}
    pieces = zip(cuts[:-1], cuts[1:], strict=True)
    exact = sum(quad(slowness, low, high, **options)[0] for low, high in pieces)
    got = float(equiangular_time(gamma, n, beta, gamma0=gamma0, normalized=normalized))
    assert got == pytest.approx(exact, rel=1e-11)
    if beta == 50:
        return  # the last steps of the way are below the digits of the time
    back = equiangular(exact, n, beta, gamma0=gamma0, normalized=normalized)
    assert float(back) == pytest.approx(gamma, abs=1e-9)


@needs_x64
@pytest.mark.parametrize("n", [2, 32])
def test_the_phase_curve_goes_on_to_any_time(n):
    ts = np.geomspace(6.0, 1e6, 200)
    back = jax.vmap(lambda beta: equiangular_time(1 - 1e-3, n, beta))
    np.testing.assert_allclose(back(phase_curve(ts, n, 1e-3)), ts, rtol=1e-9)


@needs_x64
def test_the_curve_is_differentiable_in_forward_mode_and_twice():
    at = lambda beta: equiangular(1.5, 8, beta)
    slope, h = jax.grad(at), 1e-5
    assert float(jax.jacfwd(at)(2.0)) == pytest.approx(float(slope(2.0)), rel=1e-12)
    second = float(slope(2.0 + h) - slope(2.0 - h)) / (2 * h)
    assert float(jax.hessian(at)(2.0)) == pytest.approx(second, rel=1e-6)


@needs_x64
@pytest.mark.parametrize(("normalized", "sign"), [(True, 1), (False, -1)])
def test_more_attention_slows_sa_and_hurries_usa(normalized, sign):
    """d gamma / d beta has the opposite sign of d t / d beta at the same gamma."""
    time = lambda gamma, beta: equiangular_time(gamma, 32, beta, normalized=normalized)
    slope = jax.vmap(jax.vmap(jax.grad(time, 1), (None, 0)), (0, None))
    gammas, betas = np.linspace(0.01, 0.99, 37), np.linspace(0.0, 9.0, 101)
    assert np.all(sign * np.asarray(slope(gammas, betas)) >= 0)


@needs_x64
def test_the_curve_is_differentiable_in_all_its_arguments():
    def at(t, beta, gamma0):
        return equiangular(t, 8, beta, gamma0=gamma0)

    where = (jnp.asarray(1.5), jnp.asarray(2.0), jnp.asarray(0.1))
    gradients = jax.grad(at, (0, 1, 2))(*where)
    for k, gradient in enumerate(gradients):
        h = 1e-5
        up, down = (
            at(*(v + s * h if i == k else v for i, v in enumerate(where)))
            for s in (1, -1)
        )
        assert float(gradient) == pytest.approx(float(up - down) / (2 * h), rel=1e-6)


@needs_x64
@pytest.mark.parametrize(
    ("n", "betas"),
    [
        (32, (3.14607, 4.51558, 5.10990, 5.89410, 6.34474, 6.90646)),
        (128, (2.18727, 5.20272, 5.91240, 6.75710, 7.21983, 7.78488)),
    ],
)
def test_the_phase_curve_is_that_of_the_paper(n, betas):
    ts = np.array([6.0, 8.0, 10.0, 15.0, 20.0, 30.0])
    got = phase_curve(ts, n, 1e-3)
    np.testing.assert_allclose(got, betas, atol=1e-5)
    back = [float(equiangular_time(1 - 1e-3, n, beta)) for beta in got]
    np.testing.assert_allclose(back, ts, rtol=1e-10)
    slope = jax.grad(lambda t: phase_curve(t, n, 1e-3))(10.0)
    h = 1e-4
    up, down = (phase_curve(10.0 + s * h, n, 1e-3) for s in (1, -1))
    assert float(slope) == pytest.approx(float(up - down) / (2 * h), rel=1e-5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: equiangular(1.0, 1, 1.0), "`n` must be at least 2, but was 1"),
        (
            lambda: equiangular(1.0, 3, 1.0, gamma0=-0.5),
            "`gamma0` must lie between .* = -0.5 and 1, but was -0.5",
        ),
        (lambda: equiangular(1.0, 3, 1.0, gamma0=1.0), "`gamma0` must lie between"),
        (lambda: equiangular(-1.0, 3, 1.0), "`ts` must be finite and not negative"),
        (lambda: equiangular(1.0, 3, np.nan), "`beta` must be finite"),
        (lambda: equiangular(1.0, 3, [1.0, 2.0]), "`beta` must be a scalar"),
        (
            lambda: equiangular_time(0.1, 3, 1.0, gamma0=0.5),
            "`gamma` must lie between gamma0 and 1, but was 0.1",
        ),
        (lambda: phase_curve(1.0, 32, 1e-3), "`t` must be finite, and at least 5.18"),
        (lambda: phase_curve(9.0, 32, 2.0), "`delta` must lie between 0 and 1"),
    ],
)
def test_what_lies_outside_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
