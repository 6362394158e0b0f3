"""Flows of matrices by brackets: what they sort, and which methods keep eigenvalues."""

import functools
from typing import Any, NamedTuple

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from ...fields import double_bracket
from ...integrate import (
    RKMK4,
    ImplicitMidpoint,
    Isospectral,
    LieEuler,
    LieMidpoint,
)
from .._report import Progress, Report, Row, above, below, near, quiet
from ._bracket_panels import Drawn, draw
from ._commutators import precision
from ._flows import (
    EIGENVALUES,
    LAX,
    TARGET,
    Beside,
    D,
    Stacked,
    Turned,
    lax_flows,
    linear_flows,
    watched,
)
from ._steps import RK4, Run, order, run


class _Method(NamedTuple):
    """A solver of Lax pairs, its orders and steps.

    - `order`: its own.
    - `drift`: that of the eigenvalues; None where they stay.
    - `sizes`: how many steps a time of 1/20 is made of.
    - `turning`: whether it solves for the rotation.
    """

    solver: Any
    order: int
    drift: int | None
    sizes: tuple[int, ...]
    turning: bool = False


_METHODS = {
    "Isospectral": _Method(Isospectral, 2, None, (2, 4, 8, 16)),
    "LieEuler": _Method(LieEuler, 1, None, (32, 64, 128, 256), True),
    "LieMidpoint": _Method(LieMidpoint, 2, None, (2, 4, 8, 16), True),
    "RKMK4": _Method(RKMK4, 4, None, (1, 2, 4, 8), True),
    "Heun": _Method(dfx.Heun, 2, 2, (4, 8, 16, 32)),
    "RK4": _Method(RK4, 4, 4, (1, 2, 4, 8)),
    "ImplicitMidpoint": _Method(ImplicitMidpoint, 2, 2, (2, 4, 8, 16)),
}
_QUICK = ("Isospectral", "LieMidpoint", "Heun")
_RESTLESS = LAX.index("pair without rest")
_STEP, _UNIT = 0.05, 20  # of a block, and how many of the 200 lead to t = 1
_QR_STEPS = 4
_SPAN = 0.15  # of a block of the sorting flows, which end at t = 30


