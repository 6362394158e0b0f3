"""Tokens against their mean field: the sampler, the field by modes, the rate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from tfjax.fields import (
    AttentionParams,
    circle_attention,
    unnormalized_circle_attention,
)
from tfjax.meanfield import (
    MeanFieldParams,
    ModalAttention,
    circle_modes,
    particle_errors,
    sample_circle,
)


THETA = np.arange(32) * 2 * np.pi / 32
DENSITY = jnp.asarray((1 + 0.5 * np.cos(THETA) + 0.3 * np.sin(2 * THETA)) / 2 / np.pi)


def test_angles_are_drawn_from_the_density():
    """Kolmogorov's test against the exact distribution function."""
    x = np.asarray(sample_circle(DENSITY, jax.random.key(0), (20000,)))
    assert x.min() >= 0
    assert x.max() < 2 * np.pi
    exact = lambda t: (t + 0.5 * np.sin(t) + 0.15 * (1 - np.cos(2 * t))) / (2 * np.pi)
    assert kstest(x, exact).pvalue > 1e-3
    errors = [np.exp(-1j * k * x).mean() - circle_modes(DENSITY)[k] for k in (1, 2, 3)]
    assert np.abs(errors).max() < 5 / np.sqrt(20000)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_the_field_by_modes_is_attention(beta, normalized, tol):
    theta = sample_circle(DENSITY, jax.random.key(1), (50,))
    field = circle_attention if normalized else unnormalized_circle_attention
    want = field(0.0, theta, AttentionParams(beta=beta))
    params = MeanFieldParams(beta, normalized=normalized)
    got = ModalAttention(21)(0.0, theta, params)
    np.testing.assert_allclose(got, want, atol=50 * tol.identity)


def test_the_distance_to_the_uniform_density_is_that_of_kuiper_and_watson():
    """The mean of W_1 from uniform angles to their law, times sqrt(n).

    That is the mean of int |B - median B| over the circle for a Brownian bridge B,
    sampled here with as many steps.
    """
    n, draws, rng = 256, 256, np.random.default_rng(3)
    kwargs = {"t1": 0.0, "key": jax.random.key(5), "draws": draws}
    uniform = jnp.ones(32)
    errors = particle_errors([n], uniform, distance="wasserstein", **kwargs)
    got = np.asarray(errors)[0] * np.sqrt(n) / (2 * np.pi)
    walk = np.cumsum(rng.normal(size=(4 * draws, n)), axis=1) / np.sqrt(n)
    bridge = walk - walk[:, -1:] * np.arange(1, n + 1) / n
    want = np.abs(bridge - np.median(bridge, axis=1, keepdims=True)).mean(axis=1)
    error = np.hypot(got.std() / np.sqrt(draws), want.std() / np.sqrt(4 * draws))
    assert error < 0.03 * want.mean()
    assert abs(got.mean() - want.mean()) < 4 * error


@pytest.mark.parametrize("distance", ["modes", "wasserstein"])
def test_the_error_falls_as_the_root_of_the_number(distance):
    """The slope of log error over log n is -1/2, within 5 standard errors."""
    counts, draws = [64, 512, 4096], 32
    params = MeanFieldParams(1.0)
    kwargs = {"t1": 1.0, "key": jax.random.key(2), "draws": draws}
    kwargs["distance"] = distance
    square = np.asarray(particle_errors(counts, DENSITY, params, **kwargs)) ** 2
    mean = square.mean(axis=1)
    # The standard error of log(rms), carried through the fit.
    errors = 0.5 * square.std(axis=1, ddof=1) / np.sqrt(draws) / mean
    x = np.log(counts) - np.log(counts).mean()
    slope = np.sum(x * 0.5 * np.log(mean)) / np.sum(x**2)
    error = np.sqrt(np.sum((x * errors) ** 2)) / np.sum(x**2)
    assert error < 0.03
    assert abs(slope + 0.5) < 5 * error


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"args": MeanFieldParams(1.0, 0.1)}, "`diffusivity` must be 0 here"),
        ({"counts": []}, "`counts` must hold"),
        ({"counts": [0]}, "`counts` must be a positive integer"),
        ({"draws": 0}, "`draws` must be a positive integer"),
        ({"distance": "energy"}, "`distance` must be 'modes' or 'wasserstein'"),
        ({"density": DENSITY - 1}, "`density` must be finite and positive"),
    ],
)
def test_the_door_names_the_argument(change, text, unchecked):
    given = {"counts": [4], "density": DENSITY, "t1": 0.1, "key": jax.random.key(0)}
    with pytest.raises(ValueError, match=text):
        particle_errors(**{**given, **change})
