"""Replays messages over aio-pika."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection

from ..._errors import Error
from ..declaring import replay_refused
from ..replay import Progress, skips_queue
from .channels import close, refusal_of
from .session import AioPikaSession


class Replay:
    """Gets messages one by one, on a channel of its own, and publishes their copies.

    :param most: the largest number of messages; None: no limit
    :param queues: the queues to read, and whether each is shared; None: both
    """

    def __init__(
        self,
        session: AioPikaSession,
        connection: WireConnection,
        most: int | None,
        queues: list[tuple[str, bool]] | None = None,
    ) -> None:
        self._session = session
        self._connection = connection
        self._progress = Progress(session, most, queues)
        self.error: Error | None = None
        """The error that it raised."""

    @property
    def count(self) -> int:
        """The number of replayed messages."""
        return self._progress.count

    @property
    def foreign(self) -> int:
        """The number of messages of other work queues, which stay."""
        return self._progress.foreign

    async def run(self) -> None:
        """Replays, and raises the first error at the end.

        :raises Error: a refused message does not end the replay; any other error does
        """
        channel = await self._connection.channel(publisher_confirms=False)
        try:
            while self._progress.gets_queue:
                self._progress.begin_queue()
                while self._progress.gets_message:
                    await self._replay_next(channel)
            if self._progress.error:
                raise self._progress.error
        except Error as error:
            self.error = error
            raise
        finally:
            await self._session.publisher(self._connection).writer.flush()
            await close(channel)

    async def _replay_next(self, channel: WireChannel) -> None:
        """Gets a message, and waits until it is replayed or stays in its queue."""
        progress = self._progress
        delivered = await self._get(channel)
        if delivered is None or delivered.delivery_tag is None:
            progress.end_queue()
            return
        message = self._session.read(aio_pika.IncomingMessage(delivered))
        if plan := progress.got(message, delivered.message_count or 0):
            done: asyncio.Future[Error | None] = asyncio.get_running_loop().create_future()

            def end(error: Error | None) -> None:
                if not done.done():  # else the caller of the replay was cancelled
                    done.set_result(error)

            publisher = self._session.publisher(self._connection)
            publisher.settle(plan, message, message._original, replayed=end)
            progress.replayed(await done)

    async def _get(self, channel: WireChannel) -> Any:
        """Returns the answer to a basic.get. None if the queue is left out."""
        progress = self._progress
        try:
            return await channel.basic_get(progress.queue)
        except aiormq.exceptions.ChannelClosed as error:
            refusal = refusal_of(error)
            if not refusal.code:  # it was not the broker
                raise
            refused = replay_refused(self._session.topology, progress.queue, refusal)
            if skips_queue(refused, progress.is_shared):
                return None
            raise refused from error
