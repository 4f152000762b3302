"""What the retrier over aio-pika does on channels of its own: declare, and publish with confirms.

aiormq, under aio-pika, makes a task, three futures and a timer of each publish, a system call of each frame, and knows
by the message_id alone which publish a return is about. So frames are handed to the connection many at a time, and
confirms are heard on their way to the channel. Of aiormq this uses, besides what its documentation tells, names without
an underscore that its versions 6 and 7 have in ``aiormq.abc``: the connection's ``write_queue`` and ``channels``, the
channel's ``number`` and ``frames``, and ``ChannelFrame``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel as WireChannel
from aiormq.abc import AbstractConnection as WireConnection
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from ._declaring import Refusal, Step, Steps
from ._errors import ConnectionFailedError, Error
from ._frames import How, settlement
from ._publisher import ChannelClosingError, Copy, Publisher
from ._retrier import BaseRetrier
from .message import Message
from .plan import Plan

_AMQP_ERRORS = (aiormq.exceptions.AMQPError, ConnectionError, RuntimeError)
"""RuntimeError is what aiormq raises of a connection that is closed."""

_BLANK = ("", 0)
"""What else than None stands for a property that is absent: pamqp does not tell which."""

Basic = aiormq.spec.Basic
_ANSWERS = (Basic.Ack, Basic.Nack)

for _class, _names in {
    WireConnection: ("channels", "closing", "is_opened", "ready", "write_queue"),
    WireChannel: ("closing", "connection", "frames", "is_closed", "number"),
    ChannelFrame: ("drain_future", "payload", "should_close"),
}.items():
    if _missing := [name for name in _names if not (hasattr(_class, name) or name in _class.__annotations__)]:
        raise ImportError(
            f"backhop.aio_pika does not know this version of aiormq, whose {_class.__name__} has no "
            f"{', '.join(_missing)}: install aio-pika 9.5 to 10, or a newer Backhop"
        )


class AioPikaOriginal:
    """A delivery to settle, on the channel that it came by and on no other."""

    __slots__ = ("channel", "tag", "writer")

    def __init__(self, channel: WireChannel, tag: int, writer: Writer) -> None:
        self.channel = channel
        self.tag = tag
        self.writer = writer

    @property
    def is_here(self) -> bool:
        """Whether it can still be settled."""
        return is_here(self.channel)

    @property
    def is_lost(self) -> bool:
        """Whether the broker delivers it again: one that needs no acknowledgement it has forgotten."""
        return bool(self.tag) and not is_here(self.channel)

    def settle(self, how: How) -> asyncio.Future[None] | None:
        """Settles it, where nothing of it is published: a future of when that is written."""
        return settle(self.writer, self.channel, self.tag, how) if self.tag else None  # else it needs no ack


def settle(writer: Writer, channel: WireChannel, tag: int, how: How) -> asyncio.Future[None] | None:
    """Settles a delivery: a future of when that is written. Where its channel is gone, the broker delivers it again."""
    if not is_here(channel):
        return None
    return writer.write(channel, settlement(channel.number, tag, how))


def is_here(channel: WireChannel) -> bool:
    """Whether a frame of the channel may be written. Once it agreed to a close its number may be another's, and the
    broker closes the connection for a frame on a number that is free."""
    return not channel.is_closed and channel.connection.channels.get(channel.number) is channel


class Writer:
    """Hands frames to the connection: those of one turn of the event loop, and what comes while the connection writes
    and in the turn after, at once, as the connection makes a system call of each that it gets."""

    def __init__(self, connection: WireConnection) -> None:
        self._connection = connection
        self._frames: list[tuple[WireChannel, bytes]] = []
        self._next: asyncio.Future[None] | None = None  # those frames are written
        self._flying: asyncio.Future[None] | None = None  # what the connection has is written
        self._is_busy = False
        self._waiting: asyncio.Task[None] | None = None

    def write(self, channel: WireChannel, frames: bytes) -> asyncio.Future[None]:
        """Writes soon, unless the channel is closed then.

        :returns: done once they are handed to the system, or the connection is lost. Await it shielded
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if not self._is_busy:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._frames.append((channel, frames))
        return self._next

    async def flush(self) -> None:
        """Returns when all is written, or the connection is lost."""
        if last := self._next or self._flying:
            await asyncio.shield(last)

    def _hand_over(self) -> None:
        queue, done = self._connection.write_queue, self._next
        if done is None:  # the connection was lost
            return
        if queue.full():
            self._waiting = asyncio.create_task(self._wait_for_room())
            return
        frames, self._frames = self._frames, []
        self._flying, self._next = done, None
        done.add_done_callback(self._go_on)
        here = {channel for channel in {channel for channel, _ in frames} if is_here(channel)}
        queue.put_nowait(ChannelFrame(b"".join([data for channel, data in frames if channel in here]), False, done))

    def _go_on(self, _: object) -> None:
        self._flying = None
        if self._frames:
            asyncio.get_running_loop().call_soon(self._hand_over)
        else:
            self._is_busy = False

    async def _wait_for_room(self) -> None:
        """What is in the queue is written as it is: so only once there is room, it is asked which channels are open."""
        passed = asyncio.get_running_loop().create_future()
        await self._connection.write_queue.put(ChannelFrame(b"", False, passed))
        await passed
        self._go_on(passed)

    def close(self) -> None:
        """The connection is lost."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._frames.clear()
        for each in (self._flying, self._next):
            if each is not None and not each.done():
                each.set_result(None)
        self._next = None


class _ConfirmChannel:
    """The channel that publishes, from its opening on."""

    def __init__(self, publisher: AioPikaPublisher, connection: WireConnection) -> None:
        self.wire: WireChannel | None = None
        self._publisher = publisher
        self._return: Basic.Return | None = None
        self._task = asyncio.create_task(self._open(connection))

    async def _open(self, connection: WireConnection) -> None:
        try:
            wire = await connection.channel(publisher_confirms=True)
        except (Exception, asyncio.CancelledError) as error:  # a connection that is closed cancels who waits
            self._publisher._unopened(error)
            return
        self._pass_on = wire.frames.put
        wire.frames.put = self._put  # type: ignore[method-assign, assignment]
        wire.closing.add_done_callback(self._closed)
        self.wire = wire
        self._publisher._confirming()

    async def _put(self, arrived: tuple[int, Any]) -> None:
        """Where the connection puts the channel's frames: takes out what is about publishes."""
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


