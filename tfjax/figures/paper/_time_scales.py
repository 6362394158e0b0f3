"""Two time scales on the sphere: clusters form soon, and merge late."""

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import count_clusters
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve_ensemble
from .._panels import plot_time_scales
from .._report import Progress, Report, near, quiet, within


# The mean number of clusters of 32 tokens at beta = 9, and what is allowed beside it.
_MEANS = {
    2.0: (17.4, 0.6),
    5.0: (6.7, 0.3),
    10.0: (4.9, 0.3),
    20.0: (4.2, 0.3),
    50.0: (3.6, 0.3),
    100.0: (3.3, 0.3),
    200.0: (3.1, 0.3),
    400.0: (2.8, 0.3),
}


def time_scales(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Tokens on S^2 at beta = 9 rest in some four clusters; none is one by t = 400.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: 64 starts in place of 256, and twice the tolerance.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the mean number of clusters by time, and a typical run.

    Source: arXiv 2312.10794, section 6.3 (metastability). The expected means are those
    of other starts, integrated by scipy's DOP853.
    """
    draws = 64 if quick else 256
    ts = np.unique(np.concatenate([[0.0], np.geomspace(0.1, 400.0, 60), [*_MEANS]]))
    x0 = Sphere(3).random(jax.random.key(seed), (draws, 32))
    sol = solve_ensemble(
        self_attention,
        x0,
        AttentionParams(beta=9.0),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(3),
        throw=True,
    )
    progress(0.8)
    count = jax.jit(lambda xs: jax.lax.map(count_clusters, xs))
    counts = np.asarray(count(jnp.reshape(jnp.asarray(sol.ys), (-1, 32, 3)))).reshape(
        draws, -1
    )
    rows, wide = [], (256 / draws) ** 0.5
    for time, (mean, tolerance) in _MEANS.items():
        found = counts[:, np.searchsorted(ts, time)].mean()
        claim = f"mean number of clusters at t = {time:g}"
        rows.append(near(claim, found, mean, wide * tolerance))
    alone = int((counts[:, -1] == 1).sum())
    rows.append(within("starts that are one cluster by t = 400", alone, 0, 0))
    typical = int(np.argmin(np.abs(counts - counts.mean(axis=0)).sum(axis=1)))
    plot = plot_time_scales(ts, np.asarray(sol.ys)[typical], counts)
    note = f"n = 32, d = 3, beta = 9, {draws} starts; pairs above .99 are one cluster."
    return Report(rows, plot.figure, {"t": ts, "counts": counts}, note)
