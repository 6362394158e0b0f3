"""Phase diagrams of unnormalised attention: it gathers sooner where beta is larger."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import inner_products
from ...fields import unnormalized_self_attention
from ...geometry import Sphere
from ...theory import equiangular_time
from .._base import RED, new_figure
from .._report import Progress, Report, Row, above, below, quiet, reported
from ._measures import CLOSE, close_share
from ._shares import draw_share, half_times, share_along, uniform_starts


_N, _END = 32, 6.0


def unnormalized(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Without the normalisation (USA) pairs meet the sooner, the larger beta is.

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: fewer draws, dimensions and inverse temperatures.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the times at which pairs meet against the curve of orthogonal
    tokens, the published scheme beside the flow, and a panel for each dimension.

    Source: arXiv 2312.10794, section 3.3 and theorem 6.8 (the curve for USA).
    """
    drawn = 8 if quick else 32
    betas = np.linspace(0.1, 6.0 if quick else 9.0, 6 if quick else 31)
    ts = np.linspace(0.0, _END, 121 if quick else 481)
    dimensions = (2, 128) if quick else (2, 32, 128, 1024)
    curve = np.array([_curve(beta) for beta in betas])
    figure = new_figure(7.2, 3.2 if quick else 5.6)
    panels = figure.subplots(len(dimensions) // 2, 2, sharex=True, squeeze=False)
    data = {"t": ts, "beta": betas, "time on the curve": curve}
    rows: list[Row] = []
    for k, (d, axes) in enumerate(zip(dimensions, panels.flat, strict=True)):
        key = jax.random.fold_in(jax.random.key(seed), d)
        x0 = uniform_starts(key, _N, d, betas.size * drawn)
        shares = share_along(
            unnormalized_self_attention, x0, np.repeat(betas, drawn), ts
        )
        share = shares.reshape(betas.size, drawn, ts.size).mean(axis=1)
        data[f"share, d = {d}"] = share
        draw_share(axes, ts, betas, share)
        axes.plot(curve, betas, color=RED, linewidth=1.8, label="Γ, d → ∞")
        axes.set(title=f"d = {d}", xlim=(0, _END), ylim=(betas[0], betas[-1]))
        if axes is panels.flat[0]:
            axes.legend(fontsize=7, loc="upper right")
        if d >= 128:
            rows += _times(d, betas, half_times(ts, share), curve)
        claim = f"d = {d}, beta = {betas[-1]:g}: share of pairs at t = {_END:g}"
        if d == 2:  # on the circle clusters rest, as with the normalisation
            rows.append(below(claim, share[-1, -1], 0.9))
        elif d == 32:
            rows.append(reported(claim, share[-1, -1], "measured"))
        progress((k + 1) / (len(dimensions) + 1))
    mesh = panels.flat[0].collections[0]
    figure.colorbar(mesh, ax=panels, label="share of pairs above 0.999")
    for axes in panels[-1]:
        axes.set_xlabel("time t")
    for axes in panels[:, 0]:
        axes.set_ylabel("inverse temperature β")
    rows += _published(seed, 32 if quick else 256)
    note = (
        "Time is that of the field as it stands, whose rate near consensus is e^β. The "
        "field over e^β, which matches the energy over e^β, has time t e^β: on that "
        "clock the order of the inverse temperatures is reversed. The curve is reached "
        "only as d grows, and the later the larger β is, for a few pairs that start "
        "close go ahead of the others by e^(β product). Float32, tolerance 1e-5."
    )
    return Report(rows, figure, data, note)


def _curve(beta) -> float:
    return float(equiangular_time(CLOSE, _N, float(beta), normalized=False))


def _times(d, betas, times, curve) -> list[Row]:
    """When half of the pairs have met, against orthogonal tokens."""
    error = np.abs(times / curve - 1)
    # In 128 dimensions random tokens are orthogonal enough for a small beta only.
    upto = 4.0 if d < 1024 else betas[-1]
    claim = f"d = {d}: time of share 1/2 from the curve, relative, beta up to {upto:g}"
    last = f"d = {d}: the same for beta = {betas[-1]:g}"
    # Neighbours in a fine grid differ by less than the draws do.
    few = np.linspace(0, betas.size - 1, 6).round().astype(int)
    clock = (times * np.exp(betas))[few]
    return [
        below(claim, error[betas <= upto].max(), 0.12),
        reported(last, error[-1], "smaller in more dimensions"),
        below(
            f"d = {d}: greatest step of the time of share 1/2 along six of beta",
            np.diff(times[few]).max(),
            0.0,
        ),
        above(
            f"d = {d}: least step of that time times e^beta", np.diff(clock).min(), 0.0
        ),
    ]


@partial(jax.jit, static_argnames="steps")
def _add_and_normalise(x0, beta, h, steps):
    def step(_, x):
        drift = jnp.exp(beta * inner_products(x)) @ x / _N
        return Sphere(x.shape[1]).project(x + h * drift)

    one = lambda x: close_share(0.0, jax.lax.fori_loop(0, steps, step, x), None)
    return jax.lax.map(one, x0)


def _published(seed, draws) -> list[Row]:
    """The published scheme, which does not project, up to its last time and later."""
    beta = 4.0
    step = 0.1 / max(np.sqrt(beta) * np.exp(beta - 0.5), 1.0)
    x0 = uniform_starts(jax.random.key(seed), _N, 128, draws)
    rows = []
    for end in (1.0, 1.1):
        ts = np.linspace(0.0, end, 3)
        flow = share_along(unnormalized_self_attention, x0, np.full(draws, beta), ts)
        steps = round(end / step)
        inputs = jnp.float32(beta), jnp.float32(step)
        scheme = np.asarray(_add_and_normalise(x0, *inputs, steps), float)
        claim = f"d = 128, beta = {beta:g}, t = {end:g}: share of pairs"
        rows.append(reported(f"{claim}, add and normalise", scheme.mean(), "measured"))
        rows.append(reported(f"{claim}, flow", flow[:, -1].mean(), "measured"))
    return rows
