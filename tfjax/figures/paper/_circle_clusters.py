"""Metastable clusters on the circle: how many there are, by inverse temperature."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import cluster_labels, count_clusters
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve, solve_ensemble
from .._base import INK, cluster_colours, new_figure, style
from .._report import Progress, Report, near, quiet, reported


# The mean number of clusters at t = 18, by beta.
_COUNTS = {4.0: 2.18, 9.0: 3.28, 16.0: 4.40, 25.0: 5.45}
_CLOSE = 0.995


def clusters_on_the_circle(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Figure 4: tokens on the circle rest in a few clusters, more where beta is large.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: 96 draws in place of 512.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the mean number of clusters, and a trajectory for each beta.

    Source: arXiv 2312.10794, figure 4.
    """
    draws, ts = 96 if quick else 512, np.linspace(0.0, 30.0, 301)
    x0 = Sphere(2).random(jax.random.key(seed), (draws, 32))
    figure = new_figure(9.6, 3.4)
    panels = figure.subplots(1, 5, width_ratios=(1, 1, 1, 1, 1.1))
    rows, data, means = [], {"t": ts}, []
    for k, (beta, expected) in enumerate(_COUNTS.items()):
        found = _counts(x0, beta)
        means.append(found.mean())
        data[f"counts, beta = {beta:g}"] = found
        claim = f"beta = {beta:g}: mean number of clusters at t = 18"
        rows.append(near(claim, found.mean(), expected, 0.25))
        theta = _draw(style(panels[k]), x0[0], beta, ts)
        data[f"angles, beta = {beta:g}"] = theta
        progress((k + 1) / len(_COUNTS))
    panels[0].set_ylabel("angle (radians)")
    betas = np.array(list(_COUNTS))
    slope = np.polyfit(np.log(betas), np.log(means), 1)[0]
    rows.append(reported("power of beta in the mean number", slope, "about 1/2"))
    axes = style(panels[-1])
    axes.plot(np.sqrt(betas), means, "o-", color=INK)
    axes.set(xlabel="√β", title="mean number at t = 18")
    axes.title.set_fontsize(9)
    note = f"A cluster is a component of the pairs with inner product above {_CLOSE}."
    return Report(rows, figure, data, note)


def _count(t, x, args):
    return count_clusters(x, _CLOSE).astype(x.dtype)  # diffrax pads with inf


def _counts(x0, beta) -> np.ndarray:
    sol = solve_ensemble(
        self_attention,
        x0,
        AttentionParams(beta=beta),
        t1=18.0,
        saveat=dfx.SaveAt(t1=True, fn=_count),
        manifold=Sphere(2),
        rtol=1e-6,
        atol=1e-8,
        throw=True,
    )
    return np.asarray(sol.ys)[:, 0]


def _draw(axes, x0, beta, ts) -> np.ndarray:
    sol = solve(
        self_attention,
        x0,
        AttentionParams(beta=beta),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(2),
        rtol=1e-6,
        atol=1e-8,
    )
    xs = jnp.asarray(sol.ys)
    theta = np.array(jnp.arctan2(xs[..., 1], xs[..., 0]))
    at = int(np.searchsorted(ts, 18.0))
    colours = cluster_colours(np.asarray(cluster_labels(xs[at], _CLOSE)))
    # A line across the cut of the angle would cross the whole panel.
    broken = theta.copy()
    broken[1:][np.abs(np.diff(theta, axis=0)) > np.pi] = np.nan
    for line, colour in zip(broken.T, colours, strict=True):
        axes.plot(ts, line, color=colour, linewidth=0.8)
    axes.axvline(18.0, color=INK, linewidth=0.6, linestyle=":")
    axes.set(xlabel="time t", ylim=(-np.pi, np.pi))
    axes.set_title(f"β = {beta:g}", fontsize=9)
    return theta
