"""The paper's dynamics: trajectories against independent references.

Numbers are those of arXiv 2312.10794 and of reference solutions by DOP853 in numpy.
"""

from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from scipy.integrate import solve_ivp

import tfjax
from tfjax.diagnostics import count_clusters, energy_along, inner_products
from tfjax.fields import AttentionParams, self_attention, unnormalized_self_attention
from tfjax.geometry import Sphere


REFERENCE = Path(__file__).parent / "reference"
PRECISE = {"solver": dfx.Dopri8(), "rtol": 1e-11, "atol": 1e-11}

pytestmark = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="the references are precise to 1e-8"
)


def load(name):
    with np.load(REFERENCE / f"{name}.npz") as file:
        return {key: jnp.asarray(file[key]) for key in file.files}


def flow(field, x0, args, ts, **kwargs):
    """The trajectory at `ts` on the sphere."""
    d = x0.shape[-1]
    kwargs = PRECISE | {"t1": float(ts[-1]), "ts": ts, "manifold": Sphere(d)} | kwargs
    return tfjax.solve(field, x0, args, **kwargs).ys


def assert_follows(found, reference, ts):
    """To 1e-7, after t = 10 to 1e-6; the reference leaves the sphere by 1e-8."""
    exact = reference / jnp.linalg.norm(reference, axis=-1, keepdims=True)
    error = np.max(np.abs(found - exact), axis=(1, 2))
    assert np.all(error < np.where(np.asarray(ts) > 10, 1e-6, 1e-7)), error.max()


class TestTrajectories:
    @pytest.mark.parametrize(
        ("name", "beta"),
        [
            ("traj_n10_d3_b1", 1.0),
            ("traj_n16_d8_b2", 2.0),
            ("traj_n32_d2_b9", 9.0),
            ("traj_n32_d3_b1", 1.0),
            ("traj_n32_d3_b4", 4.0),
        ],
    )
    @pytest.mark.parametrize("kind", ["SA", "USA"])
    def test_identity_weights(self, name, beta, kind):
        data, args = load(name), AttentionParams(beta=beta)
        field = self_attention if kind == "SA" else unnormalized_self_attention
        ts = data["t"] if kind == "SA" else data["t_usa"]
        xs = flow(field, data["X0"], args, ts)
        assert_follows(xs, data[kind], ts)
        energies = energy_along(xs, beta)
        np.testing.assert_allclose(energies, data[f"E_{kind}"], rtol=1e-6)
        assert np.min(np.diff(energies)) > -1e-9 * np.max(energies)

    @pytest.mark.parametrize("mask", [None, "causal"])
    def test_general_weights_full_and_causal(self, mask):
        data = load("traj_qkv")
        weights = {"query": data["Q"], "key": data["K"], "value": data["V"]}
        args = AttentionParams(beta=data["beta"], mask=mask, **weights)
        xs = flow(self_attention, data["X0"], args, data["t"])
        assert_follows(xs, data["X" if mask is None else "Xcausal"], data["t"])


class TestEquiangular:
    """Theorem 6.8: from equiangular tokens all inner products are one number."""

    @pytest.mark.parametrize(
        "name", ["a01_SA_n8_d8_b4", "a01_SA_n8_d20_b9", "a01_SA_n32_d32_b1"]
    )
    def test_a01_sa_inner_products_follow_the_scalar_equation(self, name):
        data = load(name)
        args = AttentionParams(beta=float(name.split("_b")[1]))
        ts = data["t"][::10]
        xs = flow(self_attention, data["X0"], args, ts)
        products = jax.vmap(inner_products)(xs)
        pairs = ~np.eye(xs.shape[1], dtype=bool)
        error = np.abs(np.asarray(products)[:, pairs] - data["gamma"][::10, None])
        assert error.max() < 1e-6

    @pytest.mark.parametrize("beta", [0.0, 1.0, 4.0])
    def test_a01_usa_inner_products_follow_the_scalar_equation(self, beta):
        x0 = load("a01_SA_n8_d8_b4")["X0"]
        n, t1 = 8, 30 * np.exp(-beta) * 8

        def scalar(t, g):
            return 2 / n * np.exp(beta * g) * (1 - g) * ((n - 1) * g + 1)

        ts = np.linspace(0, t1, 31)
        exact = solve_ivp(scalar, (0, t1), [0.0], "DOP853", ts, rtol=1e-12, atol=1e-12)
        args = AttentionParams(beta=beta)
        xs = flow(unnormalized_self_attention, x0, args, jnp.asarray(ts))
        pairs = ~np.eye(n, dtype=bool)
        products = np.asarray(jax.vmap(inner_products)(xs))[:, pairs]
        assert np.abs(products - exact.y[0][:, None]).max() < 1e-6


