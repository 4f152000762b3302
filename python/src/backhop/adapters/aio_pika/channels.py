"""The names of aiormq, which is under aio-pika, that the adapter needs.

Besides aiormq's documented names it uses names without an underscore in ``aiormq.abc`` of versions
6 and 7. These are the connection's ``write_queue`` and ``channels``, the channel's ``number`` and
``frames``, and ``ChannelFrame``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection
from aiormq.abc import ChannelFrame

from ..declaring import Refusal
from ..frames import How, settlement
from .writer import Writer, closing, is_here

AMQP_ERRORS = (aiormq.exceptions.AMQPError, ConnectionError, RuntimeError)
"""aiormq raises a RuntimeError if the connection is closed."""

for _class, _names in {
    WireConnection: ("channels", "closing", "is_opened", "ready", "write_queue"),
    WireChannel: ("closing", "connection", "frames", "is_closed", "number"),
    ChannelFrame: ("drain_future", "payload", "should_close"),
}.items():
    if _missing := [
        name for name in _names if not (hasattr(_class, name) or name in _class.__annotations__)
    ]:
        raise ImportError(
            f"backhop.aio_pika does not know this version of aiormq, whose {_class.__name__} has "
            "no "
            f"{', '.join(_missing)}: install aio-pika 9.5 to 10, or a newer Backhop"
        )


class AioPikaOriginal:
    """A delivery to settle, on the channel that it arrived on."""

    __slots__ = ("channel", "tag", "writer")

    def __init__(self, channel: WireChannel, tag: int, writer: Writer) -> None:
        self.channel = channel
        self.tag = tag
        self.writer = writer

    @property
    def is_here(self) -> bool:
        """True while it can be settled."""
        return is_here(self.channel)

    @property
    def is_lost(self) -> bool:
        """True if the broker delivers it again. False if it needs no acknowledgement."""
        return bool(self.tag) and not is_here(self.channel)

    def settle(self, how: How) -> asyncio.Future[None] | None:
        """Settles it without a copy.

        The result is done when that is written; None if nothing is.
        """
        return settle(self.writer, self.channel, self.tag, how) if self.tag else None


def settle(writer: Writer, channel: WireChannel, tag: int, how: How) -> asyncio.Future[None] | None:
    """Settles a delivery. The result is done when that is written.

    It is None if the channel is closed: the broker delivers the message again.
    """
    if not is_here(channel):
        return None
    return writer.write(channel, settlement(channel.number, tag, how))


def is_refused(end: asyncio.Future[Any]) -> bool:
    """Returns whether the broker closed the channel."""
    error = None if end.cancelled() else end.exception()
    return isinstance(error, aiormq.exceptions.ChannelClosed) and bool(refusal_of(error).code)


def reason_of(end: asyncio.Future[Any]) -> str:
    """Returns why a channel or a connection is closed."""
    return "it was cancelled" if end.cancelled() else repr(end.exception())


async def close(channel: WireChannel) -> None:
    """Closes a channel in any state."""
    if channel.is_closed:
        return
    closing.add(channel)
    try:
        with contextlib.suppress(*AMQP_ERRORS):
            await channel.close(
                aiormq.exceptions.ChannelClosed(None, None)
            )  # without an exception it would cancel tasks that await a confirm
    finally:
        closing.discard(channel)


_CODES: dict[type[BaseException], int] = {
    aiormq.exceptions.ChannelAccessRefused: 403,
    aiormq.exceptions.ChannelNotFoundEntity: 404,
    aiormq.exceptions.ChannelLockedResource: 405,
    aiormq.exceptions.ChannelPreconditionFailed: 406,
}


def refusal_of(error: aiormq.exceptions.ChannelClosed) -> Refusal:
    """Returns the reply code and text. For some codes aiormq has only a class of exceptions."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Refusal(code, str(error.args[0]))
    code, text = error.args or (0, "")
    return Refusal(code or 0, str(text))
