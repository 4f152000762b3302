"""Maps what a handler raises to a result: RetryAfter, Throttled, Park, Drop, and the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ._checks import instance, shortened, truth
from ._errors import ArgumentError, ArgumentTypeError
from ._exceptions import cause_of, is_kind, loggable, name_of, text_of, writable
from ._handlers import is_async
from ._times import Seconds, duration, milliseconds, retry_after, seconds
from .plan import Outcome, Result
from .policy import Policy

AnyException = Any
"""The type of a predicate's argument: it is called with any exception of a handler."""
Condition: TypeAlias = type[BaseException] | Callable[[AnyException], "Verdict"]
"""A class of exceptions, or a predicate."""
Conditions: TypeAlias = Condition | Iterable[Condition]
Policies: TypeAlias = Mapping[Any, Policy]
"""Policies of retries by Condition: the first that matches the exception counts.

The key type is Any, because keys of a Mapping are invariant: a ``dict[type[OSError], Policy]`` has
other keys.
"""

LOGGER = logging.getLogger("backhop")


class RetryAfter(Exception):  # noqa: N818  it is no error
    """Raise it to retry the message no earlier than ``delay``.

    The retry waits for the policy's delay if that is longer. ``delay`` is capped by the policy's
    max_retry_after.

    :param delay: seconds, 0 or more: an int, float or timedelta, or a text as ``"30s"``. You can
        also give the value of HTTP's header Retry-After: ``"120"``, a date, or None without it. A
        malformed header is no delay.
    :param error: the reason, which the copy carries: a text, or an exception
    :raises ArgumentError: if ``delay`` is no such time
    """

    # A subclass may not call this __init__.
    delay: Seconds = 0
    error: str | BaseException = ""

    def __init__(self, delay: Seconds | None, error: str | BaseException = "") -> None:
        super().__init__(delay, error)
        self.delay = retry_after(delay, "delay")  # a wrong delay is raised in the handler
        self.error = error

    def __str__(self) -> str:
        given = text_of(self.error) if isinstance(self.error, BaseException) else str(self.error)
        ms = milliseconds(self.delay)
        delay = f"retry after {duration(seconds(ms))}" if ms else "retry"
        return f"{delay}{f': {given}' if given else ''}"


class Throttled(RetryAfter):
    """Raise it if the downstream is busy: the message waits at least ``delay``, without an attempt.

    After max_deferrals of the policy, and with the strategies reject and native, it is a failed
    attempt, as RetryAfter.

    :param delay: as RetryAfter's; likewise error
    :param whole_queue: whether the breaker of the consumer opens for at least ``delay``
    :raises ArgumentError: if ``delay`` is no such time
    :raises ArgumentTypeError: if ``whole_queue`` is neither True nor False

    >>> raise Throttled(response.headers.get("Retry-After"), "429")
    """

    whole_queue: bool = False

    def __init__(
        self,
        delay: Seconds | None,
        error: str | BaseException = "",
        *,
        whole_queue: bool = False,
    ) -> None:
        super().__init__(delay, error)
        self.whole_queue = truth("whole_queue", whole_queue)


