"""How fast the schemes of a Transformer converge to the flow as layers thin out."""

import functools
from collections.abc import Callable

import diffrax as dfx
import equinox as eqx
import jax
import numpy as np

from ...fields import AttentionParams, euclidean_attention, self_attention
from ...geometry import Sphere
from ...integrate import solve
from .._base import PALETTE, new_figure, style
from .._report import Progress, Report, Row, near, quiet, reported


_T1, _D, _BETA = 2.0, 3, 2.0


def orders(*, seed: int = 0, quick: bool = False, progress: Progress = quiet) -> Report:
    """Adding and normalising converges to the flow with order 1, and better ones do.

    **Arguments:**

    - `seed`: of the uniform start.
    - `quick`: makes no difference: the whole takes seconds.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the orders of three schemes between steps.

    Source: arXiv 2312.10794, section 2.2 (a layer is a step and a projection).
    """
    x0 = Sphere(_D).random(jax.random.key(seed), (32,))
    exact = solve(
        self_attention,
        x0,
        AttentionParams(beta=_BETA),
        t1=_T1,
        manifold=Sphere(_D),
        solver=dfx.Dopri8(),
        rtol=1e-12,
        atol=1e-14,
    )
    end = np.asarray(exact.ys)[-1]
    progress(0.3)
    steps = np.array([0.1, 0.05, 0.025, 0.0125])
    # Scheme, orders between the steps, tolerance.
    schemes = {
        "add and normalise": (_add, (0.94, 0.97, 0.985)),
        "projected Euler": (_euler, (1.0, 1.0, 1.0)),
        "RK4, normalised": (_rk4, (3.96, 3.98, 3.99)),
    }
    figure = new_figure(6.0, 3.8)
    axes = style(figure.subplots())
    rows: list[Row] = []
    data = {"step": steps}
    for k, (name, (scheme, expected)) in enumerate(schemes.items()):
        ends = [_run(scheme, x0, h, round(_T1 / h)) for h in steps.tolist()]
        errors = np.array([np.abs(np.asarray(x) - end).max() for x in ends])
        found = np.log2(errors[:-1] / errors[1:])
        for h, order, value in zip(steps[1:], found, expected, strict=True):
            rows.append(near(f"{name}, step {h:g}: order", order, value, 0.1))
        data[f"error, {name}"] = errors
        axes.loglog(steps, errors, "o-", color=PALETTE[k], label=name)
        progress(0.4 + 0.2 * k)
    ratio = data["error, add and normalise"][-1] / data["error, projected Euler"][-1]
    claim = "add and normalise over projected Euler, smallest step: error"
    rows.append(reported(claim, ratio, "more than 1"))
    axes.set(xlabel="step h", ylabel="largest error at t = 2")
    axes.set_title("n = 32, d = 3, β = 2", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


_Step = Callable[..., jax.Array]


@eqx.filter_jit
def _run(scheme: _Step, x0, h, count):
    step = functools.partial(scheme, h=h)
    return jax.lax.fori_loop(0, count, lambda _, x: Sphere(_D).project(step(x)), x0)


def _add(x, h):
    """The published scheme: the whole drift is added, not its tangential part."""
    return x + h * euclidean_attention(0.0, x, AttentionParams(beta=_BETA))


def _field(x):
    return self_attention(0.0, x, AttentionParams(beta=_BETA))


def _euler(x, h):
    return x + h * _field(x)


def _rk4(x, h):
    a = _field(x)
    b = _field(x + h / 2 * a)
    c = _field(x + h / 2 * b)
    d = _field(x + h * c)
    return x + h / 6 * (a + 2 * b + 2 * c + d)
