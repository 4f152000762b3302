"""Event: what happened to a message, or to a connection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _backhop as c
from ._checks import function, short_text
from ._core import made
from ._errors import Error, ForkedError, check, error, in_seconds
from ._time import seconds, since_epoch
from .outcomes import Park, Result, RetryAfter, awaited, called
from .plan import OUTCOMES, Plan

if TYPE_CHECKING:
    from .message import Message

NAMES: dict[int, str] = {}
"""Of the core's kinds of events."""
while _name := c.bh_event_name(len(NAMES)):
    NAMES[len(NAMES)] = _name
KINDS = {name: kind for kind, name in NAMES.items()}

LOGGER = logging.getLogger("backhop")

_LEVELS = {
    c.BH_LEVEL_DEBUG: logging.DEBUG,
    c.BH_LEVEL_INFO: logging.INFO,
    c.BH_LEVEL_WARNING: logging.WARNING,
    c.BH_LEVEL_ERROR: logging.ERROR,
}
_LEVELS_OF = {kind: _LEVELS[c.Event_level(made(c.bh_event_new(kind)))] for kind in NAMES}
_ENDS = {outcome: c.bh_event_of(number) for outcome, number in OUTCOMES.items()}
_LOG = made(c.bh_log_new())
_LOGGING = threading.Lock()  # one thread at a time asks it

_FIELDS: dict[str, int] = {}
while _name := c.bh_event_field(len(_FIELDS)):
    _FIELDS[_name] = len(_FIELDS)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a message, or to a connection; ``str`` of it is its line in the log."""

    name: str
    """As ``"retried"``."""
    text: str
    """Why, in words, with what to do: of a message that was parked the reason, of a failure what the handler raised. It
    never holds a password."""
    error: Error | None = None
    """Backhop's reason, where there is one."""
    id: str = ""
    """The message's id, the same for all its attempts; "" for none."""
    attempts: int = 0
    """Failed attempts of the message so far."""
    delay: float = 0
    """Seconds until the next attempt; of a retry, how long the message waits."""
    count: int = 0
    """How many messages it is about."""
    queue: str = ""
    """The work queue."""
    connection: str = ""
    """Of an event about consuming or publishing: ``"consume"`` or ``"publish"``, of a worker one of its two
    connections; else ""."""
    host: str = ""
    """That connection's ``host:port``; else ""."""
    exception: BaseException | None = field(default=None, compare=False)
    """What the handler raised, of a message that failed or was parked, where that is known in this process."""
    attempt: int = 0
    """Which attempt it is about: 1 for the first; 0 where it is about none."""
    reason: str = ""
    """Of a message that was parked: as Plan's."""
    error_class: str = ""
    """The class of what the handler raised."""
    failure: str = ""
    """What the handler raised, in words."""
    lateness: float | None = None
    """Of a retry that is delivered: how many seconds later than due it came back."""
    duration: float | None = None
    """Seconds that the handler took; of a copy, from its publish to its confirm."""
    recovery: float | None = None
    """Of a success: seconds from the first failure to it."""
    level: int = logging.INFO
    """How it is logged, as Python's logging counts."""
    _handle: c.Event | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.name if self._handle is None else _line(c.Event_line(self._handle), self)

    @property
    def fields(self) -> dict[str, Any]:
        """What its log record says besides, for who filters or ships it."""
        return {
            "backhop_event": self.name,
            "backhop_queue": self.queue,
            "backhop_id": self.id,
            "backhop_attempt": self.attempt,
            "backhop_attempts": self.attempts,
            "backhop_delay": self.delay,
            "backhop_reason": self.reason,
            "backhop_error_class": self.error_class,
            "backhop_count": self.count,
            "backhop_connection": self.connection,
            "backhop_host": self.host,
        }


