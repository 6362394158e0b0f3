"""The paper's theorems: hypothesis, conclusion, and what fails without the hypothesis.

Numbers of theorems are those of arXiv 2312.10794. The equiangular curve (theorem 6.8)
and the extremes of the energy (proposition 3.4) are in `theory/`, thresholds of
beta < 0 and of ranks in `test_thresholds.py`, the gradient identities in `fields/`.
"""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import tfjax
from tfjax.diagnostics import energy_along
from tfjax.fields import (
    AttentionParams,
    BlockParams,
    FeedForward,
    circle_attention,
    self_attention,
    transformer_block,
    unnormalized_self_attention,
)
from tfjax.geometry import Sphere
from tfjax.integrate import reduce_to_span
from tfjax.theory import equiangular, metastability, wendel


PRECISE = {"solver": dfx.Dopri8(), "rtol": 1e-11, "atol": 1e-11, "max_steps": 100_000}
EYE = np.eye(3)
BETA_0 = AttentionParams(beta=0.0)
FIELDS = {"SA": self_attention, "USA": unnormalized_self_attention}

pytestmark = pytest.mark.skipif(
    not jax.config.jax_enable_x64, reason="rates and bounds beyond float32"
)


def flows(field, x0, args, ts, in_axes=(0, None), **kwargs):
    """Trajectories (b, t, n, d) of many starts, or of one under many parameters."""
    sol = tfjax.solve_ensemble(
        field,
        x0,
        args,
        in_axes=in_axes,
        t1=float(ts[-1]),
        ts=np.asarray(ts),
        manifold=Sphere(x0.shape[-1]),
        throw=True,
        **(PRECISE | kwargs),
    )
    return np.asarray(sol.ys)


def uniform(seed, *shape):
    return Sphere(shape[-1]).random(jax.random.key(seed), shape[:-1])


def least_product(xs):
    """The least inner product of two tokens of one set."""
    return np.einsum("...id,...jd->...ij", xs, xs).min(axis=(-2, -1))


def spread(xs, centre):
    """The largest distance of a token from `centre`, at every time."""
    return np.max(np.linalg.norm(np.asarray(xs) - np.asarray(centre), axis=-1), axis=-1)


def decay_rate(ts, values, low, high):
    """The rate of an exponential decay, fitted while the values lie in [low, high]."""
    ts, values = np.asarray(ts), np.asarray(values)
    window = (values > low) & (values < high)
    assert window.sum() >= 4
    return -np.polyfit(ts[window], np.log(values[window]), 1)[0]


@functools.cache
def energies():
    """E_B along V = B, V = -B and a general V, for a symmetric B = Q^T K."""
    g, h = np.asarray(jax.random.normal(jax.random.key(3), (2, 6, 6))) / 6**0.5
    b, ts = (g + g.T) / 2, np.linspace(0.0, 10.0, 101)
    args = AttentionParams(beta=1.0, query=b, value=np.stack([b, -b, h]))
    xs = flows(self_attention, uniform(0, 16, 6), args, ts, (None, {"value": 0}))
    return np.stack([energy_along(jnp.asarray(x), 1.0, bilinear=b) for x in xs])


class TestEnergy:
    """Section 3: the energy E_B of a symmetric B is monotone along SA if V = ± B."""

    def test_if_V_is_the_symmetric_form_B_then_the_energy_rises(self):
        """Hypothesis: Q^T K = B = B^T, V = B. Conclusion: dE_B/dt >= 0."""
        assert np.diff(energies()[0]).min() > -1e-9
        assert energies()[0, -1] > energies()[0, 0] + 0.01

    def test_if_V_is_minus_the_symmetric_form_B_then_the_energy_falls(self):
        """Hypothesis: Q^T K = B = B^T, V = -B. Conclusion: dE_B/dt <= 0."""
        assert np.diff(energies()[1]).max() < 1e-9
        assert energies()[1, -1] < energies()[1, 0] - 0.01

    def test_without_symmetric_V_the_energy_is_not_monotone(self):
        """Dropped: V = B or -B. The energy of the same form rises and falls."""
        steps = np.diff(energies()[2])
        assert steps.max() > 1e-4
        assert steps.min() < -1e-4


