"""The work of `tfjax simulate`."""

import argparse
import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..diagnostics import label_merges
from ..fields import AttentionParams, self_attention, unnormalized_self_attention
from ..geometry import Sphere
from ..integrate import solve, solve_ensemble
from ._errors import FailedRun, InputError, must
from ._inputs import embed_or_fail, read_init, read_text, read_weights
from ._measure import Measures, measure
from ._output import killable
from ._report import print_single, print_table, write_results


_FIELDS = {
    "self_attention": self_attention,
    "unnormalized_self_attention": unnormalized_self_attention,
}
_BOUND = 4 * 2**30  # bytes


class Plan(NamedTuple):
    """What is to be done, with every default filled in."""

    start: Array  # (n, d), or (m, n, d) for an ensemble
    args: AttentionParams
    ts: Array
    words: tuple[str, ...] | None
    weights: dict[str, np.ndarray]
    parameters: dict[str, Any]


class Outcome(NamedTuple):
    """What came of it; `failed` are the numbers of the members that failed."""

    ts: np.ndarray
    xs: np.ndarray
    measures: Measures
    failed: list[int]
    steps: dict[str, Any]
    seconds: float


def simulate(arguments: argparse.Namespace) -> int:
    """Reads, integrates, prints and writes; returns the exit code."""
    begin = time.perf_counter()
    with jax.enable_x64(True) if arguments.x64 else contextlib.nullcontext():
        with killable():
            plan = _plan(arguments)
            _announce(plan)
            outcome = _integrate(plan, arguments)
        story = []
        if plan.start.ndim == 2:
            story = label_merges(outcome.ts, outcome.measures.labels)
            print_single(outcome, story, plan.words, arguments.threshold)
        else:
            print_table(outcome, arguments.threshold)
        write_results(arguments.out, plan, outcome, story, begin)
    if outcome.failed:
        total, first = len(outcome.xs), outcome.failed[:10]
        names = ", ".join(map(str, first)) + (
            ", ..." if len(outcome.failed) > 10 else ""
        )
        raise FailedRun(
            f"{len(outcome.failed)} of {total} members failed (numbers {names}): "
            "they are NaN in trajectory.npz, and `failed` in summary.json."
        )
    return 0


# --- What is asked for ----------------------------------------------------------------


def _plan(options: argparse.Namespace) -> Plan:
    words, layer, given = (
        None,
        None,
        options.text is not None or options.init != "uniform",
    )
    if options.text is not None:
        _exclude(options, "--text", n=None, d=None, init="uniform", ensemble=None)
        text = read_text(options.text)
        vectors, words, layer = embed_or_fail(
            text, layer=options.layer, special=not options.no_special
        )
        _check_size(options, *vectors.shape)
        start = jnp.asarray(vectors)
    else:
        for name, default in (("layer", None), ("no_special", False)):
            if getattr(options, name) != default:
                rule = "be given with --text only"
                raise must(f"--{name.replace('_', '-')}", rule, "given without")
        if given:
            _exclude(options, "--init FILE.npy", n=None, d=None, ensemble=None)
            array = read_init(Path(options.init))
            _check_size(options, *array.shape)
            start = jnp.asarray(array)
        else:
            n = options.n or (16 if options.quick else 32)
            d = options.d or 3
            _check_size(options, n, d)
            start = _random_start(options, n, d)
    n, d = start.shape[-2:]
    weights = {}
    if options.weights is not None:
        weights = read_weights(options.weights, d)
        _check_size(options, n, d, weights)
    beta = options.beta
    if beta is None:
        beta = 9.0 if words is None else 13.0
    matrices = {k: jnp.asarray(v) for k, v in weights.items()}
    args = AttentionParams(
        beta=beta,
        query=matrices.get("Q"),
        key=matrices.get("K"),
        value=matrices.get("V"),
        mask=None if options.mask == "none" else options.mask,
    )
    t1 = options.t1 or (20.0 if options.quick else 200.0)
    parameters = {
        "n": n,
        "d": d,
        "beta": beta,
        "t1": t1,
        "ensemble": options.ensemble,
        "seed": None if given else options.seed,
        "field": options.field,
        "mask": options.mask,
        "weights": None if options.weights is None else str(options.weights),
        "init": None if words is not None else options.init,
        "text": None if options.text is None else str(options.text),
        "layer": layer,
        "special_tokens": None if words is None else not options.no_special,
        "threshold": options.threshold,
        "saves": _saves(options),
        "rtol": options.rtol,
        "atol": options.rtol,
        "max_steps": options.max_steps,
        "precision": start.dtype.name,
        "quick": options.quick,
        "animate": options.animate,
    }
    return Plan(start, args, _times(t1, _saves(options)), words, weights, parameters)


def _exclude(options: argparse.Namespace, other: str, **defaults: Any) -> None:
    """Refuses options that the starting points already decide."""
    for name, default in defaults.items():
        value = getattr(options, name)
        if value != default:
            raise must(f"--{name}", f"not be given with {other}", value)


