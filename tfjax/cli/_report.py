"""What `tfjax simulate` prints and writes."""

import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..diagnostics import Merge, merge_tree
from ..figures import (
    animate_trajectory,
    plot_merge_tree,
    plot_merges,
    plot_overview,
    save_figure,
    telling_state,
)
from ._output import write_json, writing
from ._versions import versions
from ._words import clusters_of, group, listing, phrases


if TYPE_CHECKING:
    from ._simulation import Outcome, Plan
else:
    Outcome = Plan = Any

_WIDTH, _ROWS = 88, 100  # longer lists end up in summary.json only


# --- Printing -------------------------------------------------------------------------


def print_single(
    outcome: Outcome,
    story: Sequence[Merge],
    words: tuple[str, ...] | None,
    threshold: float,
) -> None:
    """When clusters merge and what they are at the end, in words if there are any."""
    names = words or tuple(f"{i}" for i in range(outcome.xs.shape[1]))
    labels, counts = outcome.measures.labels, outcome.measures.clusters
    print(f"\nClusters (components of <x, x'> > {threshold:g})")
    print(f"  {'t':>9}  {'clusters':>8}  merged then")
    if counts[0] < len(names):
        print(f"  {0:>9}  {counts[0]:>8}  (from the start)")
    else:
        print(f"  {0:>9}  {counts[0]:>8}")
    if len(story) > _ROWS:
        print(f"  {len(story) - _ROWS} earlier merges: see summary.json")
    for event in story[-_ROWS:]:
        k = int(np.argmin(np.abs(outcome.ts - event.time)))
        parts = [group(part, names) for part in event.parts]
        _row(f"  {event.time:>9.3g}  {counts[k]:>8}  ", listing(parts, 12, " + "))
    last = clusters_of(labels[-1])
    if len(last) == 1:
        _print_before_collapse(outcome, names)
    print(f"\n{_plural(len(last), 'cluster')} at t = {outcome.ts[-1]:g}")
    _print_clusters(last, names)


def _print_before_collapse(outcome: Outcome, names: Sequence[str]) -> None:
    """One cluster tells nothing: also those at an earlier time with several."""
    labels = outcome.measures.labels
    k = telling_state(labels)
    groups = clusters_of(labels[k])
    if len(groups) > 1:
        print(f"\n{_plural(len(groups), 'cluster')} at t = {outcome.ts[k]:.3g}")
        _print_clusters(groups, names)


def _print_clusters(groups: Sequence[tuple[int, ...]], names: Sequence[str]) -> None:
    for number, members in enumerate(groups[:_ROWS], start=1):
        head = f"  {number:>3}  {len(members):>4}  "
        _row(head, listing(phrases(members, names), _ROWS))
    if len(groups) > _ROWS:
        print(f"  {len(groups) - _ROWS} smaller ones: see summary.json")


def _row(head: str, text: str) -> None:
    indent = " " * len(head)
    lines = textwrap.wrap(
        text, _WIDTH, initial_indent=head, subsequent_indent=indent
    ) or [head]
    print("\n".join(lines))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def print_table(outcome: Outcome, threshold: float) -> None:
    """Clusters over the ensemble, at a few times."""
    sound = _sound_counts(outcome)
    print(f"\nClusters (components of <x, x'> > {threshold:g}), {len(sound)} runs")
    print(f"  {'t':>9}  {'mean':>7}  {'spread':>7}  {'least':>5}  {'most':>5}")
    for k in _few(len(outcome.ts)):
        column = sound[:, k]
        print(
            f"  {outcome.ts[k]:>9.3g}  {column.mean():>7.2f}  {column.std():>7.2f}  "
            f"{column.min():>5}  {column.max():>5}"
        )


def _sound_counts(outcome: Outcome) -> np.ndarray:
    keep = np.ones(len(outcome.xs), bool)
    keep[outcome.failed] = False
    return outcome.measures.clusters[keep]


def _few(count: int) -> list[int]:
    """Some ten indices, the first and the last among them."""
    return sorted({int(round(i)) for i in np.linspace(0, count - 1, min(count, 11))})


# --- Writing --------------------------------------------------------------------------


