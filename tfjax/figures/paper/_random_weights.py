"""Phase diagrams with random matrices in place of Q = K = V = I."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...diagnostics import energy_along
from ...fields import AttentionParams, self_attention
from ...geometry import Sphere
from ...integrate import solve, solve_ensemble
from .._base import new_figure
from .._report import Progress, Report, Row, above, below, quiet, reported
from ._families import FAMILIES, draw_weights
from ._measures import close_share
from ._shares import draw_share


_N = 32


def random_weights(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Figure 5: with random Q, K and V there still are transitions, and slow states.

    **Arguments:**

    - `seed`: of matrices and starts, which are drawn anew for each run.
    - `quick`: two families in d = 16 in place of twelve in d = 128.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: a phase diagram for each family, and the energy along the
    flows with V = B and V = -B.

    Source: arXiv 2312.10794, figure 5 and problem 2.
    """
    d, draws = (16, 4) if quick else (128, 12)
    betas = np.linspace(0.1, 9.0, 4 if quick else 20)
    names = tuple(FAMILIES)[:: 8 if quick else 1]
    ts = np.linspace(0.0, 30.0, 61)
    columns = min(3, len(names))
    figure = new_figure(9.6, 8.8 if len(names) > 3 else 3.2)
    panels = figure.subplots(len(names) // columns, columns, sharex=True, squeeze=False)
    rows: list[Row] = []
    data = {"t": ts, "beta": betas}
    for k, (name, axes) in enumerate(zip(names, panels.flat, strict=True)):
        key = jax.random.fold_in(jax.random.key(seed), k)
        share = _shares(key, FAMILIES[name], d, betas, draws, ts)
        data[f"share, {name}"] = share
        draw_share(axes, ts, betas, share)
        axes.set_title(name, fontsize=9)
        cold, hot = (
            f"{name}: share at t = 30, beta = 9",
            f"{name}: share at t = 30, beta = 0.1",
        )
        if FAMILIES[name].value == "identity":
            # One cluster soon where beta is small, as with Q = K = I; later elsewhere.
            rows.append(above(hot, share[0, -1], 0.99))
            rows.append(below(cold, share[-1, -1], 0.9))
        else:
            rows.append(reported(hot, share[0, -1], "measured"))
            rows.append(reported(cold, share[-1, -1], "measured"))
        progress((k + 1) / (len(names) + 1))
    for axes in panels[-1]:
        axes.set_xlabel("time t")
    for axes in panels[:, 0]:
        axes.set_ylabel("inverse temperature β")
    mesh = panels.flat[0].collections[0]
    figure.colorbar(mesh, ax=panels, label="share of pairs above 0.999")
    rows += _energies(seed)
    note = (
        f"n = {_N}, d = {d}, {draws} draws for each beta. Entries of B have variance "
        "1, on the diagonal of GOE 2; Wishart matrices have mean I, the published ones "
        "the root of d times that. Float32, tolerance 1e-4."
    )
    return Report(rows, figure, data, note)


def _shares(key, family, d, betas, draws, ts) -> np.ndarray:
    count = betas.size * draws
    start, weights = jax.random.split(key)
    draw = jax.vmap(lambda key: draw_weights(key, family, d))
    beta = jnp.asarray(np.repeat(betas, draws), jnp.float32)
    params = draw(jax.random.split(weights, count))
    sol = solve_ensemble(
        self_attention,
        Sphere(d).random(start, (count, _N), dtype=jnp.float32),
        eqx.tree_at(lambda p: p.beta, params, beta),
        in_axes=(0, 0),
        t1=ts[-1],
        saveat=dfx.SaveAt(ts=jnp.asarray(ts), fn=close_share),
        manifold=Sphere(d),
        rtol=1e-4,
        atol=1e-4,
        max_steps=20_000,
        throw=True,
    )
    return np.asarray(sol.ys, float).reshape(betas.size, draws, -1).mean(axis=1)


def _energies(seed) -> list[Row]:
    """With V = B symmetric the energy E_B rises, with V = -B it falls."""
    start, weights = jax.random.split(jax.random.key(seed))
    x0 = Sphere(16).random(start, (_N,))
    g = jax.random.normal(weights, (16, 16))
    b = (g + g.T) / np.sqrt(2.0)
    ts = np.linspace(0.0, 20.0, 201)
    rows = []
    for name, sign, row in (("V = B / √d", 1.0, above), ("V = -B / √d", -1.0, below)):
        args = AttentionParams(beta=1.0, query=b, value=sign * b / 4.0)
        sol = solve(
            self_attention,
            x0,
            args,
            t1=ts[-1],
            ts=ts,
            manifold=Sphere(16),
            rtol=1e-9,
            atol=1e-11,
        )
        energy = np.asarray(energy_along(jnp.asarray(sol.ys), 1.0, bilinear=b))
        step = np.diff(energy) / np.abs(energy).max()
        claim = f"B GOE, {name}: {'least' if sign > 0 else 'greatest'} step of E_B"
        rows.append(row(claim, sign * (sign * step).min(), -sign * 1e-9))
    return rows
