"""Phase diagrams: when two tokens have met, by inverse temperature and dimension."""

import jax
import numpy as np

from ...fields import self_attention
from ...theory import equiangular_time, phase_curve
from .._base import RED, new_figure
from .._report import Progress, Report, Row, below, quiet
from ._measures import CLOSE
from ._shares import draw_share, half_times, share_along, uniform_starts


_N = 32
_TIMES = (2.5, 5.0, 10.0, 15.0, 20.0, 30.0)
# Dimension, beta: the probability at each of the times.
_TABLE = {
    2: {
        0.1: (0.025, 0.153, 0.934, 0.999, 1, 1),
        1.0: (0.028, 0.139, 0.838, 0.970, 0.991, 1),
        2.0: (0.036, 0.207, 0.600, 0.687, 0.747, 0.836),
        4.0: (0.048, 0.238, 0.450, 0.486, 0.505, 0.527),
        6.0: (0.055, 0.230, 0.372, 0.396, 0.409, 0.427),
        9.0: (0.060, 0.209, 0.307, 0.325, 0.335, 0.348),
    },
    8: {
        1.0: (0, 0.117, 1, 1, 1, 1),
        2.0: (0, 0.060, 0.998, 1, 1, 1),
        4.0: (0, 0.035, 0.605, 0.730, 0.785, 0.843),
        6.0: (0, 0.030, 0.270, 0.362, 0.410, 0.466),
        9.0: (0, 0.017, 0.090, 0.137, 0.166, 0.202),
    },
    32: {
        1.0: (0, 0.061, 1, 1, 1, 1),
        4.0: (0, 0, 0.998, 1, 1, 1),
        6.0: (0, 0, 0.076, 0.571, 0.773, 0.883),
        9.0: (0, 0, 0.001, 0.005, 0.012, 0.039),
    },
    128: {
        1.0: (0, 0.004, 1, 1, 1, 1),
        4.0: (0, 0, 1, 1, 1, 1),
        6.0: (0, 0, 0, 0.734, 1, 1),
        9.0: (0, 0, 0, 0, 0, 0),
    },
    512: {},
    1024: {},
}


def phase_diagrams(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Figure 3: the share of pairs that have met tends to the curve of orthogonal ones.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: fewer draws and panels.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the probabilities against a table, and a panel for each
    dimension.

    Source: arXiv 2312.10794, section 6.2 and equation (6.12).
    """
    draws, drawn = (24, 4) if quick else (512, 32)
    betas = np.linspace(0.1, 9.0, 6 if quick else 30)
    ts = np.linspace(0.0, 30.0, 61)
    dimensions = (2, 128) if quick else tuple(_TABLE)
    figure = new_figure(9.6, 5.2 if len(dimensions) > 2 else 3.2)
    columns = min(3, len(dimensions))
    panels = figure.subplots(len(dimensions) // columns, columns, sharex=True)
    rows: list[Row] = []
    data = {"t": ts, "beta": betas, "t of the table": np.array(_TIMES)}
    for k, (d, axes) in enumerate(zip(dimensions, panels.flat, strict=True)):
        table = np.repeat(list(_TABLE[d]), draws)
        every = np.concatenate([np.repeat(betas, drawn), table])
        key = jax.random.fold_in(jax.random.key(seed), d)
        x0 = uniform_starts(key, _N, d, every.size)
        shares = share_along(self_attention, x0, every, ts)
        split = betas.size * drawn
        share = shares[:split].reshape(betas.size, drawn, ts.size).mean(axis=1)
        tables = shares[split:].reshape(-1, draws, ts.size)
        for (beta, expected), found in zip(_TABLE[d].items(), tables, strict=True):
            found = _at_times(found, ts)
            rows.append(_table_row(d, beta, expected, found, quick))
            data[f"table, d = {d}, beta = {beta:g}"] = found.mean(axis=0)
        data[f"share, d = {d}"] = share
        _panel(axes, ts, betas, share, d)
        progress((k + 1) / (len(dimensions) + 1))
    panels.flat[0].legend(fontsize=7, loc="upper right")
    mesh = panels.flat[0].collections[0]
    figure.colorbar(mesh, ax=panels, label="share of pairs above 0.999")
    for axes in np.atleast_2d(panels)[-1]:
        axes.set_xlabel("time t")
    for axes in np.atleast_2d(panels)[:, 0]:
        axes.set_ylabel("inverse temperature β")
    if not quick:
        high = betas < 6.4
        crossing = half_times(ts, data["share, d = 1024"][high])
        curve = [float(equiangular_time(CLOSE, _N, b)) for b in betas[high]]
        error = np.abs(crossing / curve - 1).max()
        claim = "d = 1024: time of share 1/2 from the curve, relative, at most"
        rows.append(below(claim, error, 0.05))
    note = (
        "All pairs are counted: each has the law of the pair (1, 2), with less noise. "
        "Float32, tolerance 1e-5; d above 32 is run in the span of the tokens."
    )
    return Report(rows, figure, data, note)


def _at_times(found, ts) -> np.ndarray:
    """A row for each draw, a column for each time of the table."""
    return found[:, np.searchsorted(ts, _TIMES)]


def _table_row(d, beta, expected, found, quick) -> Row:
    """The greatest distance from the table over its six times."""
    error = np.abs(found.mean(axis=0) - expected).max()
    # Few draws: four standard errors more.
    wider = 4 * found.std(axis=0).max() / np.sqrt(len(found)) if quick else 0.0
    claim = f"d = {d}, beta = {beta:g}: share of pairs from the table, at most"
    return below(claim, error, 0.05 + wider)


def _panel(axes, ts, betas, share, d):
    draw_share(axes, ts, betas, share)
    late = np.linspace(5.2, 30.0, 120)
    curve = np.asarray(phase_curve(late, _N, 1 - CLOSE))
    axes.plot(late, curve, color=RED, linewidth=1.8, label="Γ, d → ∞")
    axes.set(title=f"d = {d}", ylim=(betas[0], betas[-1]))
