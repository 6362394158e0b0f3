"""The order of the demo, and its closing table."""

import argparse
import time
from pathlib import Path

import jax

from ..figures import save_figure
from ..figures.paper._texts import paragraph
from ._demo_parts import Part, Row, gradient, metastable, two_time_scales, words
from ._errors import FailedRun
from ._inputs import embed
from ._output import killable, write_json, writing
from ._versions import versions


def demo(arguments: argparse.Namespace) -> int:
    """Runs the four examples in float64; returns the exit code."""
    begin = time.perf_counter()
    members = 32 if arguments.quick else 256
    # The exit time and the finite difference need float64; only this process has it.
    with jax.enable_x64(True):
        parts = [
            _timed(
                f"1/4  {members} random starts", two_time_scales, members, arguments
            ),
            _timed("2/4  five tokens on the circle", metastable),
            _timed("3/4  a gradient through the flow", gradient),
        ]
        note = None
        try:
            text = embed(paragraph())
        except (FileNotFoundError, ImportError) as error:
            note = "4/4  real words: left out, since the weights cannot be had ("
            note += f"{str(error).rstrip('.')})."
            print(note, flush=True)
        else:
            parts.append(_timed("4/4  real words", words, text))
        pictures = _write(arguments.out, parts, arguments, note, begin)
    rows = [row for part in parts for row in part.rows]
    print(f"\n{_table(rows)}\n")
    for path, caption in pictures:
        print(f"{path}: {caption}")
    print(f"{arguments.out / 'summary.json'}: all of these numbers")
    print(f"{time.perf_counter() - begin:.0f} seconds in all.")
    failed = sum(not row.passed for row in rows)
    if failed:
        raise FailedRun(
            f"{failed} of {len(rows)} rows of the table are not as expected."
        )
    return 0


def _timed(title, part, *inputs) -> Part:
    print(title, "...", flush=True)
    begin = time.perf_counter()
    try:
        with killable():
            done = part(*inputs)
    except RuntimeError as error:
        raise FailedRun(str(error).strip().splitlines()[0]) from error
    if done.text:
        print(done.text)
    print(f"     {time.perf_counter() - begin:.1f} s", flush=True)
    return done


def _table(rows: list[Row]) -> str:
    width = max(len(row.name) for row in rows)
    lines = [f"{'':<{width}}  {'expected':>22}  {'found':>12}"]
    for row in rows:
        expected = f"{row.expected:g} ± {row.tolerance:.2g}"
        mark = "ok" if row.passed else "FAIL"
        lines.append(f"{row.name:<{width}}  {expected:>22}  {row.found:>12.7g}  {mark}")
    return "\n".join(lines)


def _write(out, parts, arguments, note, begin) -> list[tuple[Path, str]]:
    from .demo import FILES

    pictures = []
    with writing(out, FILES) as scratch:
        for part in parts:
            if part.picture is not None:
                name, caption, plot = part.picture
                save_figure(plot.figure, scratch / name, dpi=part.dpi)
                pictures.append((out / name, caption))
        rows = [row for part in parts for row in part.rows]
        content = {
            "command": "demo",
            "parameters": {"quick": arguments.quick, "seed": arguments.seed},
            "versions": versions(),
            "rows": [row.as_json() for row in rows],
            "left_out": note,
            "seconds": round(time.perf_counter() - begin, 3),
        }
        write_json(scratch / "summary.json", content)
    return pictures
