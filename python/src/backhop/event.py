"""Event: what a worker met, and what it did about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import _backhop as c
from ._errors import Error, error, in_seconds
from ._time import duration, seconds
from .outcomes import story

NAMES: dict[int, str] = {}
"""Of the core's kinds of events."""
while _name := c.bh_event_name(len(NAMES)):
    NAMES[len(NAMES)] = _name
KINDS = {name: kind for kind, name in NAMES.items()}

LOGGER = logging.getLogger("backhop")

_LEVELS = {
    "connected": logging.INFO,
    "unblocked": logging.INFO,
    "retried": logging.INFO,
    "stale": logging.INFO,
    "refused": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class Event:
    """What a worker or a retrier met, and what it did about it; see Worker for the names."""

    name: str
    """As ``"disconnected"``."""
    text: str
    """In words, with what to do. It never holds a password."""
    error: Error | None = None
    """The reason, where there is one."""
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
    """Of an event about one of the worker's two connections: ``"consume"`` or ``"publish"``; else ""."""
    host: str = ""
    """That connection's ``host:port``; else ""."""
    exception: BaseException | None = field(default=None, compare=False)
    """Of a message that was parked: what its handler raised last in this process, where that is known."""

    @property
    def level(self) -> int:
        """How it is logged."""
        if self.name in ("drained", "replayed") and not self.error:
            return logging.INFO
        return _LEVELS.get(self.name, logging.WARNING)

    def __str__(self) -> str:
        parts = [self.name, f"message {self.id!r} of {self.queue}" if self.id else self.queue, self.text]
        if self.connection:
            parts.insert(2, f"{self.connection} connection, {self.host}")
        if self.attempts:
            parts.append(f"failed {_times(self.attempts)}")
        if self.count and not self.id:
            parts.append(f"{self.count} message{'s' * (self.count > 1)}")
        if self.delay and self.name not in ("returned", "nacked"):  # whose texts tell it
            parts.append(f"again in {duration(self.delay)}")
        if self.exception is not None:
            parts.append(story(self.exception))
        return ": ".join(filter(None, parts))

    @property
    def fields(self) -> dict[str, Any]:
        """What its log record says besides, for who filters or ships it."""
        return {
            "backhop_event": self.name,
            "backhop_queue": self.queue,
            "backhop_id": self.id,
            "backhop_attempt": self.attempts,
            "backhop_delay": self.delay,
            "backhop_count": self.count,
            "backhop_connection": self.connection,
            "backhop_host": self.host,
        }


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def announce(event: Event, listener: Callable[[Event], object] | None, *, is_logged: bool = True) -> None:
    """Logs an event and tells it to a listener; where one of these fails that is logged, and breaks nothing."""
    try:
        if is_logged:
            LOGGER.log(event.level, "%s", event, exc_info=event.exception, extra=event.fields)
        if listener is not None:
            listener(event)
    except Exception:
        LOGGER.exception("on_event failed at %s", event.name)


def event_of(handle: c.Event, queue: str, exception: Callable[[str], BaseException | None]) -> Event:
    """The event that a worker gave.

    :param exception: what is known of the failure of a message, by its id
    """
    status = c.bh_event_int(handle, c.BH_FIELD_STATUS)
    text = in_seconds(c.Event_string(handle, c.BH_FIELD_TEXT) or c.Event_string(handle, c.BH_FIELD_REASON))
    name, message_id = c.bh_event_name(c.Event_what(handle)), c.Event_string(handle, c.BH_FIELD_ID)
    return Event(
        name=name,
        text=text,
        error=error(status, text) if status else None,
        id=message_id,
        attempts=c.bh_event_int(handle, c.BH_FIELD_ATTEMPTS),
        delay=seconds(c.bh_event_int(handle, c.BH_FIELD_DELAY)),
        count=c.bh_event_int(handle, c.BH_FIELD_COUNT),
        queue=queue,
        connection=c.Event_string(handle, c.BH_FIELD_CONNECTION),
        host=c.Event_string(handle, c.BH_FIELD_HOST),
        exception=exception(message_id) if name == "parked" else None,
    )
