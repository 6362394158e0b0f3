"""Which methods keep the energy of a Hamiltonian flow, and for how long."""

import functools
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ...energies import AttentionPotential, Hamiltonian
from ...fields import AttentionParams, euclidean_attention, hamiltonian as flow_of
from ...integrate import (
    ImplicitMidpoint,
    Leapfrog,
    TaoLeapfrog,
    Yoshida4,
    Yoshida6,
    solve,
)
from .._report import (
    Progress,
    Report,
    Row,
    above,
    below,
    near,
    quiet,
    reported,
    within,
)
from ._energy_panels import SHOWN, Found, draw
from ._steps import RK4, Run, growth, order, run, standard_errors
from ._systems import (
    BETA,
    PERIOD,
    Systems,
    bent_system,
    henon_heiles,
    henon_heiles_start,
    separable_systems,
    step_defect,
)


class _Method(NamedTuple):
    """A solver, its order where it is symplectic, and its steps.

    - `sizes`: how many steps a two hundredth of two of Kepler's turns is made of.
    - `step`: that of the long run.
    """

    solver: Any
    order: int | None
    sizes: tuple[int, ...]
    step: float


def _forward(solver: Any) -> Any:
    """A Runge-Kutta method whose steps can be differentiated forwards."""
    return functools.partial(solver, scan_kind="lax")


_METHODS = {
    "Leapfrog": _Method(Leapfrog, 2, (2, 4, 8, 16, 32), 0.1),
    "Yoshida4": _Method(Yoshida4, 4, (2, 4, 8, 16), 0.1),
    "Yoshida6": _Method(Yoshida6, 6, (1, 2, 3, 4, 6), 0.1),
    "ImplicitMidpoint": _Method(ImplicitMidpoint, 2, (4, 8, 16, 32), 0.1),
    "TaoLeapfrog": _Method(TaoLeapfrog, 2, (16, 32, 64, 128), 0.01),
    "Euler": _Method(dfx.Euler, None, (64, 128, 256, 512), 0.001),
    "Heun": _Method(_forward(dfx.Heun), None, (4, 8, 16, 32), 0.02),
    "RK4": _Method(_forward(RK4), None, (2, 4, 8, 16), 0.1),
    "Tsit5": _Method(_forward(dfx.Tsit5), None, (2, 4, 8), 0.1),
}
_QUICK = ("Leapfrog", "Yoshida4", "Euler", "Heun")
# By how much a step multiplies an oscillator's energy: |R(ih)|^2, with R the stability
# function of the method.
_OSCILLATOR = {
    "ImplicitMidpoint": lambda h: 1.0,
    "Euler": lambda h: 1 + h**2,
    "Heun": lambda h: 1 + h**4 / 4,
    "RK4": lambda h: 1 - h**6 / 72 + h**8 / 576,
}
_H = 0.1
_LONG = 500  # steps in each of 200 blocks


def hamiltonian(
    *, seed: int = 0, quick: bool = False, progress: Progress = quiet
) -> Report:
    """Symplectic methods keep the energy for long, up to their order; others lose it.

    **Arguments:**

    - `seed`: of the tokens and of their matrix.
    - `quick`: four of nine methods.
    - `progress`: is called with the fraction that is done.

    **Returns:** a report: errors of the energy against the step and against time on
    four systems, what a step does to the symplectic form, ways back, a Hamiltonian
    that is not separable, ports, and the force of attention.

    Source: E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration,
    chapters I, VI and IX.
    """
    names = _QUICK if quick else tuple(_METHODS)
    systems, y0 = separable_systems(seed)
    rows: list[Row] = []
    found: dict[str, Found] = {}
    for k, name in enumerate(names):
        found[name] = one = _study(_METHODS[name], systems, y0)
        rows += _energy_rows(name, one) if one.symplectic else _drift_rows(name, one)
        rows += _step_rows(name, one, systems, y0)
        progress(0.8 * (k + 1) / len(names))
    rows += _layer_rows(found) + _bent_rows() + _force_rows(seed, systems, y0)
    section, row = _section(40 if quick else 4000)
    progress(1.0)
    data: dict[str, np.ndarray] = {"section: orbit, y, dy/dt": section}
    for name, one in found.items():
        data[f"{name}: step"] = one.steps
        for system in SHOWN:
            data[f"{name}, {system}: error by step"] = one.errors[system]
            data[f"{name}, {system}: error by block"] = one.long.largest[system]
            data[f"{name}, {system}: mean error by block"] = one.long.mean[system]
    return Report([*rows, row], draw(found, section), data, _NOTE)


