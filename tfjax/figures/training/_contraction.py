"""Where maps contract: softmax, two keys, random weights, tokens in a ball, descent."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ...attention import attend
from ...diagnostics import attention_lipschitz, stability_margins
from ...nn import scaled_learning_rate
from .._report import Row, below, near


LAYERS = (4, 8, 16, 32, 64)
EXPONENTS = (0.0, 0.5, 1.0)
RADII = (1.0, 2.0, 4.0, 8.0)
BETAS = (0.5, 0.9, 0.99, 1.01, 1.1, 1.5, 2.0)
_RANDOM_LIMIT = (27 / 4) ** 0.5  # of |W W'| for square normal W, W' of variance 1/d


def softmax_rows(seed: int) -> list[Row]:
    """The norms of the Jacobians of softmax and of its logarithm."""
    rng = np.random.default_rng(seed)
    norms, gaps = [], []
    for p in rng.dirichlet(np.full(6, 0.3), 2000):
        norms.append(np.linalg.norm(np.diag(p) - np.outer(p, p), 2))
        whole = np.linalg.norm(np.eye(6) - np.outer(np.ones(6), p), 2)
        gaps.append(abs(whole / (6**0.5 * np.linalg.norm(p)) - 1))
    half = np.array([0.5, 0.5, 0, 0, 0, 0])
    corner = np.linalg.norm(np.diag(half) - np.outer(half, half), 2)
    return [
        below("softmax, 2000 random points: largest |Jacobian|", max(norms), 0.5),
        near("softmax at (1/2, 1/2, 0, ...): |Jacobian|", corner, 0.5, 1e-15),
        below("log softmax: |Jacobian| over sqrt(n) |p|, less 1", max(gaps), 1e-12),
    ]


@jax.jit
@jax.vmap
def _jacobians(x, keys, query, key, value):
    """Of attention to given keys, in its queries."""
    f = lambda x: attend(x[None] @ query.T, keys @ key.T, keys @ value.T)[0]
    return jax.jacobian(f)(x)


def _slopes(*given) -> np.ndarray:
    return np.linalg.norm(np.asarray(_jacobians(*given)), 2, axis=(-2, -1))


def bound_rows(seed: int) -> list[Row]:
    """The worst case is a bound, and two keys attain it."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape))
    count, d = 3000, 3
    query, key, value = (draw(count, d, d) for _ in range(3))
    keys = draw(count, 6, d)
    keys = keys / jnp.linalg.norm(keys, axis=-1, keepdims=True)
    margins = stability_margins(query, key, value).worst_case
    ratios = _slopes(0.3 * draw(count, d), keys, query, key, value) * margins
    # Keys along the leading direction on either side, a query at 0, V that keeps it.
    left = np.linalg.svd(np.swapaxes(key, 1, 2) @ query)[0][:, :, 0]
    keys = jnp.stack([left, -left] + [left, -left] * 2, axis=1)
    value = jnp.asarray(left[:, :, None] * left[:, None])
    margins = stability_margins(query, key, value).worst_case
    tight = _slopes(jnp.zeros((count, d)), keys, query, key, value) * margins
    claim = "attention, 3000 random heads: largest slope times the worst-case margin"
    return [
        below(claim, ratios.max(), 1.0),
        below(
            "attention, keys at +R and -R: slope times margin, less 1",
            np.abs(tight - 1).max(),
            1e-12,
        ),
    ]


def pitchfork() -> tuple[list[Row], dict[str, np.ndarray]]:
    """Two keys at 1 and -1: x = tanh(beta x) from 1, to 0 exactly up to beta = 1."""
    keys = jnp.array([[1.0], [-1.0]])
    step = lambda beta: lambda _, x: attend(x, keys, keys, beta=beta)
    go = jax.jit(jax.vmap(lambda b: jax.lax.fori_loop(0, 4000, step(b), keys[:1])))
    found = np.asarray(go(jnp.array(BETAS)))[:, 0, 0]
    expected = [_tanh_point(beta) for beta in BETAS]
    rows = [
        near(f"two keys, beta = {b:g}: fixed point from 1", x, y, 1e-9)
        for b, x, y in zip(BETAS, found, expected, strict=True)
    ]
    betas = np.concatenate([np.linspace(0.4, 1, 30), 1 + np.geomspace(1e-4, 1.1, 60)])
    curve = np.array([_tanh_point(beta) for beta in betas])
    data = {"beta": np.array(BETAS), "fixed point": found}
    return rows, data | {"curve": np.stack([betas, curve])}


def _tanh_point(beta: float) -> float:
    """The largest solution of x = tanh(beta x)."""
    if beta <= 1:
        return 0.0
    f = lambda x: np.tanh(beta * x) - x
    root = scipy.optimize.brentq(f, (1 - 1 / beta) ** 0.5, 1.0, xtol=1e-14)
    return float(root)  # pyright: ignore[reportArgumentType]


