"""The density of infinitely many tokens: its equation, and tokens beside it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ...fields import AttentionParams, unnormalized_self_attention
from ...geometry import Sphere
from ...integrate import forward_mode, solve, solve_ensemble
from ...meanfield import (
    MeanFieldParams,
    ModalAttention,
    circle_continuity,
    circle_energy,
    circle_modes,
    circle_velocity,
    particle_errors,
    resolution,
    sample_circle,
    sphere_coefficients,
    sphere_continuity,
    sphere_density,
    sphere_energy,
    sphere_points,
)
from ...theory import sphere_growth_rate
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet, within


_ANGLES, _BETA = 128, 4.0
_PRECISE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


def density(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """The continuity equation conserves mass and obeys the energy's identity.

    **Arguments:**

    - `seed`: of the tokens that are compared with the density.
    - `quick`: mass and energy of USA only, a lower degree on the sphere, and fewer
      tokens.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: mass, energy and positivity along the equation on the circle
    and on S^2, growth on S^2, the derivative of the flow, and how many tokens come to
    their density.

    Source: arXiv 2312.10794, section 3; arXiv 2410.23228 for the growth.
    """
    figure = new_figure(10.4, 3.6)
    left, middle, right = (style(axes) for axes in figure.subplots(1, 3))
    kinds = {"USA": False} if quick else {"USA": False, "SA": True}
    rows, data = _circle(kinds, left, right)
    progress(0.2)
    more, found = _sphere(kinds, 6 if quick else 12, right)
    rows, data = rows + more, data | found
    progress(0.4)
    if not quick:
        more, found = _resolved(data["density, USA"])
        rows, data = rows + more, data | found
        rows += _growth(kinds) + _derivative() + _sphere_tokens(seed)
        data |= _histogram(seed, data["t, circle, USA"], left)
    progress(0.5)
    more, found = _convergence(seed, quick, middle)
    left.set(xlabel="angle θ (radians)", ylabel="density per radian")
    bars = "" if quick else "; bars: 16,384 tokens"
    left.set_title(f"USA, β = {_BETA:g}{bars}", fontsize=9)
    middle.set(xlabel="number n of tokens", ylabel="distance W₁ (radians)")
    middle.set_title("USA: tokens to their density", fontsize=9)
    right.set(xlabel="time over that of the run", ylabel="error", yscale="log")
    right.set(ylim=(1e-17, 1e-12))
    right.set_title("mass (dotted), energy identity (solid)", fontsize=9)
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize=8)
    return Report(rows + more, figure, data | found)


def _start(n: int = _ANGLES) -> Any:
    theta = 2 * np.pi * np.arange(n) / n
    waves = 1 + 0.3 * np.cos(theta) + 0.2 * np.sin(2 * theta)
    return jnp.asarray(waves / (2 * np.pi))


def _identity(rate, energy, power, ys, params) -> np.ndarray:
    """The derivative of the energy along the flow over what it should be, less 1."""

    def one(y):
        change = rate(0.0, y, params)
        _, slope = jax.jvp(lambda y: energy(y, params), (y,), (change,))
        return slope / power(y) - 1

    return np.abs(np.asarray(jax.jit(jax.vmap(one))(ys)))


def _circle(kinds, left, right) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Mass and energy on the circle."""
    rows, data = [], {}
    theta = 2 * np.pi * np.arange(_ANGLES) / _ANGLES
    for c, (name, normalized) in enumerate(kinds.items()):
        params = MeanFieldParams(_BETA, normalized=normalized)
        ts = np.linspace(0.0, 1.6 if normalized else 0.12, 25)
        sol: Any = solve(
            circle_continuity, _start(), params, t1=ts[-1], ts=ts, **_PRECISE
        )
        drift = np.abs(2 * np.pi * np.asarray(sol.ys).mean(axis=1) - 1)

        def power(y, params=params):
            # The velocity of USA is Z times that of SA.
            pull = circle_velocity(y, MeanFieldParams(_BETA))
            return 2 * np.pi * jnp.mean(y * pull * circle_velocity(y, params))

        error = _identity(circle_continuity, circle_energy, power, sol.ys, params)
        energies = np.asarray(jax.vmap(lambda y, p=params: circle_energy(y, p))(sol.ys))
        rows += _conserved(f"circle, {name}", drift, error, energies)
        _draw(right, ts, drift, error, PALETTE[c], f"circle, {name}")
        data |= {f"t, circle, {name}": ts, f"energy, circle, {name}": energies}
        data |= {f"density, {name}": np.asarray(sol.ys)}
        data |= {f"mass, circle, {name}": drift, f"identity, circle, {name}": error}
        if name == "USA":
            for k, place in enumerate((0, 12, 24)):
                label = f"t = {ts[place]:g}"
                left.plot(theta, sol.ys[place], color=PALETTE[k], label=label)
    return rows, data