class TestOneCluster:
    @pytest.mark.parametrize("d", [2, 3])
    def test_theorem_4_1_if_beta_is_0_then_uniform_starts_become_one_point(self, d):
        """Hypothesis: beta = 0, any d >= 2 and n, almost every start. One limit."""
        xs = flows(self_attention, uniform(1, 16, 8, d), BETA_0, [0.0, 100.0])
        assert least_product(xs[:, -1]).min() > 1 - 1e-12

    def test_theorem_4_1_without_a_generic_start_tokens_rest_apart(self):
        """Dropped: almost every. A mean of 0, or two opposite points, is at rest."""
        angles = 2 * np.pi * np.arange(8) / 8
        balanced = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        opposite = np.array([[1.0, 0.0]] * 5 + [[-1.0, 0.0]] * 3)
        for x0 in (balanced, opposite):
            assert np.abs(self_attention(0.0, x0, BETA_0)).max() < 1e-15
            assert least_product(x0) == pytest.approx(-1)

    def test_theorem_4_2_if_beta_is_small_then_the_flow_is_near_that_of_beta_0(self):
        """Hypothesis: beta -> 0. Conclusion: |x^beta - x^0| <= 2 e^2 beta e^(3t)."""
        betas, ts = np.array([0.0, 1e-3, 1e-2]), np.linspace(0.0, 2.0, 11)
        args = AttentionParams(beta=betas)
        xs = flows(self_attention, uniform(2, 8, 3), args, ts, (None, {"beta": 0}))
        gap = np.linalg.norm(xs[1:] - xs[0], axis=-1).max(axis=-1)
        assert np.all(gap <= 2 * np.e**2 * betas[1:, None] * np.exp(3 * ts))
        assert gap[1, -1] / gap[0, -1] == pytest.approx(10, rel=0.05)

    @pytest.mark.parametrize("kind", ["SA", "USA"])
    def test_theorem_4_3_if_beta_is_at_most_1_then_the_circle_becomes_one_point(
        self, kind
    ):
        """Hypothesis: d = 2, beta <= 1, almost every start. Conclusion: one limit."""
        args = AttentionParams(beta=1.0)
        xs = flows(FIELDS[kind], uniform(3, 16, 8, 2), args, [0.0, 200.0])
        assert least_product(xs[:, -1]).min() > 1 - 1e-12

    @pytest.mark.parametrize("kind", ["SA", "USA"])
    def test_theorem_6_1_if_d_is_3_then_uniform_starts_become_one_point(self, kind):
        """Hypothesis: d >= 3, any beta, almost every start. Conclusion: one limit."""
        args = AttentionParams(beta=np.repeat([0.0, 1.0, 2.0], 6))
        xs = flows(
            FIELDS[kind], uniform(4, 18, 8, 3), args, [0, 400.0], (0, {"beta": 0})
        )
        assert least_product(xs[:, -1]).min() > 1 - 1e-12

    def test_theorem_6_1_without_V_equal_I_tokens_stay_apart(self):
        """Dropped: V = I. With V = -I no start of six becomes one point."""
        args = AttentionParams(beta=1.0, value=-np.eye(3))
        xs = flows(self_attention, uniform(4, 6, 8, 3), args, [0.0, 400.0])
        assert least_product(xs[:, -1]).max() < -0.5

    def test_theorem_6_1_with_a_feed_forward_layer_tokens_may_stay_in_two_clusters(
        self,
    ):
        """Dropped: no feed-forward layer. One that pulls to two poles wins over SA."""
        first = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
        pull = FeedForward(w=3.0 * first.T, a=first)  # 3 x_1 along the first axis
        params = BlockParams(AttentionParams(beta=1.0), pull)
        xs = flows(transformer_block, uniform(4, 6, 8, 3), params, [0.0, 400.0])
        assert np.abs(xs[:, -1, :, 0]).min() > 0.5
        assert least_product(xs[:, -1]).max() < -0.5

    @pytest.mark.parametrize(
        ("n", "d", "beta"), [(8, 16, 1.0), (8, 8, 4.0), (32, 64, 1.0)]
    )
    def test_theorem_6_3_if_d_is_at_least_n_then_SA_converges_at_rate_1(
        self, n, d, beta
    ):
        """Hypothesis: d >= n, uniform. Conclusion: exponential, at the linear rate."""
        ts = np.concatenate([np.linspace(0, 30, 301), [80.0]])
        args = AttentionParams(beta=beta)
        xs = flows(self_attention, uniform(1, 1, n, d), args, ts)[0]
        assert abs(decay_rate(ts, spread(xs, xs[-1]), 1e-6, 1e-3) - 1) < 1e-3

    def test_theorem_6_3_if_d_is_at_least_n_then_USA_converges_at_rate_exp_beta(self):
        """Hypothesis: d >= n, uniform. Conclusion: gaps fall at the rate 2 e^beta."""
        ts, betas = np.linspace(0, 20, 1601), np.array([0.5, 1.0, 2.0])
        args = AttentionParams(beta=betas)
        x0 = uniform(1, 8, 16)
        xs = flows(unnormalized_self_attention, x0, args, ts, (None, {"beta": 0}))
        for beta, gap in zip(betas, 1 - least_product(xs), strict=True):
            assert abs(decay_rate(ts, gap, 1e-8, 1e-5) / (2 * np.exp(beta)) - 1) < 1e-3


