"""A message over aio-pika, from its arrival until it is settled."""

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
from ..._errors import ArgumentTypeError, ConsumerCancelledError
from ..._exceptions import is_kind
from ...plan import OK, Plan
from ..retrier import LOGGER, SETTLED_ALREADY, BaseRetrier
from .channels import AioPikaOriginal
from .holding import Holding
from .message import Message
from .publisher import AioPikaPublisher


class Settling(BaseRetrier[aio_pika.abc.AbstractChannel]):
    """The part of the retrier that reads, settles and refuses messages."""

    def _begin(self) -> None:
        if not isinstance(self._channel, aio_pika.abc.AbstractChannel):
            raise ArgumentTypeError(f"channel is {self._channel!r}: give a channel of aio-pika's")
        self._publishers: dict[WireConnection, AioPikaPublisher] = {}
        self._holding = Holding()
        self._last: tuple[WireConnection, AioPikaPublisher] | None = None
        self._following: asyncio.Task[None] | None = None
        self._running: set[Any] = set()  # the tasks of its handlers

    def _is_closing(self) -> bool:
        """Returns whether the application closes the connection.

        Only aio-pika's own object has that.
        """
        return bool(getattr(getattr(self._channel, "_connection", None), "_close_called", False))

    def _is_over(self) -> bool:
        """Returns whether no message arrives any more."""
        channel = self._channel
        is_robust = isinstance(channel, aio_pika.abc.AbstractRobustChannel)
        return self._is_closing() or (channel.is_closed and not is_robust)

    def _message(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        channel = incoming.channel
        tag = incoming.delivery_tag or 0
        if incoming.processed:
            self._log_no_ack(incoming.consumer_tag, "no_ack=False")
            tag = 0
        publisher = self._publisher(channel.connection)
        return Message(
            self._decider, self._topology, AioPikaOriginal(channel, tag, publisher.writer), incoming
        )

    def _watch_deliveries(self, channel: Any) -> None:
        channel.closing.add_done_callback(lambda _: self._stop_deliveries(channel))

    async def _admitted(self, message: Message) -> bool:
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
            kind, action = self._earlier(message, has_id, partial(_quietly, go_on))
            if kind != c.BH_ARRIVAL_WAIT:
                break
            await self._waited(over)
            if message._original.is_lost:
                return False
        if kind == c.BH_ARRIVAL_CALL:
            return True
        if action == c.BH_ACTION_ACK:
            self._events.delivered(message)
            self._succeeded(message)
        else:  # its copy is confirmed, or it was dropped
            message._original.settle("ack")
            self._acknowledged(message, action)
        return False

    async def _waited(self, over: asyncio.Event) -> None:
        """Waits for the end of an earlier call. A drain waits for that too."""
        task = asyncio.current_task()
        self._running.add(task)
        try:
            await over.wait()
        finally:
            self._running.discard(task)

    def _read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        self._check_fork()
        if not isinstance(incoming, aio_pika.abc.AbstractIncomingMessage):
            raise ArgumentTypeError(
                f"incoming is {incoming!r}: give an IncomingMessage of aio-pika's"
            )
        message = self._message(incoming)
        message._keep()
        return message

    def _succeeded(self, message: Message) -> asyncio.Future[None] | None:
        """Acknowledges a message. The result is done when that is written; None if nothing is."""
        self._record(message, OK)
        if message._original.is_lost:
            self._lost_ack(message)
            return None
        written = self._acknowledge(message)
        self._acknowledged(message)
        self._events.succeeded(message)
        return written

    def _acknowledge(self, message: Message) -> asyncio.Future[None] | None:
        """Acknowledges a message.

        The result is done when that is written; None if it is settled already.
        """
        original = message._original
        if message._incoming.processed and original.tag:
            LOGGER.error(SETTLED_ALREADY, original.tag)
            return None
        return original.settle("ack")

    async def _execute(
        self, message: Message, plan: Plan, error: BaseException | None = None
    ) -> None:
        original = message._original
        if plan.action in ("ack", "drop"):
            action = c.Plan_action(plan._handle)
            if original.is_lost:
                self._lost_ack(message, action)
                return
            written = self._acknowledge(message)
            self._acknowledged(message, action)
            if written:
                await shielded(written)
        elif message._incoming.processed and original.tag:
            self._forget_call(message)
            LOGGER.error(SETTLED_ALREADY, original.tag)
        else:
            self._publisher(original.channel.connection).settle(plan, message, original, error)

    def _publish(self, message: Message, plan: Plan) -> None:
        original = message._original
        self._publisher(original.channel.connection).settle(plan, message, original)

    def _refuse(self, message: Message, problem: Exception) -> None:
        self._forget_call(message)
        original = message._original
        self._publisher(original.channel.connection).refuse(original, message._history, problem)

    def _is_aborted(self, message: Message) -> bool:
        """Returns whether the task of a handler was cancelled by a stop, and not by the handler.

        aiormq cancels the tasks of a channel that it closes, asyncio.run all tasks at its end.
        """
        return (
            not message._original.is_here
            or self._is_closing()
            or all(is_cancelling(task) for task in asyncio.all_tasks())
        )

    def _release(self, message: Message) -> None:
        """Gives a message back whose handler a stop aborted: that is no attempt."""
        message._original.settle("requeue")
        self._forget_call(message)
        self._emit_stale(message, ConsumerCancelledError.status)

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
            publisher.watch.begin()
        self._last = (connection, publisher)
        self._decider.frame_max = connection.connection_tune.frame_max
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
