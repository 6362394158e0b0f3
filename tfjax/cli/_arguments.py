"""Words of the command line turned into values, each with its sentence of refusal."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import must


def integer(name: str, least: int, most: int | None = None) -> Callable[[str], int]:
    """A converter to an integer in least..most, for argparse."""
    rule = f"be an integer of at least {least}"
    if most is not None:
        rule = f"be an integer between {least} and {most}"

    def convert(word: str) -> int:
        try:
            value = int(word)
        except ValueError:
            raise must(name, rule, repr(word)) from None
        if value < least or (most is not None and value > most):
            raise must(name, rule, value)
        return value

    return convert


def number(
    name: str,
    rule: str = "be a finite number",
    holds: Callable[[float], bool] = lambda value: True,
) -> Callable[[str], float]:
    """A converter to a finite number for which `holds`, for argparse."""

    def convert(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            raise must(name, rule, repr(word)) from None
        if not math.isfinite(value) or not holds(value):
            raise must(name, rule, f"{value:g}")
        return value

    return convert


def positive(name: str) -> Callable[[str], float]:
    """A converter to a finite number above 0."""
    return number(name, "be a positive number", lambda value: value > 0)


def choice(name: str, *values: str) -> Callable[[str], str]:
    """A converter that lets only some words through."""

    def convert(word: str) -> str:
        if word not in values:
            raise must(name, f"be one of {', '.join(values)}", repr(word))
        return word

    return convert


def add_command(
    commands: Any, name: str, run: Callable[[Any], int], summary: str, example: str
) -> argparse.ArgumentParser:
    """A sub-command whose help ends with an example."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_output(parser: argparse.ArgumentParser, default: str, files: str) -> None:
    """The options of a command that writes into a directory."""
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out",
        type=Path,
        default=Path(default),
        metavar="DIR",
        help=f"directory to make, with {files} (default: {default})",
    )
    out.add_argument(
        "--force",
        action="store_true",
        help="accept a directory that is not empty; replaces these files, no others",
    )


def add_seed(parser: argparse._ActionsContainer) -> None:
    """`--seed`, for whatever is drawn at random."""
    parser.add_argument(
        "--seed",
        type=integer("--seed", 0, 2**32 - 1),
        default=0,
        help="of everything random; the same seed gives the same run (default: 0)",
    )
