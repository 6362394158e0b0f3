"""What the published scheme computes: it adds and normalises, so its clock is slow."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import inner_products
from ...energies import interaction_energy
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve
from ...theory import dirac_energy
from .._base import BLUE, GREY, PALETTE, RED, new_figure, style
from .._report import Progress, Report, Row, below, near, quiet
from ._measures import FIVE_ANGLES, circle_points, close_share
from ._shares import share_along, uniform_starts


_N, _H = 32, 0.1
# Scheme: whether the drift is projected, and the size of its steps.
_SCHEMES = {
    "add and normalise, h = 0.1": (False, 0.1),
    "add and normalise, h = 0.05": (False, 0.05),
    "projected Euler, h = 0.1": (True, 0.1),
}
_EXITS = (364.1, 346.2, 329.8)
_FLOW = 328.364063


def published_scheme(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Adding h A(x) unprojected slows the clock near consensus by 1 / (1 + h).

    **Arguments:**

    - `seed`: of the uniform starts.
    - `quick`: 32 starts in place of 512, with wider tolerances.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: the exit of five tokens and the share of pairs that have met,
    by the flow, by the published scheme, and with its clock corrected.

    Source: arXiv 2312.10794, the code of figures 3 and 4. The reason is our own: next
    to consensus A(x) is x, so a step of h moves by h / (1 + h) of the way.
    """
    figure = new_figure(9.6, 3.6)
    left, right = (style(axes) for axes in figure.subplots(1, 2))
    rows = [_contraction()]
    more, energies = _five_tokens(left)
    rows += more
    progress(0.4)
    more, shares = _pairs(seed, 32 if quick else 512, quick, right)
    return Report(rows + more, figure, energies | shares)


def _step(x, beta, h, projected):
    drift = jax.nn.softmax(beta * inner_products(x), axis=1) @ x
    if projected:
        drift = Sphere(x.shape[1]).tangent(x, drift)
    return Sphere(x.shape[1]).project(x + h * drift)


def _contraction() -> Row:
    """By how much one step brings two tokens together that nearly agree."""
    angle = 1e-6
    x = circle_points(jnp.array([angle, -angle]))
    end = _step(x, 1.0, _H, False)
    ratio = jnp.arctan2(end[0, 1], end[0, 0]) / angle
    claim = "two tokens that nearly agree: their distance after a step, h = 0.1"
    return near(claim, ratio, 1 / (1 + _H), 1e-9)


@eqx.filter_jit
def _run(x0, beta, h, projected, steps, measure):
    """What `measure` says of the tokens after 0, 1, ..., steps."""

    def step(x, _):
        return _step(x, beta, h, projected), measure(x)

    return jax.lax.scan(step, x0, length=steps + 1)[1]


def _energy_and_product(x):
    """The energy over that of one point, and whether tokens 0 and 3 have met."""
    return interaction_energy(x, 4.0) / dirac_energy(4.0), jnp.sum(x[0] * x[3])


def _five_tokens(axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    x0 = circle_points(jnp.asarray(FIVE_ANGLES))
    ts = np.linspace(0.0, 400.0, 2001)
    sol = solve(
        self_attention,
        x0,
        AttentionParams(beta=4.0),
        t1=ts[-1],
        saveat=dfx.SaveAt(
            ts=jnp.asarray(ts), fn=lambda t, x, args: _energy_and_product(x)
        ),
        manifold=Sphere(2),
        solver=dfx.Dopri8(),
        rtol=1e-10,
        atol=1e-12,
    )
    energy = np.asarray(sol.ys[0])  # type: ignore[index]
    data = {"t of the five": ts, "energy, flow": energy}
    axes.plot(ts, energy, color=BLUE, linewidth=3, alpha=0.5, label="flow")
    rows = []
    for k, (name, (projected, h)) in enumerate(_SCHEMES.items()):
        steps = round(400.0 / h)
        found = _run(x0, 4.0, h, projected, steps, _energy_and_product)
        energy, product = (np.asarray(each) for each in found)
        exit_time = h * int(np.argmax(product >= 0.999))
        rows.append(
            near(f"five tokens, {name}: exit at t =", exit_time, _EXITS[k], 0.1)
        )
        times = h * np.arange(steps + 1)
        data[f"energy, {name}"] = energy
        colour = PALETTE[k + 1]
        axes.plot(times, energy, color=colour, linewidth=1, label=name)
        if not projected:
            claim = f"five tokens, {name}: exit over (1 + h)"
            # One step of rounding, and the truncation of Euler's steps.
            rows.append(near(claim, exit_time / (1 + h), _FLOW, 4.0))
            label = "over 1 + h"
            axes.plot(times / (1 + h), energy, ":", color=colour, label=label)
    axes.set(xlabel="time t", ylabel="energy over that of one cluster", xlim=(250, 400))
    axes.set_title("five tokens on the circle, β = 4", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="upper left")
    return rows, data


def _pairs(seed, draws, quick, axes) -> tuple[list[Row], dict[str, np.ndarray]]:
    """The phase diagram's column at d = 128 and beta = 6, by three schemes."""
    d, beta, steps = 128, 6.0, 300
    x0 = uniform_starts(jax.random.key(seed), _N, d, draws)
    ts = _H * np.arange(steps + 1)
    flow = share_along(self_attention, x0, np.full(draws, beta), ts)
    shares = {"flow": flow}
    share = lambda x: close_share(0.0, x, None)
    for name, (projected, h) in _SCHEMES.items():
        if h == _H:
            one = lambda x, projected=projected: _run(
                x, jnp.float32(beta), jnp.float32(_H), projected, steps, share
            )
            shares[name] = np.asarray(
                jax.jit(lambda xs, one=one: jax.lax.map(one, xs))(x0)
            )
    added, projected = list(shares)[1:]
    at = lambda name, t: shares[name][:, round(t / _H)]
    # Few draws: four standard errors more.
    wider = 4 * at("flow", 15.0).std() / np.sqrt(draws) if quick else 0.0
    text = "d = 128, beta = 6, {}: share of pairs at t = {}"
    with_self = (at(added, 15.0).mean() * (_N - 1) + 1) / _N
    rows = [
        near(text.format("flow", 15), at("flow", 15.0).mean(), 0.734, 0.05 + wider),
        near(
            text.format(projected, 15), at(projected, 15.0).mean(), 0.726, 0.05 + wider
        ),
        below(text.format(added, 15), at(added, 15.0).mean(), 0.5),
        near(
            text.format(f"{added}, i = j included", 15), with_self, 0.24, 0.05 + wider
        ),
        near(
            text.format(added, "15 (1 + h)"),
            at(added, 16.5).mean(),
            0.734,
            0.05 + wider,
        ),
    ]
    for k, (name, found) in enumerate(shares.items()):
        wide = {"linewidth": 3, "alpha": 0.5} if name == "flow" else {"linewidth": 1}
        colour = BLUE if name == "flow" else PALETTE[2 * k - 1]
        axes.plot(ts, found.mean(axis=0), color=colour, label=name, **wide)
        if name == added:
            label = "over 1 + h"
            axes.plot(ts / (1 + _H), found.mean(axis=0), ":", color=colour, label=label)
    axes.axvline(15.0, color=GREY, linewidth=0.6)
    axes.axhline(0.734, color=RED, linewidth=0.6, linestyle=":")
    axes.set(xlabel="time t", ylabel="share of pairs above 0.999", xlim=(10, 24))
    axes.set_title(f"d = 128, β = 6, {draws} starts", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    means = {f"share, {name}": found.mean(axis=0) for name, found in shares.items()}
    return rows, means | {"t of the pairs": ts}
