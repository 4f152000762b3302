"""Publisher over pika: publishes copies with confirms on a channel of its own.

It uses pika's asynchronous interface throughout: nothing here waits. A BlockingConnection runs the
same interface inside, and calls these callbacks whenever it does I/O.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pika.exceptions
import pika.spec

from ... import _backhop as c
from ..._errors import Error
from ...message import Message
from ...plan import Plan
from ..copies import ChannelClosingError, Copy
from ..declaring import Steps
from ..frames import How, settlement
from ..publisher import Publisher
from ..session import Session
from .channels import AsyncConnection, OpenChannel, is_here, settle
from .declaring import Declarer

_MOST_TOGETHER = 65536
"""Bytes handed to pika at once. Each time that the system accepts a part, pika copies the rest."""

_TOGETHER_FOR = 0.005
"""Seconds to wait for further copies to write, of messages that the connection read together."""


class PikaPublisher(Publisher):
    """Publishes on a confirm channel of pika's.

    :param is_blocking: whether the connection is a BlockingConnection's
    """

    def __init__(
        self,
        session: Session,
        connection: AsyncConnection,
        open_channel: OpenChannel,
        confirm_timeout: float,
        *,
        is_blocking: bool,
    ) -> None:
        super().__init__(session, confirm_timeout)
        self._is_blocking = is_blocking
        self._connection = connection
        self._open_channel = open_channel
        self._is_connection_blocked = False
        self._frames: list[bytes] = []  # to be handed over
        self._is_soon = False  # whether a pump is scheduled
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
        self._check_blocked()
        self._pump()

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return self._connection._adapter_call_later(delay, callback)

    def _begin_channel(self) -> Any:
        try:
            channel = self._open_channel(self._opened)
        except pika.exceptions.AMQPError as error:
            self._unopened(repr(error))
            return None
        channel.add_on_close_callback(self._closed_by)
        return channel

    def _closed_by(self, channel: Any, reason: BaseException) -> None:
        if isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            self._closed(channel, f"{reason.reply_code} {reason.reply_text}", reason.reply_code)
        else:
            self._closed(channel, reason)

    def _pump_soon(self) -> None:
        if self._is_blocking or time.monotonic() - self._clock.looked > _TOGETHER_FOR:
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
            ack_nack_callback=partial(self._answered_by, channel),
            callback=lambda _: self._confirming(),
        )

    def _copy(self, plan: Plan, message: Message, error: BaseException | None) -> Copy:
        return Copy(plan, message, error, c.BH_HIDDEN_BYTES, _encoded)

    def _write(self, copy: Copy) -> None:
        channel = self._channel
        if not is_here(channel):
            raise ChannelClosingError
        self._frames += copy.frames(channel.channel_number, self._connection.params.frame_max)

    def _settle(self, channel: Any, tag: int, how: How) -> bool:
        if channel.connection is not self._connection or not is_here(channel):
            return settle(channel, tag, how)
        self._frames.append(settlement(channel.channel_number, tag, how))
        return True

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
            self._answered(
                method.delivery_tag, method.multiple, isinstance(method, pika.spec.Basic.Ack)
            )

    def _returned_by(self, channel: Any, method: Any, properties: Any, _: bytes) -> None:
        if channel is self._channel:
            self._returned(method, properties.headers)


def _encoded(properties: dict[str, Any]) -> bytes:
    return b"".join(pika.spec.BasicProperties(**properties).encode())
