"""A consumer over aio-pika, on a channel of its own.

It subscribes again where the broker cancels it, closes its channel, or, with ``connect_robust``, the connection was
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel as WireChannel

from ._aio_pika_channels import reason_of, refusal_of
from ._declaring import consumer_refused, forget
from ._errors import Error

if TYPE_CHECKING:
    from .aio_pika import Retrier

OnMessage = Callable[[aio_pika.abc.AbstractIncomingMessage], Awaitable[None]]


class Consumer:
    """What ``consume`` of a retrier gives. As an async context manager it is cancelled in the end."""

    def __init__(self, retrier: Retrier, on_message: OnMessage, prefetch: int) -> None:
        self._retrier = retrier
        self._queue = retrier.topology.queue
        self._on_message = on_message
        self._prefetch = prefetch
        self._wire: WireChannel | None = None
        self._tag: str | None = None
        self._lost = asyncio.Event()
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether it was told to end."""
        return self._is_cancelled

    async def cancel(self) -> None:
        """Takes no further message. What is in hand is settled as ever: ``await retrier.drain()`` waits for its copies;
        handlers that still run have to be awaited by you."""
        is_first, self._is_cancelled = not self._is_cancelled, True
        self._retrier._consumers.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if is_first and self._wire is not None and not self._wire.is_closed and self._tag:
            with contextlib.suppress(aiormq.exceptions.AMQPError, ConnectionError, RuntimeError):
                await self._wire.basic_cancel(self._tag)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    async def _start(self) -> None:
        await self._subscribe()
        self._retrier._consumers.add(self)
        self._task = asyncio.create_task(self._keep())

    def _is_on(self, connection: object) -> bool:
        """Whether it consumes on a connection."""
        return self._tag is not None and self._wire is not None and self._wire.connection is connection

    async def _subscribe(self) -> None:
        await self._retrier.declare()
        connection = await self._retrier._wire_connection()
        self._retrier._publisher(connection)  # which tells that the connection is lost
        self._lost.clear()
        self._tag = None
        wire = self._wire = await connection.channel(publisher_confirms=False)
        pass_on = wire.frames.put

        async def put(arrived: tuple[int, Any]) -> None:
            """Where the connection puts the channel's frames."""
            await pass_on(arrived)
            if isinstance(arrived[1], aiormq.spec.Basic.Cancel):
                self._lost.set()

        wire.frames.put = put  # type: ignore[method-assign, assignment]
        wire.closing.add_done_callback(lambda _: self._lost.set())
        await wire.basic_qos(prefetch_count=self._prefetch)
        try:
            answer = await wire.basic_consume(self._queue, self._delivered)
        except aiormq.exceptions.ChannelClosed as error:
            raise consumer_refused(self._retrier.topology, refusal_of(error)) from error
        self._tag = answer.consumer_tag

    async def _delivered(self, delivered: Any) -> None:
        await self._on_message(aio_pika.IncomingMessage(delivered))

    async def _keep(self) -> None:
        """Subscribes again, as often as it is needed."""
        failures, why = 0, ""
        while not self._is_cancelled:
            await self._lost.wait()
            if self._is_cancelled or not self._can_come_back():
                return
            failures += 1
            is_told = failures == 1 and self._wire is not None and not self._wire.connection.is_opened
            if self._wire is not None:
                forget(self._wire.connection)
                if failures == 1 and self._wire.is_closed:
                    why = reason_of(self._wire.closing)
            wait = self._retrier._wait(failures)
            if not is_told:  # else as a lost connection
                self._retrier._announce_end(failures, wait, why)
            await asyncio.sleep(wait)
            try:
                await self._subscribe()
                failures, why = 0, ""
            except (Error, aiormq.exceptions.AMQPError, ConnectionError, RuntimeError, asyncio.TimeoutError) as error:
                why = str(error) if isinstance(error, Error) else repr(error)
                self._lost.set()

    def _can_come_back(self) -> bool:
        channel = self._retrier._channel
        if self._retrier._is_closing():
            return False
        if isinstance(channel, aio_pika.abc.AbstractRobustChannel):
            return True  # its connection comes back, and get_underlay_channel waits for that
        return self._wire is None or self._wire.connection.is_opened
