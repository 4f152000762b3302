"""Checks and calls the functions that users give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ._checks import function
from ._errors import ArgumentTypeError

MessageT = TypeVar("MessageT")

ENDS_PROGRAM = (KeyboardInterrupt, SystemExit)
"""A handler raises one of these to end the program. All others are failures of an attempt."""


def is_ordinary(exception: BaseException) -> bool:
    """Returns False for an exception that ``except Exception`` does not catch, and no cancellation.

    Such an exception is a failure too, and is logged at once.
    """
    return isinstance(exception, Exception) or type(exception).__module__ == "asyncio.exceptions"


def is_async(function: object) -> bool:
    """Returns whether it is a coroutine function, or an object with one as ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004
    )


def check_handler(handle: object, *, instead: str = "") -> None:
    """Checks a handler.

    :param instead: what to do with a coroutine function, if it is refused here.
    :raises ArgumentTypeError: if it is not callable.
    """
    function("the handler", handle)
    if instead and is_async(handle):
        raise ArgumentTypeError(
            f"the handler is a coroutine function, and Backhop awaits none here: {instead}"
        )


def called(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a plain handler.

    :raises ArgumentTypeError: if its result is awaitable, because nothing awaits it.
    """
    result = handle(message)
    if result is not None and hasattr(result, "__await__"):
        if hasattr(result, "close"):
            result.close()
        raise ArgumentTypeError(
            "the handler gave an awaitable, and Backhop awaits none here: give a plain function"
        )


async def awaited(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a handler, and awaits its result if that is awaitable."""
    result: Any = handle(message)
    if result is not None and hasattr(result, "__await__"):
        await result
