"""A consumer over aio-pika, on a channel of its own.

It subscribes again if the broker cancels it or closes its channel, or, with ``connect_robust``,
after a lost connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection

from ... import _backhop as c
from ..._checks import wait_limit
from ..._errors import Error
from ..._handlers import ENDS_PROGRAM
from ..._times import Seconds
from ...breaker import now_ms
from ...observe.health import Health, State
from ..declaring import CONSUME_ARGUMENTS, consumer_refused, forget
from ..subscription import CONSUME, DECLARE, EMIT, NEVER, REST, Subscription
from .channels import AMQP_ERRORS, close, reason_of, refusal_of
from .gate import AioPikaGate
from .publisher import AioPikaPublisher
from .session import AioPikaSession

OnMessage = Callable[[aio_pika.abc.AbstractIncomingMessage], Coroutine[Any, Any, None]]

_LOOK_AFTER = 0.1  # seconds


class Consumer:
    """The consumer that ``Retrier.consume`` returns.

    Its async context manager cancels it at the end.
    """

    def __init__(
        self,
        session: AioPikaSession,
        on_message: OnMessage,
        prefetch: int,
        gate: AioPikaGate | None,
    ) -> None:
        self._session = session
        self._queue = session.topology.queue
        self._on_message = on_message
        self._prefetch = prefetch
        self._wire: WireChannel | None = None
        self._tag: str | None = None
        self._connection: WireConnection | None = None  # of its last channel
        self._subscription = Subscription(session.back_off)
        self._is_lost = False  # its channel or consumer has ended, and no step knows it yet
        self._news = asyncio.Event()  # set when a step may be due
        self._changed = asyncio.Event()  # set when its state may be another one
        self._is_over = False  # it cannot come back
        self._health = Health()
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._gate = gate
        if gate is not None:
            gate.consumer = self
        self._is_consuming = False
        self._is_resumed = True  # the breaker lets it consume
        self._switching = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._left: set[WireChannel] = set()  # channels whose consumer the broker cancelled

    @property
    def is_cancelled(self) -> bool:
        """True after ``cancel`` was called."""
        return self._is_cancelled

    @property
    def state(self) -> State:
        """Its state: starting, ready, reconnecting, paused or stopped.

        It is stopped after ``cancel``, and if it cannot come back after a lost connection. While
        the broker blocks the connection, or its breaker is open, it is paused. For any thread.
        """
        return "stopped" if self._is_cancelled or self._is_over else self._health.state

    @property
    def state_reason(self) -> str:
        """The text of the event that led to the state; "" for none."""
        return self._health.reason

    async def ready(self, timeout: Seconds | None = None) -> None:
        """Waits until it consumes, also after a reconnect.

        :param timeout: seconds; default: no limit
        :raises WaitTimeoutError: if it does not consume in that time
        :raises StateError: if it is stopped
        """
        limit = wait_limit(timeout)
        try:
            await asyncio.wait_for(self._until_ready(), limit)
        except asyncio.TimeoutError:
            raise self._health.late(limit) from None

    async def _until_ready(self) -> None:
        while (state := self.state) not in ("ready", "paused"):
            if state == "stopped":
                raise self._health.stopped()
            self._changed.clear()
            await self._changed.wait()

    async def cancel(self) -> None:
        """Stops taking messages. Messages in hand are still settled.

        It waits for the broker's answer, unless an alarm of the broker blocks the connection.
        ``await retrier.drain()`` waits for their handlers, and then for copies.
        """
        is_first, self._is_cancelled = not self._is_cancelled, True
        self._subscription.stop()
        self._changed.set()
        self._session.consumers.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._gate is not None:
            self._gate.close()
        if is_first:
            leaving = self._go(self._leave_queue())
            while not (leaving.done() or self._is_blocked):
                await asyncio.wait({leaving}, timeout=_LOOK_AFTER)

    async def _leave_queue(self) -> None:
        async with self._switching:
            await self._stop_consuming()

    @property
    def _is_blocked(self) -> bool:
        """Returns whether the broker blocks its connection: it answers nothing then."""
        connection = self._connection
        if connection is None or not connection.is_opened:
            return False
        return self._session.publisher(connection)._is_blocked

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    async def _start(self) -> None:
        await self._advance()
        self._session.consumers.add(self)
        self._task = asyncio.create_task(self._keep())

    def _is_on(self, connection: object) -> bool:
        """Returns whether it consumes on a connection."""
        return (
            self._tag is not None and self._wire is not None and self._wire.connection is connection
        )

    def _pause(self) -> None:
        """Stops to consume while the breaker is open."""
        self._is_resumed = False
        self._switch()

    def _resume(self) -> None:
        """Consumes again."""
        self._is_resumed = True
        self._news.set()
        self._switch()

    def _switch(self) -> None:
        self._go(self._switched())

    def _go(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _switched(self) -> None:
        """Consumes, or not, as the breaker demands. A lost channel is the task's of _keep."""
        async with self._switching:
            if not self._is_resumed:
                await self._stop_consuming()
            elif self._subscription.is_consuming and not (self._is_consuming or self._is_lost):
                with contextlib.suppress(Error, *AMQP_ERRORS):
                    await self._consume()

    async def _stop_consuming(self) -> None:
        is_consuming, self._is_consuming = self._is_consuming, False
        if is_consuming and self._wire is not None and not self._wire.is_closed and self._tag:
            with contextlib.suppress(*AMQP_ERRORS):
                await self._wire.basic_cancel(self._tag)

    async def _consume(self) -> None:
        assert self._wire is not None
        try:
            answer = await self._wire.basic_consume(
                self._queue, self._delivered, arguments=CONSUME_ARGUMENTS
            )
        except aiormq.exceptions.ChannelClosed as error:
            raise consumer_refused(self._session.topology, refusal_of(error)) from error
        self._tag = answer.consumer_tag
        self._is_consuming = True

    async def _declare(self) -> None:
        if self._connection is not None:
            forget(self._connection)
        self._wire = None
        await self._session.declare()
        self._subscription.declared()

    async def _subscribe(self) -> None:
        connection = self._connection = await self._session.wire_connection()
        self._session.publisher(connection)  # it emits that the connection is lost
        self._is_lost = False
        self._tag = None
        self._is_consuming = False
        wire = self._wire = await connection.channel(publisher_confirms=False)
        pass_on = wire.frames.put

        async def put(arrived: tuple[int, Any]) -> None:
            """Takes a frame of the channel from the connection."""
            await pass_on(arrived)
            if isinstance(arrived[1], aiormq.spec.Basic.Cancel):
                self._session.lose_acks(wire)
                if wire is self._wire:  # it may come late on a channel that was left
                    self._is_consuming = False
                    self._lose()

        wire.frames.put = put  # type: ignore[method-assign, assignment]
        self._session.deliver_on(wire, self._subscription, self._prefetch)
        wire.closing.add_done_callback(partial(self._closed, wire))
        await wire.basic_qos(prefetch_count=self._prefetch)
        await self._consume()
        self._subscription.subscribed()
        if not self._is_resumed:
            self._switch()

    def _closed(self, wire: WireChannel, _: object) -> None:
        if wire is self._wire and wire not in self._left:
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        self._news.set()

    async def _delivered(self, delivered: Any) -> None:
        """Handles a message in a task of its own.

        aiormq cancels this one if the channel closes. That aborts the handler, unless the consumer
        left the channel.
        """
        incoming = aio_pika.IncomingMessage(delivered)
        task = self._go(self._on_message(incoming))
        try:
            await asyncio.shield(task)
        except ENDS_PROGRAM:
            return  # its own task has raised it through the loop
        except asyncio.CancelledError:
            if delivered.channel not in self._left:
                if not getattr(task, "cancelling", int)():  # else asyncio.run cancelled both
                    task.cancel()
                await asyncio.wait({task})
            raise

    def _leave(self, wire: WireChannel) -> None:
        """Leaves the channel of a consumer that the broker cancelled. Its handlers run on.

        RabbitMQ 4.3 may still deliver to that consumer, for example after an acknowledgement.
        """
        if self._gate is not None:
            self._gate.leave()
        if not (wire.is_closed or wire in self._left):
            self._left.add(wire)
            self._go(self._close(wire, self._session.publisher(wire.connection)))

    async def _close(self, wire: WireChannel, publisher: AioPikaPublisher) -> None:
        """Closes a channel, once the broker has confirmed the copies of its messages.

        The broker does not redeliver the messages of a queue that was deleted.
        """
        try:
            while not wire.is_closed:
                await publisher.writer.flush()
                if not publisher.has_copies_of(wire):
                    break
                await asyncio.sleep(_LOOK_AFTER)
            await close(wire)
        finally:
            self._left.discard(wire)

    async def _keep(self) -> None:
        """Subscribes again as often as needed, until it is cancelled."""
        while not self._is_cancelled:
            due_ms = await self._advance()
            if self._is_over:
                return
            delay = None if due_ms == NEVER else (due_ms - now_ms()) / 1000
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), delay)

    async def _advance(self) -> int:
        """Executes the subscription's steps until none is due, and returns when one is."""
        while True:
            self._news.clear()
            if self._is_lost:
                self._report_loss()
            is_away = self._subscription.was_consuming and not self._subscription.is_consuming
            if is_away and not self._can_come_back():
                self._is_over = True
                self._subscription.stop()
                self._changed.set()
            step = self._subscription.next(self._is_resumed)
            if step[0] == REST:
                return step[4]
            await self._execute(step)

    async def _execute(self, step: c.SubscriptionStep) -> None:
        kind = step[0]
        if kind == EMIT:
            self._session.emit_subscription(self, step)
            self._changed.set()
            if self._gate is not None and step[1] == c.BH_EVENT_CONNECTED:
                self._gate.look()
        elif kind == DECLARE:
            await self._attempt(self._declare())
        elif kind == CONSUME:
            await self._attempt(self._subscribe())
        else:
            assert self._subscription.error is not None
            raise self._subscription.error

    async def _attempt(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except (Error, *AMQP_ERRORS, asyncio.TimeoutError) as error:
            cause = str(error) if isinstance(error, Error) else repr(error)
            if self._wire is not None and self._subscription.was_consuming:
                self._leave(self._wire)
            self._subscription.failed(error, cause)

    def _report_loss(self) -> None:
        """Reports that its consumer, its channel or its connection has ended."""
        self._is_lost = False
        wire = self._wire
        if wire is None:
            return
        loss, cause = c.BH_LOSS_CONSUMER, ""
        if wire.is_closed:
            loss, cause = c.BH_LOSS_CHANNEL, reason_of(wire.closing)
        if not wire.connection.is_opened:  # the publisher emits that
            loss = c.BH_LOSS_CONNECTION
        self._leave(wire)
        self._subscription.lost(loss, cause)

    def _can_come_back(self) -> bool:
        channel = self._session.channel
        if self._session.is_closing():
            return False
        if isinstance(channel, aio_pika.abc.AbstractRobustChannel):
            return True  # its connection comes back, and get_underlay_channel waits for that
        return self._connection is None or self._connection.is_opened
