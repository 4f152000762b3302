"""Checks and calls the functions that users give."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ._checks import function
from ._errors import ArgumentTypeError
from ._exceptions import is_kind

LOGGER = logging.getLogger("backhop")

MessageT = TypeVar("MessageT")

ENDS_PROGRAM = (KeyboardInterrupt, SystemExit)
"""A handler raises one of these to end the program. All others are failures of an attempt."""


def is_ordinary(exception: BaseException) -> bool:
    """Returns False for an exception that ``except Exception`` does not catch, and no cancellation.

    Such an exception is a failure too, and is logged at once.
    """
    return is_kind(exception, Exception) or type(exception).__module__ == "asyncio.exceptions"


def is_async(function: object) -> bool:
    """Returns whether it is a coroutine function, or an object with one as ``__call__``."""
    return _is(inspect.iscoroutinefunction, function)


def _is(kind: Callable[[object], bool], function: object) -> bool:
    """Returns whether a function, or the ``__call__`` of an object, is of a kind."""
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004


def check_handler(handle: object, *, instead: str = "") -> None:
    """Checks a handler.

    :param instead: what to do with a coroutine function, if it is refused here.
    :raises ArgumentTypeError: if it is not callable, or a call would not run its body.
    """
    function("the handler", handle)
    if _is(inspect.isgeneratorfunction, handle) or _is(inspect.isasyncgenfunction, handle):
        raise ArgumentTypeError(
            "the handler is a generator function, and nothing would run its body: remove the yield"
        )
    if instead and is_async(handle):
        raise ArgumentTypeError(
            f"the handler is a coroutine function, and Backhop awaits none here: {instead}"
        )


def called(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a plain handler.

    :raises ArgumentTypeError: if its result is awaitable, or other work that has not ended.
    """
    result = handle(message)
    if result is not None:
        _check_result(result, "Backhop awaits none here: give a plain function")


async def awaited(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a handler, and awaits its result if that is awaitable.

    :raises ArgumentTypeError: if the result is then other work that has not ended.
    """
    result = handle(message)
    if isinstance(result, Awaitable):
        result = await result
    if result is not None:
        _check_result(result, "nothing awaits it: await it in the handler")


def end_child(process: int, error: BaseException | None = None) -> None:
    """Ends this process if it is a child that the handler forked.

    The child would consume beside its parent on the same connection, and its ``with`` blocks would
    close that connection.

    :param process: the id of the process that called the handler
    :param error: what the handler raised
    """
    if os.getpid() == process:
        return
    status = 1
    if error is not None and is_kind(error, SystemExit):
        code = getattr(error, "code", None)
        status = code if isinstance(code, int) else int(code is not None)
    else:
        text = (
            "the handler ended in a child process that it forked: the child ends too, because its "
            "parent has the connection; end the child with os._exit() in the handler"
        )
        LOGGER.error("%s", text, exc_info=error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status & 0xFF)


def _check_result(result: object, unawaited: str) -> None:
    """Raises if a handler's work has not run, or has not ended: its message would be acknowledged.

    :param unawaited: the second half of the text for an awaitable
    """
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise ArgumentTypeError(
            "the handler returned a generator, and nothing runs its body: remove the yield"
        )
    if isinstance(result, Awaitable):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that it was never awaited
        raise ArgumentTypeError(f"the handler returned an awaitable, and {unawaited}")
    # If the module is not imported, there is no Future.
    future = getattr(sys.modules.get("concurrent.futures"), "Future", ())
    if isinstance(result, future):
        raise ArgumentTypeError(
            "the handler returned a Future, and nothing waits for it: "
            "wait for its result in the handler"
        )
