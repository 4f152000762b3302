"""What the retrier over pika does on channels of its own: declare, and publish with confirms.

It is pika's asynchronous way throughout: nothing here waits. A BlockingConnection runs the same way inside, and drives
these callbacks whenever it does I/O. No callback raises, as that would leave pika's loop half done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pika
import pika.channel
import pika.connection
import pika.exceptions
import pika.spec
from pika.adapters.blocking_connection import BlockingConnection

from ._declaring import Refusal, Step, Steps
from ._errors import ConnectionFailedError, Error
from ._frames import How, settlement
from ._publisher import ChannelClosingError, Copy, Publisher
from ._retrier import BaseRetrier
from .message import Message
from .plan import Plan

for _class, _names in {
    pika.channel.Channel: ("_set_cookie", "add_on_return_callback"),
    pika.connection.Connection: (
        "_adapter_call_later",
        "_output_marshaled_frames",
        "add_on_connection_blocked_callback",
    ),
    BlockingConnection: ("_acquire_event_dispatch", "_dispatch_connection_events", "_flush_output", "call_later"),
}.items():
    if _missing := [name for name in _names if not hasattr(_class, name)]:
        raise ImportError(
            f"backhop.pika does not know this version of pika, {pika.__version__}, whose {_class.__name__} has no "
            f"{', '.join(_missing)}: install pika 1.3 or a later 1.x, or a newer Backhop"
        )

_COMMAND_INVALID = 503
"""So RabbitMQ before 4.0 closes the connection for an exchange type that it does not know."""

_MOST_TOGETHER = 65536
"""Bytes that are handed to pika at once: each time that the system takes a part, pika copies what is left."""

_TOGETHER_FOR = 0.005
"""Seconds for which the copies of messages that the connection read together wait to be written together."""

OpenChannel = Callable[[Callable[[Any], None]], Any]
"""Begins to open a channel, and calls back with it once it is open."""


class PikaOriginal:
    """A delivery to settle, on the channel that it came by and on no other."""

    __slots__ = ("channel", "tag")

    def __init__(self, channel: Any, tag: int) -> None:
        self.channel = channel
        self.tag = tag

    @property
    def is_here(self) -> bool:
        """Whether it can still be settled."""
        return is_here(self.channel)

    def settle(self, how: How) -> bool:
        """Settles it, where nothing of it is published: whether that could be; else the broker delivers it again."""
        return not self.tag or settle(self.channel, self.tag, how)  # without a tag it needs no acknowledgement


def is_here(channel: Any) -> bool:
    """Whether a frame of the channel may be written."""
    return channel.is_open and not channel.connection.is_closed


def settle(channel: Any, tag: int, how: How) -> bool:
    """Settles a delivery: whether that could be. Where its channel is gone, the broker delivers it again."""
    if not is_here(channel):
        return False
    channel.connection._output_marshaled_frames([settlement(channel.channel_number, tag, how)])
    return True


class AsyncConnection(Protocol):
    """What is used of pika's connections; their timers have a name of one underscore, and are in every adapter."""

    is_open: bool
    is_closed: bool
    params: Any

    def _output_marshaled_frames(self, marshaled_frames: list[bytes]) -> None: ...

    def _adapter_call_later(self, delay: float, callback: Callable[[], None]) -> object: ...

    def add_on_close_callback(self, callback: Callable[[Any, Any], None]) -> None: ...

    def add_on_connection_blocked_callback(self, callback: Callable[[Any, Any], None]) -> None: ...

    def add_on_connection_unblocked_callback(self, callback: Callable[[Any, Any], None]) -> None: ...


