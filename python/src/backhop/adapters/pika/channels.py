"""The channels and connections of pika, as the adapter uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pika
import pika.channel
import pika.connection
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from ..frames import How, settlement

for _class, _names in {
    pika.channel.Channel: ("_set_cookie", "add_on_return_callback"),
    pika.connection.Connection: (
        "_adapter_call_later",
        "_output_marshaled_frames",
        "add_on_connection_blocked_callback",
    ),
    BlockingConnection: (
        "_acquire_event_dispatch",
        "_dispatch_connection_events",
        "_flush_output",
        "call_later",
    ),
}.items():
    if _missing := [name for name in _names if not hasattr(_class, name)]:
        raise ImportError(
            f"backhop.pika does not know this version of pika, {pika.__version__}, whose "
            f"{_class.__name__} has no "
            f"{', '.join(_missing)}: install pika 1.3 or a later 1.x, or a newer Backhop"
        )

OpenChannel = Callable[[Callable[[Any], None]], Any]
"""Starts to open a channel, and calls back with it when it is open."""


class PikaOriginal:
    """A delivery to settle, on the channel that it arrived on."""

    __slots__ = ("channel", "tag")

    def __init__(self, channel: Any, tag: int) -> None:
        self.channel = channel
        self.tag = tag

    @property
    def is_here(self) -> bool:
        """True while it can be settled."""
        return is_here(self.channel)

    def settle(self, how: How) -> bool:
        """Settles it without a copy.

        Returns False if its channel is closed: the broker delivers it again.
        """
        return not self.tag or settle(
            self.channel, self.tag, how
        )  # without a tag it needs no acknowledgement


def is_here(channel: Any) -> bool:
    """Returns whether a frame of the channel may be written."""
    return channel.is_open and not channel.connection.is_closed


def settle(channel: Any, tag: int, how: How) -> bool:
    """Settles a delivery. Returns False if its channel is closed: the broker delivers it again."""
    if not is_here(channel):
        return False
    channel.connection._output_marshaled_frames([settlement(channel.channel_number, tag, how)])
    return True


class AsyncConnection(Protocol):
    """The part of pika's connections that the publisher uses.

    Every connection of pika has these timers.
    """

    is_open: bool
    is_closed: bool
    params: Any

    def _output_marshaled_frames(self, marshaled_frames: list[bytes]) -> None: ...

    def _adapter_call_later(self, delay: float, callback: Callable[[], None]) -> object: ...

    def add_on_close_callback(self, callback: Callable[[Any, Any], None]) -> None: ...

    def add_on_connection_blocked_callback(self, callback: Callable[[Any, Any], None]) -> None: ...

    def add_on_connection_unblocked_callback(
        self, callback: Callable[[Any, Any], None]
    ) -> None: ...


def asynchronous(channel: Any) -> Any:
    """Returns the asynchronous channel inside a BlockingChannel.

    Returns any other channel itself.
    """
    return channel._impl if isinstance(channel, BlockingChannel) else channel
