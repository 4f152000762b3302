"""Event: what happened to a message, or to a connection."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .. import _backhop as c
from .._core import made
from .._errors import Error, error, in_seconds
from .._times import seconds

NAMES: dict[int, str] = {}
"""The names of events, by the core's numbers."""
while _name := c.bh_event_name(len(NAMES)):
    NAMES[len(NAMES)] = _name
KINDS = {name: kind for kind, name in NAMES.items()}

LEVELS = {
    c.BH_LEVEL_DEBUG: logging.DEBUG,
    c.BH_LEVEL_INFO: logging.INFO,
    c.BH_LEVEL_WARNING: logging.WARNING,
    c.BH_LEVEL_ERROR: logging.ERROR,
}
"""Levels of Python's logging, by the core's."""
LEVELS_OF = {kind: LEVELS[c.Event_level(made(c.bh_event_new(kind)))] for kind in NAMES}
"""Levels of Python's logging, by the numbers of events."""

_FIELDS: dict[str, int] = {}
while _name := c.bh_event_field(len(_FIELDS)):
    _FIELDS[_name] = len(_FIELDS)

Fields: TypeAlias = Mapping[str, str | int]
"""Values of an event by the core's names of fields; ``cause`` is the reason's text."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a message or of a connection. ``str(event)`` is its line in the log."""

    name: str
    """The kind of event, for example ``"retried"``."""
    text: str
    """The reason, and what to do: a parked message's reason, a failed message's error.

    It never contains a password."""
    error: Error | None = None
    """Backhop's error, if there is one."""
    id: str = ""
    """The message's id, the same for all its attempts; "" for none."""
    attempts: int = 0
    """Number of the message's failed attempts so far."""
    delay: float = 0
    """Seconds until the next attempt. Retried: the delay of the message."""
    count: int = 0
    """Number of messages that the event is about."""
    queue: str = ""
    """The work queue."""
    connection: str = ""
    """``"consume"`` or ``"publish"``: the purpose of the connection; a worker has one for each.

    Else "".
    """
    host: str = ""
    """That connection's ``host:port``; else ""."""
    exception: BaseException | None = field(default=None, compare=False)
    """The exception of a failed or parked message's handler, if this process saw it."""
    attempt: int = 0
    """Number of the attempt that the event is about: 1 for the first; 0 for none."""
    reason: str = ""
    """Parked: the reason, as Plan.reason."""
    breaker: str = ""
    """Name of the circuit breaker; "" for none."""
    error_class: str = ""
    """Name of the class of what the handler raised."""
    error_text: str = ""
    """The exception of the handler, as a text."""
    deferrals: int = 0
    """Deferred: how often the message waited without an attempt."""
    lateness: float | None = None
    """Delivered retry: arrival time minus due time, in seconds."""
    duration: float | None = None
    """Seconds that the handler ran. Copy: seconds from its publish to its confirm."""
    recovery: float | None = None
    """Succeeded: seconds since the first failure."""
    level: int = logging.INFO
    """Its level in Python's logging."""
    _line: str = field(default="", repr=False, compare=False)
    """The core's line for the log."""

    def __str__(self) -> str:
        return self._readable(self._line) if self._line else self.name

    def _readable(self, line: str) -> str:
        """Returns a line of the core in seconds. A quoted handler keeps its own units."""
        return line if self.error_text else in_seconds(line)

    @property
    def fields(self) -> dict[str, Any]:
        """The extra fields of its log record, for filters and log shippers."""
        return {
            "backhop_event": self.name,
            "backhop_queue": self.queue,
            "backhop_id": self.id,
            "backhop_attempt": self.attempt,
            "backhop_attempts": self.attempts,
            "backhop_deferrals": self.deferrals,
            "backhop_delay": self.delay,
            "backhop_reason": self.reason,
            "backhop_breaker": self.breaker,
            "backhop_error_class": self.error_class,
            "backhop_count": self.count,
            "backhop_connection": self.connection,
            "backhop_host": self.host,
        }


def new_event(kind: int, fields: Fields) -> c.Event:
    """Returns an event of the core with these fields."""
    event = made(c.bh_event_new(kind))
    for name, value in fields.items():
        if name == "cause":
            c.Event_set_cause(event, str(value))
        elif isinstance(value, str):
            c.Event_set_string(event, _FIELDS[name], value)
        else:
            c.Event_set_int(event, _FIELDS[name], value)
    return event


def event_of(handle: c.Event, exception: BaseException | None = None) -> Event:
    """Returns an event of the core as users get it.

    :param exception: what the handler raised
    """

    def number(of: int) -> int:
        return c.bh_event_int(handle, of)

    def optional(of: int, unit: int) -> float | None:
        return number(of) / unit if c.Event_has(handle, of) else None

    string = c.Event_string
    status, reason = number(c.BH_FIELD_STATUS), string(handle, c.BH_FIELD_REASON)
    text, error_text = c.Event_text(handle), string(handle, c.BH_FIELD_ERROR)
    text = text if error_text else in_seconds(text)  # an error of a handler has its own units
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
        breaker=string(handle, c.BH_FIELD_BREAKER),
        error_class=string(handle, c.BH_FIELD_ERROR_CLASS),
        error_text=error_text,
        deferrals=number(c.BH_FIELD_DEFERRALS),
        lateness=optional(c.BH_FIELD_LATENESS, 1000),
        duration=optional(c.BH_FIELD_DURATION, 1_000_000),
        recovery=optional(c.BH_FIELD_RECOVERY, 1000),
        level=LEVELS[c.Event_level(handle)],
        _line=c.Event_line(handle),
    )


def replay_error(kind: type[Error], cause: object = "") -> Error:
    """Returns the error that ends a replay, in the core's words.

    :param cause: the text of the client's error, or of the error behind it
    """
    event = new_event(c.BH_EVENT_REPLAYED, {"status": kind.status, "cause": str(cause)})
    return error(kind.status, in_seconds(c.Event_text(event)))
