"""Event: what happened to a message, or to a connection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._checks import function, short_text, shortened
from ._core import made
from ._errors import ArgumentError, ArgumentTypeError, Error, ForkedError, check, error, in_seconds
from ._time import seconds, since_epoch
from .outcomes import Park, Result, RetryAfter, awaited, called, is_async, story
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
    error_text: str = ""
    """What the handler raised, in words."""
    lateness: float | None = None
    """Of a retry that is delivered: how many seconds later than due it came back."""
    duration: float | None = None
    """Seconds that the handler took; of a copy, from its publish to its confirm."""
    recovery: float | None = None
    """Of a success: seconds from the first failure to it."""
    level: int = logging.INFO
    """How it is logged, as Python's logging counts."""
    _line: str = field(default="", repr=False, compare=False)
    """The core's."""

    def __str__(self) -> str:
        return _readable(self._line, self) if self._line else self.name

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
    text, error_text = c.Event_text(handle), string(handle, c.BH_FIELD_ERROR)
    text = text if error_text else in_seconds(text)  # what a handler raised is in its own units
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
        error_text=error_text,
        lateness=optional(c.BH_FIELD_LATENESS, 1000),
        duration=optional(c.BH_FIELD_DURATION, 1_000_000),
        recovery=optional(c.BH_FIELD_RECOVERY, 1000),
        level=_LEVELS[c.Event_level(handle)],
        _line=c.Event_line(handle),
    )


def replay_error(kind: type[Error], cause: object = "") -> Error:
    """What ends a replay, in the core's words.

    :param cause: in those of the client, or of an error behind it
    """
    event = made(c.bh_event_new(c.BH_EVENT_REPLAYED))
    c.Event_set_int(event, c.BH_FIELD_STATUS, kind.status)
    c.Event_set_cause(event, str(cause))
    return error(kind.status, in_seconds(c.Event_text(event)))


def _readable(line: str, event: Event) -> str:
    return line if event.error_text else in_seconds(line)  # what a handler raised is in its own units


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
        """What a handler runs in. Where it fails, or would keep an exception from being seen, the handler runs and its
        exception goes on all the same."""
        return nullcontext()


def checked_error_types(given: Any) -> tuple[Text, ...]:
    """The classes of errors that a user named, to be told apart.

    :raises ArgumentTypeError: for what is no list of names
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ArgumentTypeError(f"error_types is {shortened(given)}: give a list of names, as ['TimeoutError']")
    return tuple(short_text("one of error_types", each, "the name of a class") for each in given)


def blank(error_types: tuple[Text, ...]) -> c.Metrics:
    """Counts of nothing.

    :raises ArgumentError: for more classes than the core tells apart, and for what is no name
    """
    counts = made(c.bh_metrics_new())
    for i, each in enumerate(error_types):
        if c.Metrics_add_error_type(counts, each):
            why = "is one too many" if i >= c.BH_METRICS_MOST_ERROR_TYPES else "is no name"
            advice = f"give at most {c.BH_METRICS_MOST_ERROR_TYPES} names of classes, in UTF-8"
            raise ArgumentError(f"error_types: {shortened(each)} {why}: {advice}")
    return counts


class Counter(Observer):
    """A bridge that only counts: in the core, and for a worker in the core's own thread.

    :param error_types: the classes of errors that are told apart, by their names; none: the first that are seen
    :raises ArgumentError: for more than the core tells apart
    """

    counts: c.Metrics
    """What is counted here; it needs no lock, as a call into the core keeps the GIL."""

    def __init__(self, error_types: Iterable[str] = ()) -> None:
        self.error_types = checked_error_types(error_types)
        self.counts = self.blank()
        self._workers: list[c.Worker] = []
        self._lock = threading.Lock()

    def blank(self) -> c.Metrics:
        """Counts of nothing, with the same classes of errors."""
        return blank(self.error_types)

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
Listeners: TypeAlias = Listener | Sequence[Listener] | None


class Events:
    """Where the events of a retrier or a worker go: to the log, and to whoever listens; in any thread.

    :raises ArgumentTypeError: for a listener that cannot be called, or whose call would have to be awaited
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
        is_many = isinstance(on_event, Sequence) and not isinstance(on_event, str | bytes)
        given: Any = on_event if is_many else () if on_event is None else (on_event,)
        given = {id(each): each for each in given}.values()  # one that is given twice is told once
        self.bridges = [each for each in given if isinstance(each, Observer)]
        self.counters = [each.counts for each in self.bridges if isinstance(each, Counter)]
        self.observers = [each for each in self.bridges if not isinstance(each, Counter)]
        self.listeners = [each for each in given if not isinstance(each, Observer)]
        for each in self.listeners:
            _check_listener(each)
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
            except Exception as failure:
                _complain(event, failure)
        level = _LEVELS[c.Event_level(event)]
        is_logged = LOGGER.isEnabledFor(level)
        if not is_logged and not self.listeners:
            return
        told = event_of(event, exception)
        if is_logged:
            try:
                _log(event, told, level)
            except Exception as failure:  # of a filter's
                _complain(event, failure)
        for listener in self.listeners if is_for_all else ():
            try:
                listener(told)
            except Exception as failure:
                _complain(event, failure)

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
            message._began, message._over = time.perf_counter(), 0.0
        if is_told:
            self._tell_of(c.BH_EVENT_DELIVERED, message)

    def succeeded(self, message: Message) -> None:
        """Its handler succeeded."""
        if message._began:
            self._ended(c.BH_EVENT_SUCCEEDED, message)

    def failed(self, message: Message, result: Result, exception: BaseException, now_ms: int | None = None) -> None:
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
        error_class = class_of(exception) if exception is not None and kind == c.BH_EVENT_FAILED else ""
        if self.counters:
            duration_us, since_ms = _times(message)
            message._error_class = error_class
            now_ms = (since_epoch(self._clock()) if now_ms is None else now_ms) - since_ms
            queue, redelivered = self._queue, message.redelivered
            try:
                history = (message._history or message.history)._handle
            except Error:  # it cannot be read, which is told where it is to be settled
                return
            for counter in self.counters:
                c.Metrics_count_message(counter, kind, queue, history, redelivered, now_ms, error_class, duration_us)
        if self.tells(kind):
            self._tell_of(kind, message, exception, error_class, error)

    def _tell_of(
        self,
        kind: int,
        message: Message,
        exception: BaseException | None = None,
        error_class: str = "",
        error: str = "",
    ) -> None:
        duration_us, since_ms = (-1, 0) if kind == c.BH_EVENT_DELIVERED else _times(message)
        about = int(self._clock() * 1000) - since_ms, error_class, error if error_class else "", duration_us
        try:
            event = made(c.bh_event_new(kind))
            history, redelivered = message.history._handle, message.redelivered
            check(c.Event_fill_message(event, kind, self._queue, history, redelivered, *about))
            self.hand(event, exception if error_class else None, message._traceparent)
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

    def handling(self, message: Message, *, is_timed: bool = False) -> AbstractContextManager[object]:
        """What a handler runs in, whatever becomes of it.

        :param is_timed: whether it begins later than it was delivered, or ends earlier than it is settled
        """
        is_timed = is_timed and bool(message._began)
        return _Surroundings(self, message, is_timed) if self._surrounding or is_timed else nullcontext()


