"""Retries over aio-pika.

    retrier = backhop.aio_pika.Retrier(channel, queue="cdn-purge", policy=policy)
    await retrier.declare()

    async for message in queue:
        async with retrier.process(message):        # ends well: ack; raises: later; raise Park: parked
            await purge(message.body)

    await queue.consume(retrier.wrap(handle))       # the same, with: async def handle(message)

It publishes on a confirm channel of its own, on the connection that the message came by; your channel stays as it is. A
message that failed is acknowledged when the broker confirmed its copy. Confirms are pipelined: leaving ``process`` does
not wait for one. It works with ``connect`` and ``connect_robust``; after a reconnect no stale message is settled.

What aio-pika does not tell of a message, a copy does not keep: a priority of 0 is none, and integers are of 32 bits, or
of 64.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aio_pika
import aiormq
from aiormq.abc import AbstractConnection as WireConnection

from ._aio_pika_channels import AioPikaOriginal, AioPikaPublisher, Writer, close, take_all
from ._amqp import Int64, wire_text
from ._declaring import check_broker, creating, verifying
from ._errors import Error, MissingError, WaitTimeoutError
from ._publisher import Copy
from ._retrier import BaseRetrier, PoisonError, tell_refused
from ._time import Seconds, milliseconds, seconds
from .history import History
from .message import Message as _Message
from .plan import Plan

__all__ = ["Message", "PoisonError", "Retrier"]


class Message(_Message):
    """What a handler gets: besides what every message has, aio-pika's own message as ``incoming``."""

    __slots__ = ("_original", "incoming")

    def __init__(self, incoming: aio_pika.abc.AbstractIncomingMessage, history: History, writer: Writer) -> None:
        super().__init__(incoming.body, history, redelivered=bool(incoming.redelivered))
        self.incoming = incoming
        """aio-pika's IncomingMessage."""
        self._original = AioPikaOriginal(incoming.channel, incoming.delivery_tag or 0, writer)


