"""Trajectories beside those of an independent program: numpy and scipy alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from ...fields import (
    AttentionParams,
    BlockParams,
    FeedForward,
    VectorField,
    self_attention,
    transformer_block,
    unnormalized_self_attention,
)
from ...geometry import Sphere
from ...integrate import reduce_to_span, solve
from .._base import INK, PALETTE, new_figure, style
from .._report import Progress, Report, below, quiet


# Early and late: the tokens' own errors grow before they shrink.
_EARLY, _LATE, _T1 = 1e-7, 1e-6, 20.0


class _Case(NamedTuple):
    """A dynamics, twice: ours, and as a function of an array in numpy."""

    field: VectorField
    args: Any
    x0: np.ndarray
    plain: Callable[[np.ndarray], np.ndarray]


def trajectories(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Five dynamics of section 2, by tfjax and by numpy with scipy's DOP853.

    **Arguments:**

    - `seed`: of tokens and matrices.
    - `quick`: two dynamics in place of five.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: fields at the start, distances of trajectories, and a run in
    the span of the tokens against one in all dimensions.

    Source: arXiv 2312.10794, section 2; E. Hairer, S. P. Norsett, G. Wanner, *Solving
    Ordinary Differential Equations I*, for DOP853.
    """
    rows, data = [], {}
    cases = _cases(np.random.default_rng(seed))
    cases = dict(list(cases.items())[:: 3 if quick else 1])
    ts = np.linspace(0.0, _T1, 41)
    axes = style(new_figure(8.0, 3.8).subplots())
    for k, (name, case) in enumerate(cases.items()):
        ours = np.asarray(jax.jit(case.field)(0.0, case.x0, case.args))
        theirs = case.plain(case.x0)
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        rows.append(below(f"{name}: field, relative error", error, 1e-12))
        distance = _distance(case, ts)
        early = distance[ts <= 10].max()
        rows.append(below(f"{name}: distance until t = 10", early, _EARLY))
        rows.append(below(f"{name}: distance until t = 20", distance.max(), _LATE))
        data[f"distance, {name}"] = distance
        visible = np.maximum(distance, 1e-17)
        axes.semilogy(ts[1:], visible[1:], color=PALETTE[k], label=name)
        progress((k + 1) / (len(cases) + 1))
    rows.append(below("run in the span: from all 512 d", _span(seed), 1e-12))
    early_and_late = ([0, 10, 10, _T1], [_EARLY, _EARLY, _LATE, _LATE])
    axes.plot(*early_and_late, color=INK, linestyle=":", label="allowed")
    axes.set(xlabel="time t", ylabel="largest distance between tokens")
    axes.set_title("tfjax (Dopri8) against scipy (DOP853)", fontsize=9)
    axes.legend(frameon=False, fontsize=7, ncols=2)
    note = (
        "scipy's tokens leave the sphere by up to 1e-8 and are normalised before they "
        "are compared. The kinks of ReLU cost both solvers their order."
    )
    figure = axes.figure
    return Report(rows, figure, data | {"t": ts}, note)  # type: ignore[arg-type]


def _cases(draw: np.random.Generator) -> dict[str, _Case]:
    def sphere(n, d):
        x = draw.standard_normal((n, d))
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def matrices(*shape):
        return draw.standard_normal(shape) / np.sqrt(shape[-1])

    eye = np.eye(3)
    q, k, v = matrices(4, 4), matrices(4, 4), matrices(4, 4)
    qs, ks, vs = matrices(3, 4, 4), matrices(3, 4, 4), matrices(3, 4, 4)
    w, a, b = 0.5 * matrices(4, 8), matrices(8, 4), 0.1 * draw.standard_normal(8)
    x3, x4 = sphere(16, 3), sphere(12, 4)
    plain = AttentionParams(beta=4.0)
    weights = {"query": q, "key": k, "value": v}
    general = AttentionParams(beta=1.5, **weights)
    causal = AttentionParams(beta=1.5, mask="causal", **weights)
    heads = AttentionParams(beta=1.0, query=qs, key=ks, value=vs)
    block = BlockParams(heads, FeedForward(w=w, a=a, b=b))  # type: ignore[call-arg]

    def many(x):
        attention = sum(_drift(x, 1.0, *each) for each in zip(qs, ks, vs, strict=True))
        return attention + np.maximum(x @ a.T + b, 0.0) @ w.T

    # Their drifts, before the projection on the tangent space.
    drifts = {
        "SA": lambda x: _drift(x, 4.0, eye, eye, eye),
        "USA": lambda x: np.exp(4.0 * x @ x.T) @ x / len(x),
        "SA with Q, K, V": lambda x: _drift(x, 1.5, q, k, v),
        "3 heads, feed-forward": many,
        "causal SA with Q, K, V": lambda x: _drift(x, 1.5, q, k, v, causal=True),
    }
    ours = {
        "SA": (self_attention, plain, x3),
        "USA": (unnormalized_self_attention, plain, x3),
        "SA with Q, K, V": (self_attention, general, x4),
        "3 heads, feed-forward": (transformer_block, block, x4),
        "causal SA with Q, K, V": (self_attention, causal, x4),
    }
    return {
        name: _Case(field, args, x0, _projected(drifts[name]))
        for name, (field, args, x0) in ours.items()
    }


def _drift(x, beta, q, k, v, causal=False) -> np.ndarray:
    """Attention in numpy: means of V x_j under the softmax of beta <Q x_i, K x_j>."""
    logits = beta * (x @ q.T) @ (x @ k.T).T
    if causal:
        logits = np.where(np.tri(len(x), dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights @ (x @ v.T) / weights.sum(axis=1, keepdims=True)


def _projected(drift):
    """On the tangent space at x, with x normalised as our fields do it."""

    def field(x):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        y = drift(x)
        return y - np.sum(x * y, axis=1, keepdims=True) * x

    return field


def _distance(case: _Case, ts: np.ndarray) -> np.ndarray:
    """The largest distance between the two solvers' tokens, at every time."""
    shape = case.x0.shape
    options: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}
    flat = lambda t, y: case.plain(y.reshape(shape)).ravel()
    theirs = solve_ivp(flat, (0.0, _T1), case.x0.ravel(), "DOP853", ts, **options)
    xs = theirs.y.T.reshape(-1, *shape)
    xs /= np.linalg.norm(xs, axis=2, keepdims=True)
    manifold, solver = Sphere(shape[1]), dfx.Dopri8()
    options |= {"manifold": manifold, "solver": solver, "max_steps": 20_000}
    ours = solve(case.field, case.x0, case.args, t1=_T1, ts=ts, **options)
    return np.linalg.norm(np.asarray(ours.ys) - xs, axis=2).max(axis=1)


def _span(seed) -> float:
    """Eight tokens in 512 dimensions, by constant steps in all of them or in eight."""
    x0 = Sphere(512).random(jax.random.key(seed), (8,))
    short, basis = reduce_to_span(x0)
    end = lambda x: jnp.asarray(
        solve(
            self_attention,
            x,
            AttentionParams(beta=4.0),
            t1=3.0,
            dt0=0.1,
            manifold=Sphere(x.shape[1]),
            solver=dfx.Dopri8(),
            stepsize_controller=dfx.ConstantStepSize(),
        ).ys
    )[-1]
    return float(jnp.max(jnp.abs(end(x0) - end(short) @ basis)))