# The start of the five tokens of the authors' illustration of metastability (radians).
FIVE = jnp.array([0.06219714, 0.21432297, 1.81912262, 2.91107101, -3.09524835])


class TestMetastability:
    """A05: five tokens on the circle at beta = 4 rest in two clusters until t = 328."""

    x0 = jnp.stack([jnp.cos(FIVE), jnp.sin(FIVE)], axis=1)
    args = AttentionParams(beta=4.0)

    def test_a05_the_exit_is_at_328_364(self):
        apart = lambda t, y, args, **kwargs: jnp.sum(y[0] * y[3]) - 0.999
        event = dfx.Event(apart, optx.Newton(rtol=1e-10, atol=1e-10))
        kwargs = {"t1": 400.0, "manifold": Sphere(2), "event": event} | PRECISE
        sol = tfjax.solve(self_attention, self.x0, self.args, **kwargs)
        assert abs(float(sol.ts[-1]) - 328.364063) < 0.01

    def test_a05_plateau_energies_and_first_merges(self):
        ts = jnp.concatenate([jnp.linspace(0, 6, 121), jnp.array([20.0, 100])])
        xs = flow(self_attention, self.x0, self.args, ts)
        scaled = np.exp(-4.0) * 8 * np.asarray(energy_along(xs, 4.0))
        at = {5.0: 0.51931, 20.0: 0.52033, 100.0: 0.52040}
        for time, energy in at.items():
            assert abs(scaled[np.argmin(np.abs(np.asarray(ts) - time))] - energy) < 1e-5
        for (i, j), time in {(0, 1): 1.30, (3, 4): 2.45, (2, 3): 5.20}.items():
            joined = np.asarray(jnp.sum(xs[:, i] * xs[:, j], axis=-1)) > 0.999
            assert abs(float(ts[np.argmax(joined)]) - time) < 0.051


@pytest.mark.slow
def test_a36_words_of_a_paragraph_gather_by_topic_before_all_merge():
    """Cluster counts of the last hidden layer of MiniLM under SA, ± 1."""
    vectors = load("minilm_paragraph")["last"].astype(jnp.float64)
    x0 = Sphere(384).project(vectors)
    times = jnp.array([2.0, 5, 10, 20, 50, 100, 200])
    expected = {
        11.0: [45, 31, 17, 4, 1, 1, 1],
        12.0: [45, 34, 24, 14, 3, 1, 1],
        13.0: [45, 34, 29, 21, 9, 3, 1],
        16.0: [47, 42, 36, 33, 24, 21, 15],
    }
    args = AttentionParams(beta=jnp.array(list(expected)))
    sol = tfjax.solve_ensemble(
        self_attention,
        x0,
        args,
        in_axes=(None, {"beta": 0}),
        t1=200.0,
        ts=times,
        manifold=Sphere(384),
    )
    counts = jax.vmap(jax.vmap(count_clusters))(sol.ys)
    assert np.max(np.abs(counts - np.array(list(expected.values())))) <= 1, counts
