"""What a handler raises to say more than "it failed", and what any other exception means."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import isnan
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ._checks import function, instance, shortened
from ._errors import ArgumentError, ArgumentTypeError
from ._time import Seconds, milliseconds
from .plan import Outcome
from .policy import Policy

MessageT = TypeVar("MessageT")
AnyException = Any
"""Of a predicate's argument: it is called with whatever a handler raises."""
Verdict: TypeAlias = bool | Seconds | None
"""What a predicate answers: whether the exception is meant, or the delay that it asks for at least."""
Condition: TypeAlias = type[BaseException] | Callable[[AnyException], Verdict]
"""A class of exceptions, or a predicate."""
Conditions: TypeAlias = Condition | Iterable[Condition]
Policies: TypeAlias = Mapping[Any, Policy]
"""By which policy an exception is retried: that of the first Condition that it meets. The keys of a Mapping are
invariant, so that a ``dict[type[OSError], Policy]`` would be none of Conditions."""

LOGGER = logging.getLogger("backhop")

_MOST_CAUSES = 8
_MOST_MEMBERS = 8
_MOST_TOLD = 32  # of all of them together
_MOST_CHARACTERS = 1024  # of one exception's own text: the core keeps 1 KiB of all


class RetryAfter(Exception):  # noqa: N818  it is no error
    """Try again, and not before ``delay``: a floor under the policy's delay, capped by its max_retry_after.

    :param delay: seconds, as int, float or timedelta, 0 or more
    :param error: why, for whoever reads the message's story: a text, or the exception that was met
    :raises ArgumentError: for what is no such time
    """

    def __init__(self, delay: Seconds, error: str | BaseException = "") -> None:
        if milliseconds(delay, "delay") < 0:  # what is no time is the handler's mistake, and raised there
            raise ArgumentError(f"delay is {delay!r}: give seconds, 0 or more")
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
    policy: Policy | None = None
    """None: the topology's own."""


OK = Result()


class Choice:
    """What ``never``, ``only`` and ``policies`` choose by.

    :param never: exceptions that park a message at once: a class, a predicate, or a list of these
    :param only: the exceptions that are tried again, likewise; any other parks. None: all are
    :param policies: by which other policies some exceptions are tried again
    :raises ArgumentTypeError: for what is neither a class of exceptions nor a function
    """

    __slots__ = ("_never", "_only", "_policies")

    def __init__(
        self, never: Conditions = (), only: Conditions | None = None, policies: Policies | None = None
    ) -> None:
        self._never = _conditions("never", never)
        self._only = None if only is None else _conditions("only", only)
        self._policies = checked_policies(policies)

    def result(self, exception: BaseException) -> Result:
        """What an exception of a handler means."""
        result = self._result(exception)
        if result.outcome != "failed":
            return result
        for condition, policy in self._policies.items():
            verdict = _verdict("policies", condition, exception, False)
            if verdict is not False:
                delay = result.retry_after or (0 if verdict is True else verdict)
                return result._replace(policy=policy, retry_after=delay)
        return result

    def _result(self, exception: BaseException) -> Result:
        if isinstance(exception, RetryAfter):
            return Result("failed", _said(exception.error, exception), exception.delay)
        if isinstance(exception, Park):
            return Result("permanent", _said(exception.reason, exception))
        if isinstance(exception, Drop):
            return Result("dropped")
        error = _writable(story(exception))
        for condition in self._never:
            verdict = _verdict("never", condition, exception, False)
            if verdict is True:
                return Result("permanent", error)
            if verdict is not False:
                return Result("failed", error, verdict)
        if self._only is None:
            return Result("failed", error)
        for condition in self._only:
            verdict = _verdict("only", condition, exception, True)
            if verdict is not False:
                return Result("failed", error, 0 if verdict is True else verdict)
        return Result("permanent", error)


