"""Message: what a handler gets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .delivery import Delivery
from .history import Death, History


class Message:
    """What a handler gets: the body, and what the headers tell of its past."""

    __slots__ = ("body", "history", "redelivered")

    def __init__(self, body: bytes, history: History, *, redelivered: bool = False) -> None:
        self.body = body
        self.history = history
        """All that the headers tell."""
        self.redelivered = redelivered
        """Whether the broker delivered it before, without a settlement."""

    @property
    def delivery(self) -> Delivery:
        """What arrived: properties and headers."""
        return self.history.delivery

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers, Backhop's own included; read anew each time."""
        return self.delivery.headers

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 for the first."""
        return self.history.attempts + 1

    @property
    def exchange(self) -> str:
        """Where the message was first published, whatever brought it back."""
        return self.history.exchange

    @property
    def routing_key(self) -> str:
        """The routing key with which it was first published."""
        return self.history.routing_key

    @property
    def id(self) -> str:
        """The id that all attempts share; "" where there is none yet. Make handlers idempotent by it."""
        return self.history.id

    @property
    def first_failure(self) -> datetime | None:
        """The first failure, in UTC; None where there is none."""
        return self.history.first_failure

    @property
    def last_delay(self) -> float | None:
        """How long the message waited before this attempt, in seconds; None where it did not."""
        return self.history.last_delay

    @property
    def last_error(self) -> str:
        """The last error's text; "" where there is none."""
        return self.history.last_error

    @property
    def deaths(self) -> tuple[Death, ...]:
        """The broker's x-death records, most recent first."""
        return self.history.deaths

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}, attempt {self.attempt}, {len(self.body)} bytes>"