def _conserved(name, drift, error, energies) -> list[Row]:
    claim = f"{name}: dE/dt from the square of the velocity, relative"
    return [
        below(f"{name}: drift of the mass", drift.max(), 1e-12),
        below(claim, error.max(), 1e-10),
        above(f"{name}: least rise of the energy", np.diff(energies).min(), 0.0),
    ]


def _draw(axes, ts, drift, error, colour, label) -> None:
    # What is 0 is drawn at the lower edge.
    time = ts / ts[-1]
    axes.plot(time, np.maximum(drift, 1e-17), ":", color=colour)
    axes.plot(time, np.maximum(error, 1e-17), color=colour, label=label)


def _resolved(fine) -> tuple[list[Row], dict[str, np.ndarray]]:
    """On half of the angles, and from a density that is 0 at an angle."""
    params, limit = MeanFieldParams(_BETA), 1e-9
    ts = np.linspace(0.0, 0.12, 25)
    kwargs: dict[str, Any] = {"t1": ts[-1], "ts": ts, **_PRECISE}
    half: Any = solve(circle_continuity, _start(64), params, **kwargs)
    tails = np.asarray(jax.vmap(resolution)(half.ys).tail)
    carried = tails < limit
    modes = [np.asarray(jax.vmap(circle_modes)(ys))[:, :21] for ys in (half.ys, fine)]
    gaps = np.abs(modes[0] - modes[1]).max(axis=1)
    rows = [
        below(
            "64 angles: share of times at which they carry the density",
            carried.mean(),
            0.9,
        ),
        below(
            f"64 angles, tail below {limit:g}: modes from those of 128",
            gaps[carried].max(),
            limit,
        ),
        above("64 angles, at the end: modes from those of 128", gaps[-1], limit),
    ]
    theta = 2 * np.pi * np.arange(_ANGLES) / _ANGLES
    start = jnp.asarray((1 + np.cos(theta)) / (2 * np.pi))
    kwargs |= {"t1": 0.3, "ts": 2.5 * ts}
    zero: Any = solve(circle_continuity, start, params, **kwargs)
    found = jax.vmap(resolution)(zero.ys)
    tails, lowest = np.asarray(found.tail), np.asarray(found.minimum)
    early, late = tails < limit, tails > 1e-3
    claim = f"start 1 + cos, tail below {limit:g}: least density"
    rows.append(above(claim, lowest[early].min(), -limit))
    rows.append(above("start 1 + cos: times with such a tail", early.sum(), 5.0))
    claim = "start 1 + cos, tail above 0.001: least density"
    rows.append(below(claim, lowest[late].min(initial=0.0), -limit))
    rows.append(
        above("start 1 + cos: times with such a tail, too late", late.sum(), 0.0)
    )
    return rows, {
        "gap, 64 angles": gaps,
        "tail, 1 + cos": tails,
        "least, 1 + cos": lowest,
    }


