"""Attention with noise on the sphere S^2: order, and how it sets in."""

import functools
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.special

from ...fields import AttentionParams, unnormalized_self_attention
from ...geometry import Sphere
from ...integrate import solve, solve_sde
from ...meanfield import (
    MeanFieldParams,
    sphere_coefficients,
    sphere_continuity,
    sphere_noise_branch,
    sphere_points,
    sphere_resolution,
    sphere_stationary,
)
from ...theory import critical_noise, noisy_kuramoto_order, tricritical_beta
from .._base import GREY, PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet
from ._measures import NOISE_RATIOS, Branches, hysteresis_rows


_DEGREE = 24
_BETAS = (0.0, 1.0, 2.2, 3.0)
_HYSTERESIS = 1.0325

_state: Any = eqx.filter_jit(sphere_stationary)
_visit: Any = eqx.filter_jit(sphere_noise_branch)


def noisy_sphere(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """With noise on S^2 order sets in, above a beta by a jump, as on the circle.

    **Arguments:**

    - `seed`: of the noise of tokens.
    - `quick`: no tokens, and no flow at the hysteresis.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: Langevin's order at beta = 0, thresholds, how the order
    begins, stationary states against the flow, and the gap between the branches.

    Source: arXiv 2412.14813; the tricritical beta on S^2 is our own.
    """
    figure = new_figure(9.6, 4.0)
    left, right = (style(axes) for axes in figure.subplots(1, 2, width_ratios=(3, 2)))
    rows = _langevin() + _thresholds()
    progress(0.1)
    data = {"ratios": NOISE_RATIOS}
    for c, beta in enumerate(_BETAS):
        found = _branches(beta)
        left.plot(NOISE_RATIOS, found.rising, color=PALETTE[c], label=f"β = {beta:g}")
        left.plot(NOISE_RATIOS, found.falling, "--", color=PALETTE[c])
        data[f"rising, beta = {beta:g}"] = found.rising
        data[f"falling, beta = {beta:g}"] = found.falling
    rows += _hysteresis()
    progress(0.2)
    rows += _without_symmetry()
    progress(0.3)
    data |= _profiles(right)
    if not quick:
        rows += _flow()
        progress(0.5)
        more, dots = _tokens(seed, left, right, progress)
        rows, data = rows + more, data | dots
    left.set(xlabel="diffusivity D over critical D_c", ylabel="order r = |mean|")
    left.set_title("noise rises (solid), falls (dashed); tokens (dots)", fontsize=9)
    left.axvline(1.0, color=GREY, linewidth=0.6)
    right.set(xlabel="height z along the mean", ylabel="density of the height")
    right.set_title(f"β = 3, D = {_HYSTERESIS:g} D_c: two states", fontsize=9)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _uniform(degree: int = _DEGREE) -> Any:
    return jnp.zeros((degree + 1) ** 2).at[0].set(1.0)


def _peak(degree: int = _DEGREE) -> Any:
    points, _ = sphere_points(degree)
    return sphere_coefficients(jnp.exp(3 * (points[:, 2] - 1)), degree)


def _order(c: Any) -> Any:
    """The length of the mean: of three coefficients of degree 1."""
    return np.linalg.norm(np.asarray(c)[..., 1:4], axis=-1) / np.sqrt(3)


def _critical(beta: float) -> float:
    return float(critical_noise(1, beta, d=3))


def _langevin() -> list[Row]:
    """Beta = 0: the mean of Fisher's distribution."""
    rows = []
    for noise in (0.1, 0.2, 0.3):
        excess = lambda r, d=noise: r - 1 / np.tanh(r / d) + d / r
        exact: Any = scipy.optimize.brentq(excess, 0.05, 1.0, xtol=1e-15)
        claim = f"beta = 0, D = {noise:g}: order"
        theory = float(noisy_kuramoto_order(noise, d=3))
        rows.append(
            near(f"{claim} by theory, from coth(r/D) - D/r", theory, exact, 1e-9)
        )
        found = float(_order(_state(_peak(), MeanFieldParams(0.0, noise))))
        rows.append(near(f"{claim} of the stationary density", found, exact, 1e-9))
    return rows


def _ratio(beta: float) -> float:
    """lambda_2 / lambda_1."""
    iv = scipy.special.iv
    return iv(2.5, beta) / iv(1.5, beta) if beta else 0.0


def _thresholds() -> list[Row]:
    rows = []
    for beta in _BETAS[1:]:
        exact = (np.cosh(beta) - np.sinh(beta) / beta) / beta**2
        claim = f"beta = {beta:g}: critical noise lambda_1 / beta"
        rows.append(near(claim, _critical(beta), exact, 1e-12))
        found = float(critical_noise(1, beta, normalized=True, d=3))
        exact = (1 / np.tanh(beta) - 1 / beta) / beta
        rows.append(near(f"SA, {claim}", found, exact, 1e-12))
    root: Any = scipy.optimize.brentq(lambda b: _ratio(b) - 1 / 3, 1.0, 3.0)
    rows.append(near("tricritical beta", tricritical_beta(3), root, 1e-10))
    for beta in (0.0, 1.0, 1.5):
        # Next to the critical noise: r^2 = c (1 - D / D_c).
        ratio = _ratio(beta)
        expected = 5 / 3 * (1 - ratio) / (1 - 3 * ratio)
        guess = _uniform().at[2].set(np.sqrt(3e-4 * expected))
        params = MeanFieldParams(beta, (1 - 1e-4) * _critical(beta))
        r = _order(_state(guess, params))
        claim = f"beta = {beta:g}: r^2 over 1 - D / D_c, near D_c"
        rows.append(near(claim, r**2 / 1e-4, expected, 5e-3 * expected))
    return rows


@functools.cache
def _branches(beta: float) -> Branches:
    noise = jnp.asarray(NOISE_RATIOS * _critical(beta))
    rising = _visit(noise, _peak(), MeanFieldParams(beta))
    falling = _visit(noise[::-1], _uniform(), MeanFieldParams(beta))[::-1]
    return Branches(_order(rising), _order(falling))


def _hysteresis() -> list[Row]:
    rows = []
    for beta in (0.0, 1.0, 1.75):
        claim = f"beta = {beta:g}: gap between the branches, at most"
        rows.append(below(claim, _branches(beta).gap.max(), 1e-6))
    for beta, least in ((2.2, 0.4), (3.0, 0.5)):
        rows += hysteresis_rows(beta, _branches(beta), least)
    return rows


def _without_symmetry() -> list[Row]:
    """The flow from a density without symmetry: to a rotation of the state."""
    degree, params = 10, MeanFieldParams(1.0, 0.9 * _critical(1.0))
    start = (
        _uniform(degree)
        .at[1:9]
        .set(jnp.asarray([0.4, 0.2, -0.3, 0.1, -0.15, 0.2, 0.05, 0.1]))
    )
    kwargs: dict[str, Any] = {"t1": 120.0, "rtol": 1e-6, "atol": 1e-8}
    sol: Any = solve(sphere_continuity, start, params, max_steps=None, **kwargs)
    end, state = sol.ys[-1], _state(_peak(degree), params)
    gap = np.abs(_sizes(end) - _sizes(state)).max()
    minimum, tail = sphere_resolution(end)
    name = "beta = 1, D = 0.9 D_c: the flow from no symmetry"
    return [
        below(f"{name}, sizes of the degrees from the state's", gap, 1e-4),
        near(f"{name}, mass", end[0], 1.0, 1e-12),
        above(f"{name}, least density", minimum, 0.0),
        below(f"{name}, tail of the degrees", tail, 1e-3),
    ]


def _sizes(c) -> np.ndarray:
    """The length of the coefficients of each degree, which no rotation changes."""
    k = np.arange(int(np.sqrt(c.size)))
    return np.sqrt(np.add.reduceat(np.asarray(c) ** 2, k**2))


def _profiles(axes) -> dict[str, np.ndarray]:
    """The densities of the two states by height."""
    heights = np.linspace(-1.0, 1.0, 201)
    k = np.arange(_DEGREE + 1)
    params = MeanFieldParams(3.0, _HYSTERESIS * _critical(3.0))
    data: dict[str, Any] = {"heights": heights}
    for name, guess in (("order", _peak()), ("disorder", _uniform())):
        c = np.asarray(_state(guess, params))[k * k + k]
        series = np.polynomial.legendre.legval(heights, np.sqrt(2 * k + 1) * c)
        data[f"density of the height, {name}"] = values = 0.5 * series
        look = {"order": ("-", PALETTE[3]), "disorder": ("--", GREY)}[name]
        label = f"stationary, from {name}"
        axes.plot(heights, values, look[0], color=look[1], label=label)
    return data


def _flow() -> list[Row]:
    """The flow from order, and from next to none, where both states are stable."""
    degree, noise = 16, _HYSTERESIS * _critical(3.0)
    params = MeanFieldParams(3.0, noise)
    ordered = float(_order(_state(_peak(degree), params)))
    kwargs: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8, "max_steps": None}
    kwargs |= {"t1": 20.0, "ts": np.array([0.0, 20.0])}
    name = f"beta = 3, D = {_HYSTERESIS:g} D_c: order"
    rows = []
    for start in (
        _state(_peak(degree), MeanFieldParams(3.0, 0.9 * noise)),
        _uniform(degree).at[2].set(0.05),
    ):
        sol: Any = solve(sphere_continuity, start, params, **kwargs)
        first, last = _order(sol.ys)
        if first > 0.5:
            rows.append(near(f"{name} of the flow from order", last, ordered, 5e-3))
            rows.append(above(f"{name} at the start, beyond", first - ordered, 0.05))
        else:
            # Waves of degree 1 decay at the rate 2 (D - D_c).
            expected = first * np.exp(-2 * 20.0 * (noise - _critical(3.0)))
            claim = f"{name} of the flow from little, over that of a decay"
            rows.append(near(claim, last / expected, 1.0, 0.1))
    return rows


