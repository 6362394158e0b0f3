"""On the circle attention is a model of coupled oscillators."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ...diagnostics import order_parameter
from ...fields import (
    AttentionParams,
    Kuramoto,
    circle_attention,
    kuramoto,
    self_attention,
    unnormalized_circle_attention,
    unnormalized_self_attention,
)
from ...geometry import Sphere
from ...integrate import solve, solve_ensemble
from .._base import BLUE, GREY, PALETTE, RED, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet
from ._measures import circle_points


_PRECISE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
_ORDER = (0.14312675, 0.23971257, 0.40647634, 0.64295102)


def circle(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Section 7: angles obey a Kuramoto model, whose tokens agree unless beta < -2/3.

    **Arguments:**

    - `seed`: of the starts.
    - `quick`: two inverse temperatures, and fewer draws.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: angles against points, conserved quantities and the order
    parameter at beta = 0, and the threshold below which three clusters are stable.

    Source: arXiv 2312.10794, section 7; arXiv 2507.22857 for beta < 0; S. Watanabe,
    S. H. Strogatz (1994) for the conserved quantities.
    """
    figure = new_figure(9.6, 3.4)
    left, middle, right = (style(axes) for axes in figure.subplots(1, 3))
    rows = _points(seed, (1.0,) if quick else (0.5, 1.0, 4.0))
    progress(0.4)
    more, data = _oscillators(left)
    rows += more
    progress(0.6)
    rows += _threshold(middle)
    progress(0.7)
    more, shares = _synchronised(seed, 24 if quick else 96, right)
    return Report(rows + more, figure, data | shares)


def _points(seed, betas) -> list[Row]:
    """The angles move as the points of the plane do."""
    key = jax.random.key(seed)
    theta = jax.random.uniform(key, (16,), maxval=2 * np.pi)
    rows = []
    pairs = {
        "SA": (circle_attention, self_attention),
        "USA": (unnormalized_circle_attention, unnormalized_self_attention),
    }
    for name, (angles, points) in pairs.items():
        worst = 0.0
        for beta in betas:
            args = AttentionParams(beta=beta)
            ts = np.linspace(0.0, 5.0, 11)
            sol = solve(angles, theta, args, t1=5.0, ts=ts, **_PRECISE)
            found = np.asarray(circle_points(jnp.asarray(sol.ys)))
            sol = solve(
                points,
                circle_points(theta),
                args,
                t1=5.0,
                ts=ts,
                manifold=Sphere(2),
                **_PRECISE,
            )
            worst = max(worst, float(np.abs(found - np.asarray(sol.ys)).max()))
        rows.append(below(f"{name}: angles from points, at most", worst, 1e-7))
    return rows