def _derivative() -> list[Row]:
    """The derivative of the flow map in the first density."""
    params, n = MeanFieldParams(_BETA), 64
    rng = np.random.default_rng(0)
    theta = 2 * np.pi * np.arange(n) / n
    wave = sum(rng.normal() * np.cos(k * theta + rng.uniform(0, 6)) for k in (1, 2, 3))
    direction = jnp.asarray(0.01 * wave)

    @eqx.filter_jit
    def end(start, adjoint):
        kwargs = {"t1": 0.1, "adjoint": adjoint, **_PRECISE}
        ys: Any = solve(circle_continuity, start, params, **kwargs).ys
        return ys[-1]

    tangent: Any
    forward = lambda start: end(start, forward_mode())
    _, tangent = jax.jvp(forward, (_start(n),), (direction,))
    step = 1e-3
    up, down = (end(_start(n) + s * direction, None) for s in (step, -step))
    gap = jnp.linalg.norm((up - down) / (2 * step) - tangent)
    claim = "derivative of the flow from finite differences, relative"
    rows = [below(claim, gap / jnp.linalg.norm(tangent), 1e-6)]
    mass = 2 * np.pi * float(jnp.mean(tangent))
    rows.append(below("derivative of the flow: change of the mass", abs(mass), 1e-12))
    return rows


