"""Event: what a worker met, and what it did about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from . import _backhop as c
from ._errors import Error, error
from ._time import seconds

_LEVELS = {
    "connected": logging.INFO,
    "unblocked": logging.INFO,
    "retried": logging.DEBUG,
    "stale": logging.INFO,
    "replayed": logging.INFO,
    "refused": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class Event:
    """What a worker met, and what it did about it; see Worker for the names."""

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

    @property
    def level(self) -> int:
        """How it is logged."""
        if self.name == "drained" and not self.error:
            return logging.INFO
        return _LEVELS.get(self.name, logging.WARNING)

    def __str__(self) -> str:
        parts = [self.name, f"message {self.id}" if self.id else "", self.text]
        if self.count:
            parts.append(f"{self.count} messages")
        if self.delay:
            parts.append(f"in {self.delay:g} s")
        return ": ".join(filter(None, parts))


def event_of(handle: c.Event) -> Event:
    """The event that a worker gave."""
    status, text = c.Event_status(handle), c.Event_text(handle)
    return Event(
        name=c.bh_event_name(c.Event_what(handle)),
        text=text,
        error=error(status, text) if status else None,
        id=c.Event_id(handle),
        attempts=c.Event_attempts(handle),
        delay=seconds(c.Event_delay_ms(handle)),
        count=c.Event_count(handle),
    )