def random_weight_rows(seed: int, sizes: tuple[int, ...]) -> list[Row]:
    """Weights of variance 1/d break the worst case and keep the typical one."""
    rng, rows = np.random.default_rng(seed), []
    for d in sizes:
        query, key, value = rng.standard_normal((3, d, d)) / d**0.5
        norm = np.linalg.norm(query.T @ key, 2)
        claim = f"random weights, d = {d}: |K'Q|"
        rows.append(near(claim, norm, _RANDOM_LIMIT, 4 * d ** (-2 / 3)))
        tokens = rng.standard_normal((16 * d, d))
        tokens *= d**0.5 / np.linalg.norm(tokens, axis=1, keepdims=True)
        margins = stability_margins(query, key, value, radius=d**0.5)
        claim = f"random weights, d = {d}: worst-case margin"
        rows.append(below(claim, margins.worst_case, 1.0))
        slopes = [_query_slope(x, tokens, query, key, value) for x in tokens[:9]]
        claim = f"random weights, d = {d}, {16 * d} tokens of LayerNorm: median slope"
        rows.append(below(claim, np.median(slopes), 1.0))
    return rows


def _query_slope(x, tokens, query, key, value):
    """|V Cov(y) K'Q| / sqrt(d), for a query x."""
    logits = tokens @ (key.T @ (query @ x)) / len(x) ** 0.5
    p = np.exp(logits - logits.max())
    p /= p.sum()
    centred = tokens - p @ tokens
    covariance = (centred * p[:, None]).T @ centred
    return np.linalg.norm(value @ covariance @ key.T @ query, 2) / len(x) ** 0.5


def ball(seed: int, count: int) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Self-attention of three tokens in the plane, against its bound in a ball."""
    rng, one, n, d = np.random.default_rng(seed), jnp.eye(2), 3, 2

    def f(x):
        x = x.reshape(n, d)
        return attend(x, x, x, beta=1.0).ravel()

    jacobians = jax.jit(jax.vmap(jax.jacobian(f)))
    stretch = lambda x: np.linalg.norm(np.asarray(jacobians(x)), 2, axis=(-2, -1))
    x = rng.standard_normal((count, n, d))
    x *= rng.random((count, n, 1)) ** 0.5 / np.linalg.norm(x, axis=-1, keepdims=True)
    x = x.reshape(count, -1)
    found = np.array([stretch(jnp.asarray(radius * x)).max() for radius in RADII])
    options = {"temperature": d**-0.5}  # so that beta is 1
    bound = np.array(
        [attention_lipschitz(one, one, one, n, radius=r, **options) for r in RADII]
    )
    rows = [
        below(f"self-attention, R = {r:g}: largest |Df| of {count:,} draws", a, b)
        for r, a, b in zip(RADII, found, bound, strict=True)
    ]
    return rows, {"radius": np.array(RADII), "largest |Df|": found, "bound": bound}


class Descent(NamedTuple):
    """The rate above which descent leaves, by exponent and number of layers."""

    found: np.ndarray
    expected: np.ndarray


def descent() -> tuple[list[Row], Descent]:
    """Gradient descent on a product of residual layers, by bisection of the rate."""
    rows, found, expected = [], [], []
    for exponent in EXPONENTS:
        rates = [float(scaled_learning_rate(2.0, L, exponent)) for L in LAYERS]
        measured = [_largest_rate(L, L**-exponent, 4.0 * L) for L in LAYERS]
        gap = max(abs(a / b - 1) for a, b in zip(measured, rates, strict=True))
        claim = f"descent, L = 4 to 64, branches / L^{exponent:g}: rate over 2 L^(2e-1)"
        rows.append(below(f"{claim}, less 1", gap, 1e-4))
        found.append(measured)
        expected.append(rates)
    return rows, Descent(np.array(found), np.array(expected))


def _largest_rate(layers: int, a: float, top: float) -> float:
    """The largest rate with which (prod(1 + a w) - 1)^2 / 2 still falls, from w near 0.

    All layers do the same, so that a single number stands for w.
    """
    low, high = 0.0, top
    for _ in range(40):
        rate = 0.5 * (low + high)
        w = start = 1e-9 / (layers * a)
        for _ in range(100):
            w = w - rate * ((1 + a * w) ** layers - 1) * a * (1 + a * w) ** (layers - 1)
            if abs(w) > 100 * start:
                break
        low, high = (rate, high) if abs(w) < start else (low, rate)
    return low


def more_rows(seed: int, quick: bool) -> list[Row]:
    """What is known of softmax, of bounds, and of random weights."""
    rows = softmax_rows(seed) + bound_rows(seed)
    return rows + random_weight_rows(seed, (64,) if quick else (64, 256, 512))
