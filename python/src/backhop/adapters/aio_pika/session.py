"""AioPikaSession: a message over aio-pika, from its arrival until it is settled."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import aio_pika
from aiormq.abc import AbstractConnection as WireConnection

from ... import _backhop as c
from ..._errors import (
    ArgumentTypeError,
    ConnectionFailedError,
    ConsumerCancelledError,
    Error,
)
from ..._exceptions import is_kind
from ..._handlers import ENDS_PROGRAM
from ...observe.event import Fields
from ...plan import OK, Plan
from ..declaring import CLOSED, Steps, check_broker
from ..session import LOGGER, SETTLED_ALREADY, Session
from ..watch import Watch
from .channels import AMQP_ERRORS, AioPikaOriginal
from .declaring import execute
from .holding import Holding, heartbeat_of
from .message import Message
from .publisher import AioPikaPublisher


class AioPikaSession(Session):
    """Reads, settles and refuses the messages of one retrier, and declares."""

    channel: aio_pika.abc.AbstractChannel

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        if not isinstance(self.channel, aio_pika.abc.AbstractChannel):
            raise ArgumentTypeError(f"channel is {self.channel!r}: give a channel of aio-pika's")
        self.publishers: dict[WireConnection, AioPikaPublisher] = {}
        self.holding = Holding()
        self._last: tuple[WireConnection, AioPikaPublisher] | None = None
        self._following: asyncio.Task[None] | None = None
        self.running: set[Any] = set()  # the tasks of its handlers

    async def declare(self) -> None:
        """Declares or verifies, by the mode. As the retrier's."""
        await self.declare_by(self.declaring)
        if self.mode == "create":
            self.restores = True
            for publisher in list(self.publishers.values()):
                publisher.declared()

    async def declare_by(self, steps: Callable[[WireConnection], Steps]) -> None:
        self.check_fork()
        self.was_declared = True
        connection = await self.open_connection()
        check_broker(self.topology, connection.server_properties)
        await execute(connection, steps(connection))

    def observe(self, event: c.Event, *, are_consuming: bool = False) -> None:
        super().observe(event, are_consuming=are_consuming)
        for consumer in self.consumers:
            consumer._changed.set()

    def held(self, connection: WireConnection) -> Fields:
        return self.holding.fields(heartbeat_of(connection))

    async def wire_connection(self) -> WireConnection:
        return (await self.channel.get_underlay_channel()).connection

    async def open_connection(self) -> WireConnection:
        """Returns the channel's connection.

        :raises ConnectionFailedError: if it is closed.
        """
        if not self.is_closing():  # else a robust channel would wait for a reconnect
            connection = await self.wire_connection()
            if connection.is_opened:
                return connection
        raise ConnectionFailedError(CLOSED)

    def follow(self) -> None:
        """Watches the channel's connection, also if no message arrives.

        Outside the event loop, the first message does so.
        """
        is_running = asyncio._get_running_loop() is not None
        if is_running and self.mode != "none" and not self.is_over():
            self._following = asyncio.create_task(self._watch_connection())

    async def _watch_connection(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError, *AMQP_ERRORS):
            connection = await asyncio.wait_for(self.wire_connection(), Watch.pause)
            if not connection.is_closed:
                self.publisher(connection)
                return
        # It is lost, and aio-pika connects again.
        asyncio.get_running_loop().call_later(Watch.pause, self.follow)

    def later(self, delay: float, callback: Callable[[], None]) -> None:
        if not self.is_over():
            asyncio.get_running_loop().call_later(delay, callback)

    def can_settle(self, message: Message) -> bool:
        return not message._original.is_lost

    def is_closing(self) -> bool:
        """Returns whether the application closes the connection.

        Only aio-pika's own object has that.
        """
        return bool(getattr(getattr(self.channel, "_connection", None), "_close_called", False))

    def is_over(self) -> bool:
        """Returns whether no message arrives any more."""
        channel = self.channel
        is_robust = isinstance(channel, aio_pika.abc.AbstractRobustChannel)
        return self.is_closing() or (channel.is_closed and not is_robust)

    def message(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        channel = incoming.channel
        tag = incoming.delivery_tag or 0
        if incoming.processed:
            self.log_no_ack(incoming.consumer_tag, "no_ack=False")
            tag = 0
        publisher = self.publisher(channel.connection)
        return Message(
            self.decider, self.topology, AioPikaOriginal(channel, tag, publisher.writer), incoming
        )

    def watch_deliveries(self, channel: Any) -> None:
        channel.closing.add_done_callback(lambda _: self.stop_deliveries(channel))

    async def admitted(self, message: Message) -> bool:
        """Returns whether a message needs its handler, once no earlier call of it runs.

        Returns False if it is settled, or if the broker delivers it again.
        """
        incoming = message._incoming
        has_id = incoming.message_id is not None or bool(incoming.headers)
        while True:
            if message._original.is_lost:
                return True  # its handler's end emits that
            over = asyncio.Event()
            go_on = partial(asyncio.get_running_loop().call_soon_threadsafe, over.set)
            kind, action = self.earlier(message, has_id, partial(_quietly, go_on))
            if kind != c.BH_ARRIVAL_WAIT:
                break
            await self._waited(over)
            if message._original.is_lost:
                return False
        if kind == c.BH_ARRIVAL_CALL:
            return True
        if action == c.BH_ACTION_ACK:
            self.events.delivered(message)
            self.succeeded(message)
        else:  # its copy is confirmed, or it was dropped
            message._original.settle("ack")
            self.acknowledged(message, action)
        return False

    async def _waited(self, over: asyncio.Event) -> None:
        """Waits for the end of an earlier call. A drain waits for that too."""
        task = asyncio.current_task()
        self.running.add(task)
        try:
            await over.wait()
        finally:
            self.running.discard(task)

    def read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        self.check_fork()
        if not isinstance(incoming, aio_pika.abc.AbstractIncomingMessage):
            raise ArgumentTypeError(
                f"incoming is {incoming!r}: give an IncomingMessage of aio-pika's"
            )
        message = self.message(incoming)
        message._keep()
        return message

    async def failed(self, message: Message, error: BaseException) -> None:
        self.check_fork()
        if is_kind(error, ENDS_PROGRAM):
            self.ends_program(message, error)
            raise error
        if is_cancelled(error) and self.is_aborted(message):
            self.release(message)
            raise error
        if is_kind(error, GeneratorExit) and asyncio._get_running_loop() is None:
            self.forget_call(message)
            raise error  # a coroutine that its loop left behind is closed
        await self.settle(message, error)

    async def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Settles a message whose handler has ended."""
        if error is None:
            if written := self.succeeded(message):
                await shielded(written)
            return
        try:
            plan = self.plan(message, error)
        except Error as problem:
            self.refuse(message, problem)
        else:
            await self.execute(message, plan, error)

    def succeeded(self, message: Message) -> asyncio.Future[None] | None:
        """Acknowledges a message. The result is done when that is written; None if nothing is."""
        self.record(message, OK)
        if message._original.is_lost:
            self.lost_ack(message)
            return None
        written = self.acknowledge(message)
        self.acknowledged(message)
        self.events.succeeded(message)
        return written

    def acknowledge(self, message: Message) -> asyncio.Future[None] | None:
        """Acknowledges a message.

        The result is done when that is written; None if it is settled already.
        """
        original = message._original
        if message._incoming.processed and original.tag:
            LOGGER.error(SETTLED_ALREADY, original.tag)
            return None
        return original.settle("ack")

    async def execute(
        self, message: Message, plan: Plan, error: BaseException | None = None
    ) -> None:
        original = message._original
        if plan.action in ("ack", "drop"):
            action = c.Plan_action(plan._handle)
            if original.is_lost:
                self.lost_ack(message, action)
                return
            written = self.acknowledge(message)
            self.acknowledged(message, action)
            if written:
                await shielded(written)
        elif message._incoming.processed and original.tag:
            self.forget_call(message)
            LOGGER.error(SETTLED_ALREADY, original.tag)
        else:
            self.publisher(original.channel.connection).settle(plan, message, original, error)

    def publish(self, message: Message, plan: Plan) -> None:
        original = message._original
        self.publisher(original.channel.connection).settle(plan, message, original)

    def refuse(self, message: Message, problem: Exception) -> None:
        self.forget_call(message)
        original = message._original
        self.publisher(original.channel.connection).refuse(original, message._history, problem)

    def is_aborted(self, message: Message) -> bool:
        """Returns whether the task of a handler was cancelled by a stop, and not by the handler.

        aiormq cancels the tasks of a channel that it closes, asyncio.run all tasks at its end.
        """
        return (
            not message._original.is_here
            or self.is_closing()
            or all(is_cancelling(task) for task in asyncio.all_tasks())
        )

    def release(self, message: Message) -> None:
        """Gives a message back whose handler a stop aborted: that is no attempt."""
        message._original.settle("requeue")
        self.forget_call(message)
        self.emit_stale(message, ConsumerCancelledError.status)

    def publisher(self, connection: WireConnection) -> AioPikaPublisher:
        if self._last is not None and self._last[0] is connection:
            return self._last[1]
        publisher = self.publishers.get(connection)
        if publisher is None:
            for old in [each for each in self.publishers if each.is_closed]:
                del self.publishers[old]
            publisher = self.publishers[connection] = AioPikaPublisher(
                self, connection, self.confirm_timeout, self.is_closing
            )
            publisher.watch.begin()
        self._last = (connection, publisher)
        self.decider.frame_max = connection.connection_tune.frame_max
        return publisher


def _quietly(call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed
        call()


async def shielded(written: asyncio.Future[None]) -> None:
    """Returns when the frames are handed to the system.

    If this caller is cancelled, others still wait.
    """
    await asyncio.shield(written)


def is_cancelled(error: BaseException) -> bool:
    """Returns whether the handler's own task was cancelled, and not something that it awaited."""
    return is_kind(error, asyncio.CancelledError) and is_cancelling(asyncio.current_task())


def is_cancelling(task: Any) -> bool:
    return sys.version_info < (3, 11) or bool(task.cancelling())  # Python 3.10 has no difference