def event_of(handle: c.Event, exception: BaseException | None = None) -> Event:
    """What the core has of an event, and what was raised."""

    def number(of: int) -> int:
        return c.bh_event_int(handle, of)

    def optional(of: int, unit: int) -> float | None:
        return number(of) / unit if c.Event_has(handle, of) else None

    string = c.Event_string
    status, reason = number(c.BH_FIELD_STATUS), string(handle, c.BH_FIELD_REASON)
    text, failure = c.Event_text(handle), string(handle, c.BH_FIELD_ERROR)
    text = text if failure else in_seconds(text)  # what a handler raised is in its own units
    return Event(
        name=NAMES[c.Event_what(handle)],
        text=text,
        error=error(status, text) if status else None,
        id=string(handle, c.BH_FIELD_ID),
        attempts=number(c.BH_FIELD_ATTEMPTS),
        delay=seconds(number(c.BH_FIELD_DELAY)),
        count=number(c.BH_FIELD_COUNT),
        queue=string(handle, c.BH_FIELD_QUEUE),
        connection=string(handle, c.BH_FIELD_CONNECTION),
        host=string(handle, c.BH_FIELD_HOST),
        exception=exception,
        attempt=number(c.BH_FIELD_ATTEMPT),
        reason=reason,
        error_class=string(handle, c.BH_FIELD_ERROR_CLASS),
        failure=failure,
        lateness=optional(c.BH_FIELD_LATENESS, 1000),
        duration=optional(c.BH_FIELD_DURATION, 1_000_000),
        recovery=optional(c.BH_FIELD_RECOVERY, 1000),
        level=_LEVELS[c.Event_level(handle)],
        _handle=handle,
    )


def replay_error(kind: type[Error], cause: object = "") -> Error:
    """What ends a replay, in the core's words.

    :param cause: in those of the client, or of an error behind it
    """
    event = made(c.bh_event_new(c.BH_EVENT_REPLAYED))
    c.Event_set_int(event, c.BH_FIELD_STATUS, kind.status)
    c.Event_set_cause(event, str(cause))
    return error(kind.status, in_seconds(c.Event_text(event)))


def _line(line: str, event: Event) -> str:
    return line if event.failure else in_seconds(line)  # what a handler raised is in its own units


class Observer:
    """What a bridge is, as backhop.prometheus and backhop.opentelemetry have them: give it as ``on_event``."""

    def attach(self, source: Any) -> None:
        """A retrier or a worker tells it its events from now on."""

    def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
        """Something happened.

        :param event: its fields, during the call alone
        :param traceparent: of the attempt's span, as ``handling`` told it; "" for none
        """

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """What a handler runs in."""
        return nullcontext()


class Counter(Observer):
    """A bridge that only counts: in the core, and for a worker in the core's own thread.

    :param error_types: the classes of errors that are told apart, by their names; none: the first that are seen
    :raises ArgumentError: for more than the core tells apart
    """

    counts: c.Metrics
    """What is counted here; it needs no lock, as a call into the core keeps the GIL."""

    def __init__(self, error_types: Iterable[str] = ()) -> None:
        self.error_types = tuple(short_text("error_types", each, "names of classes") for each in error_types)
        self.counts = self.blank()
        self._workers: list[c.Worker] = []
        self._lock = threading.Lock()

    def blank(self) -> c.Metrics:
        """Counts of nothing, with the same classes of errors."""
        counts = made(c.bh_metrics_new())
        for each in self.error_types:
            check(c.Metrics_add_error_type(counts, each))
        return counts

    def join(self, worker: c.Worker) -> None:
        """A worker's core counts from now on, until ``part``."""
        with self._lock:
            self._workers.append(worker)

    def part(self, worker: c.Worker) -> None:
        """What a worker's core has counted is kept."""
        with self._lock:
            self._workers.remove(worker)
            _read(worker, self.counts)

    def total(self) -> c.Metrics:
        """All that is counted."""
        with self._lock:
            total = self.blank()
            check(c.Metrics_add(total, self.counts))
            for worker in self._workers:
                _read(worker, total)
            return total


def _read(worker: c.Worker, counts: c.Metrics) -> None:
    """Adds what a worker's core has counted; one of before a fork counts nothing here."""
    status = c.Worker_read_metrics(worker, counts)
    if status != ForkedError.status:
        check(status)


Fields: TypeAlias = Mapping[str, str | int]
"""Of an event, by the core's names; and last the ``cause``, of what its kind means each time."""
Listener: TypeAlias = Callable[[Event], object] | Observer
Listeners: TypeAlias = Listener | Iterable[Listener] | None


