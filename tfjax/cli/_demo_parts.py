"""The four examples of the demo: what each computes, expects and draws."""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..diagnostics import energy_along, label_merges, order_parameter
from ..fields import AttentionParams, self_attention
from ..figures import Plot, plot_merges, plot_metastable, plot_time_scales
from ..figures.paper._texts import WORD_COUNTS, WORD_TIMES
from ..geometry import Sphere
from ..integrate import solve, solve_ensemble
from ._inputs import Text
from ._measure import measure
from ._words import clusters_of, group


class Row(NamedTuple):
    """A line of the closing table."""

    name: str
    expected: float
    tolerance: float
    found: float

    @property
    def passed(self) -> bool:
        """Whether `found` is near enough; NaN is not."""
        return abs(self.found - self.expected) <= self.tolerance

    def as_json(self) -> dict[str, Any]:
        """For `summary.json`, which knows no NaN."""
        found = self.found if math.isfinite(self.found) else None
        return self._asdict() | {"found": found, "passed": self.passed}


class Part(NamedTuple):
    """What one example hands back."""

    rows: list[Row]
    picture: tuple[str, str, Plot] | None = None  # file, caption, figure
    text: str = ""
    dpi: int = 160


def _grid(first: float, last: float, count: int, extra: Sequence[float]) -> np.ndarray:
    """0, log-spaced times and some more, in order."""
    spaced = np.geomspace(first, last, count)
    return np.unique(np.concatenate([[0.0], spaced[:-1], [last], extra]))


# --- 1. Two time scales ---------------------------------------------------------------

_MEANS = {2.0: 17.4, 5.0: 6.7, 20.0: 4.2, 200.0: 3.1}


def two_time_scales(members: int, arguments: argparse.Namespace) -> Part:
    """Random starts on the sphere: clusters form soon and merge late."""
    ts = _grid(0.1, 200.0, 60, list(_MEANS))
    start = Sphere(3).random(jax.random.key(arguments.seed), (members, 32))
    args = AttentionParams(beta=9.0)
    solution = solve_ensemble(
        self_attention,
        start,
        args,
        t1=200.0,
        ts=ts,
        manifold=Sphere(3),
        progress=True,
        throw=True,
    )
    assert solution.ys is not None
    counts = measure(solution.ys, args, 0.99).clusters
    mean = dict(zip(ts.tolist(), counts.mean(axis=0).tolist(), strict=True))
    # Wider for fewer members: the tolerance is some standard errors of the mean.
    wide = (256 / members) ** 0.5
    rows = [
        Row(
            f"clusters at t = {t:g}, mean of {members} starts",
            expected,
            wide * (0.6 if t == 2 else 0.3),
            mean[t],
        )
        for t, expected in _MEANS.items()
    ]
    # For the picture, a start that ends like most.
    typical = int(np.argmin(np.abs(counts - counts.mean(axis=0)).sum(axis=1)))
    plot = plot_time_scales(ts, solution.ys[typical], counts)
    caption = "tokens on the sphere, and the mean number of clusters"
    return Part(rows, ("clusters.png", caption, plot))


# --- 2. Five tokens -------------------------------------------------------------------

# The start of the authors of arXiv 2312.10794, as angles in radians.
FIVE_ANGLES = (
    0.06219714376377746,
    0.21432297342328172,
    1.8191226208037032,
    2.9110710094545666,
    -3.095248345472995,
)
_EXIT, _LATE = 328.364, 1000.0


def metastable() -> Part:
    """Five tokens on the circle rest in two clusters until these meet."""
    angles = jnp.asarray(FIVE_ANGLES)
    start = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    beta = 4.0
    path = solve(
        self_attention,
        start,
        AttentionParams(beta=beta),
        t1=_LATE,
        saveat=dfx.SaveAt(dense=True),
        manifold=Sphere(2),
        rtol=1e-10,
        atol=1e-10,
    )
    state = jax.jit(jax.vmap(path.evaluate))
    found = _first_time(lambda ts: _cosine(state(ts), 0, 3) >= 0.999)
    near = np.linspace(0.98 * found, 1.02 * found, 60)
    ts = _grid(0.05, _LATE, 120, near.tolist())
    xs = state(jnp.asarray(ts))
    scale = 2 * beta * np.exp(-beta)
    energies = scale * np.asarray(energy_along(xs, beta))
    plateau = float(np.interp(20.0, ts, energies))
    rows = [
        Row("exit time of five tokens, beta = 4", _EXIT, 0.01, found),
        Row("their scaled energy at rest, t = 20", 0.52033, 5e-5, plateau),
    ]
    # At rest a cluster of m of the n tokens holds the share (m/n)^2 of the energy.
    plot = plot_metastable(ts, xs, energies, exit_time=found, plateaus=(13 / 25, 1.0))
    caption = "five tokens on the circle, and their energy"
    return Part(rows, ("metastable.png", caption, plot))


