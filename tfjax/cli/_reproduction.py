"""One experiment after another: run, print, write."""

import argparse
import sys
import time
from collections.abc import Callable

import jax
import numpy as np

from ..figures import save_figure
from ..figures.experiments import EXPERIMENTS, Report, Row, Table, load
from ..nn import find_weights
from ..train import find_data
from ._errors import FailedRun
from ._output import killable, write_json, writing
from ._page import PAGE, page, summaries
from ._versions import versions
from .reproduce import FILES


def reproduce(names: list[str], arguments: argparse.Namespace) -> int:
    """Runs the experiments in float64; returns the exit code.

    Each is written when it is done, so an interruption leaves the earlier ones whole,
    and one that breaks does not stop the others.
    """
    _check_needs(names, quick=arguments.quick)
    begin = time.perf_counter()
    wrong: list[str] = []
    with jax.enable_x64(True):
        for k, name in enumerate(names):
            print(
                f"{k + 1}/{len(names)}  {name}: {EXPERIMENTS[name].title}", flush=True
            )
            try:
                report, seconds = _run(name, arguments)
            except Exception as error:  # whatever it is, the others are run
                words = str(error).strip() or type(error).__name__
                text = words.splitlines()[0]
                wrong.append(f"{name} could not be run: {text}")
                print(f"     FAILED: {text}\n", flush=True)
                continue
            print(table(report.rows))
            for each in report.tables:
                print("\n" + columns(each))
            if report.note:
                print(f"     {report.note}")
            _write(name, report, seconds, arguments)
            path = arguments.out / name
            print(f"     {path}: {', '.join(FILES)}; {seconds:.1f} s\n", flush=True)
            wrong += [f"{name}: {row.claim}" for row in report.rows if not row.passed]
    if len(names) > 1:
        print(f"{time.perf_counter() - begin:.0f} seconds in all.")
    if written := summaries(arguments.out):
        with writing(arguments.out, (PAGE,)) as scratch:
            (scratch / PAGE).write_text(page(written), encoding="utf-8")
        print(f"{arguments.out / PAGE}: every claim and figure on one page.")
    if wrong:
        raise FailedRun("Not as expected: " + "; ".join(wrong).rstrip(".") + ".")
    return 0


def _check_needs(names: list[str], *, quick: bool) -> None:
    """What is missing ends the command before the first experiment, not after hours."""
    for name in names:
        needs = EXPERIMENTS[name]
        try:
            for weights in needs.weights:
                find_weights(weights)
            for data in () if quick else needs.data:
                find_data(data)
        except FileNotFoundError as error:
            raise FailedRun(f"{name} could not be run: {error}") from error


def _run(name: str, arguments: argparse.Namespace) -> tuple[Report, float]:
    begin = time.perf_counter()
    show = _bar(name)
    try:
        with killable(f"nothing of {name} was written"):
            report = load(name)(
                seed=arguments.seed, quick=arguments.quick, progress=show
            )
    finally:
        show(1.0)
    return report, time.perf_counter() - begin


def _bar(name: str) -> Callable[[float], None]:
    """A progress bar on a terminal, nothing elsewhere; gone when it is full."""
    if not sys.stderr.isatty():
        return lambda fraction: None

    def show(fraction: float) -> None:
        done = round(30 * min(max(fraction, 0.0), 1.0))
        text = f"     {name} [{'#' * done}{'.' * (30 - done)}] {100 * fraction:3.0f} %"
        line = " " * len(text) + "\r" if fraction >= 1 else text
        print(f"\r{line}", end="", file=sys.stderr, flush=True)

    return show


def table(rows: list[Row]) -> str:
    """The claims, a line each: expected, found, and a mark."""
    width = max([len(row.claim) for row in rows], default=0)
    wide = max([len(row.expected) for row in rows] + [len("expected")])
    lines = [f"     {'':<{width}}  {'expected':>{wide}}  {'found':>12}"]
    for row in rows:
        mark = "--" if row.reported else "ok" if row.passed else "FAIL"
        found = f"{row.found:>12.7g}"
        lines.append(
            f"     {row.claim:<{width}}  {row.expected:>{wide}}  {found}  {mark}"
        )
    return "\n".join(lines)


def columns(table: Table) -> str:
    """A table for a terminal: its title, then aligned cells."""
    grid = [table.columns, *table.rows]
    widths = [max(len(row[k]) for row in grid) for k in range(len(table.columns))]
    lines = (
        "     "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in grid
    )
    return "\n".join([f"     {table.title}", *(line.rstrip() for line in lines)])


def _write(
    name: str, report: Report, seconds: float, arguments: argparse.Namespace
) -> None:
    with writing(arguments.out / name, FILES) as scratch:
        save_figure(report.figure, scratch / "figure.png", dpi=130)
        np.savez_compressed(scratch / "arrays.npz", **report.data)  # type: ignore[arg-type]
        quick = " --quick" if arguments.quick else ""
        content = {
            "experiment": name,
            "title": EXPERIMENTS[name].title,
            "command": f"tfjax reproduce {name}{quick} --seed {arguments.seed}",
            "parameters": {"quick": arguments.quick, "seed": arguments.seed},
            "versions": versions(),
            "rows": [row.as_json() for row in report.rows],
            "tables": [table._asdict() for table in report.tables],
            "note": report.note,
            "passed": all(row.passed for row in report.rows),
            "seconds": round(seconds, 1),
        }
        write_json(scratch / "summary.json", content)
