"""Notes which handler blocked the event loop, so that no heartbeat was sent."""

from __future__ import annotations

import asyncio
import contextlib
import time

from aiormq.abc import AbstractConnection as WireConnection

from ...message import Message
from ...observe.event import Fields
from .message import Message as AioPikaMessage
from .writer import is_here

_LEAST = 1.0  # seconds: the shortest heartbeat
_UNTIL_CLOSED = 1.0  # seconds: the loop reads the end of a closed connection within this time


class Holding:
    """The last handler whose first step blocked the event loop for long.

    A later step, after an ``await``, is not measured.
    """

    def __init__(self) -> None:
        self._id = ""
        self._duration = self._until = 0.0

    def watch(self, message: Message) -> float:
        """Begins to measure a handler, and returns the time by time.perf_counter."""
        began = time.perf_counter()
        asyncio.get_running_loop().call_soon(self._stepped, message, began)
        return began

    def _stepped(self, message: Message, began: float) -> None:
        now = time.perf_counter()
        if now - began >= _LEAST:
            self._id, self._duration, self._until = message._event_id, now - began, now

    async def until_closed(self, message: AioPikaMessage, began: float) -> None:
        """Lets the loop read the end of the connection, if the handler held the loop too long.

        Otherwise the message would be acknowledged on a connection that the broker has closed.

        :param began: the result of watch
        """
        channel = message._original.channel
        heartbeat = heartbeat_of(channel.connection)
        if heartbeat and time.perf_counter() - began >= heartbeat:
            await asyncio.sleep(0)  # now its first step is measured
            if self.fields(heartbeat).get("id") == message._event_id and is_here(channel):
                with contextlib.suppress(asyncio.CancelledError):  # of a channel that closes
                    await asyncio.wait({channel.closing}, timeout=_UNTIL_CLOSED)

    def fields(self, heartbeat: float) -> Fields:
        """Returns the fields of the event of a connection that is lost now.

        :param heartbeat: of the connection, in seconds
        """
        is_cause = 0 < heartbeat <= self._duration
        if not is_cause or time.perf_counter() - self._until > heartbeat + _UNTIL_CLOSED:
            return {}
        return {"id": self._id, "duration_us": int(self._duration * 1_000_000)}


def heartbeat_of(connection: WireConnection) -> float:
    """Returns the connection's heartbeat in seconds; 0 for none."""
    return float(getattr(connection.connection_tune, "heartbeat", 0) or 0)