def _cosine(xs: Array, i: int, j: int) -> Array:
    return jnp.sum(xs[:, i] * xs[:, j], axis=-1)


def _first_time(holds: Callable[[Array], Array]) -> float:
    """When a condition first holds: the bracket is cut into 1000 parts four times."""
    low, high = 0.0, _LATE
    for _ in range(4):
        ts = np.linspace(low, high, 1001)
        late = int(np.argmax(np.asarray(holds(jnp.asarray(ts)))))
        low, high = ts[max(late - 1, 0)], ts[late]
    return float(high)


# --- 3. A gradient --------------------------------------------------------------------


def gradient() -> Part:
    """How the order parameter at t = 2 changes with beta: two ways."""
    start = Sphere(3).random(jax.random.key(1), (16,))

    def order(beta: Array) -> Array:
        solution = solve(
            self_attention,
            start,
            AttentionParams(beta=beta),
            t1=2.0,
            manifold=Sphere(3),
            rtol=1e-11,
            atol=1e-11,
            max_steps=256,
        )
        assert solution.ys is not None
        return order_parameter(solution.ys[-1])

    # The value comes along with the gradient, so that one compilation is enough.
    both = jax.jit(jax.value_and_grad(order))
    beta, step = jnp.asarray(3.0), 1e-4
    found = float(both(beta)[1])
    ahead, behind = (float(both(beta + shift)[0]) for shift in (step, -step))
    expected = (ahead - behind) / (2 * step)
    name = "d order / d beta: difference quotient, autodiff"
    return Part([Row(name, expected, 1e-6 * abs(expected), found)])


# --- 4. Real words --------------------------------------------------------------------


def words(text: Text) -> Part:
    """The tokens of a paragraph in the last layer of MiniLM gather by topic."""
    d, beta = text.vectors.shape[1], 13.0
    counts = dict(zip(WORD_TIMES, WORD_COUNTS[beta], strict=True))
    ts = _grid(0.2, 200.0, 100, WORD_TIMES)
    args = AttentionParams(beta=beta)
    solution = solve(
        self_attention,
        jnp.asarray(text.vectors),
        args,
        t1=200.0,
        ts=ts,
        manifold=Sphere(d),
        progress=True,
    )
    assert solution.ys is not None
    found = measure(solution.ys, args, 0.99)
    at = {t: int(np.argmin(np.abs(ts - t))) for t in WORD_TIMES}
    rows = [
        Row(f"clusters of words at t = {t:g}", count, 1, int(found.clusters[at[t]]))
        for t, count in counts.items()
    ]
    xs = np.asarray(solution.ys)
    table = _merge_table(ts, found.labels, label_merges(ts, found.labels), text)
    groups = clusters_of(found.labels[at[50.0]])
    lines = [f"     Clusters of the paragraph at t = 50 (beta = {beta:g}):"]
    lines += [f"       {group(members, text.words, 12)}" for members in groups]
    plot = plot_merges(ts, xs, text.words, at=50.0)
    caption = "when the words of the paragraph join one cluster"
    text_out = "\n".join([table, *lines])
    return Part(rows, ("words.png", caption, plot), text_out, dpi=100)


def _merge_table(ts, labels, events, text) -> str:
    """A line for each merge of at least three tokens in all, with the clusters left."""
    lines = [f"     {'t':>7}  {'clusters':>8}  words that join"]
    for event in events:
        if sum(map(len, event.parts)) < 3:
            continue
        k = int(np.argmin(np.abs(ts - event.time)))
        count = len(clusters_of(labels[k]))
        parts = [group(part, text.words, 3) for part in event.parts]
        lines.append(f"     {event.time:>7.3g}  {count:>8}  {' + '.join(parts)}")
    lines.append("     (merges of two single words are left out)")
    return "\n".join(lines)
