"""Retries over aio-pika.

    retrier = backhop.aio_pika.Retrier(channel, queue="cdn-purge", policy=policy)
    consumer = await retrier.consume(handle)        # async def handle(message): returns: ack; raises: later

    await retrier.declare()                         # or, in a loop of your own:
    async for message in queue:
        async with retrier.process(message):        # ends well: ack; raises: later; raise Park: parked
            await purge(message.body)

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
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection

from ._aio_pika_channels import AioPikaOriginal, AioPikaPublisher, close, refusal_of, take_all
from ._aio_pika_consumer import Consumer
from ._amqp import copied
from ._checks import LONGEST_MS, instance, span_ms, whole
from ._declaring import Steps, check_broker, replay_refused
from ._errors import AccessError, ArgumentTypeError, Error, MissingError, PoisonError
from ._retrier import (
    LOGGER,
    MAY_BE_POISON,
    REFUSALS,
    SETTLED_ALREADY,
    BaseRetrier,
    check_error,
    replayed_messages,
    replayed_queues,
    unreadable,
)
from ._time import Seconds, seconds
from .decider import Decider
from .delivery import PROPERTIES
from .history import History
from .message import Message as _Message
from .outcomes import awaited, check_handler
from .plan import Plan
from .topology import Topology

__all__ = ["Consumer", "Message", "PoisonError", "Retrier"]


class Message(_Message):
    """What a handler gets: besides what every message has, aio-pika's own message as ``incoming``."""

    __slots__ = ("_decider", "_incoming", "_kept", "_original")

    def __init__(
        self,
        decider: Decider,
        topology: Topology,
        original: AioPikaOriginal,
        incoming: aio_pika.abc.AbstractIncomingMessage,
    ) -> None:
        _Message.__init__(self, topology)
        self._decider = decider
        self._original = original
        self._incoming = incoming
        self._kept: Any = incoming
        self.body = incoming.body
        self.redelivered: bool = bool(incoming.redelivered)

    @property
    def incoming(self) -> aio_pika.abc.AbstractIncomingMessage:
        """aio-pika's IncomingMessage. Changing it changes nothing of a retry."""
        self._keep()
        return self._incoming

    def _keep(self) -> None:
        """From now on somebody else may change aio-pika's message."""
        incoming = self._incoming
        if self._kept is incoming:
            kept: dict[str, Any] = {name: getattr(incoming, name) for name in PROPERTIES}
            self._kept = SimpleNamespace(headers=copied(incoming.headers), **kept)

    def _read(self) -> History:
        incoming, kept = self._incoming, self._kept
        return self._decider.read(incoming.exchange or "", incoming.routing_key or "", kept, kept.headers)


