"""`tfjax fetch-weights`: brings pretrained weights onto this machine."""

import argparse
from pathlib import Path
from typing import Any

from ._arguments import add_command
from ._errors import FailedRun, InputError, must


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
    parser.add_argument("--all", action="store_true", help="every one of them")
    parser.add_argument(
        "--destination",
        type=Path,
        metavar="DIR",
        help="directory to make, for one NAME (default: ~/.cache/tfjax/NAME, or NAME "
        "in $TFJAX_CACHE, where the other commands find it)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="download again, and replace an earlier download",
    )


def run(arguments: argparse.Namespace) -> int:
    """Downloads the weights, or says that they are there."""
    from ..nn import WEIGHTS

    unknown = [name for name in arguments.names if name not in WEIGHTS]
    if unknown:
        raise must("NAME", f"be of {', '.join(WEIGHTS)}", ", ".join(unknown))
    if arguments.all and arguments.names:
        raise InputError("Names must not be given beside --all.")
    names = list(WEIGHTS) if arguments.all else list(dict.fromkeys(arguments.names))
    names = names or ["minilm"]
    if arguments.destination is not None and len(names) > 1:
        raise must("--destination", "be given with one NAME", f"with {len(names)}")
    for name in names:
        _fetch(name, arguments)
    return 0


def _fetch(name: str, arguments: argparse.Namespace) -> None:
    from ..nn import WEIGHTS, fetch_weights

    source = WEIGHTS[name]
    print(
        f"{name} ({source.title}): looking for the weights, else downloading "
        f"{source.megabytes} MB ...",
        flush=True,
    )
    try:
        found = fetch_weights(
            name, destination=arguments.destination, force=arguments.force
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
