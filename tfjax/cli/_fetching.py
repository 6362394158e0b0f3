"""What the commands that download have in common."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ._errors import FailedRun, InputError, must


def add_fetch_options(parser: argparse.ArgumentParser) -> None:
    """`--all`, `--destination` and `--force`."""
    parser.add_argument("--all", action="store_true", help="every one of them")
    parser.add_argument(
        "--destination",
        type=Path,
        metavar="DIR",
        help="directory to make, for one NAME (default: ~/.cache/tfjax/NAME, or NAME "
        "in $TFJAX_CACHE, where it is looked for)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="download again, and replace an earlier download",
    )


def fetch_named(
    arguments: argparse.Namespace,
    sources: Mapping[str, Any],
    fetch: Callable[..., Path],
    what: str,
    default: str | None = None,
) -> int:
    """Fetches the names that were given, one after the other, or the default one."""
    unknown = [name for name in arguments.names if name not in sources]
    if unknown:
        raise must("NAME", f"be of {', '.join(sources)}", ", ".join(unknown))
    if arguments.all and arguments.names:
        raise InputError("Names must not be given beside --all.")
    names = list(sources) if arguments.all else list(dict.fromkeys(arguments.names))
    if not names and default is None:
        raise must("NAME", f"be of {', '.join(sources)}, or --all be given", "missing")
    names = names or [default]
    if arguments.destination is not None and len(names) > 1:
        raise must("--destination", "be given with one NAME", f"with {len(names)}")
    for name in names:
        source = sources[name]
        print(
            f"{name} ({source.title}): looking for the {what}, else downloading "
            f"{source.megabytes} MB ...",
            flush=True,
        )
        print(f"The {what} lie in {_fetched(name, arguments, fetch, what)}.")
    return 0


def _fetched(name, arguments, fetch, what) -> Path:
    try:
        return fetch(name, destination=arguments.destination, force=arguments.force)
    except ValueError as error:
        text = str(error).replace("`destination`", "`--destination`")
        text = text.replace("`force=True` downloads", "`--force` downloads")
        raise InputError(text) from error
    except (ImportError, RuntimeError) as error:
        raise FailedRun(str(error)) from error
    except OSError as error:
        raise FailedRun(f"The {what} could not be written: {error}.") from error
