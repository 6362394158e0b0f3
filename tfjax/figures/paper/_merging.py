"""Clusters merge one after another, the nearest pair first."""

from typing import NamedTuple

import jax
import numpy as np

from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve_ensemble
from .._base import (
    BLUE,
    GREY,
    RED,
    cluster_colours,
    labels_along,
    log_time,
    new_figure,
    style,
)
from .._report import Progress, Report, above, quiet, reported, within


_N, _BETA, _CLOSE = 8, 16.0, 0.99


def sequential_merging(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """At large beta the pair of clusters that is nearest merges next.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: 64 draws in place of 256.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the share of merges that join the nearest pair, beside that
    of random pairs.

    Source: arXiv 2509.25040 (sequential merging; there in the limit beta ~ n).
    """
    draws = 64 if quick else 256
    ts = np.concatenate([[0.0], np.geomspace(0.05, 2000.0, 500)])
    x0 = Sphere(3).random(jax.random.key(seed), (draws, _N))
    sol = solve_ensemble(
        self_attention,
        x0,
        AttentionParams(beta=_BETA),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(3),
        rtol=1e-5,
        atol=1e-7,
        max_steps=20_000,
        throw=True,
    )
    xs = np.asarray(sol.ys)
    progress(0.6)
    labels = labels_along(xs.reshape(-1, _N, 3), _CLOSE).reshape(draws, -1, _N)
    found = [_merges(ts, x, names) for x, names in zip(xs, labels, strict=True)]
    progress(0.9)
    nearest = np.array([np.mean([m.nearest for m in f]) for f in found if f])
    chance = np.array([np.mean([m.chance for m in f]) for f in found if f])
    gain = nearest - chance
    margin = 1.96 / np.sqrt(len(gain))
    spread = margin * nearest.std(ddof=1)
    late = [m for f in found for m in f if m.time > 10]
    rows = [
        within(
            "merges, all draws", sum(map(len, found)), float(draws), float(draws * _N)
        ),
        reported(
            "share of merges that join the nearest pair", nearest.mean(), "near 1"
        ),
        reported("share for random pairs", chance.mean(), "1 / number of pairs"),
        reported(
            f"the same of the {len(late)} merges after t = 10",
            np.mean([m.nearest for m in late]),
            f"above {np.mean([m.chance for m in late]):.2f}, chance",
        ),
        above("nearest: lower end of 95 %", nearest.mean() - spread, chance.mean()),
        above(
            "above random: lower end of 95 %",
            gain.mean() - margin * gain.std(ddof=1),
            0.0,
        ),
    ]
    figure = new_figure(9.0, 3.4)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    _draw(left, ts, xs[0], labels[0])
    counts = np.array([[len(set(row)) for row in names] for names in labels])
    right.plot(ts[1:], counts.mean(axis=0)[1:], color=BLUE)
    log_time(right, ts)
    right.set(ylabel="mean number of clusters")
    title = (
        f"{draws} draws; nearest pair {nearest.mean():.2f}, chance {chance.mean():.2f}"
    )
    right.set_title(title, fontsize=9)
    data = {"t": ts, "share nearest": nearest, "share by chance": chance}
    return Report(rows, figure, data | {"number of clusters": counts})


class _Merge(NamedTuple):
    """A merge of two clusters: when, was it the nearest pair, and by what chance."""

    time: float
    nearest: bool
    chance: float


def _merges(ts: np.ndarray, xs: np.ndarray, labels: np.ndarray) -> list[_Merge]:
    """The merges of a run; the nearest pair is that just after the merge before."""
    merges = []
    last = 0
    for k in range(1, len(xs)):
        if np.array_equal(labels[k], labels[last]):
            continue
        # Clusters by their first token: they are points compared with the gaps.
        names = np.unique(labels[last])
        gone = np.setdiff1d(names, labels[k])
        if len(names) > 2 and len(gone) == 1:
            products = xs[last][names] @ xs[last][names].T
            np.fill_diagonal(products, -1.0)
            i, j = np.unravel_index(products.argmax(), products.shape)
            pair = sorted([int(gone[0]), int(labels[k][gone[0]])])
            hit = sorted([int(names[i]), int(names[j])]) == pair
            chance = 2 / (len(names) * (len(names) - 1))
            merges.append(_Merge(float(ts[k]), hit, chance))
        last = k
    return merges


def _draw(axes, ts, xs, labels) -> None:
    """Inner products with the token that all will have joined."""
    pairs = np.einsum("tid,tjd->tij", xs, xs)
    i, j = np.triu_indices(_N, 1)
    middle = labels[np.searchsorted(ts, 20.0)]
    colours = cluster_colours(middle)
    for a, b in zip(i, j, strict=True):
        colour = colours[a] if middle[a] == middle[b] else GREY
        axes.plot(ts[1:], pairs[1:, a, b], color=colour, linewidth=0.9)
    axes.axhline(_CLOSE, color=RED, linewidth=0.6, linestyle=":")
    log_time(axes, ts)
    axes.set(ylabel="inner products of pairs")
    axes.set_title(
        f"{_N} tokens, β = {_BETA:g}; coloured: one cluster at t = 20", fontsize=9
    )
