"""Identities of the energy, and the flows for which they fail."""

import jax
import jax.numpy as jnp
import numpy as np

from ...attention import sinkhorn
from ...diagnostics import energy_along
from ...energies import interaction_energy
from ...fields import (
    AttentionParams,
    self_attention,
    sinkhorn_attention,
    unnormalized_self_attention,
)
from ...geometry import Sphere
from ...integrate import solve
from .._base import BLUE, GREY, RED, new_figure, style
from .._report import Progress, Report, above, below, quiet


_CASES = ((32, 3, 1.0), (20, 2, 4.0), (16, 8, 9.0))


def energy_identities(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """The energy rises at a known rate along SA and USA, and need not if V is general.

    **Arguments:**

    - `seed`: of the starts and of the random matrices.
    - `quick`: one size and one random matrix in place of three.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: gradient and dissipation identities, and the monotone
    energies of symmetric V beside one that is not.

    Source: arXiv 2312.10794, section 3, equation (3.6), lemma 3.7.
    """
    key = jax.random.key(seed)
    rows = [
        below(f"{claim}, relative error at most", error, 1e-12)
        for claim, error in _identity_errors(
            key, _CASES[2:] if quick else _CASES
        ).items()
    ]
    figure = new_figure(8.0, 3.6)
    axes = style(figure.subplots())
    ts = np.linspace(0.0, 20.0, 201)
    data, starts = {"t": ts}, 1 if quick else 3
    names = {
        "V = B": (1.0, BLUE),
        "V = -B": (-1.0, RED),
        "V not symmetric": (0.0, GREY),
    }
    for s in range(starts):
        x0, b, other = _draws(jax.random.fold_in(key, s))
        for name, (sign, colour) in names.items():
            value = sign * b if sign else other
            energy = _energy(x0, b, value, ts)
            data[f"{name}, draw {s}"] = energy
            step = np.diff(energy)
            if sign > 0:
                rows.append(
                    above(f"{name}, draw {s}: least step of E_B", step.min(), -1e-9)
                )
            elif sign < 0:
                greatest = step.max()
                rows.append(
                    below(f"{name}, draw {s}: greatest step of E_B", greatest, 1e-9)
                )
            else:
                up, down = step.max(), step.min()
                rows.append(above(f"{name}, draw {s}: greatest step up", up, 1e-6))
                rows.append(below(f"{name}, draw {s}: greatest step down", down, -1e-6))
            label = name if s == 0 else None
            axes.plot(ts, energy, color=colour, label=label, alpha=0.8)
        progress((s + 1) / starts)
    axes.set(xlabel="time t", ylabel="energy E_B(x)")
    axes.set_title("n = 32, d = 8, β = 1, random symmetric B = QᵀK", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return Report(rows, figure, data)


def _identity_errors(key, cases) -> dict[str, float]:
    errors: dict[str, list[float]] = {}
    for k, (n, d, beta) in enumerate(cases):
        x = Sphere(d).random(jax.random.fold_in(key, 100 + k), (n,))
        args = AttentionParams(beta=beta)
        energy = lambda x, beta=beta: interaction_energy(x, beta)
        gradient = Sphere(d).tangent(x, jax.grad(energy)(x))
        z = jnp.sum(jnp.exp(beta * x @ x.T), axis=1)
        usa, sa = (
            unnormalized_self_attention(0.0, x, args),
            self_attention(0.0, x, args),
        )
        rise = lambda v, x=x, energy=energy: jax.jvp(energy, (x,), (v,))[1]
        speed = lambda v: jnp.sum(v**2, axis=1)
        # The energy of Sinkhorn attention is minus the mean potential over beta.
        scaled = lambda x, beta=beta: sinkhorn(beta * x @ x.T, symmetric=True)
        potential = lambda x, beta=beta, scaled=scaled: (
            -jnp.mean(scaled(x).row_potential) / beta
        )
        even = sinkhorn_attention(0.0, x, args)
        uphill = Sphere(d).tangent(x, jax.grad(potential)(x))
        sums = jnp.sum(jnp.exp(scaled(x).log_weights), axis=0)
        pairs = {
            "USA = n grad E": (usa, n * gradient),
            "SA = n^2 grad E / Z": (sa, n**2 * gradient / z[:, None]),
            "USA: dE/dt = mean |v|^2": (rise(usa), jnp.mean(speed(usa))),
            "SA: dE/dt = mean (Z/n) |v|^2": (rise(sa), jnp.mean(z / n * speed(sa))),
            "Sinkhorn = n grad of minus the mean potential": (even, n * uphill),
            "Sinkhorn: columns sum to 1": (sums, jnp.ones(n)),
        }
        for name, (got, expected) in pairs.items():
            error = float(jnp.max(jnp.abs(got - expected)) / jnp.max(jnp.abs(expected)))
            errors.setdefault(name, []).append(error)
    return {name: max(found) for name, found in errors.items()}


def _draws(key):
    start, matrix, other = jax.random.split(key, 3)
    b = jax.random.normal(matrix, (8, 8)) / np.sqrt(8.0)
    general = jax.random.normal(other, (8, 8)) / np.sqrt(8.0)
    return Sphere(8).random(start, (32,)), (b + b.T) / 2, general


def _energy(x0, b, value, ts) -> np.ndarray:
    sol = solve(
        self_attention,
        x0,
        AttentionParams(beta=1.0, query=b, value=value),
        t1=ts[-1],
        ts=ts,
        manifold=Sphere(8),
        rtol=1e-10,
        atol=1e-12,
    )
    return np.asarray(energy_along(sol.ys, 1.0, bilinear=b))  # type: ignore[arg-type]