def checked_policies(given: Any) -> Policies:
    """The policies of exceptions that a user gave.

    :raises ArgumentTypeError: for what is no mapping of conditions and policies
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(f"policies is {shortened(given)}: give a dict, as {{OSError: backhop.Policy()}}")
    _conditions("policies", tuple(given))
    for condition, policy in given.items():
        instance(f"policies[{shortened(condition)}]", policy, Policy, "give a backhop.Policy")
    return dict(given)


def _conditions(name: str, given: Any) -> tuple[Condition, ...]:
    is_one = isinstance(given, type) or callable(given)
    if isinstance(given, str | bytes | Mapping) or not (is_one or isinstance(given, Iterable)):
        raise ArgumentTypeError(f"{name} is {shortened(given)}: {_ADVICE}")
    conditions: tuple[Any, ...] = (given,) if is_one else tuple(given)
    for each in conditions:
        is_class = isinstance(each, type)
        if is_class and issubclass(each, BaseException):
            continue
        if is_class or not callable(each):
            raise ArgumentTypeError(f"{name} holds {shortened(each)}: {_ADVICE}")
        if is_async(each):
            raise ArgumentTypeError(f"{name} holds a coroutine function, which nobody awaits: give a plain function")
    return conditions


_ADVICE = "give classes of exceptions, or functions that tell of an exception"


def _verdict(name: str, condition: Condition, exception: BaseException, otherwise: bool) -> bool | Seconds:
    """What a condition says; ``otherwise`` where a predicate fails, so that a message is tried again."""
    if isinstance(condition, type):
        return isinstance(exception, condition)
    try:
        verdict: object = condition(exception)
        if verdict is None or isinstance(verdict, bool):
            return bool(verdict)
        if isinstance(verdict, int | float | timedelta) and not (isinstance(verdict, float) and isnan(verdict)):
            if milliseconds(verdict) > 0:
                return verdict
            if not verdict:
                return False
        raise ArgumentTypeError(f"a predicate of {name} gave {shortened(verdict)}: give True, False, or seconds")
    except Exception:
        LOGGER.exception("a predicate of %s failed: the message is tried again", name)
        return otherwise


def is_async(function: object) -> bool:
    """Whether a call of it gives something to await: a coroutine function, in whatever dress."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004
    )


def check_handler(handle: object, *, instead: str = "") -> None:
    """Refuses what cannot handle messages.

    :param instead: what takes coroutine functions, where they are refused
    """
    function("the handler", handle)
    if instead and is_async(handle):
        raise ArgumentTypeError(f"the handler is a coroutine function, which nobody awaits here: {instead}")


def called(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a handler that is a function: what would have to be awaited was not done."""
    result = handle(message)
    if result is not None and hasattr(result, "__await__"):
        if hasattr(result, "close"):
            result.close()
        raise ArgumentTypeError("the handler gave an awaitable, which nobody awaits here: give a plain function")


async def awaited(handle: Callable[[MessageT], object], message: MessageT) -> None:
    """Calls a handler, and awaits what it gave, if it is to be awaited: a plain function is a handler too."""
    result: Any = handle(message)
    if result is not None and hasattr(result, "__await__"):
        await result


# --- What an exception says of itself --------------------------------------------------------------------------------


def story(exception: BaseException) -> str:
    """An exception in words: class, text and code, members of a group, and what it was raised from, bounded."""
    if _cause(exception) is None and not hasattr(exception, "exceptions"):  # as most are
        return _itself(exception)
    return _story(exception, set(), _MOST_CAUSES)


def _story(exception: BaseException, seen: set[int], left: int) -> str:
    seen.add(id(exception))
    parts = [_itself(exception)]
    members = getattr(exception, "exceptions", None)
    if isinstance(members, list | tuple):
        told = [_story(each, seen, left - 1) for each in members[:_MOST_MEMBERS] if _is_new(each, seen) and left]
        more = len(members) - len(told)
        told += [f"{more} more"] if more else []
        parts.append(f" [{'; '.join(told)}]")
    cause = _cause(exception)
    if _is_new(cause, seen) and left:
        assert cause is not None
        parts.append(f"; caused by {_story(cause, seen, left - 1)}")
    return "".join(parts)


def _is_new(exception: object, seen: set[int]) -> bool:
    return isinstance(exception, BaseException) and id(exception) not in seen and len(seen) < _MOST_TOLD


def _cause(exception: BaseException) -> BaseException | None:
    """As a traceback shows it."""
    if exception.__cause__ is not None or exception.__suppress_context__:
        return exception.__cause__
    return exception.__context__


def _itself(exception: BaseException) -> str:
    name = type(exception).__name__
    try:
        text = str(exception)[:_MOST_CHARACTERS]
        code = _code(exception, text)
    except Exception:  # an exception that cannot be printed is no reason to lose a message
        return name
    return f"{name}: {text}{code}" if text or code else name


def _code(exception: BaseException, text: str) -> str:
    """The code that it has, where its text does not tell it."""
    for name in ("code", "status_code", "sqlstate", "pgcode", "errno"):
        code = getattr(exception, name, None)
        if isinstance(code, str | int) and not isinstance(code, bool) and str(code) and str(code) not in text:
            return f"{' ' if text else ''}({name} {code})"[:_MOST_CHARACTERS]
    return ""


def _said(given: object, exception: BaseException) -> str:
    """What RetryAfter and Park were given, and what they were raised from."""
    words = story(given) if isinstance(given, BaseException) else str(given)
    cause = _cause(exception)
    if cause is None or cause is given:
        return _writable(words)
    why = story(cause)
    return _writable(f"{words}; caused by {why}" if words else why)


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
