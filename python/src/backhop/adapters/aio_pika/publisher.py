"""Publisher over aio-pika: publishes copies with confirms on a channel of its own.

It takes confirms and returns out on their way to aiormq's channel, because aiormq matches a return
to a publish by the message_id alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from ..._errors import ConnectionFailedError, Error
from ...message import Message
from ...plan import Plan
from ..copies import ChannelClosingError, Copy
from ..declaring import Steps
from ..frames import How
from ..publisher import Publisher
from ..session import Session
from .channels import is_refused, reason_of, settle
from .declaring import execute
from .writer import Writer, is_here

Basic = aiormq.spec.Basic
_ANSWERS = (Basic.Ack, Basic.Nack)


class _ConfirmChannel:
    """The channel that publishes. It begins to open when it is made."""

    def __init__(self, publisher: AioPikaPublisher, connection: WireConnection) -> None:
        self.wire: WireChannel | None = None
        self._publisher = publisher
        self._return: Basic.Return | None = None
        self._task = asyncio.create_task(self._open(connection))

    async def _open(self, connection: WireConnection) -> None:
        try:
            wire = await connection.channel(publisher_confirms=True)
        except (
            Exception,
            asyncio.CancelledError,
        ) as error:  # a connection that is closed cancels who waits
            self._publisher._unopened(repr(error))
            return
        self._pass_on = wire.frames.put
        wire.frames.put = self._put  # type: ignore[method-assign, assignment]
        wire.closing.add_done_callback(self._closed)
        self.wire = wire
        self._publisher._confirming()

    async def _put(self, arrived: tuple[int, Any]) -> None:
        """Takes a frame of the channel from the connection, and keeps the answers to publishes."""
        frame = arrived[1]
        if isinstance(frame, _ANSWERS):
            self._publisher._answered_by(self, frame)
        elif isinstance(frame, Basic.Return):
            self._return = frame
        elif isinstance(frame, ContentHeader):
            self._publisher._returned_by(self, self._return, frame.properties)
        elif not isinstance(frame, ContentBody):
            if isinstance(frame, aiormq.spec.Channel.Close):  # earlier than the channel's own word
                reason = f"{frame.reply_code} {frame.reply_text}"
                self._publisher._closed(self, reason, frame.reply_code or 0)
            await self._pass_on(arrived)

    def _closed(self, closing: asyncio.Future[Any]) -> None:
        self._publisher._closed(self, reason_of(closing))


class AioPikaPublisher(Publisher):
    """Publishes on a confirm channel of an aiormq connection.

    :param is_wanted: returns whether the application closes the connection, because aiormq does not
        report it.
    """

    def __init__(
        self,
        session: Session,
        connection: WireConnection,
        confirm_timeout: float,
        is_wanted: Callable[[], bool],
    ) -> None:
        super().__init__(session, confirm_timeout)
        self._is_wanted = is_wanted
        self.writer = Writer(connection)
        self._connection = connection
        self._idle: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        connection.closing.add_done_callback(self._connection_closed)

    def _connection_closed(self, closing: asyncio.Future[Any]) -> None:
        self.writer.close()
        self._lost(reason_of(closing), self._is_wanted())

    async def drain(self) -> None:
        """Returns when no copy is pending and all frames are written."""
        while self.pending:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        await self.writer.flush()

    def _pump(self) -> None:
        super()._pump()
        if self._idle is not None and not self._idle.done() and not self.pending:
            self._idle.set_result(None)

    @property
    def _is_open(self) -> bool:
        return bool(self._connection.is_opened)

    @property
    def _is_blocked(self) -> bool:
        ready = self._connection.ready()  # a coroutine function, and all that is public about it
        try:
            ready.send(None)
        except StopIteration:
            return False
        ready.close()
        return True

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_later(delay, callback)

    def _begin_channel(self) -> _ConfirmChannel:
        return _ConfirmChannel(self, self._connection)

    def _watch_channel(self, channel: WireChannel) -> None:
        channel.closing.add_done_callback(
            lambda closing: self._ended(channel, reason_of(closing), is_refused(closing))
        )

    def _settle(self, channel: WireChannel, tag: int, how: How) -> bool:
        return settle(self.writer, channel, tag, how) is not None

    def _hand_over(self) -> None:
        """Does nothing: the writer does it once in each turn of the event loop."""

    def _copy(self, plan: Plan, message: Message, error: BaseException | None) -> Copy:
        return Copy(plan, message, error, 0, _encoded)

    def _write(self, copy: Copy) -> None:
        wire: WireChannel = self._channel.wire
        if not is_here(wire):
            raise ChannelClosingError
        self.writer.write(
            wire, b"".join(copy.frames(wire.number, self._connection.connection_tune.frame_max))
        )

    def _declare(self, steps: Steps, done: Callable[[Error | None], None]) -> None:
        async def declare() -> None:
            try:
                await execute(self._connection, steps)
            except Error as error:
                done(error)
            except (
                Exception,
                asyncio.CancelledError,
            ) as error:  # a connection that is closed cancels who waits
                done(ConnectionFailedError(f"declaring failed: {error!r}"))
            else:
                done(None)

        self._go(declare())

    def _go(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answered_by(self, channel: _ConfirmChannel, frame: Any) -> None:
        if channel is self._channel:
            self._answered(frame.delivery_tag, frame.multiple, isinstance(frame, Basic.Ack))

    def _returned_by(self, channel: _ConfirmChannel, method: Any, properties: Any) -> None:
        if channel is self._channel:
            self._returned(method, properties.headers)


def _encoded(properties: dict[str, Any]) -> bytes:
    properties["message_type"] = properties.pop("type")
    own = Basic.Properties()  # given to it, None is refused as a cluster_id
    for name, value in properties.items():
        if value is not None:
            setattr(own, name, value)
    return own.marshal()
