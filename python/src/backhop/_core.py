"""Calls the C core: flat functions of ``_backhop`` on handles, the fastest that SWIG has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

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


def number(names: Mapping[Name, int], name: Name, what: str) -> int:
    """Returns the core's number for a name.

    :raises ArgumentError: if there is no such name.
    """
    try:
        return names[name]
    except (KeyError, TypeError):
        raise ArgumentError(f"{what} is {name!r}: give one of {', '.join(names)}") from None