def _study(method: _Method, systems: Systems, y0: Any) -> Found:
    solver = method.solver()
    scale = {k: abs(float(v)) for k, v in systems.quantities(y0).items()}

    def watched(step: float, size: int) -> Run:
        one = run(solver, systems, systems.quantities, y0, step, size)
        relative = lambda part: {k: v / scale[k] for k, v in part.items()}
        return Run(relative(one.mean), relative(one.largest), one.states)

    steps = PERIOD / 100 / np.array(method.sizes)
    runs = [watched(h, m) for h, m in zip(steps, method.sizes, strict=True)]
    errors = {k: np.array([r.largest[k].max() for r in runs]) for k in scale}
    ends = np.array([r.states[0]["Kepler"][-1] for r in runs])
    returns = np.linalg.norm(ends - np.array([1.0, 0.0]), axis=1)
    one = tuple({"Hénon-Heiles": part["Hénon-Heiles"]} for part in y0)
    field = Systems({"Hénon-Heiles": systems.energies["Hénon-Heiles"]})
    doubled = method.solver is TaoLeapfrog
    return Found(
        method.order is not None,
        steps,
        errors,
        returns,
        method.step * _LONG,
        watched(method.step, _LONG),
        watched(_H, 1),
        watched(2 * _H, 4),
        step_defect(solver, field, one, _H, doubled),
    )


def _energy_rows(name: str, one: Found) -> list[Row]:
    """Order by the step; no drift in time."""
    rows, expected = [], _METHODS[name].order
    assert expected is not None
    for system in SHOWN:
        slope = order(one.steps, one.errors[system])
        claim = f"{name}, {system}: order of the energy's error"
        rows.append(near(claim, slope, expected, 0.2))
    claim = f"{name}, Kepler: order of the gap after two turns"
    slope = np.polyfit(np.log(one.steps[-3:]), np.log(one.returns[-3:]), 1)[0]
    rows.append(near(claim, slope, expected, 0.2))
    for system in SHOWN:
        found = growth(one.long.mean[system], one.long.largest[system])
        claim = f"{name}, {system}: growth of the error over the long run"
        # Three orbits are regular; that of the tokens is chaotic, and wanders.
        most = 0.4 if system == "attention" else 0.02
        rows.append(within(claim, found, -most, most))
    if name == "Leapfrog":
        found = standard_errors(one.long.mean["Kepler"])
        claim = (
            f"{name}, Kepler: the same in standard errors, if blocks were independent"
        )
        rows.append(reported(claim, found, "far from 0: they are not"))
    largest = one.long.largest["angular momentum"].max()
    claim = f"{name}, Kepler: angular momentum, long run, error"
    if name == "TaoLeapfrog":
        rows.append(reported(claim, largest, "of order 2: its copies share it"))
    else:
        rows.append(below(claim, largest, 1e-11))
    return rows


def _drift_rows(name: str, one: Found) -> list[Row]:
    """Without the symplectic form the energy is lost, or gained, steadily."""
    rows = []
    for system in SHOWN:
        found = growth(one.long.mean[system], one.long.largest[system])
        claim = f"{name}, {system}: growth of the error over the long run, absolute"
        rows.append(above(claim, abs(found), 0.7))
    largest = one.long.largest["angular momentum"].max()
    claim = f"{name}, Kepler: angular momentum, long run, error"
    rows.append(above(claim, largest, 1e-8))
    return rows


