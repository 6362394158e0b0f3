"""`tfjax fetch-data`: brings data to train on onto this machine."""

import argparse
from typing import Any

from ._arguments import add_command
from ._fetching import add_fetch_options, fetch_named


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "fetch-data",
        run,
        "download data to train on, shakespeare (5 MB) or ucr (6 MB), and check them",
        "tfjax fetch-data shakespeare",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="shakespeare (his plays), ucr (time series to classify)",
    )
    add_fetch_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Downloads the data, or says that they are there."""
    from ..train import DATA, fetch_data

    return fetch_named(arguments, DATA, fetch_data, "data")
