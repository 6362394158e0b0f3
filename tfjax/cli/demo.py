"""`tfjax demo`: the main job on four examples, against numbers known beforehand."""

import argparse
from typing import Any

from ._arguments import add_command, add_output, add_seed


FILES = ("clusters.png", "metastable.png", "words.png", "summary.json")


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "demo",
        run,
        "run the main job on four examples, about two minutes, and compare the results "
        "with numbers known beforehand",
        "tfjax demo --out demo",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="32 initialisations in place of 256, with wider tolerances",
    )
    add_seed(parser)
    add_output(parser, "demo", "three pictures and summary.json")


def run(arguments: argparse.Namespace) -> int:
    """Runs the examples, prints the table, writes; 1 if a row fails."""
    from ._demo import demo
    from ._output import claim

    claim(arguments.out, force=arguments.force, known=FILES)
    return demo(arguments)