class TestCone:
    """Lemma 6.4: in an open hemisphere (V = I, any Q and K) tokens become one point."""

    ts = np.concatenate([np.linspace(0, 16, 161), [60.0]])
    half = uniform(8, 20, 10, 3)
    half = half.at[..., 2].set(jnp.abs(half[..., 2]))

    def heights(self, query=EYE, key=EYE, value=EYE, start=half):
        """The least height of a token over the pole, and the trajectories."""
        args = AttentionParams(beta=1.0, query=query, key=key, value=value)
        xs = flows(self_attention, start, args, self.ts)
        return xs[..., 2].min(axis=-1), xs

    @pytest.mark.parametrize("weights", ["identity", "random query and key"])
    def test_if_all_are_in_a_hemisphere_then_the_least_height_never_falls(
        self, weights
    ):
        """Conclusion: min <x_i, w> does not fall; one point, if Q = K = I at rate 1."""
        random = np.asarray(jax.random.normal(jax.random.key(9), (2, 3, 3)))
        height, xs = self.heights(*([] if weights == "identity" else random))
        assert np.diff(height, axis=1).min() > -1e-9
        gaps = [spread(member, member[-1]) for member in xs]
        assert max(gap[-2] for gap in gaps) < 0.05
        if weights == "identity":
            rates = [decay_rate(self.ts, gap, 1e-6, 1e-3) for gap in gaps]
            assert np.max(np.abs(np.array(rates) - 1)) < 1e-3

    def test_without_the_hemisphere_the_least_height_falls(self):
        """Dropped: <x_i, w> > 0. Tokens under the equator meet at the other pole."""
        side = 0.99**0.5
        start = np.array([[side, 0.0, -0.1]] * 5 + [[-side, 0.0, -0.1]] * 5)
        height, _ = self.heights(start=jnp.asarray(start[None]))
        assert height[0, -1] == pytest.approx(-1)

    def test_without_V_equal_I_the_least_height_falls(self):
        """Dropped: V = I. A turn by a right angle carries tokens out of the cone."""
        turn = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
        height, _ = self.heights(value=turn)
        assert np.diff(height, axis=1).min() < -1e-3
        assert height.min() < -0.5

    @pytest.mark.parametrize(("n", "d"), [(8, 3), (10, 4), (6, 2), (4, 4)])
    def test_theorem_6_7_uniform_points_share_a_hemisphere_as_often_as_wendel_says(
        self, n, d
    ):
        """Conclusion: 2^(1-n) sum_(k<d) C(n-1, k); a linear programme decides each."""
        rng, draws = np.random.default_rng(7), 400

        def share_one():
            x = rng.standard_normal((n, d))
            found = linprog(np.zeros(d), -x, -np.ones(n), bounds=[(None, None)] * d)
            return found.success

        exact = wendel(n, d)
        error = 5 * np.sqrt(exact * (1 - exact) / draws)
        assert abs(np.mean([share_one() for _ in range(draws)]) - exact) <= error


@functools.cache
def deviation(d):
    """The median over 40 starts of the largest deviation of 8 tokens from the curve."""
    ts = np.linspace(0.0, 10.0, 21)
    gamma, off = np.asarray(equiangular(ts, 8, 1.0)), ~np.eye(8, dtype=bool)
    keys = jax.random.split(jax.random.key(d), 40)
    x0 = jax.vmap(lambda key: Sphere(d).random(key, (8,)))(keys)
    x0 = jax.vmap(lambda x: reduce_to_span(x)[0])(x0)
    args = AttentionParams(beta=1.0)
    xs = flows(self_attention, x0, args, ts, rtol=1e-6, atol=1e-8)
    products = np.einsum("btid,btjd->btij", xs, xs)[..., off]
    return np.median(np.abs(products - gamma[:, None]).max(axis=(1, 2)))


class TestManyDimensions:
    """Theorem 6.9: as d grows, uniform tokens follow the curve of orthogonal ones."""

    def test_if_d_is_large_then_tokens_follow_the_curve_to_order_1_over_root_d(self):
        """Conclusion: four times the dimension, half the deviation."""
        assert 1.7 < deviation(64) / deviation(256) < 2.4
        assert deviation(256) < 0.2

    def test_in_three_dimensions_eight_tokens_do_not_follow_the_curve(self):
        """Dropped: d large."""
        assert deviation(3) > 0.6


