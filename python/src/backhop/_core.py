"""Calls the C core: flat functions of ``_backhop`` on handles, the fastest that SWIG has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from . import _backhop as c
from . import _native  # noqa: F401  registers the destructors of handles
from ._errors import ArgumentError, Error, check

Handle = TypeVar("Handle")
Name = TypeVar("Name", bound=str)


def made(result: tuple[int, Handle], detail: str = "", only: type[Error] = Error) -> Handle:
    """Returns what a ``bh_<noun>_new`` made.

    Its last reference frees it. Parameters as ``check``'s.
    """
    status, handle = result
    check(status, detail, only)
    return handle


def numbers(prefix: str, *others: str) -> dict[Any, int]:
    """Returns an enumeration of the core: BH_QUEUE_CLASSIC is ``"classic"`` of ``BH_QUEUE_``.

    :param others: enumerators to leave out, besides LAST, which only counts.
    """
    left_out = {prefix + other for other in (*others, "LAST")}
    found = {
        name: value
        for name, value in vars(c).items()
        if name.startswith(prefix) and name not in left_out
    }
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value for name, value in found.items()
    }


def names(prefix: str, *others: str) -> dict[int, Any]:
    """Returns the names of an enumeration by the core's numbers."""
    return {value: name for name, value in numbers(prefix, *others).items()}


def number(names: Mapping[Name, int], name: Name, what: str) -> int:
    """Returns the core's number for a name.

    :raises ArgumentError: if there is no such name.
    """
    try:
        return names[name]
    except (KeyError, TypeError):
        raise ArgumentError(f"{what} is {name!r}: give one of {', '.join(names)}") from None
