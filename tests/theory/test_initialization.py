"""Wide random blocks, against quadrature, limits, and random blocks of finite width."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from tfjax.theory import (
    angle_exponent,
    gradient_exponent,
    random_block,
    random_block_norm,
)


X64 = jax.config.jax_enable_x64
needs_x64 = pytest.mark.skipif(not X64, reason="differences of nearby cosines")
BLOCK = {"attention": 0.5, "mlp": 0.6, "logit_scale": 1.5, "weight_scale": 3.0}
STRENGTHS = (0.5, 0.6, 3.0)


def normal_mean(function):
    density = lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return scipy.integrate.quad(
        lambda z: density(z) * function(z), -10, 10, epsabs=1e-13, limit=400
    )[0]


@pytest.mark.parametrize("scale", [0.3, 3.0, 8.0])
def test_the_exponents_are_those_of_scipys_quadrature(scale, tol):
    a, m = 0.5, 0.6
    square = normal_mean(lambda z: np.tanh(scale * z) ** 2)
    slope = scale**2 * normal_mean(lambda z: np.cosh(scale * z) ** -4.0)
    norm = ((1 - m**2) * a**2 + m**2 * square) / (1 - (1 - a**2) * (1 - m**2))
    middle = (1 - a**2) * norm + a**2
    branch = 1 - m**2 + m**2 * slope / middle
    rtol = tol.composite
    np.testing.assert_allclose(random_block_norm(a, m, scale), norm, rtol=rtol)
    angle = float(angle_exponent(a, m, scale))
    assert angle == pytest.approx(np.log((1 - a**2) * branch), abs=rtol)
    gradient = float(gradient_exponent(a, m, scale))
    assert gradient == pytest.approx(np.log(middle / norm * branch), abs=rtol)


@pytest.mark.parametrize("cosine", [0.0, 0.5, 0.99])
def test_the_map_is_that_of_scipys_quadrature(cosine, tol):
    a, m, s, w = BLOCK.values()
    n, norm = 20, 0.7
    spread = s**2 * (1 - cosine)
    weight = a**2 * (1 - cosine) / n
    q = (1 - a**2) * norm + a**2 * cosine + weight * np.exp(spread)
    p = (1 - a**2) * norm * cosine + a**2 * cosine + weight * np.exp(spread * cosine)
    # Given z the partner is normal with mean c z: an inner mean for each outer node.
    c = p / q
    inner = lambda z: normal_mean(
        lambda y: np.tanh(w * (c * z + np.sqrt(1 - c**2) * y))
    )
    zs = np.linspace(-8, 8, 161)
    weights = np.exp(-(zs**2) / 2) / np.exp(-(zs**2) / 2).sum()
    overlap = weights @ [np.tanh(w * z) * inner(z) for z in zs]
    square = normal_mean(lambda z: np.tanh(w * z) ** 2)
    after = (1 - m**2) * q + m**2 * square
    expected = after, ((1 - m**2) * p + m**2 * overlap) / after
    np.testing.assert_allclose(
        random_block(norm, cosine, n, **BLOCK), expected, rtol=10 * tol.composite
    )


def test_tokens_that_are_one_remain_one_and_keep_the_norm(tol):
    norm = random_block_norm(*STRENGTHS)
    q, c = random_block(norm, 1.0, 32, **BLOCK)
    assert float(q) == pytest.approx(float(norm), rel=10 * tol.identity)
    assert float(c) == pytest.approx(1.0, abs=10 * tol.identity)


@needs_x64
@pytest.mark.parametrize("n", [2, 32])
@pytest.mark.parametrize("logit_scale", [0.0, 4.0])
def test_the_angle_exponent_is_the_slope_of_the_map_at_equal_tokens(n, logit_scale):
    norm, gap = random_block_norm(*STRENGTHS), 1e-6
    options = BLOCK | {"logit_scale": logit_scale}
    _, c = random_block(norm, 1 - gap, n, **options)
    slope = np.log((1 - float(c)) / gap)
    # The map is of second order in the gap beyond its slope.
    assert slope == pytest.approx(float(angle_exponent(*STRENGTHS)), abs=1e-4)


def test_without_an_mlp_to_speak_of_attention_draws_all_tokens_together(tol):
    small = 1e-3
    angle = float(angle_exponent(0.6, small, 1.0))
    assert angle == pytest.approx(np.log(0.64), abs=2 * small**2)
    assert float(gradient_exponent(0.6, small, 1.0)) == pytest.approx(0, abs=1e-5)
    c = jnp.asarray(0.0)
    q = jnp.asarray(1.0)
    options = {"attention": 0.6, "mlp": small, "logit_scale": 1.0, "weight_scale": 1.0}
    for _ in range(60):
        q, c = random_block(q, c, 8, **options)
    assert float(c) > 0.999


def test_the_exponents_differ_by_how_attention_shrinks_differences(tol):
    a, m, w = STRENGTHS
    q = float(random_block_norm(a, m, w))
    gap = float(gradient_exponent(a, m, w) - angle_exponent(a, m, w))
    expected = np.log(((1 - a**2) * q + a**2) / (q * (1 - a**2)))
    assert gap == pytest.approx(expected, abs=10 * tol.identity)


@functools.cache
def simulated():
    """Blocks of width 256 by numpy: q and c after one block of orthogonal tokens."""
    a, m, s, w = BLOCK.values()
    n, d, rng = 64, 256, np.random.default_rng(0)
    found = []
    for _ in range(24):
        y = np.sqrt(d) * np.linalg.qr(rng.normal(size=(d, n)))[0].T  # mean square 1
        mats = rng.normal(size=(4, d, d)) / np.sqrt(d)
        logits = s * y @ mats[0] @ y.T / np.sqrt(d)
        weights = np.exp(logits)
        weights /= weights.sum(axis=1, keepdims=True)
        x = np.sqrt(1 - a**2) * y + a * weights @ y @ mats[1]
        z = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
        x = np.sqrt(1 - m**2) * x + m * np.tanh(w * z @ mats[2]) @ mats[3]
        gram = x @ x.T / d
        q = np.trace(gram) / n
        found.append((q, (gram.sum() / n - q) / (n - 1) / q))
    return np.array(found)


def test_one_random_block_does_to_orthogonal_tokens_what_the_map_says():
    found = simulated()
    expected = np.array([float(x) for x in random_block(1.0, 0.0, 64, **BLOCK)])
    error = 4 * found.std(axis=0) / np.sqrt(len(found))
    # The map is of first order in 1/n, and of infinite width.
    assert np.all(np.abs(found.mean(axis=0) - expected) < error + [0.01, 0.003])


def test_squared_gradients_grow_as_the_exponents_say():
    a, m, w = STRENGTHS
    n, d, draws = 8, 256, 96
    norm = np.float32(random_block_norm(a, m, w))
    rms = lambda x: x / jnp.sqrt(jnp.mean(x**2, axis=1, keepdims=True))

    def growth(key):
        token, back, weights = jax.random.split(key, 3)
        x = rms(jax.random.normal(token, (1, d), jnp.float32)) * jnp.sqrt(norm)
        x = jnp.tile(x, (n, 1))
        logit, value, first, last = (
            jax.random.normal(weights, (4, d, d), jnp.float32) / d**0.5
        )

        def block(x):
            y = rms(x)
            mixed = jax.nn.softmax(1.5 * y @ logit @ y.T / d**0.5, axis=1) @ y @ value
            x = (1 - a**2) ** 0.5 * x + a * mixed
            return (1 - m**2) ** 0.5 * x + m * jnp.tanh(w * rms(x) @ first) @ last

        _, pull = jax.vjp(block, x)
        g = jax.random.normal(back, (n, d), jnp.float32)
        common = jnp.tile(g[:1], (n, 1))
        apart = g - jnp.mean(g, axis=0, keepdims=True)
        ratio = lambda g: jnp.sum(pull(g)[0] ** 2) / jnp.sum(g**2)
        return ratio(common), ratio(apart)

    keys = jax.random.split(jax.random.key(1), draws)
    found = np.stack(jax.jit(lambda keys: jax.lax.map(growth, keys))(keys))
    exponents = gradient_exponent(a, m, w), angle_exponent(a, m, w)
    for values, exponent in zip(found, exponents, strict=True):
        error = 4 * values.std() / np.sqrt(draws)
        # A finite width moves it by some 1/d.
        assert abs(values.mean() - np.exp(float(exponent))) < error + 4 / d


def test_transformations_agree_with_the_plain_call(tol):
    qs, cs = jnp.array([0.5, 1.0]), jnp.array([0.2, 0.7])
    plain = random_block(qs, cs, 16, **BLOCK)
    one = jax.jit(lambda q, c: random_block(q, c, 16, **BLOCK))
    np.testing.assert_allclose(one(qs, cs), plain, rtol=10 * tol.identity)
    np.testing.assert_allclose(jax.vmap(one)(qs, cs), plain, rtol=10 * tol.identity)
    scales = jnp.array([1.0, 2.0, 5.0])
    each = [float(angle_exponent(0.5, 0.6, s)) for s in scales]
    together = angle_exponent(0.5, 0.6, scales)
    np.testing.assert_allclose(together, each, atol=10 * tol.identity)


@needs_x64
@pytest.mark.parametrize("function", [angle_exponent, gradient_exponent])
def test_the_slope_of_an_exponent_is_its_difference_quotient(function):
    f = lambda w: function(0.5, 0.6, w)
    quotient = (f(3.0 + 1e-5) - f(3.0 - 1e-5)) / 2e-5
    assert float(jax.grad(f)(3.0)) == pytest.approx(float(quotient), rel=1e-7)


def test_half_precision_is_rounded_once():
    half = angle_exponent(*(jnp.asarray(x, jnp.float16) for x in (0.5, 0.6, 3.0)))
    assert half.dtype == jnp.float16
    # The strengths themselves are rounded: 0.6 by 1e-4.
    assert float(half) == pytest.approx(float(angle_exponent(*STRENGTHS)), abs=2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": 1.0}, "`attention` must lie between 0 and 1, but was 1."),
        ({"mlp": 0.0}, "`mlp` must lie between 0 and 1, but was 0."),
        ({"logit_scale": -1.0}, "`logit_scale` must not be negative, but was -1."),
        ({"weight_scale": 9.0}, "`weight_scale` must be positive and 8 at most"),
        ({"n": 1}, "`n` must be at least 2, but was 1."),
        ({"norm": 0.0}, "`norm` must be positive, but was 0."),
        ({"cosine": 1.5}, r"`cosine` must lie in \[0, 1\], but was 1.5."),
    ],
)
def test_an_argument_outside_is_an_error_that_names_it(change, message):
    with pytest.raises(ValueError, match=message):
        random_block(**({"norm": 1.0, "cosine": 0.5, "n": 4} | BLOCK | change))
