"""Message: what a handler gets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from . import _backhop as c
from .delivery import Delivery
from .history import Death, History
from .topology import Topology


class Message:
    """What a handler gets, the same over every client: the body, properties and headers, and what they tell of its
    past. What is not asked for is not read."""

    __slots__ = ("_began", "_error_class", "_history", "_over", "_topology", "_traceparent", "body", "redelivered")

    _over: float
    """Once a handler has it: when that has ended, by time.perf_counter; 0: when it is settled."""
    _kept: Any
    """Has the properties and headers that it came with as attributes, which nobody else changes."""

    body: bytes
    """The body, as it is on the wire."""
    redelivered: bool
    """Whether the broker delivered it before, without a settlement."""

    def __init__(self, topology: Topology) -> None:
        """Called by its name, as super() costs more, and a message is made for each delivery."""
        self._topology = topology
        self._history: History | None = None
        self._began = 0.0
        """When a handler got it, by time.perf_counter; 0 before."""
        self._traceparent = ""
        """Of the attempt's span, in W3C's form; "" for none."""
        self._error_class = ""
        """Of what its handler raised, where that is counted."""

    def _read(self) -> History:
        """Reads it."""
        raise NotImplementedError

    @property
    def history(self) -> History:
        """All that the headers tell."""
        history = self._history
        if history is None:
            history = self._history = self._read()
        return history

    @property
    def delivery(self) -> Delivery:
        """What arrived: properties and headers."""
        return self.history.delivery

    # What arrived

    @property
    def queue(self) -> str:
        """The work queue."""
        return self._topology.queue

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers, Backhop's own included; read anew each time, so that changing them changes nothing."""
        return self.delivery.headers

    @property
    def content_type(self) -> str | None:
        """As ``"application/json"``; None where the publisher told none, as of all properties."""
        return self.delivery._text("content_type")

    @property
    def content_encoding(self) -> str | None:
        """As ``"gzip"``."""
        return self.delivery._text("content_encoding")

    @property
    def correlation_id(self) -> str | None:
        """What a reply, or the messages of one story, are known by."""
        return self.delivery._text("correlation_id")

    @property
    def reply_to(self) -> str | None:
        """The queue that waits for a reply."""
        return self.delivery._text("reply_to")

    @property
    def message_id(self) -> str | None:
        """The publisher's id of it; see ``id``."""
        return self.delivery._text("message_id")

    @property
    def type(self) -> str | None:
        """The publisher's word for what it is."""
        return self.delivery._text("type")

    @property
    def app_id(self) -> str | None:
        """The application that published it."""
        return self.delivery._text("app_id")

    @property
    def timestamp(self) -> datetime | None:
        """When it was published, in UTC, to the second."""
        return self.delivery._timestamp

    @property
    def priority(self) -> int:
        """Its priority; 0 where it has none, which is the same to the broker."""
        return self.delivery._priority

    @property
    def exchange(self) -> str:
        """Where the message was first published, whatever brought it back."""
        return self.history.exchange

    @property
    def routing_key(self) -> str:
        """The routing key with which it was first published."""
        return self.history.routing_key

    # Its past

    @property
    def id(self) -> str:
        """The id that all further attempts share: the message-id, else one that the first copy gets; "" before that.

        Make handlers idempotent by it, and publish with a message-id: two copies of an original without one, as a lost
        connection can leave them, have two ids.
        """
        return self.history.id

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 for the first."""
        return self.history.attempts + 1

    @property
    def max_attempts(self) -> int:
        """How many attempts the policy allows in all; 0: no limit."""
        return self._topology.policy.max_attempts

    @property
    def last_attempt(self) -> bool:
        """Whether it is parked if this attempt fails, for want of another; a limit of age may end it before."""
        return bool(c.Policy_is_last(self._topology.policy._handle, self.attempt))

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
        return f"<Message {self.id!r} of {self.queue}, attempt {self.attempt}, {len(self.body)} bytes>"
