"""A message over aio-pika, from its arrival until it is settled."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aio_pika
from aiormq.abc import AbstractConnection as WireConnection

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
        self._check_fork()  # a handler may return in a child that it forked
        self._record(message, OK)
        if message._original.is_lost:
            self._lost_success(message)
            return None
        written = self._acknowledge(message)
        self._acknowledged(message, message._original.channel)
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
            if original.is_lost:
                self._emit_stale(message)
            elif written := self._acknowledge(message):
                await shielded(written)
        elif message._incoming.processed and original.tag:
            LOGGER.error(SETTLED_ALREADY, original.tag)
        else:
            self._publisher(original.channel.connection).settle(plan, message, original, error)

    def _publish(self, message: Message, plan: Plan) -> None:
        original = message._original
        self._publisher(original.channel.connection).settle(plan, message, original)

    def _refuse(self, message: Message, problem: Exception) -> None:
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