def lie(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Brackets move matrices and keep their eigenvalues; so do methods made for it.

    **Arguments:**

    - `seed`: of all matrices.
    - `quick`: three of seven methods.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: flows that sort and their rates, brackets against closed
    forms, eigenvalues by methods of constant steps, the precision of a commutator.

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    sections IV.3.2 and IV.8; R. Brockett, Linear Algebra and its Applications 146
    (1991); W. Symes, Physica D 4 (1982).
    """
    pairs, L0 = lax_flows(seed)
    flows, starts = linear_flows(seed)
    everything = Beside(flows | {"lax": pairs})
    norm = lambda y: jnp.linalg.norm(y["any W"])
    exact = run(RK4(), everything, norm, starts | {"lax": L0}, 1 / 4000, 20)
    sorting = run(Isospectral(), pairs, watched, L0, _SPAN / 15, 15)
    iterates = _qr_algorithm(np.asarray(L0[0]))
    rows = _sorting_rows(sorting.states, exact.states["lax"][-1], L0, iterates)
    rows += _linear_rows(flows, starts, exact)
    progress(0.3)
    names = _QUICK if quick else tuple(_METHODS)
    studies: dict[str, _Study] = {}
    for k, name in enumerate(names):
        method = _METHODS[name]
        studies[name] = one = _study(method, pairs, L0, exact.states["lax"][-1])
        rows += _order_rows(name, method, one)
        if one.long is None:
            rows += _trace_rows(one.coarse)
        else:
            rows += _long_rows(name, method, one.long, pairs)
        progress(0.3 + 0.6 * (k + 1) / len(names))
    more, commutators = precision(seed)
    lasting = {k: one.long for k, one in studies.items() if one.long is not None}
    drawn = Drawn(
        _SPAN * np.arange(201),
        np.concatenate([np.asarray(L0)[None], sorting.states]),
        np.stack([np.diag(L) for L in iterates]),
        _slowest()[1],
        {k: _singular(exact.states[k]) for k in ("skew A, B", "attention")},
        {k: one.errors for k, one in studies.items()},
        {k: _largest(one, "eigenvalues") for k, one in lasting.items()},
        commutators,
    )
    progress(1.0)
    return Report(rows + more, draw(drawn), _data(drawn), _NOTE)


def _data(drawn: Drawn) -> dict[str, np.ndarray]:
    data = {"time": drawn.times, "sorting": drawn.sorting, "QR": drawn.iterates}
    data |= {f"singular values, {name}": a for name, a in drawn.singular.items()}
    data |= {f"{name}: step, error": a for name, a in drawn.errors.items()}
    data |= {f"{name}: drift": a for name, a in drawn.drifts.items()}
    return data | drawn.commutators


class _Study(NamedTuple):
    """Of a method: steps with errors and drifts at t = 1, and two of its runs."""

    errors: np.ndarray
    drifts: np.ndarray
    coarse: Run
    long: Run | None


def _study(method: _Method, pairs: Stacked, L0: Any, end: np.ndarray) -> _Study:
    field: Any = Turned(pairs, L0) if method.turning else pairs
    y0 = jnp.broadcast_to(jnp.eye(D), L0.shape) if method.turning else L0
    watch = field.watched if method.turning else watched
    go = functools.partial(run, method.solver(), field, watch, y0)
    matrices = field.matrices if method.turning else lambda L: L
    runs = [go(_STEP / m, m) for m in method.sizes]
    ends = [np.asarray(matrices(jnp.asarray(one.states[_UNIT - 1]))) for one in runs]
    errors = [np.abs((L - end)[_RESTLESS]).max() for L in ends]
    drifts = [_largest(one, "eigenvalues")[:_UNIT].max() for one in runs]
    steps = _STEP / np.array(method.sizes)
    # Newton's method on all matrices at once takes too long for ten thousand steps.
    long = None if method.solver is ImplicitMidpoint else go(_STEP, 50)
    return _Study(np.stack([steps, errors]), np.stack([steps, drifts]), runs[0], long)


def _largest(one: Run, name: str) -> np.ndarray:
    """The largest error in each block, of the pair without rest."""
    return one.largest[name].reshape(200, len(LAX), -1)[:, _RESTLESS].max(axis=-1)


def _sorting_rows(sorting, exact, L0, iterates) -> list[Row]:
    """Toda and QR; Brockett, what it climbs, and its rate."""
    rows, last = [], sorting[-1]
    ends = {
        "Toda: diagonal from descending eigenvalues": EIGENVALUES[::-1],
        "Toda with [L, B]: diagonal from ascending ones": EIGENVALUES,
        "Brockett: diagonal from eigenvalues in N's order": _sorted_like_target(),
    }
    for k, (claim, expected) in enumerate(ends.items()):
        gap = np.abs(np.diag(last[k]) - expected).max()
        rows.append(below(f"{claim}, t = 30", gap, 1e-8))
        rest = np.abs(last[k] - np.diag(np.diag(last[k]))).max()
        claim = f"{claim.partition(':')[0]}: largest entry off the diagonal, t = 30"
        rows.append(below(claim, rest, 1e-3))
    gaps = [np.abs(L - iterates[1]).max() for L in exact[:2]]
    claim = "Toda, t = 1: from Q'LQ, with exp(L) = QR"
    rows.append(below(claim, gaps[0], 1e-10))
    rows.append(above("Toda with [L, B], t = 1: from the same", gaps[1], 0.1))
    gap = np.abs(sorting[round(3 / _SPAN) - 1, 0] - iterates[3]).max()
    claim = "Toda, t = 3, Isospectral, h = 0.01: from three steps of the QR algorithm"
    rows.append(below(claim, gap, 1e-3))
    H, N = np.asarray(L0[2]), np.diag(TARGET)
    rate = np.trace(N @ np.asarray(double_bracket(jnp.asarray(N))(0.0, L0[2], None)))
    square = np.linalg.norm(H @ N - N @ H) ** 2
    claim = "Brockett: d tr(NH)/dt over |[H, N]|^2, less 1"
    rows.append(below(claim, abs(rate / square - 1), 1e-12))
    (i, j), expected = _slowest()
    late = slice(100, 200)
    times = _SPAN * np.arange(1, 201)[late]
    slope = np.polyfit(times, np.log(np.abs(sorting[late, 2, i, j])), 1)[0]
    claim = "Brockett: decay of the slowest entry, over min |li - lj| |ni - nj|"
    return [*rows, near(claim, -slope / expected, 1.0, 0.02)]


def _qr_algorithm(L: np.ndarray) -> list[np.ndarray]:
    """L, turned by steps of the QR algorithm for e^L, with positive diagonals of R."""
    power, found = scipy.linalg.expm(L), [L]
    for _ in range(_QR_STEPS):
        Q, R = np.linalg.qr(power)
        signs = np.sign(np.diag(R))
        Q, R = Q * signs, signs[:, None] * R
        power = R @ Q
        found.append(Q.T @ found[-1] @ Q)
    return found


def _sorted_like_target() -> np.ndarray:
    return EIGENVALUES[np.argsort(np.argsort(TARGET))]


def _slowest() -> tuple[tuple[int, int], float]:
    """Which entry decays last in Brockett's flow, and its rate by theory."""
    limit = _sorted_like_target()
    rates = np.abs(np.subtract.outer(limit, limit) * np.subtract.outer(TARGET, TARGET))
    i, j = (index.tolist() for index in np.triu_indices(D, 1))
    k = int(np.argmin(rates[i, j]))
    return (i[k], j[k]), float(rates[i[k], j[k]])


def _linear_rows(flows: Any, starts: Any, exact: Run) -> list[Row]:
    """Brackets with constant matrices have closed forms, and keep what they should."""
    end = {name: states[-1] for name, states in exact.states.items() if name != "lax"}
    relative = lambda a, b: np.linalg.norm(a - b) / np.linalg.norm(b)
    expm = scipy.linalg.expm
    rows = []
    for name in ("any A, B", "skew A, B"):
        A, B = np.asarray(flows[name].A), np.asarray(flows[name].B)
        closed = expm(-A) @ np.asarray(starts[name]) @ expm(B)
        claim = f"HB - AH, {name}, t = 1: from the closed form, relative"
        rows.append(below(claim, relative(end[name], closed), 1e-10))
    for name, judge, bound in (
        ("skew A, B", below, 1e-10),
        ("any A, B", above, 0.1),
        ("attention", above, 0.1),
    ):
        first, last = (_singular(x) for x in (starts[name], end[name]))
        claim = f"HB - AH, {name}, t = 1: change of singular values, relative"
        rows.append(judge(claim, relative(last, first), bound))
    claim = "covariance by [C, W], t = 1: from that of the turned tokens, relative"
    turned = end["tokens"].T @ end["tokens"] / len(end["tokens"])
    rows.append(below(claim, relative(end["covariance"], turned), 1e-10))
    for name in ("any W", "skew + cI"):
        first, last = np.asarray(starts[name]), end[name]
        eigenvalues = [np.sort(np.real(np.linalg.eigvals(x))) for x in (first, last)]
        claim = f"[H, W], {name}, t = 1: change of eigenvalues"
        rows.append(below(claim, np.abs(np.subtract(*eigenvalues)).max(), 1e-8))
        growth = np.linalg.norm(last) / np.linalg.norm(first)
        claim = f"[H, W], {name}, t = 1: |H| over the first"
        judged = above(claim, growth, 1.1), near(claim, growth, 1.0, 1e-10)
        rows.append(judged[name != "any W"])
    return rows


def _singular(x: Any) -> np.ndarray:
    return np.linalg.svd(np.asarray(x), compute_uv=False)


def _order_rows(name: str, method: _Method, one: _Study) -> list[Row]:
    claim = f"{name}, pair without rest: order"
    rows = [near(claim, order(*one.errors), method.order, 0.2)]
    if method.drift is None:
        claim = f"{name}, to t = 1: drift of eigenvalues"
        return [*rows, below(claim, one.drifts[1].max(), 1e-13)]
    claim = f"{name}, to t = 1: order of the drift of eigenvalues"
    return [*rows, near(claim, order(*one.drifts), method.drift, 0.2)]


def _trace_rows(one: Run) -> list[Row]:
    """The implicit midpoint rule keeps quadratic invariants, and no cubic ones."""
    claim = "ImplicitMidpoint, to t = 10, h = 0.025: drift of"
    return [
        below(f"{claim} tr L^2", _largest(one, "tr L^2").max(), 1e-10),
        above(f"{claim} tr L^3", _largest(one, "tr L^3").max(), 1e-6),
    ]


def _long_rows(name: str, method: _Method, one: Run, pairs: Stacked) -> list[Row]:
    """Ten thousand steps."""
    drift = _largest(one, "eigenvalues").max()
    claim = f"{name}, 10,000 steps of 0.05: drift of eigenvalues"
    if method.drift is not None:
        return [above(claim, drift, 1e-6)]
    rows = [below(claim, drift, 1e-12)]
    if method.turning:
        claim = f"{name}, 10,000 steps of 0.05: largest entry of y'y - 1"
        rows.append(below(claim, one.largest["skewness"].max(), 1e-14))
    if method.solver is Isospectral:
        speed = pairs(0.0, jnp.asarray(one.states[-1]))[_RESTLESS]
        claim = "pair without rest, t = 500: largest entry of dL/dt"
        rows.append(above(claim, jnp.abs(speed).max(), 0.05))
    return rows


_NOTE = (
    "One program steps all flows: Toda's with either sign, Brockett's, and L' = [B, L] "
    "with the entries of L times random skew weights in B, which does not come to rest "
    "and of which the rows on methods speak. LieEuler, LieMidpoint and RKMK4 solve for "
    "the rotation y' = -y B(L) with L = y' L0 y, where LieMidpoint takes the steps of "
    "Isospectral. The reference is RK4 with steps of 1/4000. All starts of the Lax "
    "pairs have the eigenvalues -2, -0.5, 0.7, 1.6, 3. The error of a commutator is "
    "that against the matrices before they are rounded; of the traces, and of the "
    "integers, that of arithmetic alone."
)