class TestStability:
    """Remark 3.3 (Dobrushin): close starts stay within a factor exp(C t).

    For SA the logits' and the values' derivatives give C = 3 + 2 beta for the greatest
    distance of a token from its partner.
    """

    @pytest.mark.parametrize("beta", [1.0, 4.0])
    def test_close_starts_part_by_no_more_than_exp_of_3_plus_2_beta_times_t(self, beta):
        ts, x0 = np.linspace(0.0, 3.0, 13), uniform(5, 8, 8, 3)
        kick = 1e-5 * jax.random.normal(jax.random.key(6), x0.shape)
        y0 = Sphere(3).project(x0 + kick)
        args = AttentionParams(beta=beta)
        xs = flows(self_attention, jnp.concatenate([x0, y0]), args, ts)
        gap = np.linalg.norm(xs[:8] - xs[8:], axis=-1).max(axis=-1)
        assert np.all(gap <= gap[:, :1] * np.exp((3 + 2 * beta) * ts) * (1 + 1e-6))
        # They do part on the way: a bound without exp would be wrong.
        assert (gap.max(axis=1) / gap[:, 0]).max() > 1.2


class TestCausal:
    """Causal attention (arXiv 2411.04990): all tokens converge to the first."""

    @staticmethod
    def distances(**weights):
        x0 = uniform(4, 1, 16, 3)
        args = AttentionParams(beta=1.0, mask="causal", **weights)
        xs = flows(self_attention, x0, args, [0.0, 20.0, 60.0])[0]
        if "value" not in weights:
            np.testing.assert_allclose(xs[:, 0], np.stack([x0[0, 0]] * 3), atol=1e-12)
        return spread(xs, x0[0, 0])

    @pytest.mark.parametrize("weights", ["identity", "random query and key"])
    def test_if_V_is_I_then_all_converge_to_the_first_whatever_Q_and_K(self, weights):
        """Hypothesis: V = I, any Q and K, almost every start."""
        query = key = np.eye(3)
        if weights != "identity":
            query, key = jax.random.normal(jax.random.key(5), (2, 3, 3)) / 3**0.5
        distance = self.distances(query=query, key=key)
        assert distance[1] > 1e-6 > distance[2]

    def test_without_V_equal_I_they_do_not(self):
        """Dropped: V = I. With V = -I tokens stay apart from the first one's start."""
        distance = self.distances(query=np.eye(3), key=np.eye(3), value=-np.eye(3))
        assert distance[2] > 1


EPSILON, RATE = 0.01, 0.2


def promise(beta):
    """The theorem's times for caps of size 2 epsilon around two orthogonal centres."""
    alpha = np.cos(np.pi / 2 - 2 * np.arccos(1 - 2 * EPSILON))  # of the nearest points
    return metastability(4, float(alpha), EPSILON, beta, rate=RATE)


@functools.cache
def caps():
    """Products of tokens with their centres, and of pairs, at 0, T1 and T2, by beta."""
    centres = np.repeat(np.eye(3)[:2], 2, axis=0)
    normal = jax.random.normal(jax.random.key(0), (4, 3))
    tilt = Sphere(3).project(Sphere(3).tangent(centres, normal))
    angle = np.arccos(1 - EPSILON)
    x0 = jnp.asarray(np.cos(angle) * centres + np.sin(angle) * tilt)
    ts = [0.0, float(promise(25.0).gathered), float(promise(25.0).escape)]
    args = AttentionParams(beta=np.array([25.0, 4.0]))
    xs = flows(self_attention, x0, args, ts, (None, {"beta": 0}))
    return np.einsum("btid,id->bti", xs, centres), np.sum(
        xs[:, :, ::2] * xs[:, :, 1::2], axis=-1
    )


class TestDynamicMetastability:
    """Theorem of arXiv 2410.06833: separated caps last exponentially long."""

    def test_if_the_caps_are_separated_then_tokens_stay_in_them_until_T2(self):
        """Hypothesis: margin > 0. Conclusion: <x, w> >= 1 - 2 eps; pairs gather."""
        assert float(promise(25.0).margin) > 0
        heights, pairs = caps()
        assert heights[0].min() >= 1 - 2 * EPSILON
        assert 1 - pairs[0, 1:].min() <= np.exp(-RATE * 25.0)

    def test_without_the_margin_tokens_leave_their_caps(self):
        """Dropped: margin > 0, with beta = 4."""
        assert float(promise(4.0).margin) < 0
        assert caps()[0][1].min() < 1 - 2 * EPSILON


def test_theorem_5_1_if_beta_is_at_least_n_squared_then_three_tokens_become_one():
    """Hypothesis: beta >= C n^2, here n = 3 and beta = 9, on the circle: one limit.

    The last merge takes a time like e^(beta (1 - rho)), which an implicit solver leaps.
    """
    theta = jax.random.uniform(jax.random.key(6), (8, 3), maxval=2 * np.pi)
    sol = tfjax.solve_ensemble(
        circle_attention,
        theta,
        AttentionParams(beta=9.0),
        t1=1e9,
        ts=np.array([10.0, 1e9]),
        solver=dfx.Kvaerno5(),
        throw=True,
    )
    order = np.abs(np.exp(1j * np.asarray(sol.ys)).mean(axis=-1))
    assert order[:, 0].min() < 0.9
    assert order[:, 1].min() > 1 - 1e-6