class Retrier(BaseRetrier[aio_pika.abc.AbstractChannel]):
    """Acknowledges what a handler did, and lets what it could not do come back later.

    Before you close the connection, ``await retrier.drain()``: what is unconfirmed then is delivered again.

    :param channel: your channel; it tells the connection on which to declare and to consume
    :param queue: the work queue; at most 247 bytes
    :param policy: how long, how often, how random, when to give up; default: Policy()
    :param topology: instead of queue, policy, and the options from strategy to work_queue_arguments
    :param strategy: where a message waits: ``"ladder"``, ``"message-ttl"``, ``"reject"``, ``"delayed-exchange"`` or
        ``"native"``
    :param queue_type: as Topology's, as are namespace, series, stripes, work_queue, work_queue_arguments
    :param mode: what ``declare`` does: ``"create"`` what is missing; ``"verify"`` that all is there, and change
        nothing; ``"none"``. Rungs that only a handler's RetryAfter can need are made on demand in ``"create"`` alone
    :param never: exceptions that park a message at once: a class, a predicate, or a list of these. A predicate is
        called with the exception, and answers True or False, or a delay: try again, not before so many seconds
    :param only: the exceptions that are tried again, likewise; any other parks at once. Default: all are
    :param policies: by which other policies some exceptions are tried again, as ``{RateLimited: slow}``: the first
        whose class or predicate meets the exception. Attempts are counted once for all. A topology that you give has to
        have them among its own ``policies``
    :param legacy_counter: as History's, as are wait_queues
    :param confirm_timeout: after so many seconds without a confirm one copy is published again, and the others once the
        broker confirms one
    :param back_off: how long to wait before a copy is published again; its limits are ignored; default: 100 ms, doubled
        up to 10 s, jitter equal
    :param on_event: called with each Event, in the connection's thread, or its event loop; or a bridge, as
        backhop.prometheus and backhop.opentelemetry have them; or a list of these
    :param clock: gives seconds since the epoch
    :param random: gives that many random bytes
    :raises ArgumentError: for an option that cannot be used; also InvalidNameError, PolicyError and StrategyError
    """

    def _begin(self) -> None:
        if not isinstance(self._channel, aio_pika.abc.AbstractChannel):
            raise ArgumentTypeError(f"channel is {self._channel!r}: give a channel of aio-pika's")
        self._publishers: dict[WireConnection, AioPikaPublisher] = {}
        self._last: tuple[WireConnection, AioPikaPublisher] | None = None

    # Declaring

    async def declare(self) -> None:
        """Declares exchanges, queues and bindings, on a channel of its own; or what else the mode says.

        :raises ClashError: an exchange or queue exists with other arguments
        :raises MissingError: the work queue does not exist; with mode verify, anything
        :raises AccessError: the user may not declare
        :raises BrokerError: the broker cannot serve the strategy
        """
        await self._take(self._declaring)
        self._restores = self._restores or self._mode == "create"

    async def verify(self) -> None:
        """Makes nothing, and says what is missing or different, whatever the mode.

        A rung that only a handler's RetryAfter can need may be missing in the mode ``"create"``, as it is made on
        demand then, unless the user may not declare. AMQP cannot look at bindings.

        :raises ClashError: an exchange or queue exists with other arguments
        :raises MissingError: something does not exist
        :raises BrokerError: the broker cannot serve the strategy
        """
        await self._take(lambda _: self._verifying())

    async def _take(self, steps: Callable[[WireConnection], Steps]) -> None:
        self._was_asked = True
        connection = await self._wire_connection()
        check_broker(self.topology, connection.server_properties)
        await take_all(connection, steps(connection))

    def _is_closing(self) -> bool:
        """Whether the application closed the connection, or does: only aio-pika's own object knows."""
        return bool(getattr(getattr(self._channel, "_connection", None), "_close_called", False))

    async def _wire_connection(self) -> WireConnection:
        return (await self._channel.get_underlay_channel()).connection

    # Handling

    async def consume(self, handle: Callable[[Message], object], *, prefetch: int = 100) -> Consumer:
        """Declares, subscribes to the work queue on a channel of its own, and hands each message to ``handle``, as
        wrap.

        It subscribes again where the broker cancels the consumer or closes the channel, and, with ``connect_robust``,
        where the connection comes back.

        :param handle: awaited with each Message, up to ``prefetch`` at once; or a plain function
        :param prefetch: messages that the broker sends ahead, 1 to 65535
        :raises Error: as declare
        """
        consumer = Consumer(self, self.wrap(handle), whole("prefetch", prefetch, 1, 65535))
        await consumer._start()
        return consumer

    def wrap(
        self, handle: Callable[[Message], object]
    ) -> Callable[[aio_pika.abc.AbstractIncomingMessage], Coroutine[Any, Any, None]]:
        """A callback for your own ``queue.consume`` that hands each message to ``handle``.

        Where it returns the message is acknowledged; where it raises the message comes back later, or is parked. A
        plain function is a handler too; nothing else happens in the event loop while it runs. It is for consumers of
        this retrier's queue alone: aio-pika does not tell which queue a message is from.

        :raises ArgumentTypeError: for what is not callable
        """
        check_handler(handle)
        events = self._events
        run = events.surrounded_async(handle)

        async def on_message(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
            message = self._message(incoming)
            headers = incoming.headers
            if headers and MAY_BE_POISON in headers:
                try:
                    poison = self._guard(message)
                except Exception as error:
                    self._refuse(message, error)
                    return
                if poison:
                    await self._carry_out(message, poison)
                    return
            events.delivered(message)
            try:
                await awaited(run, message)
            except BaseException as error:
                await self._failed(message, error)
            else:
                self._succeeded(message)  # written soon: nothing comes after it that would have to wait

        return on_message

    def _message(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        channel = incoming.channel
        tag = incoming.delivery_tag or 0
        if incoming.processed:
            self._say_no_ack(incoming.consumer_tag, "no_ack=False")
            tag = 0
        publisher = self._publisher(channel.connection)
        return Message(self._decider, self._topology, AioPikaOriginal(channel, tag, publisher.writer), incoming)

    @contextlib.asynccontextmanager
    async def process(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> AsyncIterator[Message]:
        """A context to handle a message in, in the place of aio-pika's ``message.process()``.

        An exception ends the context, and not the loop around it: unlike aio-pika's it is logged, and not raised again.

        :raises PoisonError: instead of entering: the message crashed its consumers, and waits or is parked, as the text
            says; ``wrap`` raises nothing
        :raises Error: a message that cannot be read
        """
        message = self._read(incoming)
        if poison := self._guard(message):
            await self._carry_out(message, poison)
            raise self._poison(poison)
        self._events.delivered(message)
        try:
            with self._events.handling(message):
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
        """The message as a handler gets it, for who calls the handler himself, in ``handling``. Hand it to ``settle``
        in the end.

        The poison guard is not asked.

        :raises ArgumentTypeError: there is no message, as ``queue.get(fail=False)`` found none
        """
        message = self._read(incoming)
        self._events.delivered(message)
        return message

    def _read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        if not isinstance(incoming, aio_pika.abc.AbstractIncomingMessage):
            raise ArgumentTypeError(f"incoming is {incoming!r}: give an IncomingMessage of aio-pika's")
        message = self._message(incoming)
        message._keep()
        return message

    async def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Says what became of a message of ``read``: None, or the exception with which it failed."""
        instance("message", message, Message, "give a message of read")
        check_error(error)
        if error is None:
            if written := self._succeeded(message):
                await _written(written)
            return
        try:
            plan = self._plan(message, error)
        except Error as problem:
            self._refuse(message, problem)
        else:
            await self._carry_out(message, plan, error)

    def _succeeded(self, message: Message) -> asyncio.Future[None] | None:
        """Its handler succeeded; a future of when it is acknowledged."""
        if message._original.is_lost:
            self._announce_stale(message)
            return None
        written = self._acknowledge(message)
        self._events.succeeded(message)
        return written

    def _acknowledge(self, message: Message) -> asyncio.Future[None] | None:
        """Acknowledges; a future of when that is written."""
        original = message._original
        if message._incoming.processed and original.tag:
            LOGGER.error(SETTLED_ALREADY, original.tag)
            return None
        return original.settle("ack")

    async def _carry_out(self, message: Message, plan: Plan, error: BaseException | None = None) -> None:
        original = message._original
        if plan.action in ("ack", "drop"):
            if original.is_lost:
                self._announce_stale(message)
            elif written := self._acknowledge(message):
                await _written(written)
        elif message._incoming.processed and original.tag:
            LOGGER.error(SETTLED_ALREADY, original.tag)
        else:
            self._publisher(original.channel.connection).settle(plan, message, original, error)

    def _refuse(self, message: Message, problem: Exception) -> None:
        original = message._original
        self._publisher(original.channel.connection).refuse(original, message._history, problem)

    def _publisher(self, connection: WireConnection) -> AioPikaPublisher:
        if self._last is not None and self._last[0] is connection:
            return self._last[1]
        publisher = self._publishers.get(connection)
        if publisher is None:
            for old in [each for each in self._publishers if each.is_closed]:
                del self._publishers[old]
            publisher = self._publishers[connection] = AioPikaPublisher(
                self, connection, self._confirm_timeout, self._is_closing
            )
        self._last = (connection, publisher)
        self._decider.frame_max = connection.connection_tune.frame_max
        return publisher

    # Waiting

    @property
    def pending(self) -> int:
        """How many copies are not confirmed yet; their originals are unacknowledged."""
        return sum(publisher.pending for publisher in [*self._publishers.values()])  # a copy: in any thread

    async def __aenter__(self) -> Retrier:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Waits until every copy is confirmed and its original acknowledged.

        :param timeout: seconds; default: as long as it takes
        :raises WaitTimeoutError: some are not confirmed in that time
        """
        limit = None if timeout is None else seconds(span_ms("timeout", timeout, 0, LONGEST_MS))
        drained = asyncio.gather(*(publisher.drain() for publisher in self._publishers.values()))
        try:
            await asyncio.wait_for(drained, limit)
        except asyncio.TimeoutError:
            raise self._undrained() from None

    # Replaying

    async def replay(self, most: int | None = None) -> int:
        """Sends parked messages back to their work queue, as if they had never failed.

        It ends with the messages that were parked when it began. Then, where the user may read it, those of this work
        queue among the first 10,000 of ``topology.unroutable_queue``, which came back while it was gone; others stay
        there, in order. A message that does not go stays where it is; where it is refused for what it is, those behind
        it go.

        :param most: how many at most; default: all that are parked when it begins
        :returns: how many went
        :raises PublishError: a message could not be published
        :raises FrameError: a message's own headers do not fit the connection's frame_max
        :raises ContentError: a message cannot be copied; ChannelClosedError: the broker refuses the copy as it is
        :raises MissingError: there is no queue of parked messages
        :raises AccessError: the user may not read it
        """
        limit = math.inf if most is None else whole("most", most)
        connection = await self._wire_connection()
        channel = await connection.channel(publisher_confirms=False)
        count = 0
        failure: Error | None = None  # the first
        try:
            for queue, is_shared in replayed_queues(self.topology):
                left: float = 1
                is_counted = False
                while left and count < limit:
                    message, behind = await self._get(channel, queue, is_shared)
                    if message is None:
                        break
                    if not is_counted:  # not by a passive declare: of a quorum queue a busy broker answers 0
                        is_counted = True
                        left = replayed_messages(behind + 1, is_shared)
                    left -= 1
                    if is_shared and not self._owns(message):
                        continue  # it is in its queue again when the channel is closed
                    try:
                        await self._send_home(connection, message)
                        count += 1
                    except REFUSALS as refusal:
                        failure = failure or refusal
            if failure:
                raise failure
        except Error as error:
            failure = error
            raise
        finally:
            await self._publisher(connection).writer.flush()
            await close(channel)
            self._announce_replay(count, failure)
        return count

    async def _get(self, channel: WireChannel, queue: str, is_shared: bool) -> tuple[Message | None, int]:
        """The next message to replay, None for none, and how many are behind it."""
        try:
            delivered = await channel.basic_get(queue)
        except aiormq.exceptions.ChannelClosed as error:
            refusal = refusal_of(error)
            if not refusal.code:  # it was not the broker
                raise
            refused = replay_refused(self.topology, queue, refusal)
            if is_shared and isinstance(refused, MissingError | AccessError):
                return None, 0  # who may not read it, or has not declared it, replays what is parked all the same
            raise refused from error
        if delivered.delivery_tag is None:
            return None, 0
        return self._read(aio_pika.IncomingMessage(delivered)), delivered.message_count or 0

    async def _send_home(self, connection: WireConnection, message: Message) -> None:
        """Replays a message.

        :raises Error: it does not go
        """
        try:
            plan = self._decider.replay(message.history)
        except Exception as problem:
            raise unreadable(problem) from problem
        done: asyncio.Future[Error | None] = asyncio.get_running_loop().create_future()
        self._publisher(connection).settle(plan, message, message._original, replayed=done.set_result)
        if error := await done:
            raise error


async def _written(written: asyncio.Future[None]) -> None:
    """Returns once frames are handed to the system; who waits may be cancelled, and the others wait on."""
    await asyncio.shield(written)


def _is_cancelled() -> bool:
    """Whether it is the handler's own task that was cancelled, and not something that it awaited."""
    task: Any = asyncio.current_task()
    return sys.version_info < (3, 11) or bool(task.cancelling())  # Python 3.10 does not tell