def is_refused(closing: asyncio.Future[Any]) -> bool:
    """Whether it was the broker that closed a channel."""
    error = None if closing.cancelled() else closing.exception()
    return isinstance(error, aiormq.exceptions.ChannelClosed) and bool(refusal_of(error).code)


def reason_of(closing: asyncio.Future[Any]) -> str:
    """Why a channel or a connection is closed."""
    return "it was cancelled" if closing.cancelled() else repr(closing.exception())


class AioPikaPublisher(Publisher):
    """Publishes on a confirm channel of a connection of aiormq's.

    :param is_wanted: whether the application itself closes the connection, as aiormq does not tell
    """

    def __init__(
        self,
        retrier: BaseRetrier[Any],
        connection: WireConnection,
        confirm_timeout: float,
        is_wanted: Callable[[], bool],
    ) -> None:
        super().__init__(retrier, confirm_timeout)
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
        """Returns when no copy is pending, and all is written."""
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
        channel.closing.add_done_callback(lambda closing: self._ended(channel, reason_of(closing), is_refused(closing)))

    def _settle(self, channel: WireChannel, tag: int, how: How) -> None:
        settle(self.writer, channel, tag, how)

    def _hand_over(self) -> None:
        """The writer does, once in each turn of the event loop."""

    def _copy(self, plan: Plan, message: Message, error: BaseException | None) -> Copy:
        return Copy(plan, message, error, b"S", _BLANK)

    def _write(self, copy: Copy) -> None:
        wire: WireChannel = self._channel.wire
        if not is_here(wire):
            raise ChannelClosingError
        self.writer.write(wire, b"".join(copy.frames(wire.number, self._connection.connection_tune.frame_max)))

    def _declare(self, steps: Steps, done: Callable[[Error | None], None]) -> None:
        async def declare() -> None:
            try:
                await take_all(self._connection, steps)
            except Error as error:
                done(error)
            except (Exception, asyncio.CancelledError) as error:  # a connection that is closed cancels who waits
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


async def take_all(connection: WireConnection, steps: Steps) -> None:
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
            await close(channel)


async def close(channel: WireChannel) -> None:
    """Closes a channel, whatever it is just doing."""
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
        return refusal_of(error)
    except aiormq.exceptions.ConnectionCommandInvalid as error:  # RabbitMQ before 4.0, for an exchange type
        return Refusal(503, str(error.args[0]))
    return None


_CODES: dict[type[BaseException], int] = {
    aiormq.exceptions.ChannelAccessRefused: 403,
    aiormq.exceptions.ChannelNotFoundEntity: 404,
    aiormq.exceptions.ChannelLockedResource: 405,
    aiormq.exceptions.ChannelPreconditionFailed: 406,
}


def refusal_of(error: aiormq.exceptions.ChannelClosed) -> Refusal:
    """aiormq tells some reply codes by the class alone."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Refusal(code, str(error.args[0]))
    code, text = error.args or (0, "")
    return Refusal(code or 0, str(text))
