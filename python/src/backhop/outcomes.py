"""What a handler raises to say more than "it failed"."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from ._errors import ArgumentError
from ._time import Seconds, milliseconds
from .plan import Outcome

MessageT = TypeVar("MessageT")


class RetryAfter(Exception):  # noqa: N818  it is no error
    """Try again, and not before ``delay``: a floor under the policy's delay, capped by its max_retry_after.

    :param delay: seconds, as int, float or timedelta
    :param error: why, for whoever reads the message's story: a text, or the exception that was met
    """

    def __init__(self, delay: Seconds, error: str | BaseException = "") -> None:
        milliseconds(delay)  # what is no time is the handler's mistake, and raised there
        super().__init__(delay, error)
        self.delay = delay
        self.error = error


class Park(Exception):  # noqa: N818
    """No attempt can succeed: park the message now, for a person to look at.

    :param reason: why: a text, or the exception that was met
    """

    def __init__(self, reason: str | BaseException = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Drop(Exception):  # noqa: N818
    """Nobody needs the message any more: acknowledge it and keep no copy."""


_SAYS_MORE = (RetryAfter, Park, Drop)


class Result(NamedTuple):
    """What became of a message."""

    outcome: Outcome = "ok"
    error: str = ""
    retry_after: Seconds = 0


OK = Result()


def parking(never: Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
    """The classes of ``never``, for result_of.

    :raises ArgumentError: for what is no class of exceptions
    """
    classes = tuple(never)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise ArgumentError(f"never holds {each!r}: give classes of exceptions")
    return classes


def result_of(exception: BaseException, never: tuple[type[BaseException], ...] = ()) -> Result:
    """What an exception of a handler means; those of a class in ``never`` park."""
    if not isinstance(exception, _SAYS_MORE):
        return Result("permanent" if isinstance(exception, never) else "failed", _writable(_text(exception)))
    if isinstance(exception, RetryAfter):
        return Result("failed", _writable(_words(exception.error) or _text(exception)), exception.delay)
    if isinstance(exception, Park):
        return Result("permanent", _writable(_words(exception.reason) or _text(exception)))
    return Result("dropped")


def called(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a handler that is a function: what would have to be awaited was not done."""
    result = handle(message)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("the handler gave an awaitable, which nobody awaits here: give a plain function")


def _words(given: object) -> str:
    """What was given to RetryAfter or Park: a text, or the exception that was met."""
    return _text(given) if isinstance(given, BaseException) else str(given)


def _text(exception: BaseException) -> str:
    """The exception in words: of RetryAfter, Park and Drop, what they were raised from."""
    if isinstance(exception, _SAYS_MORE):
        return _text(exception.__cause__) if exception.__cause__ else ""
    name = type(exception).__name__
    try:
        text = str(exception)
    except Exception:  # an exception that cannot be printed is no reason to lose a message
        return name
    return f"{name}: {text}" if text else name


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