def write_results(
    out: Path, plan: Plan, outcome: Outcome, story: Sequence[Merge], begin: float
) -> None:
    """All files at once, and what they are."""
    from .simulate import FILES

    with writing(out, FILES) as scratch:
        _write_arrays(scratch / "trajectory.npz", plan, outcome)
        _draw(scratch, plan, outcome)
        write_json(scratch / "summary.json", _summary(plan, outcome, story, begin))
        written = [name for name in FILES if (scratch / name).exists()]
    print(f"\nWrote {', '.join(written)} to {out}")


def _write_arrays(path: Path, plan: Plan, outcome: Outcome) -> None:
    arrays: dict[str, Any] = {
        "ts": outcome.ts,
        "xs": outcome.xs,
        "clusters": outcome.measures.clusters,
        "labels": outcome.measures.labels,
        "energy": outcome.measures.energy,
        "order": outcome.measures.order,
        "beta": np.asarray(plan.args.beta),
        **plan.weights,
    }
    if plan.words is not None:
        arrays["words"] = np.array(plan.words)
    np.savez_compressed(path, **arrays)


def _draw(folder: Path, plan: Plan, outcome: Outcome) -> None:
    given, single = plan.parameters, plan.start.ndim == 2
    threshold = given["threshold"]
    xs, energy = outcome.xs, outcome.measures.energy
    counts = outcome.measures.clusters
    if not single:
        sound = [i for i in range(len(xs)) if i not in set(outcome.failed)]
        xs, energy, counts = xs[sound[0]], energy[sound], counts[sound]
    what = "the first of {ensemble} runs, ".format(**given) if not single else ""
    plot = plot_overview(
        outcome.ts,
        xs,
        counts,
        energy,
        threshold=threshold,
        energy_label=r"$\frac{1}{2\beta} \log(2\beta E_\beta)$",
        title=f"{given['field']}, β = {given['beta']:g} ({what}{given['n']} tokens)",
    )
    save_figure(plot.figure, folder / "trajectory.png")
    if plan.words is not None:
        merging = plot_merges(outcome.ts, xs, plan.words, threshold=threshold)
        save_figure(merging.figure, folder / "words.png", dpi=110)
    elif single:
        tree = merge_tree(outcome.ts, outcome.measures.labels)
        drawn = plot_merge_tree(outcome.ts, tree)
        save_figure(drawn.figure, folder / "merge_tree.png")
    if given["animate"]:
        film = folder / "trajectory.gif"
        animate_trajectory(
            outcome.ts, xs, film, threshold=threshold, progress=_count_frames
        )


def _count_frames(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\rframe {done} of {total}", end=end, file=sys.stderr, flush=True)


def _summary(
    plan: Plan, outcome: Outcome, story: Sequence[Merge], begin: float
) -> dict[str, Any]:
    ts, counts = outcome.ts, outcome.measures.clusters
    content: dict[str, Any] = {
        "command": "simulate",
        "parameters": plan.parameters,
        "versions": versions(),
        "device": str(jax.devices()[0].device_kind),
        "t": [float(t) for t in ts],
    }
    if plan.start.ndim == 2:
        content["clusters"] = counts.tolist()
        content["merge_times"] = _merge_times(ts, counts)
        content["merges"] = [
            {"t": event.time, "parts": [list(part) for part in event.parts]}
            for event in story
        ]
        last = clusters_of(outcome.measures.labels[-1])
        content["final_clusters"] = [list(members) for members in last]
        if plan.words is not None:
            content["words"] = list(plan.words)
    else:
        sound = _sound_counts(outcome)
        content["clusters_mean"] = sound.mean(axis=0).tolist()
        content["clusters_std"] = sound.std(axis=0).tolist()
        content["collapsed"] = int(np.sum(sound[:, -1] == 1))
    return content | {
        "failed": outcome.failed,
        "steps": outcome.steps,
        "seconds": {
            "integration": round(outcome.seconds, 3),
            "all": round(time.perf_counter() - begin, 3),
        },
    }


def _merge_times(ts: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """When at most k clusters are left, for every k that is reached."""
    times = {}
    for k in range(1, int(counts[0]) + 1):
        reached = np.flatnonzero(counts <= k)
        if len(reached):
            times[str(k)] = float(ts[reached[0]])
    return times