def _step_rows(name: str, one: Found, systems: Systems, y0: Any) -> list[Row]:
    """What a step does to the symplectic form, and steps forth and back."""
    rows = []
    claim = f"{name}: largest entry of J'OJ - O of a step"
    if name == "TaoLeapfrog":
        claim = f"{name}: largest entry of J'OJ - O of a step, in the doubled space"
    judge, bound = (below, 1e-14) if one.symplectic else (above, 1e-12)
    rows.append(judge(claim, one.defect, bound))
    if name in _OSCILLATOR:
        factor = 1 + one.short.mean["oscillator"][99]
        claim = f"{name}, oscillator: energy after 100 steps of 0.1, over the first"
        exact = _OSCILLATOR[name](_H) ** 100
        rows.append(near(claim, factor, exact, 1e-12))
    if name != "TaoLeapfrog":
        rows.append(_way_back(name, one, systems, y0))
    return rows


def _way_back(name, one, systems, y0) -> Row:
    end = jax.tree.map(lambda a: jnp.asarray(a[-1]), one.short.states)
    solver = _METHODS[name].solver()
    back = run(solver, systems, systems.quantities, end, -_H)
    gap = np.abs(back.states[0]["attention"][-1] - y0[0]["attention"]).max()
    claim = f"{name}, attention: 200 steps forth and back, from the start"
    judge, bound = (below, 1e-10) if one.symplectic else (above, 1e-8)
    return judge(claim, gap, bound)


def _layer_rows(found: dict[str, Found]) -> list[Row]:
    """Layers x + h f(x) are Euler's steps; coupled ones are those of leapfrog."""
    claims = {
        "Euler": (above, "layers x + h f(x)", 1.0),
        "Leapfrog": (below, "coupled layers, of leapfrog", 0.01),
    }
    return [
        judge(
            f"tokens, 200 {what}, h = 0.1: error of the energy",
            found[name].short.largest["attention"].max(),
            bound,
        )
        for name, (judge, what, bound) in claims.items()
    ]


def _bent_rows() -> list[Row]:
    """H = (q^2 + 1)(p^2 + 1) / 2 up to t = 20."""
    systems, y0 = bent_system()
    first = float(systems.quantities(y0)["bent"])
    rows = []
    for name in ("ImplicitMidpoint", "TaoLeapfrog"):
        solver = _METHODS[name].solver()
        errors = [
            run(solver, systems, systems.quantities, y0, h, size).largest["bent"].max()
            / first
            for h, size in ((0.01, 10), (0.005, 20))
        ]
        claim = f"{name}, H = (q^2 + 1)(p^2 + 1) / 2, h = 0.01: error of the energy"
        if name == "TaoLeapfrog":
            rows.append(reported(claim, errors[0], "about 1e-4; less by midpoint"))
        else:
            rows.append(below(claim, errors[0], 1e-4))
        claim = f"{name}, the same: error by twice the step over it"
        rows.append(near(claim, errors[0] / errors[1], 4.0, 0.4))
    try:
        solve(systems, y0, t1=1.0, dt0=0.01, solver=Leapfrog())
        refused = 0.0
    except ValueError:
        refused = 1.0
    return [*rows, near("Leapfrog, the same: it is refused", refused, 1, 0)]


