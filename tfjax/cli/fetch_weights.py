"""`tfjax fetch-weights`: brings the pretrained weights onto this machine."""

import argparse
from pathlib import Path
from typing import Any

from ._arguments import add_command
from ._errors import FailedRun, InputError


def add_parser(commands: Any) -> None:
    """Adds the command and its options."""
    parser = add_command(
        commands,
        "fetch-weights",
        run,
        "download the pretrained weights of MiniLM (84 MB) and check them",
        "tfjax fetch-weights",
    )
    parser.add_argument(
        "--destination",
        type=Path,
        metavar="DIR",
        help="directory to make (default: ~/.cache/tfjax/minilm, or minilm in "
        "$TFJAX_CACHE, where the other commands find it)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="download again, and replace an earlier download",
    )


def run(arguments: argparse.Namespace) -> int:
    """Downloads the weights, or says that they are there."""
    from ..nn import fetch_weights

    print("Looking for the weights, else downloading 84 MB ...", flush=True)
    try:
        found = fetch_weights(
            "minilm", destination=arguments.destination, force=arguments.force
        )
    except ValueError as error:
        text = str(error).replace("`destination`", "`--destination`")
        text = text.replace("`force=True` downloads", "`--force` downloads")
        raise InputError(text) from error
    except (ImportError, RuntimeError) as error:
        raise FailedRun(str(error)) from error
    except OSError as error:
        raise FailedRun(f"The weights could not be written: {error}.") from error
    print(f"The weights lie in {found}.")
    return 0