class Retrier(BaseRetrier[aio_pika.abc.AbstractChannel]):
    """Acknowledges what a handler did, and lets what it could not do come back later.

    Before you close the connection, ``await retrier.drain()``: what is unconfirmed then is delivered again.

    :param channel: your channel; it tells the connection on which to declare
    :param queue: the work queue; at most 247 bytes
    :param policy: how long, how often, how random, when to give up
    :param strategy: where a message waits: ``"ladder"``, ``"message-ttl"``, ``"reject"``, ``"delayed-exchange"`` or
        ``"native"``
    :param never: classes of exceptions that park a message at once
    :param queue_type: as Topology's, as are namespace, series, work_queue, work_queue_arguments
    :param legacy_counter: as History's, as are wait_queues
    :param confirm_timeout: after so many seconds without a confirm a copy is published again
    :param clock: gives seconds since the epoch
    :param random: gives that many random bytes
    """

    def _begin(self) -> None:
        self._publishers: dict[WireConnection, AioPikaPublisher] = {}

    # Declaring

    async def declare(self, verify: bool = False) -> None:
        """Declares exchanges, queues and bindings, on a channel of its own.

        :param verify: make nothing, and say what is missing or different. A rung that only a handler's RetryAfter can
            need may be missing, as it is made on demand, unless the user may not declare. AMQP cannot look at bindings
        :raises ClashError: an exchange or queue exists with other arguments
        :raises MissingError: the work queue does not exist; with verify, anything
        :raises AccessError: the user may not declare
        :raises BrokerError: the broker cannot serve the strategy
        """
        connection = await self._wire_connection()
        check_broker(self.topology, connection.server_properties)
        await take_all(connection, verifying(self.topology) if verify else creating(self.topology))
        self._restores = self._restores or not verify

    async def _wire_connection(self) -> WireConnection:
        return (await self._channel.get_underlay_channel()).connection

    # Handling

    def wrap(
        self, handle: Callable[[Message], Awaitable[object]]
    ) -> Callable[[aio_pika.abc.AbstractIncomingMessage], Awaitable[None]]:
        """A callback for ``queue.consume`` that hands each message to ``handle``.

        Where it returns the message is acknowledged; where it raises the message comes back later, or is parked.
        """

        async def on_message(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
            try:
                message = self.read(incoming)
                poison = self._guard(message)
            except Exception as error:
                tell_refused(None, error)
                return
            if poison:
                await self._carry_out(message, poison)
                return
            try:
                await handle(message)
            except BaseException as error:
                await self._failed(message, error)
            else:
                await self.settle(message)

        return on_message

    @contextlib.asynccontextmanager
    async def process(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> AsyncIterator[Message]:
        """A context to handle a message in, as aio-pika's ``message.process()``; an exception ends the context alone.

        :raises PoisonError: instead of entering: the message crashed its consumers, and is parked. ``wrap`` parks it in
            silence
        :raises Error: a message that cannot be read
        """
        message = self.read(incoming)
        if poison := self._guard(message):
            await self._carry_out(message, poison)
            raise PoisonError(f"{message!r} crashed its consumers, and is parked")
        try:
            yield message
        except BaseException as error:
            await self._failed(message, error)
        else:
            await self.settle(message)

    async def _failed(self, message: Message, error: BaseException) -> None:
        if isinstance(error, Exception) or (isinstance(error, asyncio.CancelledError) and not _is_cancelled()):
            await self.settle(message, error)
            return
        message._original.settle("requeue")  # nobody knows what became of it
        raise error

    def read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        """The message as a handler gets it, for who calls the handler himself; hand it to ``settle`` in the end.

        The poison guard is not asked.
        """
        history = self._decider.read(incoming.exchange or "", incoming.routing_key or "", incoming, incoming.headers)
        connection = incoming.channel.connection
        self._decider.frame_max = connection.connection_tune.frame_max
        return Message(incoming, history, self._publisher(connection).writer)

    async def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Says what became of a message of ``read``: None, or the exception with which it failed."""
        try:
            plan = self._plan(message, error)
        except Error as problem:
            tell_refused(message.history, problem)
            return
        await self._carry_out(message, plan)

    async def _carry_out(self, message: Message, plan: Plan) -> None:
        if plan.publishes:
            self._publish(message, plan)
        elif written := message._original.settle(plan.action):
            await asyncio.shield(written)

    def _publish(self, message: Message, plan: Plan, replayed: Callable[[Error | None], None] | None = None) -> None:
        """Publishes the copy until the broker confirms it, and then acknowledges the original."""
        original = message._original
        headers = plan.copy_headers(message.incoming.headers, integer=Int64)
        key = (wire_text(plan.exchange), wire_text(plan.routing_key), headers.get("backhop-id"))
        copy = Copy(plan, message.history, key, _properties(plan, message.incoming, headers), message.body, original)
        copy.replayed = replayed
        self._publisher(original.channel.connection).publish(copy)

    def _publisher(self, connection: WireConnection) -> AioPikaPublisher:
        publisher = self._publishers.get(connection)
        if publisher is None:
            for old in [each for each in self._publishers if each.is_closed]:
                del self._publishers[old]
            publisher = self._publishers[connection] = AioPikaPublisher(self, connection, self._confirm_timeout)
        return publisher

    # Waiting

    @property
    def pending(self) -> int:
        """How many copies are not confirmed yet; their originals are unacknowledged."""
        return sum(publisher.pending for publisher in [*self._publishers.values()])  # a copy: in any thread

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Waits until every copy is confirmed and its original acknowledged.

        :param timeout: seconds; default: as long as it takes
        :raises WaitTimeoutError: some are not confirmed in that time
        """
        drained = asyncio.gather(*(publisher.drain() for publisher in self._publishers.values()))
        try:
            await asyncio.wait_for(drained, None if timeout is None else seconds(milliseconds(timeout)))
        except asyncio.TimeoutError:
            raise WaitTimeoutError(
                f"{self.pending} copies are not confirmed; the broker delivers their originals again"
            ) from None

    # Replaying

    async def replay(self, limit: int | None = None) -> int:
        """Sends parked messages back to their work queue, as if they had never failed.

        It ends with the messages that were parked when it began.

        :param limit: how many at most
        :returns: how many went
        :raises PublishError: a message could not be published; it is parked still
        :raises MissingError: there is no queue of parked messages
        """
        connection = await self._wire_connection()
        channel = await connection.channel(publisher_confirms=False)
        count, most = 0, math.inf if limit is None else limit
        try:
            while count < most:
                delivered = await channel.basic_get(self.topology.parked_queue)
                if delivered.delivery_tag is None:
                    break
                if count == 0:  # not by a passive declare: of a quorum queue a busy broker answers 0
                    most = min(most, (delivered.message_count or 0) + 1)
                message = self.read(aio_pika.IncomingMessage(delivered))
                done: asyncio.Future[Error | None] = asyncio.get_running_loop().create_future()
                self._publish(message, self._decider.replay(message.history), done.set_result)
                if error := await done:
                    raise error
                count += 1
        except aiormq.exceptions.ChannelNotFoundEntity as error:
            raise MissingError(str(error)) from error
        finally:
            await self._publisher(connection).writer.flush()
            await close(channel)
        return count


def _is_cancelled() -> bool:
    """Whether it is the handler's own task that was cancelled, and not something that it awaited."""
    task: Any = asyncio.current_task()
    return sys.version_info < (3, 11) or bool(task.cancelling())  # Python 3.10 does not tell


def _properties(plan: Plan, incoming: aio_pika.abc.AbstractIncomingMessage, headers: dict[Any, Any]) -> dict[str, Any]:
    """The copy's, by AMQP's names."""
    properties = plan._copy_properties(incoming)
    properties["priority"] = properties.get("priority") or None
    properties["headers"] = headers
    properties["delivery_mode"] = 2
    properties["expiration"] = plan.expiration
    return properties
