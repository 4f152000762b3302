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

What aio-pika cannot keep of a message: it gives every copy a message_id where there was none (here the copy's
backhop-id, so that it is the same for all attempts), writes no cluster_id, and a priority of 0 is none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, cast

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection
from aiormq.abc import ChannelFrame

from ._declaring import Refusal, Step, Steps, check_broker, creating, verifying
from ._errors import ConnectionFailedError, Error, MissingError, PublishError, WaitTimeoutError
from ._retrier import LOGGER, BaseRetrier, PoisonError, back_off, tell_refused, tell_unpublished
from ._time import Seconds, milliseconds, seconds
from .history import History
from .message import Message as _Message
from .plan import Plan

__all__ = ["Message", "PoisonError", "Retrier"]

_AMQP_ERRORS = (aiormq.exceptions.AMQPError, ConnectionError, RuntimeError)
"""RuntimeError is what aiormq raises of a connection that is closed."""


class Message(_Message):
    """What a handler gets: besides what every message has, aio-pika's own message as ``incoming``."""

    __slots__ = ("_channel", "incoming")

    def __init__(self, incoming: aio_pika.abc.AbstractIncomingMessage, history: History) -> None:
        super().__init__(incoming.body, history, redelivered=bool(incoming.redelivered))
        self.incoming = incoming
        """aio-pika's IncomingMessage."""
        self._channel: WireChannel = incoming.channel


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
        self._publishers: dict[WireConnection, _Publisher] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # Declaring

    async def declare(self, verify: bool = False) -> None:
        """Declares exchanges, queues and bindings, on a channel of its own.

        :param verify: make nothing, and say what is missing or different; AMQP cannot look at bindings
        :raises ClashError: an exchange or queue exists with other arguments
        :raises MissingError: the work queue does not exist; with verify, anything
        :raises AccessError: the user may not declare
        :raises BrokerError: the broker cannot serve the strategy
        """
        connection = await self._wire_connection()
        check_broker(self.topology, connection.server_properties)
        await _take_all(connection, verifying(self.topology) if verify else creating(self.topology))
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
            async with self._handling(message):
                await handle(message)

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
        async with self._handling(message):
            yield message

    @contextlib.asynccontextmanager
    async def _handling(self, message: Message) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            await self.settle(message, error)
        except BaseException:  # cancelled: nobody knows what became of it
            with contextlib.suppress(*_AMQP_ERRORS):
                await message._channel.basic_nack(_tag(message), requeue=True)
            raise
        else:
            await self.settle(message)

    def read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        """The message as a handler gets it, for who calls the handler himself; hand it to ``settle`` in the end.

        The poison guard is not asked.
        """
        history = self._decider.read(incoming.exchange or "", incoming.routing_key or "", incoming, incoming.headers)
        message = Message(incoming, history)
        self._decider.frame_max = message._channel.connection.connection_tune.frame_max
        return message

    async def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Says what became of a message of ``read``: None, or the exception with which it failed."""
        try:
            plan = self._plan(message, error)
        except Error as problem:
            tell_refused(message.history, problem)
            return
        await self._carry_out(message, plan)

    async def _carry_out(self, message: Message, plan: Plan) -> None:
        if not plan.publishes:
            await self._settle(message, plan.action, is_written=True)
            return
        task = asyncio.create_task(self._retry(message, plan))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _retry(self, message: Message, plan: Plan) -> None:
        """Publishes the copy until the broker confirms it, then acknowledges the original."""
        failures = 0
        while not message._channel.is_closed:
            try:
                await self._publish(message, plan)
            except Error as error:
                failures += 1
                wait = back_off(failures)
                tell_unpublished(message.history, str(error), wait)
                await asyncio.sleep(wait)
            except Exception as error:  # what cannot be encoded; aiormq wrote nothing then
                tell_refused(message.history, error)
                return
            else:
                await self._settle(message, "ack")
                return
        LOGGER.info("%r is not settled: its channel is closed, and the broker delivers it again", message)

    async def _publish(self, message: Message, plan: Plan) -> None:
        """Publishes a copy once; returns when it is confirmed."""
        connection = message._channel.connection
        publisher = self._publisher(connection)
        if self._needed(plan):
            async with publisher.declaring:
                await _take_all(connection, creating(self.topology, self._needed(plan)))
                self._made(plan)
        try:
            await publisher.publish(plan, message)
        except PublishError:
            self._doubt()
            raise

    def _publisher(self, connection: WireConnection) -> _Publisher:
        publisher = self._publishers.get(connection)
        if publisher is None:
            for old in [each for each in self._publishers if each.is_closed]:
                del self._publishers[old]
            publisher = self._publishers[connection] = _Publisher(connection, self._confirm_timeout)
        return publisher

    async def _settle(self, message: Message, action: str, *, is_written: bool = False) -> None:
        """Settles it on the channel that it came by; where that is closed, the broker delivers it again.

        is_written: waits until it is handed to the system, as aio-pika does.
        """
        channel, tag = message._channel, _tag(message)
        try:
            if action == "reject":
                await channel.basic_nack(tag, requeue=False, wait=is_written)
            elif action == "return":
                await channel.basic_reject(tag, requeue=True, wait=is_written)
            else:
                await channel.basic_ack(tag, wait=is_written)
        except Exception:  # whatever the channel was closed with
            LOGGER.info("%r is not settled: its channel is closed, and the broker delivers it again", message)

    # Waiting

    @property
    def pending(self) -> int:
        """How many copies are not confirmed yet; their originals are unacknowledged."""
        return len(self._tasks)

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Waits until every copy is confirmed and its original acknowledged.

        :param timeout: seconds; default: as long as it takes
        :raises WaitTimeoutError: some are not confirmed in that time
        """
        if tasks := set(self._tasks):
            _, late = await asyncio.wait(tasks, timeout=None if timeout is None else seconds(milliseconds(timeout)))
            if late:
                raise WaitTimeoutError(
                    f"{len(late)} copies are not confirmed; the broker delivers their originals again"
                )
        for connection in list(self._publishers):
            await _flush(connection)

    # Replaying

    async def replay(self, limit: int | None = None) -> int:
        """Sends parked messages back to their work queue, as if they had never failed.

        It ends with the messages that were parked when it began.

        :param limit: how many at most
        :returns: how many went
        :raises PublishError: a message could not be published; it is parked still
        """
        connection = await self._wire_connection()
        channel = await connection.channel(publisher_confirms=False)
        count = 0
        try:
            parked = (await channel.queue_declare(self.topology.parked_queue, passive=True)).message_count or 0
            for _ in range(parked if limit is None else min(parked, limit)):
                delivered = await channel.basic_get(self.topology.parked_queue)
                if delivered.delivery_tag is None:
                    break
                message = self.read(aio_pika.IncomingMessage(delivered))
                await self._publish(message, self._decider.replay(message.history))
                await self._settle(message, "ack")
                count += 1
        except aiormq.exceptions.ChannelNotFoundEntity as error:
            raise MissingError(str(error)) from error
        finally:
            await _flush(connection)
            await _close(channel)
        return count


