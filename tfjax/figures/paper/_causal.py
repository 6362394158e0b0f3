"""Causal attention: all follow the first token, and leaders hold clusters meanwhile."""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import cluster_labels
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve, solve_ensemble
from .._base import BLUE, GREY, INK, PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, quiet, reported


# Leaders: the width delta in units of beta^(-1/2); clusters: when, and how close.
_BETA, _WIDTH, _END, _CLOSE = 16.0, 3.0, 50.0, 0.995


def causal(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Tokens that see only earlier ones end at the first, which never moves.

    **Arguments:**

    - `seed`: of the starts and the random matrices.
    - `quick`: 64 draws in place of 256 for the leaders.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the distance from the first token, and how often clusters on
    the circle hold a leader (Rényi centre), beside equally many random tokens.

    Source: arXiv 2411.04990, theorem 4.1 and section 5.
    """
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows, data = _first_token(seed, left)
    progress(0.4)
    more, shares = _leaders(seed, 64 if quick else 256, right)
    note = (
        f"Leaders: tokens further than {_WIDTH:g} beta^(-1/2) in angle from all "
        "earlier tokens (strong) or leaders (weak)."
    )
    return Report(rows + more, figure, data | shares, note)


def _first_token(seed, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    start, first, second = jax.random.split(jax.random.key(seed), 3)
    x0 = Sphere(3).random(start, (16,))
    query = jax.random.normal(first, (3, 3)) / np.sqrt(3.0)
    key = jax.random.normal(second, (3, 3)) / np.sqrt(3.0)
    cases = {
        "causal, Q = K = I": AttentionParams(beta=1.0, mask="causal"),
        "causal, random Q, K": AttentionParams(
            beta=1.0, query=query, key=key, mask="causal"
        ),
        "all see all": AttentionParams(beta=1.0),
    }
    ts = np.linspace(0.0, 100.0, 201)
    rows: list[Row] = []
    data = {"t": ts}
    for k, (name, args) in enumerate(cases.items()):
        sol = solve(
            self_attention,
            x0,
            args,
            t1=ts[-1],
            ts=ts,
            manifold=Sphere(3),
            rtol=1e-9,
            atol=1e-12,
            max_steps=20_000,
        )
        gap = np.linalg.norm(np.asarray(sol.ys) - np.asarray(x0[0]), axis=2).max(axis=1)
        data[f"distance, {name}"] = gap
        at = float(np.interp(60.0, ts, gap))
        claim = f"{name}: distance from the first start at t = 60"
        if name == "all see all":
            rows.append(above(claim, at, 1e-2))  # not so without the mask
        else:
            rows.append(below(claim, at, 1e-6))
            drift = np.abs(np.asarray(sol.ys)[:, 0] - np.asarray(x0[0])).max()
            rows.append(below(f"{name}: the first token moves, at most", drift, 1e-12))
        axes.semilogy(ts, np.maximum(gap, 1e-16), color=PALETTE[k], label=name)
    axes.set(xlabel="time t", ylabel="largest distance from x₁(0)")
    axes.set_title("16 tokens, d = 3, β = 1", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return rows, data


def _leaders(seed, draws, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    key = jax.random.fold_in(jax.random.key(seed), 29)
    x0 = Sphere(2).random(key, (draws, 64))
    sol = solve_ensemble(
        self_attention,
        x0,
        AttentionParams(beta=_BETA, mask="causal"),
        t1=_END,
        manifold=Sphere(2),
        rtol=1e-6,
        atol=1e-8,
        throw=True,
    )
    ends = jnp.asarray(sol.ys)[:, 0]
    labels = np.asarray(jax.vmap(lambda x: cluster_labels(x, _CLOSE))(ends))
    starts = np.asarray(x0)
    rng = np.random.default_rng(seed)
    shares: dict[str, list[float]] = {"strong": [], "weak": [], "strong, random": []}
    shares["weak, random"] = []
    for x, found in zip(starts, labels, strict=True):
        for name in ("strong", "weak"):
            chosen = _centres(x, name)
            shares[name].append(_held(found, chosen))
            # The mean over random leaders; the first token is always one of them.
            others = [1 + rng.permutation(63)[: len(chosen) - 1] for _ in range(20)]
            hits = [_held(found, [0, *other]) for other in others]
            shares[f"{name}, random"].append(float(np.mean(hits)))
    rows: list[Row] = []
    data = {f"share, {name}": np.array(values) for name, values in shares.items()}
    for k, name in enumerate(("strong", "weak")):
        value, chance = data[f"share, {name}"], data[f"share, {name}, random"]
        gain = value - chance
        margin = 1.96 * gain.std(ddof=1) / np.sqrt(draws)
        claim = f"{name} leaders: share of clusters with one"
        rows.append(reported(claim, value.mean(), f"above {chance.mean():.2f}, random"))
        claim = f"{name}: share above random leaders', lower end of 95 %"
        rows.append(above(claim, gain.mean() - margin, 0.0))
        for j, (values, colour) in enumerate(((value, BLUE), (chance, GREY))):
            error = 1.96 * values.std(ddof=1) / np.sqrt(draws)
            place = [k + 0.3 * j]
            label = ("leaders", "random tokens")[j] if k == 0 else None
            axes.bar(place, [values.mean()], 0.28, color=colour, label=label)
            axes.errorbar(place, [values.mean()], [error], color=INK, capsize=3)
    axes.set_xticks([0.15, 1.15], ["strong", "weak"])
    axes.set(xlabel="kind of leader", ylabel="share of clusters that hold one")
    title = f"64 tokens on the circle, β = {_BETA:g}, {draws} draws; 95 %"
    axes.set_title(title, fontsize=9)
    axes.set_ylim(0, 1.2)
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    return rows, data


def _centres(x: np.ndarray, kind: str) -> list[int]:
    """Tokens that start far from all earlier tokens, or from all earlier centres."""
    least = np.cos(_WIDTH / np.sqrt(_BETA))
    products = x @ x.T
    chosen: list[int] = []
    for i in range(len(x)):
        earlier = list(range(i)) if kind == "strong" else chosen
        if not earlier or products[i, earlier].max() < least:
            chosen.append(i)
    return chosen


def _held(labels: np.ndarray, chosen) -> float:
    """The share of clusters that hold one of the chosen tokens."""
    return len(set(labels[list(chosen)])) / len(set(labels))