class PikaPublisher(Publisher):
    """Publishes on a confirm channel of pika's."""

    def __init__(
        self,
        retrier: BaseRetrier[Any],
        connection: AsyncConnection,
        open_channel: OpenChannel,
        confirm_timeout: float,
        *,
        is_blocking: bool,
    ) -> None:
        super().__init__(retrier, confirm_timeout)
        self._is_blocking = is_blocking
        self._connection = connection
        self._open_channel = open_channel
        self._is_connection_blocked = False
        self._frames: list[bytes] = []  # to hand over
        self._is_soon = False  # whether the event loop is going to pump
        connection.add_on_close_callback(self._connection_closed)
        connection.add_on_connection_blocked_callback(partial(self._set_blocked, True))
        connection.add_on_connection_unblocked_callback(partial(self._set_blocked, False))

    @property
    def _is_open(self) -> bool:
        return bool(self._connection.is_open)

    @property
    def _is_blocked(self) -> bool:
        return self._is_connection_blocked

    def _connection_closed(self, _: Any, reason: Any) -> None:
        self._is_connection_blocked = False
        self._lost(reason, isinstance(reason, pika.exceptions.ConnectionClosedByClient))

    def _set_blocked(self, is_blocked: bool, *_: Any) -> None:
        self._is_connection_blocked = is_blocked
        self._hear_block()
        self._pump()

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return self._connection._adapter_call_later(delay, callback)

    def _begin_channel(self) -> Any:
        try:
            channel = self._open_channel(self._opened)
        except pika.exceptions.AMQPError as error:
            self._unopened(error)
            return None
        channel.add_on_close_callback(self._closed_by)
        return channel

    def _closed_by(self, channel: Any, reason: BaseException) -> None:
        if isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            self._closed(channel, f"{reason.reply_code} {reason.reply_text}", reason.reply_code)
        else:
            self._closed(channel, reason)

    def _pump_soon(self) -> None:
        if self._is_blocking or time.monotonic() - self._looked > _TOGETHER_FOR:
            self._pump()
        elif not self._is_soon:
            self._is_soon = True
            self._later(0, self._pump_now)

    def _pump_now(self) -> None:
        self._is_soon = False
        self._pump()

    def _watch_channel(self, channel: Any) -> None:
        channel.add_on_close_callback(self._channel_closed)

    def _channel_closed(self, channel: Any, reason: Any) -> None:
        self._ended(channel, reason, isinstance(reason, pika.exceptions.ChannelClosedByBroker))

    def _opened(self, channel: Any) -> None:
        channel.add_on_return_callback(self._returned_by)
        channel.confirm_delivery(
            ack_nack_callback=partial(self._answered_by, channel), callback=lambda _: self._confirming()
        )

    def _copy(self, plan: Plan, message: Message, error: BaseException | None) -> Copy:
        return Copy(plan, message, error, b"x")

    def _write(self, copy: Copy) -> None:
        channel = self._channel
        if not is_here(channel):
            raise ChannelClosingError
        self._frames += copy.frames(channel.channel_number, self._connection.params.frame_max)

    def _settle(self, channel: Any, tag: int, how: How) -> None:
        if channel.connection is self._connection and is_here(channel):
            self._frames.append(settlement(channel.channel_number, tag, how))
        else:
            settle(channel, tag, how)

    def _hand_over(self) -> None:
        frames, self._frames = self._frames, []
        if frames and not self._connection.is_closed:
            small = sum(map(len, frames)) <= _MOST_TOGETHER
            self._connection._output_marshaled_frames([b"".join(frames)] if small else frames)

    def _declare(self, steps: Steps, done: Callable[[Error | None], None]) -> None:
        Declarer(self._open_channel, steps, done)

    def _answered_by(self, channel: Any, frame: Any) -> None:
        if channel is self._channel:
            method = frame.method
            self._answered(method.delivery_tag, method.multiple, isinstance(method, pika.spec.Basic.Ack))

    def _returned_by(self, channel: Any, method: Any, properties: Any, _: bytes) -> None:
        if channel is self._channel:
            self._returned(method, properties.headers)


class Declarer:
    """Takes the steps of declaring on channels of its own, as each refusal closes one."""

    def __init__(self, open_channel: OpenChannel, steps: Steps, done: Callable[[Error | None], None]) -> None:
        self._open_channel = open_channel
        self._steps = steps
        self._done = done
        self._channel: Any = None
        self._is_over = False
        self._next(None)

    def _next(self, refusal: Refusal | None) -> None:
        try:
            step = self._steps.send(refusal)
            if self._channel is None:
                self._channel = self._open_channel(partial(self._take, step))
                self._channel.add_on_close_callback(self._closed)
            else:
                self._take(step, self._channel)
        except StopIteration:
            self._end(None)
        except Error as error:
            self._end(error)
        except pika.exceptions.AMQPError as error:
            self._end(ConnectionFailedError(f"the connection was lost: {error!r}"))

    def _take(self, step: Step, channel: Any) -> None:
        declaration, passive = step
        common: dict[str, Any] = {"callback": self._took}
        if declaration.what == "binding":
            bind = {"routing_key": declaration.routing_key, "source": declaration.source, **common}
            if declaration.type == "exchange":
                channel.exchange_bind(destination=declaration.name, **bind)
            else:
                bind["exchange"] = bind.pop("source")
                channel.queue_bind(queue=declaration.name, **bind)
            return
        common |= {"passive": passive, "durable": True, "arguments": declaration.arguments}
        if declaration.what == "exchange":
            channel.exchange_declare(exchange=declaration.name, exchange_type=declaration.type, **common)
        else:
            channel.queue_declare(queue=declaration.name, **common)

    def _took(self, _: Any) -> None:
        self._next(None)

    def _closed(self, _: Any, reason: Exception) -> None:
        if self._is_over:
            return
        self._channel = None
        is_channel = isinstance(reason, pika.exceptions.ChannelClosedByBroker)
        if is_channel or getattr(reason, "reply_code", 0) == _COMMAND_INVALID:
            self._next(Refusal(reason.reply_code, reason.reply_text))  # type: ignore[attr-defined]
        else:
            self._end(ConnectionFailedError(f"the connection was lost: {reason!r}"))

    def _end(self, error: Error | None) -> None:
        self._is_over = True
        if self._channel is not None and self._channel.is_open:
            self._channel.close()
        self._done(error)
