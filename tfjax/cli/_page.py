"""A page of results in Markdown, made of the summaries that the experiments wrote."""

import json
from pathlib import Path
from typing import Any

from ..figures.experiments import EXPERIMENTS
from ._errors import FailedRun


PAGE = "reproduction.md"


def summaries(directory: Path) -> list[dict[str, Any]]:
    """What lies in a directory of results, in the order of the experiments."""
    files = [directory / name / "summary.json" for name in EXPERIMENTS]
    return [_read(file) for file in files if file.is_file()]


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:  # also of UTF-8
        raise FailedRun(f"{file} is no summary: {error}.") from error


def page(found: list[dict[str, Any]], link: str = "") -> str:
    """Every claim: statement, expected, found; each experiment's command and seconds.

    `link` leads from the page to the directory of results, as in "reproduction/".
    """
    rows = [row for summary in found for row in summary["rows"]]
    judged = [row for row in rows if not row["reported"]]
    held = sum(row["passed"] for row in judged)
    seconds = sum(summary["seconds"] for summary in found)
    lines = [
        "# Reproduction of the paper",
        "",
        "Figures and theorems of arXiv 2312.10794 and of what followed it, and of "
        "structure-preserving flows: Hamiltonian ones and Lie brackets; and "
        "Transformers that are trained. Generated from the experiments' "
        "`summary.json`, by no hand.",
        "",
        f"{held} of {len(judged)} claims hold in {len(found)} experiments, which took "
        f"{seconds / 60:.1f} minutes; {len(rows) - len(judged)} more rows are "
        "measurements that nothing judges.",
        "",
        "| experiment | what it shows | claims that hold | seconds |",
        "|---|---|---|---|",
    ]
    for summary in found:
        name = summary["experiment"]
        own = [row for row in summary["rows"] if not row["reported"]]
        passed = sum(row["passed"] for row in own)
        cells = f"{passed} of {len(own)} | {summary['seconds']:.1f}"
        lines.append(f"| [{name}](#{name}) | {_cell(summary['title'])} | {cells} |")
    for summary in found:
        lines += _section(summary, link)
    return "\n".join(lines) + "\n"


def _section(summary: dict[str, Any], link: str) -> list[str]:
    name, versions = summary["experiment"], summary["versions"]
    lines = [
        "",
        f"## {name}",
        "",
        f"{summary['title'][0].upper()}{summary['title'][1:]}.",
        "",
        f"![{name}]({link}{name}/figure.png)",
        "",
        "| statement | expected | found | |",
        "|---|---|---|---|",
    ]
    for row in summary["rows"]:
        mark = "measured" if row["reported"] else "holds" if row["passed"] else "FAILS"
        found = "not finite" if row["found"] is None else f"{row['found']:.7g}"
        cells = (_cell(row["claim"]), _cell(row["expected"]), found, mark)
        lines.append(f"| {' | '.join(cells)} |")
    for table in summary.get("tables", ()):  # older summaries have none
        lines += _table(table)
    lines += ["", summary["note"]] if summary["note"] else []
    lines += [
        "",
        f"`{summary['command']}`, {summary['seconds']:.1f} seconds, "
        f"jax {versions['jax']}.",
    ]
    return lines


def _table(table: dict[str, Any]) -> list[str]:
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    cells = (" | ".join(map(_cell, row)) for row in rows)
    return ["", f"**{table['title']}**", "", *(f"| {row} |" for row in cells)]


def _cell(text: str) -> str:
    """A bar would end the cell."""
    return text.replace("|", "\\|")
