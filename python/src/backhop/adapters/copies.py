"""Copy: the copy of a message, from the decision to the broker's confirm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from .. import _backhop as c
from .._errors import Error
from ..message import Message
from ..plan import Plan
from .frames import content_frames, content_header, publish_frame


class Original(Protocol):
    """A delivery to settle, on the channel that it arrived on."""

    @property
    def channel(self) -> Any:
        """The client's channel."""

    @property
    def tag(self) -> int:
        """Its delivery tag; 0 if it needs no acknowledgement."""

    @property
    def is_here(self) -> bool:
        """True while it can be settled."""


Encode: TypeAlias = Callable[[dict[str, Any]], bytes]


class ChannelClosingError(Exception):
    """The channel closes and accepts no frames."""


class Copy:
    """The copy of a message in the ledger; without a content if the broker itself retries.

    Many copies are in flight at once, so it keeps as little as possible until its confirm.

    :param message: has the original's properties
    :param error: what the handler raised
    :param hidden: bits of the types that the client hides, BH_HIDDEN_BYTES or 0
    :param encode: the client's own encoder: returns properties and headers as they are on the wire
    :raises Exception: if the content cannot be encoded
    """

    __slots__ = (
        "action",
        "attempts",
        "body",
        "call",
        "channel_id",
        "delay_ms",
        "emits_stale",
        "error",
        "error_class",
        "event",
        "exchange",
        "header",
        "id",
        "is_mandatory",
        "reason",
        "replayed",
        "routing_key",
        "rung_ms",
        "tag",
        "traceparent",
        "written",
    )

    def __init__(
        self,
        plan: Plan,
        message: Message,
        error: BaseException | None,
        hidden: int,
        encode: Encode,
    ) -> None:
        (
            self.action,
            self.attempts,
            self.delay_ms,
            self.rung_ms,
            self.reason,
            self.id,
            self.exchange,
            self.routing_key,
            self.is_mandatory,
        ) = plan._described()
        self.error = error if self.action == c.BH_ACTION_PARK else None
        """The handler's exception, if the message is parked; it may be large."""
        self.event: c.Event | None = None
        """The event to emit at the confirm; None if nothing listens."""
        self.error_class = message._error_class
        self.traceparent = message._traceparent
        self.written = 0.0
        """When it was published, by time.monotonic; 0 before."""
        self.replayed: Callable[[Error | None], None] | None = None
        """Replay: called with None or the error."""
        self.call = 0
        """The kept call of the message's handler; 0: none, or it has ended."""
        self.emits_stale = False
        """True if the broker closed the original's channel: a copy without a confirm is stale."""
        self.tag = 0
        """The publisher's sequence number of its last publish; 0 before."""
        self.channel_id = 0
        """The id of the original's channel in the ledger."""
        if plan.publishes:
            delivery = message.history.delivery._handle
            properties = c.Plan_copy_properties(plan._handle, delivery, hidden)
            if not properties:  # the core has not all headers
                properties = encode(_properties_of(plan, message._kept))
            self.header = content_header(properties, len(message.body))
            self.body = message.body
        else:
            self.id = message._event_id

    def frames(self, number: int, frame_max: int) -> list[bytes]:
        """Returns the frames that publish it.

        :param number: the channel's number
        :param frame_max: the longest frame of the connection, in bytes
        """
        publish = publish_frame(number, self.exchange, self.routing_key, self.is_mandatory)
        return [publish, *content_frames(number, self.header, self.body, frame_max)]


def _properties_of(plan: Plan, original: Any) -> dict[str, Any]:
    """Returns the properties and headers of a copy, as a client takes them."""
    properties = {name: getattr(original, name) for name in plan.kept_properties}
    properties |= {"delivery_mode": 2, "expiration": plan.expiration}
    properties["headers"] = plan.copy_headers(original.headers)
    return properties
