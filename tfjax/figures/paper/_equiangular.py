"""Equiangular starts: the whole flow is one curve."""

import diffrax as dfx
import numpy as np

from ...fields import AttentionParams, self_attention, unnormalized_self_attention
from ...geometry import Sphere
from ...integrate import solve
from ...theory import equiangular as curve, equiangular_time
from .._base import PALETTE, new_figure, style
from ._base import Progress, Report, below, near, quiet


_TABLE = {
    (32, 0.1, 0.5): 1.7530,
    (32, 0.1, 0.999): 5.1921,
    (32, 1.0, 0.9): 2.91556,
    (32, 1.0, 0.999): 5.27028,
    (32, 4.0, 0.5): 3.43172,
    (32, 4.0, 0.999): 6.9535,
    (32, 6.0, 0.999): 15.9953,
    (467, 1.0, 0.9): 4.18221,
    (128, 4.0, 0.999): 6.5696,
    (467, 9.0, 0.5): 34.106,
}
_MERGES = {
    "SA": {1.0: 5.5260522, 4.0: 61.321651, 9.0: 48744.790, 16.0: 1.0320761e9},
    "USA": {1.0: 2.4657477, 4.0: 2.1666264, 9.0: 12.030633, 16.0: 232.28973},
}


def equiangular(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Theorem 6.8: tokens that start orthogonal keep one inner product, gamma(t).

    **Arguments:**

    - `seed`: not used: nothing is random.
    - `quick`: two inverse temperatures in place of five.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: particles against the curve, times against the paper's table,
    the merge times of two tokens.

    Source: arXiv 2312.10794, theorem 6.8 and section 6.2.
    """
    betas = (1.0, 4.0) if quick else (0.0, 0.5, 1.0, 4.0, 9.0)
    n, ts = 8, np.linspace(0.0, 30.0, 61)
    figure = new_figure(9.0, 3.6)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    worst = {"SA": 0.0, "USA": 0.0}
    data: dict[str, np.ndarray] = {"t": ts}
    fields = {"SA": self_attention, "USA": unnormalized_self_attention}
    for k, beta in enumerate(betas):
        for name, field in fields.items():
            times = ts if name == "SA" else ts * 8 / 30 * np.exp(-beta) * 8
            sol = solve(
                field,
                np.eye(n),
                AttentionParams(beta=beta),
                t1=times[-1],
                ts=times,
                manifold=Sphere(n),
                solver=dfx.Dopri8(),
                rtol=1e-10,
                atol=1e-12,
            )
            gamma = np.asarray(curve(times, n, beta, normalized=name == "SA"))
            xs = np.asarray(sol.ys)
            inner = np.einsum("tid,tjd->tij", xs, xs)[:, ~np.eye(n, dtype=bool)]
            gap = np.abs(inner - gamma[:, None]).max()
            worst[name] = max(worst[name], float(gap))
            data[f"gamma_{name}_{beta:g}"] = gamma
            if name == "SA":
                colour = PALETTE[k]
                left.plot(ts, gamma, color=colour, label=f"β = {beta:g}")
                left.plot(ts[::3], inner[::3, 0], ".", color=colour, markersize=4)
        progress((k + 1) / len(betas))
    left.set(xlabel="time t", ylabel="inner product γ(t)", xlim=(0, 12))
    left.set_title("8 orthogonal tokens: curve and particles (dots)", fontsize=9)
    left.legend(frameon=False, fontsize=8)
    rows = [
        below(f"{name}: particles from the curve, at most", gap, 1e-6)
        for name, gap in worst.items()
    ]
    for (n, beta, gamma), time in _TABLE.items():
        found = equiangular_time(gamma, n, beta)
        claim = f"SA, n = {n}, beta = {beta:g}: gamma reaches {gamma:g} at t ="
        rows.append(near(claim, found, time, 1e-4 * max(1.0, time)))
    for name, times in _MERGES.items():
        grid = np.linspace(0.0, 16.0, 65)
        line = [_merge(name, beta) for beta in grid]
        right.semilogy(grid, line, color=PALETTE[0 if name == "SA" else 1], label=name)
        for beta, time in times.items():
            claim = f"{name}, beta = {beta:g}: two tokens from -0.5 to 0.999 take t ="
            rows.append(near(claim, _merge(name, beta), time, 1e-6 * time))
    right.set(xlabel="inverse temperature β", ylabel="time to merge")
    right.set_title("two tokens, from inner product -0.5 to 0.999", fontsize=9)
    right.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _merge(name: str, beta: float) -> float:
    time = equiangular_time(0.999, 2, beta, gamma0=-0.5, normalized=name == "SA")
    return float(time)
