"""Tokens in a hemisphere gather exponentially fast; how often they are in one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from ...fields import AttentionParams, self_attention, unnormalized_self_attention
from ...geometry import Sphere
from ...integrate import solve, solve_ensemble
from ...theory import wendel
from .._base import GREY, PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet
from ._measures import decay_rate


_PRECISE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
_POLE = np.array([0.0, 0.0, 1.0])


def hemisphere(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Lemma 6.4 and theorems 6.3 and 6.7: cones collapse at rate 1, and are common.

    **Arguments:**

    - `seed`: of the starts.
    - `quick`: fewer draws.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the lowest token of a cone along time, the rates at which
    tokens gather, and how often random tokens have a common hemisphere.

    Source: arXiv 2312.10794, lemma 6.4, theorems 6.3 and 6.7; J. G. Wendel (1962).
    """
    key = jax.random.key(seed)
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows, data = _cones(key, 4 if quick else 20, left)
    progress(0.4)
    more, gaps = _rates(key, right, quick)
    rows, data = rows + more, data | gaps
    progress(0.8)
    rows += _wendel(seed, 200 if quick else 4000)
    return Report(rows, figure, data)


def _starts(key, draws):
    """Ten uniform tokens of the upper half of the sphere."""
    x = Sphere(3).random(key, (draws, 10))
    return x * jnp.sign(x[..., 2:])


def _cones(key, draws, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    ts = np.linspace(0.0, 30.0, 301)
    start, matrix = jax.random.split(jax.random.fold_in(key, 8))
    x0 = _starts(start, draws)
    query, value = jax.random.normal(matrix, (2, draws, 3, 3))
    cases = {
        "V = I, Q = I": (AttentionParams(beta=1.0), {}),
        "V = I, random Q": (AttentionParams(beta=1.0, query=query), {"query": 0}),
        "random V": (AttentionParams(beta=1.0, value=value), {"value": 0}),
    }
    rows: list[Row] = []
    data = {"t": ts}
    for k, (name, (args, batched)) in enumerate(cases.items()):
        sol = solve_ensemble(
            self_attention,
            x0,
            args,
            in_axes=(0, batched),
            t1=ts[-1],
            ts=ts,
            manifold=Sphere(3),
            max_steps=20_000,
            throw=True,
            **_PRECISE,
        )
        xs = np.asarray(sol.ys)
        lowest = (xs @ _POLE).min(axis=2)
        fall, claim = (
            np.diff(lowest, axis=1).min(),
            f"{name}: steepest step of the lowest",
        )
        if name == "random V":
            # Without V = I the conclusion fails.
            rows.append(below(claim, fall, -1e-3))
        else:
            rows.append(above(claim, fall, -1e-9))
            rates = [decay_rate(ts, _diameter(x)) for x in xs]
            rows += _rate_rows(f"{name}: rate of the diameter", rates, 1.0, 1e-3)
        data[f"lowest, {name}"] = lowest
        axes.plot(ts, lowest[0], color=PALETTE[k], label=name)
        axes.plot(ts, lowest[1:4].T, color=PALETTE[k], alpha=0.4, linewidth=0.8)
    axes.set(xlabel="time t", ylabel="lowest <x, pole>", xlim=(0, 15))
    axes.set_title("10 tokens of a half sphere, d = 3, β = 1", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows, data


def _diameter(xs) -> np.ndarray:
    """The greatest distance of two tokens, by differences that keep their digits."""
    gaps = xs[:, :, None] - xs[:, None, :]
    return np.sqrt(np.sum(gaps**2, axis=-1).max(axis=(1, 2)))


def _rate_rows(claim, rates, expected, tolerance) -> list[Row]:
    if len(rates) == 1:
        return [near(claim, rates[0], expected, tolerance)]
    return [
        near(f"{claim}, least", min(rates), expected, tolerance),
        near(f"{claim}, greatest", max(rates), expected, tolerance),
    ]


def _rates(key, axes, quick) -> tuple[list[Row], dict[str, np.ndarray]]:
    """Tokens in as many dimensions, from uniform starts: rate 1, or e^beta for USA."""
    cases = {
        "SA, n = 8, d = 16, beta = 1": (self_attention, 8, 16, 1.0),
        "SA, n = 8, d = 8, beta = 4": (self_attention, 8, 8, 4.0),
        "SA, n = 32, d = 64, beta = 1": (self_attention, 32, 64, 1.0),
        "USA, n = 8, d = 16, beta = 0.5": (unnormalized_self_attention, 8, 16, 0.5),
        "USA, n = 8, d = 16, beta = 1": (unnormalized_self_attention, 8, 16, 1.0),
        "USA, n = 8, d = 16, beta = 2": (unnormalized_self_attention, 8, 16, 2.0),
    }
    rows, data = [], {}
    for k, (name, (field, n, d, beta)) in enumerate(cases.items()):
        if quick and (n, d) != (8, 16):
            continue
        expected = 1.0 if field is self_attention else float(np.exp(beta))
        # A start may rest in clusters for long before they gather.
        ts = np.linspace(0.0, 400.0 / expected, 2001)
        sol = solve(
            field,
            Sphere(d).random(jax.random.fold_in(key, 90 + k), (n,)),
            AttentionParams(beta=beta),
            t1=ts[-1],
            ts=ts,
            manifold=Sphere(d),
            **_PRECISE,
        )
        diameter = _diameter(np.asarray(sol.ys))
        claim = f"{name}: rate of the diameter"
        rows += _rate_rows(claim, [decay_rate(ts, diameter)], expected, 1e-3 * expected)
        data[f"diameter, {name}"] = diameter
        axes.semilogy(ts * expected, diameter, color=PALETTE[k], label=name)
    axes.set(
        xlabel="time t (USA: times exp β)", ylabel="greatest distance of two tokens"
    )
    axes.set(xlim=(0, 30), ylim=(1e-8, 3))
    axes.plot([12, 24], [3e-2, 3e-2 * np.exp(-12)], ":", color=GREY, label="exp(-t)")
    axes.set_title("uniform starts in d ≥ n", fontsize=9)
    axes.legend(frameon=False, fontsize=6.5, loc="lower left")
    return rows, data


def _wendel(seed, draws) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for n, d in ((8, 3), (10, 4), (6, 2), (4, 4)):
        exact = wendel(n, d)
        hits = [_in_hemisphere(rng.standard_normal((n, d))) for _ in range(draws)]
        spread = 4 * np.sqrt(exact * (1 - exact) / draws)
        claim = f"{n} points in d = {d}: share in a common hemisphere"
        rows.append(near(claim, np.mean(hits), exact, spread))
    return rows


def _in_hemisphere(x: np.ndarray) -> bool:
    """Whether some w has <x_i, w> >= 1 for all i: a linear programme."""
    n, d = x.shape
    found = linprog(np.zeros(d), A_ub=-x, b_ub=-np.ones(n), bounds=[(None, None)] * d)
    return bool(found.success)
