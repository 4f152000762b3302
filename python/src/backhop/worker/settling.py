"""Settles the messages of a worker, and keeps exceptions for the events of copies."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TypeAlias

from .. import _backhop as c
from .._errors import ConsumerCancelledError, StateError, error
from .._times import milliseconds, seconds
from ..breaker import Breaker
from ..observe.events import Events
from ..outcomes import Choice, class_of
from ..plan import OK, OUTCOMES, Result
from .message import TakenMessage

LOGGER = logging.getLogger("backhop")

_Failure: TypeAlias = tuple[BaseException | None, str, str]
"""The exception of a handler, the attempt's traceparent, and the error's text."""

_NO_FAILURE: _Failure = (None, "", "")


class Settler:
    """Settles messages by what their handlers did.

    :param worker: the core's worker
    :param prefetch: the most messages in hand
    :param wants_retries: the user's option ``retry_events``
    """

    def __init__(
        self,
        worker: c.Worker,
        events: Events,
        choice: Choice,
        prefetch: int,
        wants_retries: bool,
        breaker: Breaker | None,
    ) -> None:
        self._worker = worker
        self._events = events
        self._choice = choice
        self._most_failures = prefetch + c.BH_WORKER_MOST_EVENTS
        self._wants_retries = wants_retries
        self._breaker = breaker
        self._has_keys = breaker is not None and breaker._has_keys
        self.emits_retries = wants_retries
        self.failures: OrderedDict[int, _Failure] = OrderedDict()
        """Failures of messages by the messages' numbers, until the events of their copies."""

    @property
    def emits_now(self) -> bool:
        """True if the core emits an event for each retry in a run that begins now."""
        is_seen = bool(self._events.observers) or LOGGER.isEnabledFor(logging.INFO)
        return self._wants_retries or is_seen

    def begin_run(self, emits_retries: bool) -> None:
        """Begins a run.

        :param emits_retries: whether the core emits an event for each retry
        """
        self.failures.clear()
        self.emits_retries = emits_retries

    def begin_message(self, message: TakenMessage) -> bool:
        """Emits that a handler gets the message now.

        Returns False if no handler gets it, because the breaker of its key is open.
        """
        if self._has_keys and not self._is_permitted(message):
            return False
        self._events.delivered(message)
        return True

    def _is_permitted(self, message: TakenMessage) -> bool:
        """Requests the permit of the message's key. Settles the message without one."""
        assert self._breaker is not None
        try:
            message._call, wait_ms = self._breaker._permit(message)
        except Exception as exception:  # of the user's key function
            self._events.delivered(message)
            self.fail(message, exception)
            return False
        if message._call is None:
            self._settle(message, Result("deferred", retry_after=seconds(wait_ms)))
        return message._call is not None

    def _record(
        self, message: TakenMessage, result: Result, exception: BaseException | None = None
    ) -> None:
        """Records the end of a handler for the breaker of the message's key."""
        call, message._call = message._call, None
        if call is not None:
            call.end(result, exception)

    def _ignore_call(self, message: TakenMessage) -> None:
        """Records that a handler's call counts as nothing."""
        call, message._call = message._call, None
        if call is not None:
            call.ignore()

    def succeed(self, message: TakenMessage) -> None:
        """Acknowledges a message."""
        self._record(message, OK)
        self._settle(message, OK)
        self._events.succeeded(message)

    def fail(self, message: TakenMessage, exception: BaseException) -> None:
        """Settles a message by the exception of its handler."""
        result = self._choice.result(exception)
        self._record(message, result, exception)
        self._events.failed(message, result, exception)
        error_class = traceparent = ""
        if result.outcome != "dropped":
            taken = message.taken
            error_class, traceparent = class_of(exception), message._traceparent
            if self.emits_retries or self._may_park(taken, result):
                failure = exception, traceparent, result.error
                self.failures[c.Message_number(taken)] = failure
                while len(self.failures) > self._most_failures:
                    self.failures.popitem(last=False)  # the oldest ones' events were lost
        is_own_fault = self._breaker is not None and self._breaker._is_own_fault(exception)
        self._settle(message, result, error_class, traceparent, is_own_fault)

    def release(self, message: TakenMessage) -> None:
        """Gives a message back whose handler a stop aborted: that is no attempt."""
        self._ignore_call(message)
        if self._settled(message, c.BH_OUTCOME_RELEASED):
            self._emit_stale(message, ConsumerCancelledError.status)

    def end_program(self, message: TakenMessage, exception: BaseException) -> None:
        """Reports that a handler ends the program: the broker delivers its message again."""
        self._ignore_call(message)
        self._events.log(c.BH_EVENT_STALE, message, exception)
        self._emit_stale(message, StateError.status)

    def failure_of(self, event: c.Event) -> _Failure:
        """Removes and returns the failure that the event of a copy is about."""
        return self.failures.pop(c.Event_message(event), _NO_FAILURE)

    def _may_park(self, taken: c.Message, result: Result) -> bool:
        policy = result.policy._handle if result.policy else None
        outcome = OUTCOMES[result.outcome]
        return bool(
            c.Worker_may_park(self._worker, taken, outcome, _retry_after_ms(result), policy)
        )

    def _settle(
        self,
        message: TakenMessage,
        result: Result,
        error_class: str = "",
        traceparent: str = "",
        is_own_fault: bool = False,
    ) -> None:
        outcome = OUTCOMES[result.outcome]
        about = error_class, traceparent, is_own_fault
        if status := self._settled(message, outcome, result, *about):
            self._emit_stale(message, status)

    def _settled(
        self,
        message: TakenMessage,
        outcome: int,
        result: Result = OK,
        error_class: str = "",
        traceparent: str = "",
        is_own_fault: bool = False,
    ) -> int:
        """Settles a message, and returns the core's status."""
        policy = result.policy
        return c.Worker_settle(
            self._worker,
            message.taken,
            outcome,
            result.error,
            error_class,
            _retry_after_ms(result),
            policy._handle if policy else None,
            traceparent,
            int(is_own_fault),
            int(result.whole_queue),
        )

    def _emit_stale(self, message: TakenMessage, status: int) -> None:
        """Emits that a message was not settled: the broker delivers it again."""
        cause = "" if status == StateError.status else str(error(status))
        fields: dict[str, str | int] = {"id": message._event_id, "status": status, "cause": cause}
        self._events.emit(self._events.new(c.BH_EVENT_STALE, fields))


def _retry_after_ms(result: Result) -> int:
    """Returns the shortest delay that the handler accepts, in ms; 0: no such limit."""
    return milliseconds(result.retry_after) if result.retry_after else 0