def _tokens(seed, left, right, progress) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Five hundred tokens with noise, at beta = 0 two thousand."""
    cases = [(0.0, 0.6, True), (1.0, 0.775, True), (3.0, 0.775, True)]
    cases += [(3.0, _HYSTERESIS, True), (3.0, _HYSTERESIS, False), (3.0, 1.325, True)]
    rows, found = [], []
    for k, (beta, ratio, ordered) in enumerate(cases):
        n = 500 if beta else 2000
        noise = ratio * _critical(beta)
        # On a sphere the steps are of weak order 1.
        step, length = 0.15 * np.exp(-beta), 20 / _critical(beta)
        step = step if beta else 0.03
        steps = round(length / step)
        key, first = jax.random.split(jax.random.fold_in(jax.random.key(seed), k))
        start = jnp.zeros((n, 3)).at[:, 2].set(1.0)
        start = start if ordered else Sphere(3).random(first, (n,))
        every = np.arange(steps // 2, steps + 1, max(steps // 120, 1))
        sol: Any = solve_sde(
            unnormalized_self_attention if beta else _mean,
            lambda t, x, args, noise=noise: jnp.full_like(x, np.sqrt(2 * noise)),
            start,
            AttentionParams(beta=beta),
            t1=step * steps,
            dt0=step,
            ts=step * every,
            key=key,
            solver=dfx.Heun(),
            additive=True,
            manifold=Sphere(3),
        )
        xs = np.asarray(sol.ys)
        r = np.linalg.norm(xs.mean(axis=1), axis=-1).mean()
        found.append((beta, ratio, ordered, r))
        colour, marker = PALETTE[_BETAS.index(beta)], "o" if ordered else "s"
        left.plot(ratio, r, marker, color=colour, markersize=6, mec="white")
        guess = _peak() if ordered else _uniform()
        expected = float(_order(_state(guess, MeanFieldParams(beta, noise))))
        start_name = "order" if ordered else "disorder"
        claim = f"beta = {beta:g}, D = {ratio:g} D_c: order of {n:,} tokens from "
        claim += start_name
        if expected < 0.1:
            # Finitely many have some, and more where there is another branch, at .8.
            rows.append(below(claim, r, 0.5 if ratio == _HYSTERESIS else 0.25))
        else:
            rows.append(near(claim, r, expected, 0.05 if beta else 0.01))
        if ordered and ratio == _HYSTERESIS:
            last = xs[::6]
            mean = last.mean(axis=1, keepdims=True)
            mean /= np.linalg.norm(mean, axis=-1, keepdims=True)
            z = np.sum(last * mean, axis=-1).ravel()
            kwargs = {"color": colour, "alpha": 0.3, "label": f"{n} tokens"}
            right.hist(z, np.linspace(-1, 1, 41), density=True, **kwargs)
        progress(0.5 + 0.5 * (k + 1) / len(cases))
    return rows, {"tokens: beta, D / D_c, from order, r": np.array(found)}


def _mean(t: Any, x: Any, args: Any) -> Any:
    """Attention at beta = 0, in a time linear in n; the solve makes it tangential."""
    return jnp.broadcast_to(jnp.mean(x, axis=0, keepdims=True), x.shape)