class Park(Exception):  # noqa: N818
    """Raise it to park the message now, because no attempt can succeed.

    :param reason: the reason, which the copy carries: a text, or an exception
    """

    reason: str | BaseException = ""  # a subclass may not call this __init__

    def __init__(self, reason: str | BaseException = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Drop(Exception):  # noqa: N818
    """Raise it to acknowledge the message without a copy, because it is obsolete."""


Verdict: TypeAlias = bool | Seconds | Throttled
"""The result of a predicate: whether it matches the exception, or the shortest delay of a retry."""


class Choice:
    """Maps exceptions to results by the options ``never``, ``only`` and ``policies``.

    :param never: exceptions that park a message at once: a class, a predicate, or a list of these
    :param only: the exceptions that are retried, likewise; all others park. None: all are retried
    :param policies: other policies for the retries of some exceptions
    :raises ArgumentTypeError: if a condition is neither a class of exceptions nor a function
    """

    __slots__ = ("_never", "_only", "_policies")

    def __init__(
        self,
        never: Conditions = (),
        only: Conditions | None = None,
        policies: Policies | None = None,
    ) -> None:
        self._never = conditions("never", never)
        self._only = None if only is None else conditions("only", only)
        self._policies = checked_policies(policies)

    def result(self, exception: BaseException) -> Result:
        """Returns the result for an exception of a handler."""
        try:
            return self._chosen(exception)
        except Exception as problem:  # its class or a part of it raises
            parks = is_kind(exception, Park)
            end = "parked" if parks else "tried again"
            text = "an exception of a handler is unreadable: the message is %s"
            LOGGER.error(text, end, exc_info=loggable(problem))
            return Result("permanent" if parks else "failed", writable(text_of(exception)))

    def _chosen(self, exception: BaseException) -> Result:
        result = self._result(exception)
        if result.outcome not in _WAITING:
            return result
        for condition, policy in self._policies.items():
            verdict = _verdict("policies", condition, exception, False)
            if verdict is not False:
                wait = _wait(result.error, verdict)
                delay = result.retry_after or wait.retry_after
                given = wait if result.outcome == "failed" else result
                return Result(given.outcome, result.error, delay, policy, given.whole_queue)
        return result

    def _result(self, exception: BaseException) -> Result:
        raised: Any = exception
        if is_kind(exception, RetryAfter):
            is_throttled = is_kind(exception, Throttled)
            outcome: Outcome = "throttled" if is_throttled else "failed"
            whole_queue = is_throttled and raised.whole_queue
            error = _said(raised.error or _own_text(raised), exception)
            return Result(outcome, error, _delay_of(raised.delay), whole_queue=whole_queue)
        if is_kind(exception, Park):
            return Result("permanent", _said(raised.reason or str(exception), exception))
        if is_kind(exception, Drop):
            return Result("dropped")
        error = writable(text_of(exception))
        for condition in self._never:
            verdict = _verdict("never", condition, exception, False)
            if verdict is True:
                return Result("permanent", error)
            if verdict is not False:
                return _wait(error, verdict)
        if self._only is None:
            return Result("failed", error)
        for condition in self._only:
            verdict = _verdict("only", condition, exception, True)
            if verdict is not False:
                return _wait(error, verdict)
        return Result("permanent", error)


_WAITING = frozenset({"failed", "throttled"})
"""Outcomes after which a message can wait."""


def _wait(error: str, verdict: Verdict) -> Result:
    """Returns the result for a verdict that lets the message wait."""
    if isinstance(verdict, Throttled):
        return Result("throttled", error, verdict.delay, whole_queue=verdict.whole_queue)
    return Result("failed", error, 0 if verdict is True else verdict)


def checked_policies(given: Any) -> Policies:
    """Returns the option ``policies`` of a user as a dict.

    :raises ArgumentTypeError: if it is no mapping of conditions to policies
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            f"policies is {shortened(given)}: give a dict, as {{OSError: backhop.Policy()}}"
        )
    conditions("policies", tuple(given))
    for condition, policy in given.items():
        instance(f"policies[{shortened(condition)}]", policy, Policy, "give a backhop.Policy")
    return dict(given)


def conditions(name: str, given: Any) -> tuple[Condition, ...]:
    """Returns the conditions of an option of a user.

    :raises ArgumentTypeError: if one is neither a class of exceptions nor a function
    """
    is_one = isinstance(given, type) or callable(given)
    if isinstance(given, str | bytes | Mapping) or not (is_one or isinstance(given, Iterable)):
        raise ArgumentTypeError(f"{name} is {shortened(given)}: {_ADVICE}")
    found: tuple[Any, ...] = (given,) if is_one else tuple(given)
    for each in found:
        is_class = isinstance(each, type)
        if is_class and issubclass(each, BaseException):
            continue
        if is_class or not callable(each):
            raise ArgumentTypeError(f"{name} holds {shortened(each)}: {_ADVICE}")
        if is_async(each):
            raise ArgumentTypeError(
                f"{name} holds a coroutine function, and Backhop awaits none: give a plain function"
            )
    return found


_ADVICE = "give classes of exceptions, or functions that take an exception"


def _verdict(name: str, condition: Condition, exception: BaseException, otherwise: bool) -> Verdict:
    """Returns the result of a condition.

    ``otherwise`` if a predicate raises, so that the message is retried.
    """
    if isinstance(condition, type):
        return is_kind(exception, condition)
    try:
        verdict: Any = condition(exception)
        if isinstance(verdict, bool | Throttled):
            return verdict
        if verdict is None:
            raise ArgumentTypeError(
                f"a predicate of {name} returned None: return True, False, seconds or Throttled"
            )
        return retry_after(verdict)
    except Exception as failure:
        _log_predicate("a predicate of %s failed: the message is tried again", name, failure)
        return otherwise


def _log_predicate(text: str, name: str, failure: Exception) -> None:
    LOGGER.error(text, name, exc_info=loggable(failure))


def _delay_of(given: object) -> Seconds:
    """Returns the delay of an exception; 0 if a subclass has one that is no delay."""
    try:
        return retry_after(given, "delay")
    except ArgumentError:
        return 0


def _own_text(exception: RetryAfter) -> str:
    """Returns the text of a subclass that has one of its own."""
    return "" if type(exception).__str__ is RetryAfter.__str__ else str(exception)


def _said(given: object, exception: BaseException) -> str:
    """Returns the text of what RetryAfter or Park was given, and of its cause."""
    text = text_of(given) if isinstance(given, BaseException) else str(given)
    cause = cause_of(exception)
    if cause is None or cause is given:
        return writable(text)
    reason = text_of(cause)
    return writable(f"{text}; caused by {reason}" if text else reason)


def matches(name: str, given: Iterable[Condition], exception: BaseException) -> bool:
    """Returns whether one of the conditions matches what a handler met.

    True if a predicate raises, which is logged.
    """
    reason = met(exception)
    for condition in given:
        try:
            is_class = isinstance(condition, type)
            if is_kind(reason, condition) if is_class else condition(reason):
                return True
        except Exception as failure:
            _log_predicate("a predicate of %s failed: the exception matches", name, failure)
            return True
    return False


def met(exception: BaseException) -> BaseException:
    """Returns the exception that RetryAfter or Park carries, or was raised from; else itself."""
    if not is_kind(exception, (RetryAfter, Park)):
        return exception
    raised: Any = exception
    try:
        given = raised.error if is_kind(exception, RetryAfter) else raised.reason
    except Exception:  # a property of the user's subclass raises: Choice.result logs it
        given = None
    return (given if isinstance(given, BaseException) else cause_of(exception)) or exception


def class_of(exception: BaseException) -> str:
    """Returns the name of the class of what a handler met."""
    return name_of(met(exception))
