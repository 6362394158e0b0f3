"""`tfjax fetch-weights`: brings pretrained weights onto this machine."""

import argparse
from typing import Any

from ._arguments import add_command
from ._fetching import add_fetch_options, fetch_named


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "fetch-weights",
        run,
        "download pretrained weights, minilm (84 MB), albert (66 MB) or antiberty "
        "(97 MB), and check them",
        "tfjax fetch-weights minilm antiberty",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="minilm, albert or antiberty (default: minilm, which the other commands "
        "use for --text)",
    )
    add_fetch_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Downloads the weights, or says that they are there."""
    from ..nn import WEIGHTS, fetch_weights

    return fetch_named(arguments, WEIGHTS, fetch_weights, "weights", "minilm")
