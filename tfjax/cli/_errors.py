"""The two ways in which a command can end badly, and the sentence for the first."""

from pathlib import Path


class InputError(Exception):
    """What the user asked for cannot be: exit code 2.

    Not a ValueError, since argparse would put its own words around that.
    """


class FailedRun(Exception):
    """The input was fine, the run was not: exit code 1."""


def must(name: str, rule: str, got: object) -> InputError:
    """The error for a bad option: its name, what it must be, what it was."""
    return InputError(f"`{name}` must {rule}, but was {got}.")


def unreadable(name: str, path: Path, error: OSError) -> InputError:
    """The error for an option that names a file which cannot be read."""
    reason = error.strerror or type(error).__name__
    return must(name, "name a readable file", f"{path} ({reason.lower()})")
