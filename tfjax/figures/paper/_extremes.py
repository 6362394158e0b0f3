"""The least and the greatest energy: the uniform measure and one point."""

import math

import jax
import numpy as np

from ...energies import interaction_energy
from ...geometry import Sphere
from ...theory import dirac_energy, uniform_energy as least_energy
from .._base import GREY, PALETTE, new_figure, style
from .._report import Progress, Report, Row, above, below, near, quiet


# Dimension: the energy at beta = 1, 4, 9.
_TABLE = {
    2: (0.6330329389, 1.412740244, 60.754908584),
    3: (0.5876005968, 0.8528099124, 25.0095179141),
    8: (0.5320421982, 0.3128696042, 2.3655937517),
    32: (0.5078702117, 0.160213727, 0.1886371977),
}
_DIRAC = (1.3591409142, 6.8247687541, 450.1713293097)
_BETAS = (1.0, 4.0, 9.0)


def uniform_energy(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Proposition 3.4: every energy lies between the uniform one and a point's.

    **Arguments:**

    - `seed`: of the random points.
    - `quick`: fewer random points.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: energies against a table, a series and random pairs, and
    those of random tokens between the bounds.

    Source: arXiv 2312.10794, proposition 3.4.
    """
    rows: list[Row] = []
    for d, values in _TABLE.items():
        for beta, value in zip(_BETAS, values, strict=True):
            found = least_energy(d, beta)
            claim = f"d = {d}, beta = {beta:g}: energy of the uniform measure"
            rows.append(near(claim, found, value, 1e-9 * max(1.0, value)))
    for beta, value in zip(_BETAS, _DIRAC, strict=True):
        claim = f"beta = {beta:g}: energy of a point"
        rows.append(near(claim, dirac_energy(beta), value, 1e-9 * value))
    worst = max(
        abs(float(least_energy(d, beta)) / _series(d, beta) - 1)
        for d in (2, 3, 8, 32, 128, 344, 345, 346, 1024)
        for beta in (0.1, 1.0, 4.0, 9.0, 20.0)
    )
    rows.append(below("d up to 1024: from the series, relative, at most", worst, 1e-12))
    progress(0.3)
    rows += _random_pairs(seed, 20_000 if quick else 1_000_000)
    progress(0.6)
    rows += _random_tokens(seed)
    figure = new_figure(6.4, 3.8)
    axes = style(figure.subplots())
    betas = np.linspace(0.05, 12.0, 120)
    data = {"beta": betas}
    for k, d in enumerate((2, 3, 8, 32, 128)):
        share = np.asarray(least_energy(d, betas) / dirac_energy(betas))
        data[f"energy, d = {d}"] = share
        axes.semilogy(betas, share, color=PALETTE[k], label=f"uniform, d = {d}")
    axes.semilogy(betas, np.exp(-betas), ":", color=GREY, label="d → ∞: exp(-β)")
    axes.set(xlabel="inverse temperature β", ylabel="energy over that of a point")
    axes.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _series(d: int, beta: float) -> float:
    """The mean of exp(beta x_1) by its power series, whose terms are positive."""
    terms, term, k = [], 1.0, 0
    while term > 1e-18 * sum(terms, 1e-300):
        terms.append(term)
        k += 1
        term *= beta**2 / 4 / (k * (d / 2 + k - 1))
    return math.fsum(terms) / (2 * beta)


def _random_pairs(seed: int, draws: int) -> list[Row]:
    """By symmetry one point of a pair may be fixed."""
    rows = []
    for d in _TABLE:
        key = jax.random.fold_in(jax.random.key(seed), d)
        # Coordinate 1 of a uniform point: a normal over its length.
        parts = jax.random.split(key)
        first = np.asarray(jax.random.normal(parts[0], (draws,)))
        rest = 2 * np.asarray(jax.random.gamma(parts[1], (d - 1) / 2, (draws,)))
        energy = np.exp(4.0 * first / np.sqrt(first**2 + rest)) / 8.0
        spread = 4 * energy.std() / np.sqrt(draws)
        claim = f"d = {d}, beta = 4: mean over {draws} random points"
        exact = float(least_energy(d, 4.0))
        rows.append(near(claim, energy.mean(), exact, spread))
    return rows


def _random_tokens(seed: int) -> list[Row]:
    """Tokens, random or spread evenly, lie between the bounds."""
    x = Sphere(3).random(jax.random.key(seed), (200, 32))
    weight = np.linspace(0.0, 3.0, 200)[:, None, None]  # from uniform to gathered
    x = Sphere(3).project(x + weight * np.eye(3)[2])
    energies = np.asarray(jax.vmap(lambda x: interaction_energy(x, 4.0))(x))
    low, high = float(least_energy(3, 4.0)), float(dirac_energy(4.0))
    return [
        above(
            "200 sets of tokens: least energy over the bound", energies.min() / low, 1.0
        ),
        below(
            "200 sets of tokens: greatest over the bound", energies.max() / high, 1.0
        ),
    ]
