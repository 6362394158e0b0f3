"""The landscape of the energy on the circle: regular polygons are strict saddles."""

import jax
import jax.numpy as jnp
import numpy as np

from ...energies import interaction_energy
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet


_SIZES = tuple(range(2, 13))
_COUNT = 41
_BETAS = (0.5, 1.0, 2.0, 4.0, 9.0)
# Sides, beta: the largest eigenvalue.
_TABLE = {
    (3, 9.0): 0.08054022490,
    (5, 9.0): 91.4521265362,
    (6, 4.0): 12.3211987112,
    (8, 9.0): 1100.97015995,
    (12, 9.0): 1122.43148133,
}


def landscape(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Problem 3: at regular polygons the energy has a direction in which it rises.

    **Arguments:**

    - `seed`: not used: nothing is random.
    - `quick`: four polygons in place of eleven.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the largest eigenvalue of n times the Hessian, that is, the
    fastest growth along USA, by automatic differentiation.

    Source: arXiv 2312.10794, section 7 and problem 3; arXiv 2507.22857 for beta < 0.
    """
    betas = np.linspace(-1.0, 9.0, _COUNT)
    sizes = (2, 3, 4, 12) if quick else _SIZES
    top = {}
    for k, n in enumerate(sizes):
        top[n] = _spectra(n, betas)[:, -1]
        progress((k + 1) / (len(sizes) + 1))
    positive = betas >= 0
    least = min(values[positive].min() for values in top.values())
    claim = f"{len(sizes)} polygons, beta from 0 to 9: least of the largest"
    rows = [above(claim, least, 0.0)]
    for beta in (1.0, 4.0, 9.0):
        two, four = _spectrum(2, beta)[-1], _spectrum(4, beta)[-1]
        exact = float(np.exp(-beta))
        rows.append(near(f"n = 2, beta = {beta:g}: exp(-beta)", two, exact, 1e-10))
        rows.append(near(f"n = 4, beta = {beta:g}: beta", four, beta, 1e-9))
    for (n, beta), value in _TABLE.items():
        if n not in sizes:
            continue
        found = _spectrum(n, beta)[-1]
        rows.append(near(f"n = {n}, beta = {beta:g}", found, value, 1e-8 * value))
    rows += _waves(sizes)
    rows += _elsewhere()
    figure = new_figure(7.0, 3.8)
    axes = style(figure.subplots())
    for k, n in enumerate(n for n in sizes if n not in (7, 9, 10, 11)):
        axes.plot(betas, top[n], color=PALETTE[k], label=f"n = {n}")
    axes.set_yscale("symlog", linthresh=1e-4)
    axes.set(xlabel="inverse temperature β", ylabel="largest eigenvalue of n Hess E")
    axes.set_title("regular n-gons: above 0 is a strict saddle", fontsize=9)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    data = {"beta": betas} | {f"n = {n}": values for n, values in top.items()}
    return Report(rows, figure, data)


def _energy(theta, beta):
    x = jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=1)
    # At beta = 0 the energy has a limit, once its constant is taken off.
    return interaction_energy(x, beta, centred=True)


_hessians = jax.jit(jax.vmap(jax.hessian(_energy), (None, 0)))


def _spectra(n: int, betas: np.ndarray, theta: np.ndarray | None = None) -> np.ndarray:
    """The eigenvalues of n times the Hessian, at a regular polygon if not told."""
    if theta is None:
        theta = 2 * np.pi * np.arange(n) / n
    padded = np.resize(betas, _COUNT)  # one shape for each n: compiled once
    hessians = np.asarray(_hessians(jnp.asarray(theta), jnp.asarray(padded)))
    return np.linalg.eigvalsh(n * hessians)[: len(betas)]


def _spectrum(n: int, beta: float) -> np.ndarray:
    return _spectra(n, np.array([beta]))[0]


def _slope(angle, beta):
    """The derivative of h = exp(beta cos) sin, the pull at an angle."""
    return np.exp(beta * np.cos(angle)) * (np.cos(angle) - beta * np.sin(angle) ** 2)


def _waves(sizes) -> list[Row]:
    """The Hessian of a polygon is circulant: its eigenvectors are waves."""
    worst = 0.0
    for n in sizes:
        angles = 2 * np.pi * np.arange(n) / n
        for beta in _BETAS:
            waves = np.cos(np.outer(np.arange(n), angles)) - 1
            exact = np.sort(waves @ _slope(angles, beta) / n)
            error = np.abs(_spectrum(n, beta) - exact).max() / np.exp(beta)
            worst = max(worst, float(error))
    claim = "spectra from those of waves, over exp(beta), at most"
    return [below(claim, worst, 1e-12)]


def _elsewhere() -> list[Row]:
    """Where it is no saddle: one cluster, and three tokens below beta = -2/3."""
    one = _spectra(4, np.array(_BETAS), np.zeros(4))[:, -1].max()
    rows = [below("one cluster of 4 tokens: largest eigenvalue", one, 1e-10)]
    for beta, row in ((-0.6, above), (-0.75, below)):
        second = _spectrum(3, beta)
        # The eigenvalue 0 of the rotation is left out.
        moved = second[np.argsort(np.abs(second))[1:]].max()
        claim = f"n = 3, beta = {beta:g}: largest, rotation left out"
        rows.append(row(claim, moved, 0.0))
    return rows