def _force_rows(seed: int, systems: Systems, y0: Any) -> list[Row]:
    """Ports change the energy by their power; attention alone is no force of one."""
    H: Hamiltonian = systems.energies["attention"]
    q, p = y0[0]["attention"], y0[1]["attention"]
    key = jax.random.fold_in(jax.random.key(seed), 10)
    root, push = (jax.random.normal(k, (3, 3)) for k in jax.random.split(key))
    drag = root @ root.T
    control = lambda t, y, args: jnp.sin(y[0]) @ push
    field = flow_of(H, damping=drag, control=control)
    velocity, force = field(0.0, (q, p), None)
    rate = jax.jvp(lambda q, p: H(q, p), (q, p), (velocity, force))[1]
    power = jnp.sum(velocity * (control(0.0, (q, p), None) - velocity @ drag.T))
    rows = [
        below("ports: dH/dt over <q', u - D q'>, less 1", abs(rate / power - 1), 1e-12)
    ]
    potential: AttentionPotential = H.potential  # type: ignore[assignment]
    query: Any = potential.bilinear
    params = AttentionParams(beta=BETA, query=query, value=query.T / 2)
    alone = lambda q: euclidean_attention(0.0, q, params)
    whole = lambda q: -jax.grad(potential)(q) + potential.confinement * q
    claim = "asymmetry |J - J'| / |J| of the force of the potential"
    rows.append(below(claim, _asymmetry(whole, q), 1e-12))
    claim = "asymmetry |J - J'| / |J| of attention alone, as a force"
    return [*rows, above(claim, _asymmetry(alone, q), 0.1)]


def _asymmetry(force, q) -> float:
    J = np.asarray(jax.jit(jax.jacfwd(force))(q)).reshape(q.size, q.size)
    return float(np.linalg.norm(J - J.T) / np.linalg.norm(J))


def _section(time: int) -> tuple[np.ndarray, Row]:
    """Crossings of x = 0 with dx/dt > 0 by orbits of one energy, by Yoshida4."""
    y, v = np.meshgrid(np.linspace(-0.35, 0.6, 5), np.linspace(-0.1, 0.4, 4))
    q, p = henon_heiles_start(y.ravel(), v.ravel())
    there = np.isfinite(p[0])
    field = flow_of(Hamiltonian(henon_heiles))
    ts = np.linspace(0.0, time, 10 * time + 1)
    sol: Any = solve(
        field,
        (jnp.asarray(q[:, there]), jnp.asarray(p[:, there])),
        t1=float(time),
        ts=ts,
        dt0=_H,
        solver=Yoshida4(),
        max_steps=10 * time + 16,
    )
    q, p = (np.asarray(part) for part in sol.ys)
    x, y = q[:, 0], q[:, 1]
    energy = (np.sum(p**2 + q**2, axis=1)) / 2 + x**2 * y - y**3 / 3
    claim = "Yoshida4, Hénon-Heiles: energy of all orbits of the section, error"
    row = below(claim, np.abs(8 * energy - 1).max(), 1e-4)
    before, orbit = np.nonzero((x[:-1] < 0) & (x[1:] >= 0))
    # Between two states a crossing is where their line meets the section.
    share = x[before, orbit] / (x[before, orbit] - x[before + 1, orbit])
    between = lambda a: (1 - share) * a[before, orbit] + share * a[before + 1, orbit]
    return np.stack([orbit, between(y), between(p[:, 1])], axis=1), row


_NOTE = (
    "Errors of the energy are relative. An order is the slope over errors between "
    "1e-11 and 1e-3. The growth over the long run, of 200 blocks of 500 steps, is the "
    "slope of a line through the blocks' mean errors, times the run, over the largest "
    "error: 1 for a steady drift, near 0 for an error that comes and goes. The scatter "
    "of the blocks gives no honest standard error: on regular orbits they differ by "
    "beats, which are no noise (see the row that is measured only), and on the chaotic "
    "orbit of tokens they remember each other. Nor do the largest errors of the two "
    "halves judge it: there they are those of the rarest encounters. Steps are 0.1, "
    "but of TaoLeapfrog 0.01, with omega = 20, of Euler 0.001, of Heun 0.02. Kepler's "
    "problem has the eccentricity 0.6 and the least distance 1."
)
