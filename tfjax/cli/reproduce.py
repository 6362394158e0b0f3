"""`tfjax reproduce`: figures and theorems, expected against found."""

import argparse
from typing import Any

from ._arguments import add_command, add_output, add_seed


FILES = ("figure.png", "arrays.npz", "summary.json")


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "reproduce",
        run,
        "rerun figures and theorems of the paper, and of structure-preserving flows, "
        "and compare what is found with what is expected",
        "tfjax reproduce equiangular --out reproduction",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="experiments; see --list"
    )
    parser.add_argument("--all", action="store_true", help="every experiment")
    parser.add_argument(
        "--list", action="store_true", help="print their names, a line each, and end"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer draws and shorter runs, with wider tolerances: seconds each",
    )
    add_seed(parser)
    add_output(
        parser, "reproduction", "a directory of figure, arrays and summary for each"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the experiments that are named; 1 if a claim does not hold."""
    from ..figures.experiments import EXPERIMENTS
    from ._errors import InputError, must

    if arguments.list:
        width = max(map(len, EXPERIMENTS))
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:<{width}}  {experiment.title}")
        return 0
    unknown = [name for name in arguments.names if name not in EXPERIMENTS]
    if unknown:
        rule = f"be of {', '.join(EXPERIMENTS)}"
        raise must("NAME", rule, ", ".join(unknown))
    if arguments.all and arguments.names:
        raise InputError("Names must not be given beside --all.")
    names = list(EXPERIMENTS) if arguments.all else list(dict.fromkeys(arguments.names))
    if not names:
        raise InputError(
            "An experiment must be named, or --all; see `tfjax reproduce --list`."
        )
    from ._output import claim
    from ._reproduction import reproduce

    for name in names:
        claim(arguments.out / name, force=arguments.force, known=FILES)
    return reproduce(names, arguments)
