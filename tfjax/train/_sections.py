"""Dictionaries turned into dataclasses; errors name the section and the key."""

import contextlib
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from .._core import must


T = TypeVar("T")


def section(cls: type[T], prefix: str, values: Any) -> T:
    """A dataclass from a dictionary, whose keys and types are checked.

    Types are int, float (integers will do), str, bool, a tuple of one of these, a
    mapping, another dataclass, and any of them or None.
    """
    if not isinstance(values, Mapping):
        raise must(prefix.rstrip(".") or "values", "be a section", repr(values))
    hints = typing.get_type_hints(cls)
    # No type says "a dataclass": callers hand over nothing else.
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    check_keys(prefix, values, known)
    found = {name: _value(prefix + name, hints[name], v) for name, v in values.items()}
    return cls(**found)


def _value(name: str, hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType):
        kind, _ = hint.__args__
        return None if value is None else _value(name, kind, value)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise must(name, "be a section", repr(value))
        with prefixed(name):  # a class does not know the sections it is in
            return section(typing.cast(type, hint), f"{name}.", value)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise must(name, "be a list", repr(value))
        return tuple(_value(name, hint.__args__[0], entry) for entry in value)
    if hint is float and type(value) in (int, float):
        return _finite(name, value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    words = {float: "a number", int: "an integer", str: "a text", bool: "true or false"}
    if hint not in words and isinstance(value, Mapping):
        return dict(value)
    raise must(name, f"be {words.get(hint, 'a section')}", repr(value))


def _finite(name: str, value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise must(name, "be a finite number", f"{number}")
    return number


def check_keys(prefix: str, values: Mapping[str, Any], known: list[str]) -> None:
    """Raises for a key that is not known, with the one that was meant."""
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            hint = f"; did you mean `{prefix}{close[0]}`?" if close else "."
            text = f"`{prefix}{key}` is no key: there are {', '.join(known)}{hint}"
            raise ValueError(text)


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raises unless the value is one of those known."""
    if value not in known:
        raise must(name, f"be one of {', '.join(map(repr, known))}", repr(value))


def at_least_one(name: str, value: int, most: int = 2**31 - 1) -> None:
    """Raises for a count below 1, or beyond what counters of 32 bits can hold."""
    if value < 1:
        raise must(name, "be at least 1", value)
    if value > most:
        raise must(name, f"be at most {most}", f"{float(min(value, 10**300)):.3g}")


@contextlib.contextmanager
def prefixed(name: str) -> Iterator[None]:
    """Names in errors get their section: `layers` becomes `model.layers`."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("`") or str(error).startswith(f"`{name}."):
            raise
        raise ValueError(f"`{name}.{str(error)[1:]}") from error