def _oscillators(axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Beta = 0 is Kuramoto's model; of one frequency, it conserves cross-ratios."""
    # The start that belongs to the expected order parameters.
    theta = jnp.asarray(np.random.default_rng(3).uniform(0.0, 2 * np.pi, 16))
    ts = np.linspace(0.0, 6.0, 61)
    rows: list[Row] = []
    data = {"t": ts}
    mixed = Kuramoto(frequencies=jnp.linspace(-1.0, 1.0, 16))
    for name, args in {"one frequency": Kuramoto(), "mixed": mixed}.items():
        sol = solve(kuramoto, theta, args, t1=6.0, ts=ts, **_PRECISE)
        thetas = np.asarray(sol.ys)
        data[f"order, {name}"] = order = np.asarray(jax.vmap(order_parameter)(thetas))
        ratios = _cross_ratios(thetas[ts <= 3])
        drift = np.abs(ratios / ratios[0] - 1).max()
        claim = f"beta = 0, {name}: drift of cross-ratios"
        if name == "mixed":
            rows.append(above(claim, drift, 0.1))  # not so without the hypothesis
        else:
            rows += [
                near(f"beta = 0: order parameter at t = {t}", order[10 * t], r, 1e-7)
                for t, r in enumerate(_ORDER)
            ]
            rows.append(below(claim, drift, 1e-7))
    axes.plot(ts, data["order, one frequency"], color=BLUE, label="16 tokens, β = 0")
    axes.plot(range(4), _ORDER, "o", color=RED, markersize=4, label="expected")
    axes.plot(ts, data["order, mixed"], color=GREY, label="mixed frequencies")
    axes.set(xlabel="time t", ylabel="order parameter R", ylim=(0, 1.02))
    axes.legend(frameon=False, fontsize=8)
    return rows, data


def _cross_ratios(theta):
    z = np.exp(1j * theta)
    a, b, c, d = z[:, :-3], z[:, 1:-2], z[:, 2:-1], z[:, 3:]
    return (a - c) * (b - d) / ((a - d) * (b - c))


@jax.jit
def _jacobian(beta):
    """That of USA at three clusters of two, 120 degrees apart."""
    theta = jnp.asarray(np.repeat(2 * np.pi * np.arange(3) / 3, 2))
    field = lambda y: unnormalized_circle_attention(0.0, y, AttentionParams(beta=beta))
    return jax.jacfwd(field)(theta)


def _growth(beta: float) -> float:
    """The fastest growth of a perturbation, rotations left out."""
    values = np.linalg.eigvalsh(np.asarray(_jacobian(beta)))
    return float(np.delete(values, np.argmin(np.abs(values))).max())


def _threshold(axes) -> list[Row]:
    root = scipy.optimize.brentq(_growth, -0.75, -0.6, xtol=1e-14)
    betas = np.linspace(-2.0, 0.5, 51)
    axes.plot(betas, [_growth(float(beta)) for beta in betas], color=BLUE)
    axes.axvline(-2 / 3, color=RED, linestyle=":", label="β = -2/3")
    axes.axhline(0.0, color=GREY, linewidth=0.6)
    axes.set(xlabel="inverse temperature β", ylabel="growth of perturbations")
    axes.set_title("three clusters at 120°, USA", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return [
        near("three clusters are stable below beta =", root, -2 / 3, 1e-12),
        above("three clusters, beta = -0.6: growth", _growth(-0.6), 0.0),
        below("three clusters, beta = -0.75: growth", _growth(-0.75), 0.0),
    ]


def _synchronised(seed, draws, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Which uniform starts of 33 tokens are one cluster at the end."""
    betas = np.array([-4.0, -3.0, -2.0, -1.0, -0.16, 1.0])
    betas = betas if draws > 24 else betas[[0, 2, 4, 5]]
    key = jax.random.fold_in(jax.random.key(seed), 28)
    theta = jax.random.uniform(key, (draws, 33), maxval=2 * np.pi)
    sol = solve_ensemble(
        unnormalized_circle_attention,
        jnp.tile(theta, (betas.size, 1)),
        AttentionParams(beta=jnp.repeat(betas, draws)),
        in_axes=(0, {"beta": 0}),
        t1=300.0,
        rtol=1e-6,
        atol=1e-8,
        throw=True,
    )
    ends = jnp.asarray(sol.ys)[:, 0]
    order = np.asarray(jax.vmap(order_parameter)(ends)).reshape(-1, draws)
    apart = np.mean(order < 0.99, axis=1)
    share = dict(zip(betas.tolist(), apart.tolist(), strict=True))
    rows = [
        above("beta = -2: share of starts not synchronised", share[-2.0], 0.0),
        above("beta = -4: share of starts not synchronised", share[-4.0], 0.9),
        near("beta = -0.16: share of starts not synchronised", share[-0.16], 0.0, 0.0),
        near("beta = 1: share of starts not synchronised", share[1.0], 0.0, 0.0),
    ]
    axes.plot(betas, apart, "o-", color=PALETTE[1])
    axes.set(xlabel="inverse temperature β", ylabel="share not synchronised")
    axes.set_title(f"{draws} uniform starts of 33 tokens, t = 300", fontsize=9)
    return rows, {"betas": betas, "share not synchronised": apart}
