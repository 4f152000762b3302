"""Message: the message that a handler gets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ._errors import Error
from .delivery import Delivery
from .history import Death, History
from .topology import Topology


class Message:
    """The message that a handler gets, the same over every client.

    It reads headers on first access.
    """

    __slots__ = (
        "_began",
        "_call",
        "_error_class",
        "_history",
        "_kept_call",
        "_over",
        "_topology",
        "_traceparent",
        "body",
        "redelivered",
    )

    _over: float
    """When the handler ended, by time.perf_counter; 0: the handler ends at the settlement."""
    _kept: Any
    """Has the message's properties and headers as attributes; no user changes it."""

    body: bytes
    """The body, as it is on the wire."""
    redelivered: bool
    """True if the broker delivered it before without a settlement."""

    def __init__(self, topology: Topology) -> None:
        """Call it by its name: super() costs more, and each delivery makes a message."""
        self._topology = topology
        self._history: History | None = None
        self._began = 0.0
        """When a handler got it, by time.perf_counter; 0 before."""
        self._call: Any = None
        """The permit of its handler's call, by a breaker; None for none."""
        self._kept_call = 0
        """The number of its call for bh_calls_end; 0: the call is not kept."""
        self._traceparent = ""
        """The attempt's span in W3C's form; "" for none."""
        self._error_class = ""
        """The class of what its handler raised, if events are counted."""

    def _read(self) -> History:
        """Reads the history."""
        raise NotImplementedError

    @property
    def history(self) -> History:
        """The message's past: all that its headers contain."""
        history = self._history
        if history is None:
            history = self._history = self._read()
        return history

    @property
    def delivery(self) -> Delivery:
        """The properties and headers of this delivery."""
        return self.history.delivery

    # The delivery

    @property
    def queue(self) -> str:
        """The work queue."""
        return self._topology.queue

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers, including Backhop's own, as a new dict each time."""
        return self.delivery.headers

    @property
    def content_type(self) -> str | None:
        """The content type, for example ``"application/json"``.

        It is None if absent, like all properties.
        """
        return self.delivery._text("content_type")

    @property
    def content_encoding(self) -> str | None:
        """The content encoding, for example ``"gzip"``."""
        return self.delivery._text("content_encoding")

    @property
    def correlation_id(self) -> str | None:
        """The id that a reply or related messages share."""
        return self.delivery._text("correlation_id")

    @property
    def reply_to(self) -> str | None:
        """The queue for a reply."""
        return self.delivery._text("reply_to")

    @property
    def message_id(self) -> str | None:
        """The publisher's id of it; see ``id``."""
        return self.delivery._text("message_id")

    @property
    def type(self) -> str | None:
        """The publisher's type of it."""
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
        """Its priority; 0 if absent, which is the same for the broker."""
        return self.delivery._priority

    @property
    def exchange(self) -> str:
        """The exchange of its first publish, not of a retry."""
        return self.history.exchange

    @property
    def routing_key(self) -> str:
        """The routing key of its first publish."""
        return self.history.routing_key

    # Its past

    @property
    def id(self) -> str | None:
        """The id that all its attempts share: the message-id, else the id of the first copy.

        It is None at the first attempt of a message without message-id. If your handler must be
        idempotent, publish with a message-id. Without one, a message has no id that lasts: a lost
        connection can leave two copies of an original, with different ids.
        """
        return self.history.id or None

    @property
    def _event_id(self) -> str:
        """The id for events and logs; "" if the message is unreadable."""
        try:
            return self.history._event_id
        except Error:
            return ""

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 for the first."""
        return self.history.attempts + 1

    @property
    def max_attempts(self) -> int:
        """The policy's number of attempts in all; 0: no limit."""
        return self._topology.policy.max_attempts

    @property
    def last_attempt(self) -> bool:
        """True if a failure of this attempt parks it. A limit of age may park it earlier."""
        return 0 < self.max_attempts <= self.attempt

    @property
    def deferrals(self) -> int:
        """The number of times that it waited without an attempt: by Throttled, or a breaker."""
        return self.history.deferrals

    @property
    def first_failure(self) -> datetime | None:
        """The time of the first failure, in UTC; None for none."""
        return self.history.first_failure

    @property
    def last_delay(self) -> float | None:
        """The delay before this attempt, in seconds; None for none."""
        return self.history.last_delay

    @property
    def last_error(self) -> str:
        """The last error's text; "" for none."""
        return self.history.last_error

    @property
    def deaths(self) -> tuple[Death, ...]:
        """The broker's x-death records, most recent first."""
        return self.history.deaths

    def __repr__(self) -> str:
        return (
            f"<Message {self.id!r} of {self.queue}, attempt {self.attempt}, {len(self.body)} bytes>"
        )
