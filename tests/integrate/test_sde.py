"""`solve_sde`: laws and orders of geometric Brownian motion, the sphere, the door."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfjax
from tfjax.fields import AttentionParams, self_attention
from tfjax.geometry import Sphere


X64 = jax.config.jax_enable_x64
MU, SIGMA, PATHS = 0.1, 0.5, 4000
KEY = jax.random.key(3)


def growth(t, y, args):
    return MU * y


def proportional(t, y, args):
    return SIGMA * y


def mixing(t, y, args):
    return jnp.diag(SIGMA * y)


def still(t, y, args):
    return jnp.zeros_like(y)


def decay(t, y, args):
    return -y


def constant(t, y, args):
    return jnp.ones_like(y)


def ends(drift, diffusion, y0, steps, key=KEY, **kwargs):
    sol = tfjax.solve_sde(
        drift, diffusion, y0, t1=1.0, dt0=1.0 / steps, key=key, **kwargs
    )
    return np.asarray(sol.ys[-1])


ONES = jnp.ones(PATHS)


@pytest.fixture(scope="module")
def brownian():
    """W(1) of the path that KEY stands for: the solution of dy = dW."""
    return ends(still, constant, jnp.zeros(PATHS), 2, additive=True)


def test_the_path_is_brownian(brownian):
    assert abs(brownian.mean()) < 5 / np.sqrt(PATHS)
    assert abs(brownian.var() - 1) < 5 * np.sqrt(2 / PATHS)


@pytest.mark.parametrize(
    ("calculus", "rate"), [("ito", MU), ("stratonovich", MU + SIGMA**2 / 2)]
)
def test_the_mean_of_geometric_brownian_motion(calculus, rate):
    """e^(mu t) in Ito's calculus, e^((mu + sigma^2/2) t) in Stratonovich's."""
    y = ends(growth, proportional, ONES, 64, calculus=calculus)
    assert abs(y.mean() - np.exp(rate)) < 5 * y.std() / np.sqrt(PATHS)


@pytest.mark.parametrize(("calculus", "order"), [("ito", 0.5), ("stratonovich", 1.0)])
def test_strong_orders(calculus, order, brownian):
    """Euler's and Heun's, along one path."""
    drift = MU - (SIGMA**2 / 2 if calculus == "ito" else 0.0)
    exact = np.exp(drift + SIGMA * brownian)
    steps = np.array([8, 16, 32, 64])
    y = [ends(growth, proportional, ONES, n, calculus=calculus) for n in steps]
    errors = [np.sqrt(np.mean((each - exact) ** 2)) for each in y]
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(order, abs=0.1)


def test_a_diagonal_matrix_is_diagonal_noise(tol):
    y0 = jnp.linspace(0.5, 1.5, 5)
    diagonal = ends(growth, proportional, y0, 16)
    general = ends(growth, mixing, y0, 16, noise="general")
    np.testing.assert_allclose(general, diagonal, rtol=10 * tol.identity)
    assert np.ptp(diagonal / np.asarray(y0)) > 0.1  # every entry has its own noise


def test_a_solver_for_additive_noise_gets_its_levy_area():
    """Ornstein-Uhlenbeck: the variance (1 - e^-2)/2, in three steps."""
    y = ends(decay, constant, jnp.zeros(PATHS), 3, additive=True, solver=dfx.SRA1())
    want = 0.5 * (1 - np.exp(-2.0))
    assert abs(y.var() - want) < 5 * want * np.sqrt(2 / PATHS)


@pytest.mark.parametrize("solver", [dfx.Euler(), dfx.Heun()])
def test_backwards_along_the_same_path_returns_to_the_start(solver):
    kwargs = {"dt0": 1e-3, "key": KEY, "additive": True, "solver": solver}
    there = tfjax.solve_sde(decay, constant, jnp.ones(1), t1=1.0, **kwargs).ys[-1]
    back = tfjax.solve_sde(decay, constant, there, t0=1.0, t1=0.0, **kwargs).ys[-1]
    assert abs(float(there[0]) - 1) > 0.05
    assert float(back[0]) == pytest.approx(1.0, abs=5e-3)


def test_ambient_noise_projected_is_brownian_motion_on_the_sphere():
    """E <x_t, x_0> = e^(-(d-1) sigma^2 t/2) on S^2, and the points lie on it."""
    x0 = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0]), (PATHS, 3))
    sigma = lambda t, x, args: jnp.full_like(x, args)
    kwargs = {"t1": 1.0, "dt0": 0.01, "key": KEY, "manifold": Sphere(3)}
    x = np.asarray(tfjax.solve_sde(still, sigma, x0, 0.7, **kwargs).ys[-1])
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, atol=1e-6)
    error = x[:, 2].mean() - np.exp(-(0.7**2))
    assert abs(error) < 5 * x[:, 2].std() / np.sqrt(PATHS)


def test_absent_tokens_come_back_as_they_went_in():
    x0 = Sphere(3).random(jax.random.key(1), (4,)).at[3].set(jnp.nan)
    params = AttentionParams(beta=1.0, mask=jnp.array([True, True, True, False]))
    noise = lambda t, x, args: jnp.full_like(x, 0.1)
    kwargs = {"t1": 1.0, "dt0": 0.1, "key": KEY, "manifold": Sphere(3)}
    x = tfjax.solve_sde(self_attention, noise, x0, params, **kwargs).ys[-1]
    assert np.isnan(np.asarray(x[3])).all()
    assert np.isfinite(np.asarray(x[:3])).all()


def test_keys_paths_batches_and_gradients(tol):
    """The same key is the same path; vmap over keys is a loop; gradients are exact."""

    def end(key, mu=0.1):
        noise = lambda t, y, mu: SIGMA * y
        kwargs = {"t1": 1.0, "dt0": 0.125, "key": key}
        drift = lambda t, y, mu: mu * y
        return tfjax.solve_sde(drift, noise, jnp.ones(2), mu, **kwargs).ys[-1]

    compiled = jax.jit(end)
    keys = jax.random.split(KEY, 3)
    loop = np.stack([compiled(key, 0.1) for key in keys])
    np.testing.assert_array_equal(compiled(keys[0], 0.1), loop[0])
    assert np.abs(loop[0] - loop[1]).min() > 1e-3
    batch = jax.jit(jax.vmap(end))(keys)
    np.testing.assert_allclose(batch, loop, rtol=10 * tol.identity)
    # Euler's step multiplies by 1 + mu dt + sigma dW: the gradient is smooth in mu.
    gradient = jax.grad(lambda mu: jnp.sum(compiled(keys[0], mu)))(jnp.asarray(0.1))
    step = 1e-5 if X64 else 1e-2
    up, down = (float(jnp.sum(compiled(keys[0], 0.1 + s))) for s in (step, -step))
    assert float(gradient) == pytest.approx((up - down) / (2 * step), rel=2e-4)


GOOD = {"t1": 1.0, "dt0": 0.1, "key": KEY}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"calculus": "backward"}, "`calculus` must be 'ito' or 'stratonovich'"),
        ({"noise": "scalar"}, "`noise` must be 'diagonal' or 'general'"),
        ({"solver": dfx.Heun()}, "`solver` must be a solver of the calculus 'ito'"),
        (
            {"solver": dfx.Euler(), "calculus": "stratonovich"},
            "`solver` must be a solver of the calculus 'stratonovich'.*was Euler",
        ),
        ({"solver": dfx.Tsit5()}, "`solver` must be a solver.*was Tsit5"),
        (
            {"solver": dfx.SRA1(), "calculus": "stratonovich"},
            "`additive` must be True for SRA1",
        ),
        (
            {"solver": dfx.ItoMilstein(), "noise": "general"},
            "`noise` must be 'diagonal' for ItoMilstein",
        ),
        ({"dt0": None}, "`dt0` must be given"),
        ({"key": 0}, "`key` must be one random key"),
        ({"key": jax.random.split(KEY)}, "`key` must be one random key"),
        ({"t1": -1.0}, "`t1` must not be before `t0` in Ito's calculus"),
        (
            {"t1": -1.0, "additive": True, "solver": dfx.SRA1()},
            "`t1` must not be before `t0` for SRA1",
        ),
        ({"noise": "general"}, r"`diffusion` must return y.shape \+ \(m,\)"),
        ({"diffusion": mixing}, "`diffusion` must return the state's shape"),
        ({"diffusion": None}, "`diffusion` must be a function"),
        ({"drift": 1.0}, "`drift` must be a function"),
        ({"max_steps": 5}, "`max_steps` must be at least 10"),
        ({"y0": jnp.array([1.0, jnp.nan])}, "`y0` must be finite"),
    ],
)
def test_the_door_names_the_argument(change, text, unchecked):
    given = {"drift": growth, "diffusion": proportional, "y0": jnp.ones(2), **GOOD}
    with pytest.raises(ValueError, match=text):
        tfjax.solve_sde(**{**given, **change})


def test_no_time_is_no_change():
    sol = tfjax.solve_sde(growth, proportional, jnp.ones(2), **{**GOOD, "t1": 0.0})
    np.testing.assert_array_equal(sol.ys[-1], np.ones(2))


def test_a_solve_that_is_lost_says_so():
    blow = lambda t, y, args: y**3 * 1e30
    with pytest.raises(RuntimeError, match="the state is not finite"):
        tfjax.solve_sde(blow, proportional, 10 * jnp.ones(2), **GOOD)
