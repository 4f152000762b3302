"""Replays messages over aio-pika."""

from __future__ import annotations

import asyncio
import math

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection

from ..._errors import Error
from ..declaring import replay_refused
from ..replay import goes_on, replayed_messages, replayed_queues, skips_queue, unreadable
from .channels import close, refusal_of
from .message import Message
from .session import AioPikaSession


class Replay:
    """Gets messages one by one, on a channel of its own, and publishes their copies.

    First come the parked messages, then this work queue's messages in the unroutable queue.

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
        self._most = math.inf if most is None else most
        self._queues = queues or replayed_queues(session.topology)
        self.foreign = 0
        """The number of messages of other work queues, which stay."""
        self.count = 0
        """The number of replayed messages."""
        self.error: Error | None = None
        """The first error."""

    async def run(self) -> None:
        """Replays, and raises the first error at the end.

        :raises Error: a refused message does not end the replay; any other error does
        """
        channel = await self._connection.channel(publisher_confirms=False)
        try:
            for queue, is_shared in self._queues:
                await self._replay_queue(channel, queue, is_shared)
            if self.error:
                raise self.error
        except Error as error:
            self.error = error
            raise
        finally:
            await self._session.publisher(self._connection).writer.flush()
            await close(channel)

    async def _replay_queue(self, channel: WireChannel, queue: str, is_shared: bool) -> None:
        remaining = 1
        is_counted = False
        while remaining and self.count < self._most:
            message, behind = await self._get(channel, queue, is_shared)
            if message is None:
                return
            if not is_counted:  # a busy broker answers a passive declare of a quorum queue with 0
                is_counted = True
                remaining = replayed_messages(behind, is_shared)
            remaining -= 1
            if is_shared and not self._session.owns(message):
                self.foreign += 1
                continue  # it is requeued when the channel closes
            try:
                await self._replay_one(message)
                self.count += 1
            except Error as error:
                if not goes_on(error):
                    raise
                self.error = self.error or error

    async def _get(
        self, channel: WireChannel, queue: str, is_shared: bool
    ) -> tuple[Message | None, int]:
        """Returns the next message, None for none, and the number of messages behind it."""
        try:
            delivered = await channel.basic_get(queue)
        except aiormq.exceptions.ChannelClosed as error:
            refusal = refusal_of(error)
            if not refusal.code:  # it was not the broker
                raise
            refused = replay_refused(self._session.topology, queue, refusal)
            if skips_queue(refused, is_shared):
                return None, 0
            raise refused from error
        if delivered.delivery_tag is None:
            return None, 0
        message = self._session.read(aio_pika.IncomingMessage(delivered))
        return message, delivered.message_count or 0

    async def _replay_one(self, message: Message) -> None:
        """Replays a message.

        :raises Error: if it stays in its queue
        """
        try:
            plan = self._session.decider.replay(message.history)
        except Exception as problem:
            raise unreadable(problem) from problem
        done: asyncio.Future[Error | None] = asyncio.get_running_loop().create_future()
        publisher = self._session.publisher(self._connection)
        publisher.settle(plan, message, message._original, replayed=done.set_result)
        if error := await done:
            raise error
