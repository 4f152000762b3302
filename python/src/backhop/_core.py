"""How the C core is called: flat functions of ``_backhop`` on handles, which are the fastest that SWIG has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from . import _native  # noqa: F401  it tells the extension which function frees what
from ._errors import ArgumentError, Error, check

Handle = TypeVar("Handle")
Name = TypeVar("Name", bound=str)


def made(result: tuple[int, Handle], detail: str = "", only: type[Error] = Error) -> Handle:
    """What a ``bh_<noun>_new`` made; it is freed with the last reference to it. Further arguments as ``check``'s."""
    status, handle = result
    check(status, detail, only)
    return handle


def number(names: Mapping[Name, int], name: Name, what: str) -> int:
    """The core's number for a name."""
    try:
        return names[name]
    except (KeyError, TypeError):
        raise ArgumentError(f"{what} is {name!r}: give one of {', '.join(names)}") from None
