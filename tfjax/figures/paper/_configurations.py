"""Repulsive attention finds the best configurations of points on the sphere."""

from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from ...diagnostics import inner_products
from ...energies import interaction_energy
from ...fields import AttentionParams, unnormalized_self_attention
from ...geometry import Sphere
from ...integrate import solve
from .._base import BLUE, GREY, RED, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet
from .._trajectory import draw_sphere, draw_tokens


class _Case(NamedTuple):
    """Points, dimension, beta, end, energy, inner products of distinct points."""

    n: int
    d: int
    beta: float
    t1: float
    energy: float | None
    products: tuple[float, ...]


_ICOSAHEDRON = (-1.0, -(5**-0.5), 5**-0.5)
_HEPTAGON = tuple(np.cos(2 * np.pi * np.arange(1, 4) / 7))
# The energies were computed elsewhere; where there is none, the exact one is enough.
_CASES = {
    "tetrahedron": _Case(4, 3, 1.0, 200.0, 0.6084844700, (-1 / 3,)),
    "octahedron": _Case(6, 3, 1.0, 400.0, 0.5905134391, (-1.0, 0.0)),
    "icosahedron": _Case(12, 3, 4.0, 1000.0, 0.8892208051, _ICOSAHEDRON),
    "regular 7-gon": _Case(7, 2, 1.0, 4000.0, 0.6330345381, _HEPTAGON),
    "simplex in d = 4": _Case(5, 4, 1.0, 200.0, None, (-1 / 4,)),
    "cross-polytope in d = 4": _Case(8, 4, 1.0, 1000.0, None, (-1.0, 0.0)),
    "cross-polytope in d = 5": _Case(10, 5, 1.0, 2000.0, None, (-1.0, 0.0)),
}
_QUICK = ("tetrahedron", "octahedron", "icosahedron", "regular 7-gon")


