"""A consumer over aio-pika, on a channel of its own.

It subscribes again if the broker cancels it or closes its channel, or, with ``connect_robust``,
after a lost connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection

from ... import _backhop as c
from ..._checks import wait_limit
from ..._errors import Error
from ..._handlers import ENDS_PROGRAM
from ..._times import Seconds
from ...observe.event import Fields
from ...observe.health import Health, State
from ...topology import Topology
from ..declaring import CONSUME_ARGUMENTS, consumer_refused, forget
from .channels import AMQP_ERRORS, close, reason_of, refusal_of
from .gate import AioPikaGate
from .publisher import AioPikaPublisher

OnMessage = Callable[[aio_pika.abc.AbstractIncomingMessage], Coroutine[Any, Any, None]]

_LOOK_AFTER = 0.1  # seconds


class ConsumingRetrier(Protocol):
    """The part of the retrier that a consumer uses."""

    _channel: aio_pika.abc.AbstractChannel
    _consumers: set[Any]

    @property
    def topology(self) -> Topology: ...

    async def declare(self) -> None: ...

    async def _wire_connection(self) -> WireConnection: ...

    def _publisher(self, connection: WireConnection) -> AioPikaPublisher: ...

    def _is_closing(self) -> bool: ...

    def _resubscribe_delay(self, failures: int) -> float: ...

    def _doubt_acks(self, channel: object = None) -> None: ...

    def _emit_of(self, consumer: Any, kind: int, fields: Fields) -> None: ...

    def _emit_consumer_lost(
        self, consumer: Any, failures: int, delay: float, cause: object
    ) -> None: ...


class Consumer:
    """The consumer that ``Retrier.consume`` returns.

    Its async context manager cancels it at the end.
    """

    def __init__(
        self,
        retrier: ConsumingRetrier,
        on_message: OnMessage,
        prefetch: int,
        gate: AioPikaGate | None,
    ) -> None:
        self._retrier = retrier
        self._queue = retrier.topology.queue
        self._on_message = on_message
        self._prefetch = prefetch
        self._wire: WireChannel | None = None
        self._tag: str | None = None
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()  # set when its state may be another one
        self._is_over = False  # it cannot come back
        self._health = Health()
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._gate = gate
        if gate is not None:
            gate.consumer = self
        self._is_consuming = False
        self._resumed = asyncio.Event()  # set if the breaker lets it consume
        self._resumed.set()
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

        ``await retrier.drain()`` waits for their handlers, and then for copies.
        """
        is_first, self._is_cancelled = not self._is_cancelled, True
        self._changed.set()
        self._retrier._consumers.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._gate is not None:
            self._gate.close()
        if is_first:
            async with self._switching:
                await self._stop_consuming()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    async def _start(self) -> None:
        await self._subscribe()
        self._retrier._consumers.add(self)
        self._task = asyncio.create_task(self._keep())

    def _is_on(self, connection: object) -> bool:
        """Returns whether it consumes on a connection."""
        return (
            self._tag is not None and self._wire is not None and self._wire.connection is connection
        )

    def _pause(self) -> None:
        """Stops to consume while the breaker is open."""
        self._resumed.clear()
        self._switch()

    def _resume(self) -> None:
        """Consumes again."""
        self._resumed.set()
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
            if not self._resumed.is_set():
                await self._stop_consuming()
            elif not (self._is_consuming or self._lost.is_set() or self._is_cancelled):
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
            raise consumer_refused(self._retrier.topology, refusal_of(error)) from error
        self._tag = answer.consumer_tag
        self._is_consuming = True

    async def _subscribe(self) -> None:
        await self._resumed.wait()
        await self._retrier.declare()
        connection = await self._retrier._wire_connection()
        self._retrier._publisher(connection)  # it emits that the connection is lost
        self._lost.clear()
        self._tag = None
        self._is_consuming = False
        wire = self._wire = await connection.channel(publisher_confirms=False)
        pass_on = wire.frames.put

        async def put(arrived: tuple[int, Any]) -> None:
            """Takes a frame of the channel from the connection."""
            await pass_on(arrived)
            if isinstance(arrived[1], aiormq.spec.Basic.Cancel):
                self._retrier._doubt_acks(wire)
                if wire is self._wire:  # it may come late on a channel that was left
                    self._is_consuming = False
                    self._lost.set()

        wire.frames.put = put  # type: ignore[method-assign, assignment]
        wire.closing.add_done_callback(partial(self._closed, wire))
        await wire.basic_qos(prefetch_count=self._prefetch)
        await self._consume()
        self._retrier._emit_of(self, c.BH_EVENT_CONNECTED, {})
        self._changed.set()
        if self._gate is not None:
            self._gate.look()

    def _closed(self, wire: WireChannel, _: object) -> None:
        if wire is self._wire and wire not in self._left:
            self._retrier._doubt_acks()
            self._lost.set()

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
            self._go(self._close(wire, self._retrier._publisher(wire.connection)))

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
        failures, cause = 0, ""
        while not self._is_cancelled:
            await self._lost.wait()
            if self._is_cancelled or not self._can_come_back():
                self._is_over = True
                self._changed.set()
                return
            failures += 1
            is_emitted = (
                failures == 1 and self._wire is not None and not self._wire.connection.is_opened
            )
            if self._wire is not None:
                forget(self._wire.connection)
                if failures == 1 and self._wire.is_closed:
                    cause = reason_of(self._wire.closing)
            delay = self._retrier._resubscribe_delay(failures)
            if self._wire is not None:
                self._leave(self._wire)
            if not is_emitted:  # else the publisher emitted the lost connection
                self._retrier._emit_consumer_lost(self, failures, delay, cause)
            await asyncio.sleep(delay)
            try:
                await self._subscribe()
                failures, cause = 0, ""
            except (Error, *AMQP_ERRORS, asyncio.TimeoutError) as error:
                cause = str(error) if isinstance(error, Error) else repr(error)
                self._lost.set()

    def _can_come_back(self) -> bool:
        channel = self._retrier._channel
        if self._retrier._is_closing():
            return False
        if isinstance(channel, aio_pika.abc.AbstractRobustChannel):
            return True  # its connection comes back, and get_underlay_channel waits for that
        return self._wire is None or self._wire.connection.is_opened
