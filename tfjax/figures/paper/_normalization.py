"""Where LayerNorm stands decides how fast tokens gather."""

import jax
import jax.numpy as jnp
import numpy as np

from ...fields import (
    NGPT,
    AttentionParams,
    LNScaling,
    NormalizedParams,
    PeriNorm,
    PostNorm,
    PreNorm,
    normalized_attention,
)
from ...geometry import Sphere
from ...integrate import solve
from ...theory import normalized_log_variance
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, near, quiet


# Scheme, end, clock in which log Var falls, rate (arXiv 2510.22026), axis.
_SCHEMES = {
    "Post-LN": (PostNorm(), 8.0, lambda t: t, -2.0, "t"),
    "nGPT": (NGPT(), 8.0, lambda t: t, -2.0, "t"),
    "Pre-LN": (PreNorm(), 100.0, lambda t: np.log(t + 1), -2.0, "log(t + 1)"),
    "Peri-LN": (PeriNorm(), 100.0, lambda t: np.log(t + 1), -2.0, "log(t + 1)"),
    "LN-scaling": (LNScaling(), 20.0, lambda t: np.sqrt(t + 1), -4.0, "sqrt(t + 1)"),
}


_FIRST = ("Post-LN", "Pre-LN")


def normalization(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """The variance of tokens in a cap falls by another law under each scheme.

    **Arguments:**

    - `seed`: of the ten starts in a cap.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the fitted rates, and the variances against their prediction.

    Source: arXiv 2510.22026, table 1.
    """
    key = jax.random.key(seed)
    pole = jnp.array([0.0, 0.0, 1.0])
    x0 = Sphere(3).project(pole[None] + 0.1 * jax.random.normal(key, (10, 3)))
    figure = new_figure(8.0, 3.8)
    axes = style(figure.subplots())
    rows, data = [], {}
    for k, (name, scheme) in enumerate(_SCHEMES.items()):
        form, t1, clock, rate, axis = scheme
        ts = np.concatenate([[0.0], np.geomspace(0.02, t1, 120)])
        sol = solve(
            normalized_attention,
            x0,
            NormalizedParams(AttentionParams(beta=1.0), form),
            t1=t1,
            ts=ts,
            rtol=1e-10,
            atol=1e-12,
        )
        xs = np.asarray(sol.ys)
        variance = _variance(xs)
        late = ts > t1 / 2
        slope = np.polyfit(clock(ts[late]), np.log(variance[late]), 1)[0]
        claim = f"{name}: slope of log Var in {axis}"
        rows.append(near(claim, slope, rate, 0.01 * abs(rate)))
        if name in ("Pre-LN", "Peri-LN"):
            radius = np.linalg.norm(xs[-1], axis=1).mean()
            rows.append(near(f"{name}: radius at t = 100", radius, 101.0, 0.1))
        predicted = np.asarray(normalized_log_variance(ts, form))
        # Two schemes of each law lie on one line: the first of them is drawn broad.
        broad = {"linewidth": 5.0, "alpha": 0.4} if name in _FIRST else {}
        axes.loglog(ts[1:], variance[1:], color=PALETTE[k], label=name, **broad)
        line = variance[0] * np.exp(predicted)
        axes.loglog(ts[1:], line[1:], ":", color=PALETTE[k], linewidth=2.4)
        data |= {f"t_{name}": ts, f"variance_{name}": variance}
        progress((k + 1) / len(_SCHEMES))
    axes.set(xlabel="time t (depth)", ylabel="variance of the directions")
    axes.set_title("10 tokens in a cap (β = 1); dotted: prediction", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _variance(xs: np.ndarray) -> np.ndarray:
    theta = xs / np.linalg.norm(xs, axis=-1, keepdims=True)
    gap = theta - theta.mean(axis=1, keepdims=True)
    return np.sum(gap**2, axis=-1).mean(axis=1)
