"""Without LayerNorm tokens run away; in a frame that grows along they have limits."""

import jax
import numpy as np
import scipy.linalg
from scipy.spatial import ConvexHull

from ...fields import AttentionParams, euclidean_attention, rescaled_attention
from ...integrate import solve
from .._base import BLUE, GREY, RED, new_figure, style
from .._report import Progress, Report, Row, below, quiet, within


_VALUES = {
    "V = I": None,
    "V = diag(1, -0.5)": np.diag([1.0, -0.5]),
    "V = diag(1, 0.3)": np.diag([1.0, 0.3]),
}


def rescaled_limits(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Rescaled tokens end on the boundary of a polygon, or on a few lines.

    **Arguments:**

    - `seed`: of the starts of twenty tokens in the plane.
    - `quick`: two starts in place of six.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the identity of the frame, and the limits of table 1.

    Source: arXiv 2312.10794, section 9.2 and table 1; arXiv 2305.05465.
    """
    starts = 2 if quick else 6
    keys = jax.random.split(jax.random.key(seed), starts)
    cases = len(_VALUES) + 1
    figure = new_figure(10.0, 3.6)
    panels = figure.subplots(1, 3)
    rows = [below("z = exp(-tV) x: relative error at t = 2", _frame_error(seed), 1e-8)]
    data = {}
    for k, (name, value) in enumerate(_VALUES.items()):
        ends = []
        for key in keys:
            x0 = jax.random.normal(key, (20, 2))
            ends.append(_end(rescaled_attention, x0, value, 16.0, 1e-7))
        data[f"limits, {name}"] = ends = np.stack(ends)
        rows += _limit_rows(name, ends)
        _draw(style(panels[k]), name, x0, ends[-1])
        progress((k + 1) / cases)
    x0 = jax.random.normal(keys[0], (20, 2))
    end = _end(euclidean_attention, x0, -np.eye(2), 200.0, 1e-8)
    data["tokens, V = -I"] = end
    rows.append(
        below("V = -I: |mean token| at t = 200", np.abs(end.mean(0)).max(), 1e-6)
    )
    rows.append(below("V = -I: largest coordinate at t = 200", np.abs(end).max(), 0.15))
    return Report(rows, figure, data)


def _end(field, x0, value, t1, tolerance) -> np.ndarray:
    sol = solve(
        field,
        x0,
        AttentionParams(beta=1.0, value=value),
        t1=t1,
        rtol=tolerance,
        atol=1e-2 * tolerance,
        max_steps=100_000,
    )
    return np.asarray(sol.ys[-1])  # type: ignore[index]


def _frame_error(seed: int) -> float:
    """How well the frame of V turns one equation into the other (A20)."""
    random = np.random.default_rng(seed)
    value, x0 = 0.5 * random.standard_normal((2, 2)), random.standard_normal((10, 2))
    x, z = (
        _end(field, x0, value, 2.0, 1e-11)
        for field in (euclidean_attention, rescaled_attention)
    )
    expected = x @ scipy.linalg.expm(-2.0 * value).T
    return float(np.abs(z - expected).max() / np.abs(expected).max())


def _limit_rows(name: str, ends: np.ndarray) -> list[Row]:
    if name == "V = I":
        inside = [_inside(z) for z in ends]
        claim = "V = I: limits are this far inside their convex hull, at most"
        counts = [len(_distinct(z, 1e-3)) for z in ends]
        return [
            below(claim, max(inside), 1e-6),
            within("V = I: most limit points of twenty tokens", max(counts), 2, 6),
        ]
    lines = max(len(_distinct(z[:, :1], 1e-3)) for z in ends)
    return [within(f"{name}: most lines that hold the limits", lines, 1, 3)]


def _inside(z: np.ndarray) -> float:
    """How far the innermost point is from the boundary of the hull."""
    hull = ConvexHull(z)
    sides = hull.equations[:, :2] @ z.T + hull.equations[:, 2:]
    return float(np.abs(sides.max(axis=0)).max())


def _distinct(points: np.ndarray, gap: float) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for p in points:
        if all(np.linalg.norm(p - q) > gap for q in found):
            found.append(p)
    return found


def _draw(axes, name, x0, end) -> None:
    for start, stop in zip(np.asarray(x0), end, strict=True):
        axes.plot(*zip(start, stop, strict=True), color=GREY, linewidth=0.5)
    axes.plot(*np.asarray(x0).T, ".", color=BLUE, markersize=4, label="t = 0")
    axes.plot(*end.T, "o", color=RED, markersize=6, label="t = 16")
    axes.set(xlabel="first coordinate of z", ylabel="second coordinate")
    axes.set_title(name, fontsize=9)
    axes.legend(frameon=False, fontsize=8)