class _Surroundings:
    """What bridges have around a handler. Where one of them fails that is logged: the handler runs all the same, and
    what it raises goes through as it is."""

    __slots__ = ("_entered", "_events", "_is_timed", "_message")

    def __init__(self, events: Events, message: Message, is_timed: bool) -> None:
        self._events = events
        self._message = message
        self._is_timed = is_timed
        self._entered: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        if self._is_timed:
            self._message._began, self._message._over = time.perf_counter(), 0.0
        for each in self._events._surrounding:
            try:
                manager = each.handling(self._message)
                manager.__enter__()
            except Exception as failure:
                _complain(self._events.make(c.BH_EVENT_DELIVERED, {}), failure)
            else:
                self._entered.append(manager)

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_timed:
            self._message._over = time.perf_counter()
        while self._entered:
            try:
                self._entered.pop().__exit__(kind, raised, traceback)
            except BaseException as failure:
                if failure is raised:
                    continue
                if not isinstance(failure, Exception):
                    raise
                _complain(self._events.make(c.BH_EVENT_FAILED if raised else c.BH_EVENT_SUCCEEDED, {}), failure)


def _times(message: Message) -> tuple[int, int]:
    """How long its handler took, in microseconds, below 0 where that is unknown; and how long ago it ended, in
    milliseconds."""
    began, over = message._began, message._over
    if not began:
        return -1, 0
    now = time.perf_counter()
    if not over:
        return int((now - began) * 1_000_000), 0
    return int((over - began) * 1_000_000), int((now - over) * 1000)


def _check_listener(listener: object) -> None:
    if isinstance(listener, type) and issubclass(listener, Observer):
        raise ArgumentTypeError(f"on_event has the class {listener.__name__}: give one of it, {listener.__name__}()")
    function("on_event", listener)
    if is_async(listener):
        raise ArgumentTypeError(
            f"on_event has {shortened(listener)}, a coroutine function, which nobody awaits: give a plain function, "
            "which may call asyncio.create_task"
        )


def _log(event: c.Event, told: Event, level: int) -> None:
    with _LOGGING:
        line = c.Log_line(_LOG, event, int(time.monotonic() * 1000))
    if line:
        is_traced = level >= logging.WARNING or LOGGER.isEnabledFor(logging.DEBUG)
        LOGGER.log(
            level, "%s", _readable(line, told), exc_info=told.exception if is_traced else None, extra=told.fields
        )


def _complain(event: c.Event, failure: Exception) -> None:
    """Logs that a listener failed."""
    with suppress(Exception):  # of a filter's, which may be what failed
        with _LOGGING:
            line = c.Log_listener_line(_LOG, event, story(failure), int(time.monotonic() * 1000))
        if line:
            LOGGER.error("%s", line, exc_info=failure)


_CARRIERS = (RetryAfter, Park)


def met(exception: BaseException) -> BaseException:
    """What a handler met: of RetryAfter and Park what they were given, or raised from."""
    if isinstance(exception, _CARRIERS):
        given = exception.error if isinstance(exception, RetryAfter) else exception.reason
        carried = given if isinstance(given, BaseException) else exception.__cause__ or exception.__context__
        return carried or exception
    return exception


def class_of(exception: BaseException) -> str:
    """The class of what a handler met, by its name."""
    return type(met(exception)).__name__