def _saves(options: argparse.Namespace) -> int:
    return options.saves or (41 if options.quick else 101)


def _times(t1: float, saves: int) -> Array:
    """0, then evenly in log time from t1/1000 to t1."""
    first = 1e-3 if saves > 2 else 1.0
    later = t1 * np.geomspace(first, 1.0, saves - 1)
    later[-1] = t1
    return jnp.asarray(np.concatenate([[0.0], later]))


def _random_start(options: argparse.Namespace, n: int, d: int) -> Array:
    members = 1 if options.ensemble is None else options.ensemble
    starts = _starts(jax.random.key(options.seed), members, n, d)
    return starts[0] if options.ensemble is None else starts


@partial(jax.jit, static_argnums=(1, 2, 3))
def _starts(key, members, n, d):
    # Member i depends on i alone: the first one is the single run of the same seed.
    one = lambda i: Sphere(d).random(jax.random.fold_in(key, i), (n,))
    return jax.vmap(one)(jnp.arange(members))


def _check_size(
    options: argparse.Namespace, n: int, d: int, weights: dict[str, Any] | None = None
) -> None:
    """Refuses a run that would not fit into memory, with the limit."""
    members = options.ensemble or 1
    heads = max([len(w) for w in (weights or {}).values() if w.ndim == 3], default=1)
    size = jax.dtypes.canonicalize_dtype(float).itemsize
    abreast = 1 if jax.default_backend() == "cpu" else members

    def need(n: int) -> float:
        # Logits, weights and their sums for each head; products and graph of clusters.
        kernels = (4 * heads * size * abreast + 24) * float(n) ** 2
        return kernels + 4.0 * members * _saves(options) * n * d * size

    if need(n) <= _BOUND:
        return
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if need(middle) <= _BOUND else (low, middle)
    name = (
        "--text" if options.text else "--n" if options.init == "uniform" else "--init"
    )
    rule = (
        f"have at most {low} tokens, since kernels and saved states must fit in 4 GiB"
    )
    if low == 0:
        name, rule = "--ensemble", "be smaller (or --saves), since 4 GiB must hold it"
        raise must(name, rule, f"{members} of {_saves(options)} states of {n} x {d}")
    raise must(name, rule, f"{n} ({need(n) / 2**30:.1f} GiB; fewer --saves help)")


# --- Integration ----------------------------------------------------------------------


def _announce(plan: Plan) -> None:
    given = plan.parameters
    runs = "" if given["ensemble"] is None else f"{given['ensemble']} runs of "
    print(
        f"{runs}{given['n']} tokens, d = {given['d']}, beta = {given['beta']:g}, "
        f"{given['field']}, to t = {given['t1']:g} ({given['precision']})",
        flush=True,
    )


def _integrate(plan: Plan, options: argparse.Namespace) -> Outcome:
    begin = time.perf_counter()
    d = plan.start.shape[-1]
    choices: dict[str, Any] = {
        "t1": plan.parameters["t1"],
        "ts": plan.ts,
        "manifold": Sphere(d),
        "rtol": options.rtol,
        "atol": options.rtol,
        "max_steps": options.max_steps,
        "progress": True,
    }
    field = _FIELDS[options.field]
    try:
        if plan.start.ndim == 2:
            solution = solve(field, plan.start, plan.args, **choices)
        else:
            solution = solve_ensemble(field, plan.start, plan.args, **choices)
        xs, failed = _sound(solution)
        measures = measure(xs, plan.args, options.threshold)
    except ValueError as error:  # what only the precision of the run shows to be bad
        raise InputError(str(error).strip().splitlines()[0]) from error
    except RuntimeError as error:
        raise FailedRun(str(error).strip().splitlines()[0]) from error
    seconds = time.perf_counter() - begin
    steps = _statistics(solution.stats)
    return Outcome(
        np.asarray(plan.ts), np.asarray(xs), measures, failed, steps, seconds
    )


def _sound(solution: dfx.Solution) -> tuple[Array, list[int]]:
    """The states with failed members as NaN, and the numbers of these members."""
    assert solution.ys is not None
    xs = solution.ys
    if xs.ndim == 3:
        return xs, []
    okay = dfx.is_okay(solution.result)
    failed = [int(i) for i in np.flatnonzero(~np.asarray(okay))]
    if len(failed) == len(xs):
        reason = dfx.RESULTS[jax.tree.map(lambda leaf: leaf[0], solution.result)]
        raise FailedRun(f"All {len(xs)} members failed, the first because: {reason}")
    return jnp.where(okay[:, None, None, None], xs, jnp.nan), failed


def _statistics(stats: dict[str, Any]) -> dict[str, Any]:
    """Numbers of steps: as they are, or least, mean and most over the members."""
    found = {}
    for name in ("num_steps", "num_accepted_steps", "num_rejected_steps"):
        values = np.asarray(stats[name])
        if values.ndim == 0:
            found[name] = int(values)
        else:
            ends = {"min": int(values.min()), "max": int(values.max())}
            found[name] = ends | {"mean": float(values.mean())}
    return found