class Events:
    """Where the events of a retrier or a worker go: to the log, and to whoever listens; in any thread.

    :raises ArgumentTypeError: for a listener that cannot be called
    """

    __slots__ = (
        "_clock",
        "_queue",
        "_surrounding",
        "bridges",
        "counters",
        "is_heard",
        "listeners",
        "observers",
    )

    def __init__(self, queue: str, on_event: Listeners, clock: Callable[[], float] = time.time) -> None:
        many = isinstance(on_event, list | tuple) and on_event
        given: Any = on_event if many else () if on_event is None else (on_event,)
        given = {id(each): each for each in given}.values()  # one that is given twice is told once
        self.bridges = [each for each in given if isinstance(each, Observer)]
        self.counters = [each.counts for each in self.bridges if isinstance(each, Counter)]
        self.observers = [each for each in self.bridges if not isinstance(each, Counter)]
        self.listeners = [each for each in given if not isinstance(each, Observer)]
        for each in self.listeners:
            function("on_event", each)
        self._surrounding = [each for each in self.bridges if type(each).handling is not Observer.handling]
        self.is_heard = bool(self.observers or self.listeners)
        self._queue = queue
        self._clock = clock

    def attach(self, source: Any) -> None:
        """The bridges hear of who tells these events."""
        for each in self.bridges:
            each.attach(source)

    def leave_to_core(self) -> list[Counter]:
        """Those for whom the core of a worker counts, once for all: nothing is counted here any more."""
        self.counters = []
        return [each for each in self.bridges if isinstance(each, Counter)]

    def tells(self, kind: int) -> bool:
        """Whether anybody wants to hear of it, as an event."""
        return self.is_heard or LOGGER.isEnabledFor(_LEVELS_OF[kind])

    def make(self, kind: int, fields: Fields) -> c.Event:
        """An event.

        :param fields: by the core's names
        """
        event = made(c.bh_event_new(kind))
        c.Event_set_string(event, c.BH_FIELD_QUEUE, self._queue)
        for name, value in fields.items():
            if name == "cause":
                c.Event_set_cause(event, str(value))
            elif isinstance(value, str):
                c.Event_set_string(event, _FIELDS[name], value)
            else:
                c.Event_set_int(event, _FIELDS[name], value)
        return event

    def copied(self, kind: int, plan: Plan, id_: str, exception: BaseException | None) -> c.Event:
        """An event that tells, once the copy is safe, that a message comes again, or is parked.

        :param id_: the message's
        :param exception: what the handler raised
        """
        event = made(c.bh_event_new(kind))
        error_class = "" if exception is None else class_of(exception)
        check(c.Event_fill_plan(event, kind, self._queue, plan._handle, error_class, -1))
        c.Event_set_string(event, c.BH_FIELD_ID, id_)
        return event

    def tell(
        self, event: c.Event, exception: BaseException | None = None, traceparent: str = "", *, is_for_all: bool = True
    ) -> None:
        """Counts an event, logs it, and tells it to who listens; where one of these fails that is logged, and breaks
        nothing.

        :param is_for_all: whether functions hear of it too, and not bridges alone
        """
        for counter in self.counters:
            c.Metrics_observe(counter, event)
        self.hand(event, exception, traceparent, is_for_all=is_for_all)

    def hand(
        self, event: c.Event, exception: BaseException | None = None, traceparent: str = "", *, is_for_all: bool = True
    ) -> None:
        """Does the same with an event that is counted already."""
        for observer in self.observers:
            try:
                observer.observe(event, exception, traceparent)
            except Exception:
                _complain(event)
        level = _LEVELS[c.Event_level(event)]
        is_logged = LOGGER.isEnabledFor(level)
        if not is_logged and not self.listeners:
            return
        told = event_of(event, exception)
        if is_logged:
            try:
                _log(told, level)
            except Exception:  # of a filter's
                _complain(event)
        for listener in self.listeners if is_for_all else ():
            try:
                listener(told)
            except Exception:
                _complain(event)

    def count_copy(
        self, kind: int, attempts: int, delay_ms: int, reason: str, error_class: str, duration_us: int
    ) -> None:
        """Counts a copy that is safe."""
        for counter in self.counters:
            c.Metrics_count_copy(counter, kind, self._queue, attempts, delay_ms, reason, error_class, duration_us)

    # Around a handler

    def delivered(self, message: Message) -> None:
        """A handler gets it now."""
        is_told = self.is_heard or LOGGER.isEnabledFor(logging.DEBUG)
        if is_told or self.counters:
            message._began = time.perf_counter()
        if is_told:
            self._tell_of(c.BH_EVENT_DELIVERED, message)

    def succeeded(self, message: Message) -> None:
        """Its handler succeeded."""
        if message._began:
            self._ended(c.BH_EVENT_SUCCEEDED, message)

    def failed(
        self, message: Message, result: Result, exception: BaseException, now_ms: int | None = None
    ) -> None:
        """Its handler failed, or said that nobody needs it.

        :param now_ms: who read the clock already says what it showed, in milliseconds since the epoch
        """
        if message._began or result.outcome == "dropped":  # which may be told where its delivery was not
            self._ended(_ENDS[result.outcome], message, exception, result.error, now_ms)

    def _ended(
        self,
        kind: int,
        message: Message,
        exception: BaseException | None = None,
        error: str = "",
        now_ms: int | None = None,
    ) -> None:
        if self.counters:
            duration_us = int((time.perf_counter() - message._began) * 1_000_000)
            error_class = message._error_class = "" if exception is None else class_of(exception)
            now_ms = since_epoch(self._clock()) if now_ms is None else now_ms
            queue, redelivered = self._queue, message.redelivered
            try:
                history = (message._history or message.history)._handle
            except Error:  # it cannot be read, which is told where it is to be settled
                return
            for counter in self.counters:
                c.Metrics_count_message(counter, kind, queue, history, redelivered, now_ms, error_class, duration_us)
        if self.tells(kind):
            self._tell_of(kind, message, exception, error)

    def _tell_of(self, kind: int, message: Message, exception: BaseException | None = None, error: str = "") -> None:
        is_end, is_failure = kind != c.BH_EVENT_DELIVERED, kind == c.BH_EVENT_FAILED
        duration_us = int((time.perf_counter() - message._began) * 1_000_000) if is_end and message._began else -1
        error_class = class_of(exception) if exception is not None and is_failure else ""
        about = int(self._clock() * 1000), error_class, error if is_failure else "", duration_us
        try:
            event = made(c.bh_event_new(kind))
            history, redelivered = message.history._handle, message.redelivered
            check(c.Event_fill_message(event, kind, self._queue, history, redelivered, *about))
            self.hand(event, exception, message._traceparent)
        except Error as problem:  # of a message that cannot be read: its end tells that
            LOGGER.debug("%s is not told: %s", NAMES[kind], problem)

    def surrounded(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        """A handler in what bridges have around it."""
        if not self._surrounding:
            return handle

        def run(message: Message) -> None:
            with self.handling(message):
                called(handle, message)

        return run

    def surrounded_async(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        """A handler whose result may have to be awaited, likewise."""
        if not self._surrounding:
            return handle

        async def run(message: Message) -> None:
            with self.handling(message):
                await awaited(handle, message)

        return run

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """What a handler runs in."""
        if not self._surrounding:
            return nullcontext()
        stack = ExitStack()
        for each in self._surrounding:
            stack.enter_context(each.handling(message))
        return stack


def _log(event: Event, level: int) -> None:
    assert event._handle is not None
    with _LOGGING:
        line = c.Log_line(_LOG, event._handle, int(time.monotonic() * 1000))
    if line:
        is_traced = level >= logging.WARNING or LOGGER.isEnabledFor(logging.DEBUG)
        LOGGER.log(level, "%s", _line(line, event), exc_info=event.exception if is_traced else None, extra=event.fields)


def _complain(event: c.Event) -> None:
    LOGGER.exception("on_event failed at %s", NAMES[c.Event_what(event)])


_CARRIERS = (RetryAfter, Park)


def class_of(exception: BaseException) -> str:
    """Of RetryAfter and Park that of what they were given, or raised from."""
    if isinstance(exception, _CARRIERS):
        given = exception.error if isinstance(exception, RetryAfter) else exception.reason
        met = given if isinstance(given, BaseException) else exception.__cause__ or exception.__context__
        exception = met or exception
    return type(exception).__name__