def _sphere(kinds, degree, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Mass and energy on S^2, of a density without symmetry."""
    points, weights = sphere_points(degree)
    values = jnp.exp(points @ jnp.asarray([0.3, -0.2, 0.4]))
    values = values + 0.3 * points[:, 0] * points[:, 1]
    start = sphere_coefficients(values, degree)
    start = start / start[0]
    kernel = jnp.exp(2.0 * points @ points.T)
    rows, data = [], {}
    for c, (name, normalized) in enumerate(kinds.items()):
        params = MeanFieldParams(2.0, normalized=normalized)
        ts = np.linspace(0.0, 0.8 if normalized else 0.3, 13)
        sol: Any = solve(
            sphere_continuity, start, params, t1=ts[-1], ts=ts, rtol=1e-8, atol=1e-10
        )
        drift = np.abs(np.asarray(sol.ys)[:, 0] - 1)

        def power(y, normalized=normalized):
            # By tokens at the points of the grid, with the density as their masses.
            mu = weights * sphere_density(y)
            pull = Sphere(3).tangent(points, kernel @ (mu[:, None] * points))
            square = jnp.sum(pull**2, axis=1)
            return jnp.sum(mu * (square / (kernel @ mu) if normalized else square))

        error = _identity(sphere_continuity, sphere_energy, power, sol.ys, params)
        energies = np.asarray(jax.vmap(lambda y, p=params: sphere_energy(y, p))(sol.ys))
        rows += _conserved(f"S^2, {name}", drift, error, energies)
        _draw(axes, ts, drift, error, PALETTE[2 + c], f"S², {name}")
        data |= {f"t, S^2, {name}": ts, f"energy, S^2, {name}": energies}
        data |= {f"mass, S^2, {name}": drift, f"identity, S^2, {name}": error}
    return rows, data


def _growth(kinds) -> list[Row]:
    """Small harmonics of every degree on the uniform density, all at once."""
    degree, beta, top = 10, 5.0, 4
    index = np.arange(1, top + 1)
    places = index**2 + index - np.array([0, 1, -1, 2])  # of several orders
    size = 1e-7
    start = jnp.zeros((degree + 1) ** 2).at[0].set(1.0).at[places].set(size)
    rows = []
    for name, normalized in kinds.items():
        rates = [float(sphere_growth_rate(int(k), 3, beta, normalized)) for k in index]
        sol: Any = solve(
            sphere_continuity,
            start,
            MeanFieldParams(beta, normalized=normalized),
            t1=3 / max(rates),
            rtol=1e-8,
            atol=1e-16,
        )
        found = np.log(np.asarray(sol.ys[-1])[places] / size) * max(rates) / 3
        for k, rate, got in zip(index, rates, found, strict=True):
            claim = f"S^2, {name}, beta = 5: growth of degree {k}"
            rows.append(near(claim, got, rate, 1e-3 * rate))
        if not normalized:
            more = [float(sphere_growth_rate(k, 3, beta)) for k in range(1, 9)]
            fastest = 1 + int(np.argmax(more))
            claim = "S^2, USA, beta = 5: fastest degree, and of those found"
            rows.append(near(claim, index[found.argmax()], fastest, 0.0))
    return rows


def _sphere_tokens(seed) -> list[Row]:
    """The mean height of tokens on S^2, whose density is 1 + .6 z at first."""
    slope, n, draws, end, degree = 0.6, 256, 128, 1.0, 12
    rng = np.random.default_rng(seed)
    u, phi = rng.uniform(size=(draws, n)), rng.uniform(0, 2 * np.pi, size=(draws, n))
    z = (np.sqrt((1 - slope) ** 2 + 4 * slope * u) - 1) / slope
    rho = np.sqrt(1 - z**2)
    x = np.stack([rho * np.cos(phi), rho * np.sin(phi), z], axis=-1)
    sol: Any = solve_ensemble(
        unnormalized_self_attention,
        jnp.asarray(x),
        AttentionParams(beta=1.0),
        t1=end,
        manifold=Sphere(3),
        rtol=1e-5,
        atol=1e-6,
    )
    heights = np.asarray(sol.ys)[:, 0, :, 2].mean(axis=1)
    start = jnp.zeros((degree + 1) ** 2).at[0].set(1.0).at[2].set(slope / np.sqrt(3))
    sol = solve(sphere_continuity, start, MeanFieldParams(1.0), t1=end)
    expected = float(sol.ys[-1][2]) / np.sqrt(3)
    error = heights.std(ddof=1) / np.sqrt(draws)
    claim = f"S^2: mean height of {draws} times {n} tokens, in standard errors"
    return [
        near(claim, (heights.mean() - expected) / error, 0.0, 4.0),
        above("S^2: mean height of the density, from .2 at first", expected, 0.3),
    ]


def _histogram(seed, ts, axes) -> dict[str, np.ndarray]:
    """Tokens beside their density at the times that are drawn."""
    tokens = sample_circle(_start(), jax.random.key(seed), (16384,))
    params = MeanFieldParams(_BETA)
    sol: Any = solve(ModalAttention(32), tokens, params, t1=ts[-1], ts=ts[::12])
    angles = np.mod(np.asarray(sol.ys), 2 * np.pi)
    bins = np.linspace(0.0, 2 * np.pi, 65)
    for k, each in enumerate(angles):
        axes.hist(each, bins, density=True, color=PALETTE[k], alpha=0.3)
    return {"tokens": angles}


def _convergence(seed, quick, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """The Wasserstein distance of n independent tokens to their density."""
    counts = 2 ** np.arange(6, 11 if quick else 15, 4 if quick else 1)
    draws, ends = 48, {"t = 0": 0.0, "t = 0.12": 0.12}
    rows, data = [], {"n": counts}
    for c, (name, end) in enumerate(ends.items()):
        if quick and c == 0:
            continue
        errors = particle_errors(
            counts.tolist(),
            _start(),
            MeanFieldParams(_BETA),
            t1=end,
            key=jax.random.fold_in(jax.random.key(seed), c),
            draws=draws,
            distance="wasserstein",
        )
        data[f"W_1, {name}"] = distances = np.asarray(errors)
        # A slope for every draw: their spread is the error of the mean.
        slopes = np.polyfit(np.log(counts), np.log(distances), 1)[0]
        error = stats.sem(slopes)
        low, high = stats.t.interval(0.95, draws - 1, slopes.mean(), error)
        slack = 0.05 if quick else 0.02
        claim = f"W_1 to the density, {name}: slope over n"
        rows.append(within(f"{claim}, lower end of 95 %", low, -1.0, -0.5 + slack))
        rows.append(within(f"{claim}, upper end of 95 %", high, -0.5 - slack, 0.0))
        rows.append(
            below(
                f"{claim}, width of the interval", high - low, 0.15 if quick else 0.05
            )
        )
        axes.loglog(counts, distances, ".", color=PALETTE[c], alpha=0.25, markersize=3)
        mean = distances.mean(axis=1)
        label = f"{name}: slope {slopes.mean():.3f}"
        axes.loglog(counts, mean, "o", color=PALETTE[c], markersize=4, label=label)
        axes.loglog(counts, mean[0] * (counts / counts[0]) ** -0.5, color=PALETTE[c])
    return rows, data