class _Publisher:
    """A confirm channel on one connection."""

    def __init__(self, connection: WireConnection, confirm_timeout: float) -> None:
        self.declaring = asyncio.Lock()
        self._connection = connection
        self._confirm_timeout = confirm_timeout
        self._channel: aiormq.Channel | None = None
        self._opening = asyncio.Lock()
        self._in_flight: dict[str, asyncio.Future[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def publish(self, plan: Plan, message: Message) -> None:
        """Raises PublishError where the broker did not confirm it, and as it comes what cannot be encoded."""
        properties = _EncodedProperties(_properties(plan, message.incoming))
        if not properties.message_id:
            raise ValueError("there is no room for a message_id, by which aiormq tells what is returned")
        plan.routing_key.encode()
        # aiormq knows by the message_id which publish a return is about: one at a time for each
        key = str(properties.message_id)
        while key in self._in_flight:
            await asyncio.wait([self._in_flight[key]])
        done = self._in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            await self._publish(plan, message.body, properties)
        finally:
            del self._in_flight[key]
            done.set_result(None)

    async def _publish(self, plan: Plan, body: bytes, properties: _EncodedProperties) -> None:
        channel: aiormq.Channel | None = None
        try:
            channel = await self._open()
            await channel.basic_publish(
                body,
                exchange=plan.exchange,
                routing_key=plan.routing_key,
                properties=properties,
                mandatory=plan.mandatory,
                timeout=self._confirm_timeout,
                wait=False,
            )
        except aiormq.exceptions.PublishError as error:
            raise PublishError("was returned by the broker: no queue takes it") from error
        except aiormq.exceptions.DeliveryError as error:
            raise PublishError("was nacked by the broker: a queue is full (reject-publish) or not available") from error
        except asyncio.TimeoutError as error:
            self._leave(channel)
            raise PublishError(f"was not confirmed within {self._confirm_timeout:g} s") from error
        except Exception as error:
            self._leave(channel)
            raise PublishError(f"was not confirmed: the channel is closed ({error!r})") from error

    async def _open(self) -> aiormq.Channel:
        if self._channel is not None and not self._channel.is_closed:
            return self._channel
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                self._channel = cast("aiormq.Channel", channel)
                self._channel.write_queue = cast("asyncio.Queue[ChannelFrame]", _Writer(self._connection))
            return self._channel

    def _leave(self, channel: aiormq.Channel | None) -> None:
        """Nothing more is known of what was published on it."""
        if channel is None or channel is not self._channel:
            return
        self._channel = None
        if not channel.is_closed:
            task = asyncio.create_task(_close(channel))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class _Writer:
    """The write_queue of the channel that publishes: hands frames to the connection, those of one turn of the event
    loop at once, as the connection makes a system call of each."""

    def __init__(self, connection: WireConnection) -> None:
        self._queue = connection.write_queue
        self._frames: list[ChannelFrame] = []
        self._is_closed = False
        self._is_putting = False
        self._task: asyncio.Task[None] | None = None

    async def put(self, frame: ChannelFrame) -> None:
        """As asyncio.Queue's."""
        if self._is_closed:  # aiormq 6 goes on publishing for a moment, for which the broker closes the connection
            raise aiormq.exceptions.ChannelInvalidStateError
        self._frames.append(frame)
        if self._task is None:
            self._task = asyncio.create_task(self._write())

    def put_nowait(self, frame: ChannelFrame) -> None:
        """As asyncio.Queue's: what agrees to a close is written at once, before the channel's number is another's."""
        self._is_closed = True
        if self._is_putting:
            raise asyncio.QueueFull
        frames, self._frames = [*self._frames, frame], []
        self._queue.put_nowait(_joined(frames))

    async def _write(self) -> None:
        while self._frames:  # one put at a time: a queue that is full does not keep the order of several
            frames, self._frames = self._frames, []
            self._is_putting = True
            await self._queue.put(_joined(frames))
            self._is_putting = False
        self._task = None


def _drained(frames: list[ChannelFrame], _: object) -> None:
    for frame in frames:
        frame.drain()


def _joined(frames: list[ChannelFrame]) -> ChannelFrame:
    written: asyncio.Future[None] | None = None
    if waiting := [frame for frame in frames if frame.should_drain]:
        written = asyncio.get_running_loop().create_future()
        written.add_done_callback(partial(_drained, waiting))
    return ChannelFrame(b"".join(frame.payload for frame in frames), False, written)


class _EncodedProperties(aiormq.spec.Basic.Properties):
    """Properties that are encoded already: aiormq 6 counts a publish that it cannot encode, and then takes another's
    confirm for the next one's."""

    def __init__(self, properties: aiormq.spec.Basic.Properties) -> None:
        self.encoded = properties.marshal()
        self.message_id = properties.message_id

    def marshal(self) -> bytes:
        return self.encoded


def _properties(plan: Plan, incoming: aio_pika.abc.AbstractIncomingMessage) -> aiormq.spec.Basic.Properties:
    headers = plan.copy_headers(incoming.headers, binary=bytearray)
    kept: dict[str, Any] = {name: getattr(incoming, name) for name in plan.kept_properties if name != "cluster_id"}
    return aiormq.spec.Basic.Properties(
        headers=headers,
        delivery_mode=2,
        expiration=plan.expiration,
        message_type=kept.pop("type", None),
        priority=kept.pop("priority", None) or None,
        message_id=kept.pop("message_id", None) or headers.get("backhop-id"),
        **{name: value for name, value in kept.items() if value is not None},
    )


def _tag(message: Message) -> int:
    return message.incoming.delivery_tag or 0


async def _take_all(connection: WireConnection, steps: Steps) -> None:
    """Takes the steps of declaring, on channels of its own, as each refusal closes one."""
    channel: WireChannel | None = None
    refusal: Refusal | None = None
    try:
        with contextlib.suppress(StopIteration):
            while True:
                step = steps.send(refusal)
                if channel is None:
                    channel = await connection.channel(publisher_confirms=False)
                refusal = await _take(channel, step)
                if refusal:
                    channel = None
    except _AMQP_ERRORS as error:
        raise ConnectionFailedError(f"the connection was lost: {error!r}") from error
    finally:
        if channel is not None:
            await _close(channel)


async def _flush(connection: WireConnection) -> None:
    """Returns when all acknowledgements are written, or the connection is closed."""
    if not connection.is_closed:
        written = connection.create_future()
        await connection.write_queue.put(ChannelFrame(b"", False, written))
        with contextlib.suppress(Exception):
            await written


async def _close(channel: WireChannel) -> None:
    with contextlib.suppress(*_AMQP_ERRORS):
        if not channel.is_closed:
            await channel.close(aiormq.exceptions.ChannelClosed(None, None))  # else it cancels who awaits a confirm


async def _take(channel: WireChannel, step: Step) -> Refusal | None:
    declaration, passive = step
    name, source, key = declaration.name, declaration.source, declaration.routing_key
    arguments: Any = declaration.arguments
    try:
        if declaration.what == "exchange":
            await channel.exchange_declare(
                name, exchange_type=declaration.type, passive=passive, durable=True, arguments=arguments
            )
        elif declaration.what == "queue":
            await channel.queue_declare(name, passive=passive, durable=True, arguments=arguments)
        elif declaration.type == "exchange":
            await channel.exchange_bind(destination=name, source=source, routing_key=key)
        else:
            await channel.queue_bind(name, source, routing_key=key)
    except aiormq.exceptions.ChannelClosed as error:
        return _refusal(error)
    except aiormq.exceptions.ConnectionCommandInvalid as error:  # RabbitMQ before 4.0, for an exchange type
        return Refusal(503, str(error.args[0]))
    return None


_CODES: dict[type[BaseException], int] = {
    aiormq.exceptions.ChannelAccessRefused: 403,
    aiormq.exceptions.ChannelNotFoundEntity: 404,
    aiormq.exceptions.ChannelLockedResource: 405,
    aiormq.exceptions.ChannelPreconditionFailed: 406,
}


def _refusal(error: aiormq.exceptions.ChannelClosed) -> Refusal:
    """aiormq tells some reply codes by the class alone."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Refusal(code, str(error.args[0]))
    code, text = error.args
    return Refusal(code or 0, str(text))