def optimal_configurations(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Theorem 9.2: with V = -I tokens end on the configurations of least energy.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: four configurations in place of seven.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: energies and inner products against the exact ones, and five
    points on the sphere, where no configuration is best for every beta.

    Source: arXiv 2312.10794, section 9.1 and theorem 9.2; H. Cohn, A. Kumar (2007).
    """
    names = _QUICK if quick else tuple(_CASES)
    figure = new_figure(9.6, 3.6)
    grid = figure.add_gridspec(2, 4, width_ratios=(2.1, 0.01, 1, 1))
    axes = style(figure.add_subplot(grid[:, 0]))
    rows: list[Row] = []
    data = {}
    for k, name in enumerate(names):
        case = _CASES[name]
        x = _descend(seed, case.n, case.d, case.beta, case.t1)
        data[name] = x
        found = np.sort(np.asarray(inner_products(x))[np.triu_indices(case.n, 1)])
        gap = np.abs(found[:, None] - np.asarray(case.products))
        rows += _rows(name, case, x, gap)
        axes.plot(found, np.full(found.size, k), "|", color=BLUE, markersize=16)
        exact = np.asarray(case.products)
        axes.plot(exact, np.full(exact.size, k), "o", color=RED, markersize=3)
        progress((k + 1) / (len(names) + 1))
    for k, name in enumerate(names[:4]):
        _draw(figure.add_subplot(grid[k // 2, 2 + k % 2]), name, data[name])
    rows += _five_points()
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="inner products of distinct tokens", ylim=(-0.6, len(names) - 0.4))
    axes.set_title(
        "ends of V = -I from a uniform start (bars); exact (dots)", fontsize=9
    )
    axes.axvline(0.0, color=GREY, linewidth=0.6)
    note = (
        "The theorem is implemented with m >= 1 distinct inner products, so that "
        "simplices count. A descent may end in a local minimum; from seed 0 none does."
    )
    return Report(rows, figure, data, note)


def _draw(axes, name: str, x: np.ndarray) -> None:
    """The tokens on the sphere, and lines between nearest neighbours."""
    # Seen from a little above, with the first token to the left of the eye.
    a, b = 0.35, 1.1
    turn = np.array([[np.cos(b), np.sin(b), 0], [-np.sin(b), np.cos(b), 0], [0, 0, 1]])
    tilt = np.array([[1, 0, 0], [0, np.cos(a), np.sin(a)], [0, -np.sin(a), np.cos(a)]])
    if x.shape[1] == 3:
        first = np.linalg.qr(np.stack([x[0], x[1], np.array([0.3, 0.5, 0.8])]).T)[0]
        seen = x @ (tilt @ turn @ first.T).T
        draw_sphere(axes, tilt)
    else:
        seen = np.concatenate([x, np.zeros((len(x), 1))], axis=1)
        angles = np.linspace(0.0, 2 * np.pi, 200)
        axes.plot(np.cos(angles), np.sin(angles), color=GREY, linewidth=0.9)
        axes.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal")
        axes.set_axis_off()
    products = np.asarray(inner_products(x)) - 2 * np.eye(len(x))
    for i, j in np.argwhere(np.triu(products > products.max() - 1e-6)):
        back = seen[[i, j], 2].mean() < 0
        line = {"color": BLUE, "linewidth": 1.2, "alpha": 0.3 if back else 0.9}
        axes.plot(seen[[i, j], 0], seen[[i, j], 1], zorder=3, **line)
    draw_tokens(axes, seen, [RED] * len(x), size=40)
    axes.set_title(f"{name}, {len(x)} tokens", fontsize=9)


def _descend(seed, n, d, beta, t1, x0=None) -> np.ndarray:
    if x0 is None:
        x0 = Sphere(d).random(jax.random.key(seed), (n,))
    sol = solve(
        unnormalized_self_attention,
        x0,
        AttentionParams(beta=beta, value=-np.eye(d)),
        t1=t1,
        manifold=Sphere(d),
        rtol=1e-9,
        atol=1e-11,
        max_steps=200_000,
    )
    return np.asarray(sol.ys[-1])  # type: ignore[index]


def _rows(name: str, case: _Case, x: np.ndarray, gap: np.ndarray) -> list[Row]:
    energy = interaction_energy(x, case.beta)
    nearest = np.bincount(gap.argmin(axis=1), minlength=len(case.products))
    # Each token sees the same products: the energy from how often each occurs.
    weights = np.exp(case.beta * np.asarray(case.products))
    total = case.n * np.exp(case.beta) + 2 * np.sum(nearest * weights)
    exact = total / (2 * case.beta * case.n**2)
    rows = [
        near(f"{name}: energy against the exact one", energy, exact, 1e-8),
        below(
            f"{name}: inner products from the exact ones", gap.min(axis=1).max(), 1e-8
        ),
    ]
    if case.energy is not None:
        rows.append(near(f"{name}: energy", energy, case.energy, 1e-8))
    return rows


def _bipyramid() -> npt.NDArray[np.float64]:
    angles = 2 * np.pi * np.arange(3) / 3
    ring = np.stack([np.cos(angles), np.sin(angles), np.zeros(3)], axis=1)
    return np.concatenate([ring, [[0, 0, 1.0], [0, 0, -1.0]]])


def _pyramid(height: float) -> npt.NDArray[np.float64]:
    """A square below the equator, and the pole."""
    angles, radius = np.pi * np.arange(4) / 2, np.sqrt(1 - height**2)
    ring = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ring = np.concatenate([ring, np.full((4, 1), -height)], axis=1)
    return np.concatenate([ring, [[0, 0, 1.0]]])


def _five_points() -> list[Row]:
    """Without the hypothesis: five points on S^2 are not a sharp configuration."""
    judge = {1.0: above, 10.0: below}
    rows = []
    for beta, row in judge.items():
        pyramid = min(_pairs(_pyramid(h), beta) for h in np.linspace(0.0, 0.6, 1201))
        claim = (
            f"5 points, d = 3, beta = {beta:g}: square pyramid over bipyramid, less 1"
        )
        rows.append(row(claim, pyramid / _pairs(_bipyramid(), beta) - 1, 0.0))
    return rows


def _pairs(x: np.ndarray, beta: float) -> float:
    """The energy of distinct points; the rest is the same for all."""
    return float(np.exp(beta * (x @ x.T)[np.triu_indices(len(x), 1)]).mean())
