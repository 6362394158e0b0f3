"""The command `tfjax`."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ._errors import FailedRun, InputError


# In the order of the help. A module has `add_parser(commands)`, whose parser sets
# `run`, a function `(arguments) -> exit code`; it imports jax in there and not before.
_COMMANDS = (
    "doctor",
    "fetch_weights",
    "fetch_data",
    "simulate",
    "demo",
    "reproduce",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    **Arguments:**

    - `argv`: the words after `tfjax`; those of the process if None.

    **Returns:** the exit code: 0 if it worked, 1 if the run failed, 2 for bad input,
    130 after Ctrl-C. Errors are one sentence on stderr.

    !!! example

        >>> from tfjax.cli import main
        >>> main(["simulate", "--n", "0"])
        2
    """
    for stream in (sys.stdout, sys.stderr):
        # Words of a text may lie outside the encoding of the terminal.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        arguments = _parser().parse_args(argv)
        if arguments.run is None:
            raise InputError("`tfjax` must be given a command; see `tfjax --help`.")
        return arguments.run(arguments)
    except SystemExit as stop:  # from --help and --version
        return int(stop.code or 0)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except FailedRun as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our words, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; what was under way is not written.", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """Errors are sentences of ours and leave the process alone."""

    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"{message[0].upper()}{message[1:]}; see `{self.prog} --help`."
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tfjax",
        description="Transformers as dynamical systems.",
        epilog="Each command has a --help of its own, with an example.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)
    for name in _COMMANDS:
        importlib.import_module(f".{name}", __name__).add_parser(commands)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when asked: importlib.metadata takes its time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from ._versions import installed

        print(installed("tfjax") or "unknown")
        parser.exit()
