"""Writes frames to aiormq's connection, many at a time.

aiormq makes a system call for each frame that it gets, and for each publish a task, three futures
and a timer.
"""

from __future__ import annotations

import asyncio

from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection
from aiormq.abc import ChannelFrame

closing: set[WireChannel] = set()
"""Channels that Backhop closes. aiormq calls a channel open until the broker has answered."""


def is_here(channel: WireChannel) -> bool:
    """Returns whether a frame of the channel may be written.

    After the channel agreed to a close, another channel may have its number. The broker closes the
    connection for a frame on a free number.
    """
    is_open = not channel.is_closed and channel not in closing
    return is_open and channel.connection.channels.get(channel.number) is channel


class Writer:
    """Hands frames to the connection: all frames of one turn of the event loop at once.

    Frames that arrive while the connection writes, and in the turn after, are handed over together
    too.
    """

    def __init__(self, connection: WireConnection) -> None:
        self._connection = connection
        self._frames: list[tuple[WireChannel, bytes]] = []
        self._next: asyncio.Future[None] | None = None  # done when the frames above are written
        self._in_flight: asyncio.Future[None] | None = (
            None  # done when the connection has written its frames
        )
        self._is_busy = False
        self._waiting: asyncio.Task[None] | None = None

    def write(self, channel: WireChannel, frames: bytes) -> asyncio.Future[None]:
        """Writes frames soon, unless the channel is closed then.

        :returns: done when they are handed to the system, or the connection is lost. Await it
            shielded
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if not self._is_busy:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._frames.append((channel, frames))
        return self._next

    async def flush(self) -> None:
        """Returns when all is written, or the connection is lost."""
        if last := self._next or self._in_flight:
            await asyncio.shield(last)

    def _hand_over(self) -> None:
        queue, done = self._connection.write_queue, self._next
        if done is None:  # the connection was lost
            return
        if queue.full():
            self._waiting = asyncio.create_task(self._wait_for_room())
            return
        frames, self._frames = self._frames, []
        self._in_flight, self._next = done, None
        done.add_done_callback(self._go_on)
        here = {channel for channel in {channel for channel, _ in frames} if is_here(channel)}
        queue.put_nowait(
            ChannelFrame(
                b"".join([data for channel, data in frames if channel in here]), False, done
            )
        )

    def _go_on(self, _: object) -> None:
        self._in_flight = None
        if self._frames:
            asyncio.get_running_loop().call_soon(self._hand_over)
        else:
            self._is_busy = False

    async def _wait_for_room(self) -> None:
        """Waits until the connection's queue has room.

        Frames in that queue are written even if their channel closes. So open channels are checked
        as late as possible.
        """
        passed = asyncio.get_running_loop().create_future()
        await self._connection.write_queue.put(ChannelFrame(b"", False, passed))
        await passed
        self._go_on(passed)

    def close(self) -> None:
        """Drops all frames, because the connection is lost."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._frames.clear()
        for each in (self._in_flight, self._next):
            if each is not None and not each.done():
                each.set_result(None)
        self._next = None
