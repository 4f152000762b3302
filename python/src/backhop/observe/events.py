"""Events: counts, logs and emits the events of a retrier or a worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from .. import _backhop as c
from .._checks import function, shortened
from .._core import made
from .._errors import ArgumentTypeError, Error, check
from .._exceptions import loggable
from .._handlers import ENDS_PROGRAM, awaited, called, is_async, is_ordinary
from .._times import since_epoch
from ..message import Message
from ..outcomes import class_of
from ..plan import OUTCOMES, Plan, Result
from .event import LEVELS, LEVELS_OF, NAMES, Event, Fields, event_of, new_event
from .handling import Handling, begin, times
from .log import LOGGER, log_event, log_listener
from .metrics import Counter
from .observer import Observer

Listener: TypeAlias = Callable[[Event], object] | Observer
Listeners: TypeAlias = Listener | Sequence[Listener] | None


def _kind_of(message: Message, result: Result) -> int:
    """Returns the kind of the event that the handler ended with this result."""
    outcome = OUTCOMES[result.outcome]
    if outcome == c.BH_OUTCOME_THROTTLED:
        topology = message._topology
        policy = result.policy or topology.policy
        try:
            history = message.history._handle
        except Error:  # unreadable: the settlement reports that
            return c.BH_EVENT_THROTTLED
        outcome = c.bh_plan_outcome(history, policy._handle, topology._handle, outcome)
    return c.bh_event_of(outcome)


class Events:
    """Counts, logs and emits events. Its methods are for any thread.

    :param queue: the work queue
    :param on_event: listeners and bridges, as users give them
    :param clock: returns seconds since the epoch
    :raises ArgumentTypeError: if a listener is not callable, or is a coroutine function
    """

    __slots__ = (
        "_clock",
        "_queue",
        "_surrounding",
        "bridges",
        "counters",
        "has_listeners",
        "listeners",
        "observers",
    )

    def __init__(
        self, queue: str, on_event: Listeners, clock: Callable[[], float] = time.time
    ) -> None:
        is_many = isinstance(on_event, Sequence) and not isinstance(on_event, str | bytes)
        given: Any = on_event if is_many else () if on_event is None else (on_event,)
        given = {id(each): each for each in given}.values()  # each once
        self.bridges = [each for each in given if isinstance(each, Observer)]
        self.counters = [each.counts for each in self.bridges if isinstance(each, Counter)]
        self.observers = [each for each in self.bridges if not isinstance(each, Counter)]
        self.listeners = [each for each in given if not isinstance(each, Observer)]
        for listener in self.listeners:
            _check_listener(listener)
        self._surrounding = [
            each for each in self.bridges if type(each).handling is not Observer.handling
        ]
        self.has_listeners = bool(self.observers or self.listeners)
        self._queue = queue
        self._clock = clock

    def attach(self, source: Any) -> None:
        """Connects the bridges to the retrier or worker that emits these events."""
        for bridge in self.bridges:
            bridge.attach(source)

    def count_in_core(self) -> list[Counter]:
        """Leaves counting to the core of a worker, and returns the counters that it counts for."""
        self.counters = []
        return [each for each in self.bridges if isinstance(each, Counter)]

    def wants(self, kind: int) -> bool:
        """Returns whether a listener or the log takes this kind of event."""
        return self.has_listeners or LOGGER.isEnabledFor(LEVELS_OF[kind])

    def new(self, kind: int, fields: Fields) -> c.Event:
        """Returns an event of this queue.

        :param fields: values by the core's names of fields, and ``cause``
        """
        return new_event(kind, {"queue": self._queue, **fields})

    def of_copy(self, kind: int, plan: Plan, id_: str, exception: BaseException | None) -> c.Event:
        """Returns the event that a confirmed copy emits.

        :param id_: the message's
        :param exception: what the handler raised
        """
        event = made(c.bh_event_new(kind))
        error_class = "" if exception is None else class_of(exception)
        check(c.Event_fill_plan(event, kind, self._queue, plan._handle, error_class, -1))
        c.Event_set_string(event, c.BH_FIELD_ID, id_)
        return event

    def emit(
        self,
        event: c.Event,
        exception: BaseException | None = None,
        traceparent: str = "",
        *,
        to_listeners: bool = True,
    ) -> None:
        """Counts, logs and emits an event.

        Logs the exception of a listener, but passes one that ends the program.

        :param exception: what the handler raised
        :param traceparent: the attempt's span; "" for none
        :param to_listeners: False: only bridges and the log get it
        """
        for counter in self.counters:
            c.Metrics_observe(counter, event)
        self.emit_counted(event, exception, traceparent, to_listeners=to_listeners)

    def emit_counted(
        self,
        event: c.Event,
        exception: BaseException | None = None,
        traceparent: str = "",
        *,
        to_listeners: bool = True,
    ) -> None:
        """Logs and emits an event that is counted already. Parameters as emit's."""
        for observer in self.observers:
            try:
                observer.observe(event, exception, traceparent)
            except Exception as failure:
                log_listener(event, failure)
        is_logged = LOGGER.isEnabledFor(LEVELS[c.Event_level(event)])
        if not is_logged and not self.listeners:
            return
        emitted = event_of(event, exception)
        if is_logged:
            try:
                log_event(event, emitted)
            except Exception as failure:  # a logging filter's
                log_listener(event, failure)
        for listener in self.listeners if to_listeners else ():
            try:
                listener(emitted)
            except ENDS_PROGRAM:
                raise
            except BaseException as failure:
                log_listener(event, failure)

    def count_copy(
        self,
        kind: int,
        attempts: int,
        delay_ms: int,
        reason: str,
        error_class: str,
        duration_us: int,
    ) -> None:
        """Counts a confirmed copy."""
        about = self._queue, attempts, delay_ms, reason, error_class, duration_us
        for counter in self.counters:
            c.Metrics_count_copy(counter, kind, *about)

    # Around a handler

    def delivered(self, message: Message) -> None:
        """Emits that a handler gets the message now."""
        is_emitted = self.has_listeners or LOGGER.isEnabledFor(logging.DEBUG)
        if is_emitted or self.counters:
            begin(message)
        if is_emitted:
            self._emit_of(c.BH_EVENT_DELIVERED, message)

    def succeeded(self, message: Message) -> None:
        """Emits that the message's handler succeeded."""
        if message._began:
            self._ended(c.BH_EVENT_SUCCEEDED, message)

    def failed(
        self,
        message: Message,
        result: Result,
        exception: BaseException,
        now_ms: int | None = None,
    ) -> None:
        """Emits that the message's handler failed, or dropped the message.

        :param now_ms: the time, in ms since the epoch; None: read the clock
        """
        # A drop may be emitted even if the delivery was not.
        if not is_ordinary(exception):
            self.log(c.BH_EVENT_FAILED, message, exception, result.error)
        if message._began or result.outcome == "dropped":
            kind = _kind_of(message, result)
            self._ended(kind, message, exception, result.error, now_ms)

    def log(self, kind: int, message: Message, exception: BaseException, error: str = "") -> None:
        """Logs an event of a message at ERROR, with the traceback."""
        fields = {"id": message._event_id, "error": error, "error_class": class_of(exception)}
        logged = event_of(self.new(kind, fields), exception)
        LOGGER.error("%s", logged, exc_info=loggable(exception), extra=logged.fields)

    def _ended(
        self,
        kind: int,
        message: Message,
        exception: BaseException | None = None,
        error: str = "",
        now_ms: int | None = None,
    ) -> None:
        has_class = kind in (c.BH_EVENT_FAILED, c.BH_EVENT_THROTTLED)
        error_class = class_of(exception) if exception is not None and has_class else ""
        if self.counters:
            duration_us, age_ms = times(message)
            message._error_class = error_class
            now_ms = (since_epoch(self._clock()) if now_ms is None else now_ms) - age_ms
            try:
                history = (message._history or message.history)._handle
            except Error:  # unreadable: the settlement reports that
                return
            about = self._queue, history, message.redelivered, now_ms, error_class, duration_us
            for counter in self.counters:
                c.Metrics_count_message(counter, kind, *about)
        if self.wants(kind):
            self._emit_of(kind, message, exception, error_class, error)

    def _emit_of(
        self,
        kind: int,
        message: Message,
        exception: BaseException | None = None,
        error_class: str = "",
        error: str = "",
    ) -> None:
        duration_us, age_ms = (-1, 0) if kind == c.BH_EVENT_DELIVERED else times(message)
        now_ms = int(self._clock() * 1000) - age_ms
        about = now_ms, error_class, error if error_class else "", duration_us
        try:
            event = made(c.bh_event_new(kind))
            history, redelivered = message.history._handle, message.redelivered
            check(c.Event_fill_message(event, kind, self._queue, history, redelivered, *about))
            exception = exception if error_class else None
            self.emit_counted(event, exception, message._traceparent)
        except Error as problem:  # unreadable: the settlement reports that
            LOGGER.debug("%s is not emitted: %s", NAMES[kind], problem)

    def surrounded(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        """Returns a handler that runs in the bridges' contexts."""
        if not self._surrounding:
            return handle

        def run(message: Message) -> None:
            with self.handling(message):
                called(handle, message)

        return run

    def surrounded_async(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        """Returns a coroutine function, or a plain handler, that runs in the bridges' contexts."""
        if not self._surrounding:
            return handle

        async def run(message: Message) -> None:
            with self.handling(message):
                await awaited(handle, message)

        return run

    def handling(
        self, message: Message, *, is_timed: bool = False
    ) -> AbstractContextManager[object]:
        """Returns the context that a handler runs in.

        :param is_timed: as Handling's
        """
        is_timed = is_timed and bool(message._began)
        if not self._surrounding and not is_timed:
            return nullcontext()
        return Handling(self._surrounding, message, self._complain, is_timed=is_timed)

    def _complain(self, kind: int, failure: Exception) -> None:
        log_listener(self.new(kind, {}), failure)


def _check_listener(listener: object) -> None:
    if isinstance(listener, type) and issubclass(listener, Observer):
        raise ArgumentTypeError(
            f"on_event has the class {listener.__name__}: give one of it, {listener.__name__}()"
        )
    function("on_event", listener)
    if is_async(listener):
        raise ArgumentTypeError(
            f"on_event has {shortened(listener)}, a coroutine function, and Backhop awaits none: "
            "give a plain function, which may call asyncio.create_task"
        )
