"""Consumers over pika, on channels of their own: they subscribe again where the broker cancels them or closes one.

A connection that is lost ends them, as pika makes no other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pika.exceptions

from . import _backhop as c
from ._declaring import Refusal, consumer_refused, forget
from ._errors import ArgumentTypeError, Error
from .event import Fields

if TYPE_CHECKING:
    from .pika import Retrier

OnMessage = Callable[[Any, Any, Any, bytes], None]


class Consumer:
    """What ``consume`` of a retrier gives; its methods are for the thread of the connection, as pika's are.

    As a context manager it is cancelled in the end.
    """

    def __init__(self, retrier: Retrier, on_message: OnMessage, prefetch: int) -> None:
        self._retrier = retrier
        self._queue = retrier.topology.queue
        self._on_message = on_message
        self._prefetch = prefetch
        self._channel: Any = None
        self._tag = ""
        self._failures = 0
        self._is_ready = False  # it consumed once
        self._is_waiting = False
        self._is_cancelled = False
        retrier._consumers.add(self)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was told to end."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Takes no further message. What is in hand is settled as ever: ``drain`` of the retrier waits for it."""
        is_first, self._is_cancelled = not self._is_cancelled, True
        self._retrier._consumers.discard(self)
        if is_first and self._channel is not None and self._channel.is_open:
            self._channel.basic_cancel(self._tag)

    def start_consuming(self) -> None:
        """BlockingConnection: hands messages to the handler until ``cancel``: of a handler, or from another thread by
        ``connection.add_callback_threadsafe(consumer.cancel)``.

        :raises pika.exceptions.AMQPConnectionError: the connection was lost
        """
        raise ArgumentTypeError("an asynchronous connection consumes while its loop runs: start that")

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _is_on(self, _: object) -> bool:
        """Whether it consumes, on the retrier's connection, as there is no other."""
        return self._is_ready and not self._is_cancelled

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        raise NotImplementedError

    def _subscribe(self) -> None:
        """Declares, opens a channel and subscribes."""
        raise NotImplementedError

    def _subscribe_on(self, channel: Any) -> None:
        """Subscribes once more, on the channel that there is."""
        raise NotImplementedError

    def _failed(self, error: Error) -> None:
        """It could not be done the first time."""
        raise NotImplementedError

    def _lost(self, channel: Any, reason: Any) -> None:
        """The channel was closed."""
        if channel is not self._channel or self._is_cancelled:
            return
        self._channel = None
        if isinstance(reason, pika.exceptions.ChannelClosedByClient):
            return  # the connection is being closed by who made it
        if self._is_ready:
            self._again(reason)
        else:
            self._failed(self._refusal(reason))

    def _refusal(self, reason: Any) -> Error:
        """Why the broker closed a channel that was to consume."""
        code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
        return consumer_refused(self._retrier.topology, Refusal(code, text))

    def _ended(self, channel: Any, _: Any) -> None:
        """The broker ended the subscription."""
        if channel is self._channel:
            self._again("")

    def _again(self, why: object) -> None:
        if self._is_cancelled or self._is_waiting or not self._retrier._connection.is_open:
            return
        self._is_waiting = True
        self._failures += 1
        forget(self._retrier._connection)
        wait = self._retrier._wait(self._failures)
        self._retrier._announce_end(self._failures, wait, why)
        self._later(wait, self._waited)

    def _waited(self) -> None:
        self._is_waiting = False
        if self._is_cancelled or not self._retrier._connection.is_open:
            return
        if self._channel is not None and self._channel.is_open:
            self._subscribe_on(self._channel)
        else:
            self._subscribe()


class BlockingConsumer(Consumer):
    """Of a BlockingConnection. Messages come whenever the connection hands them out: in ``start_consuming``, or in
    ``connection.process_data_events`` of a loop of your own."""

    def __init__(self, retrier: Retrier, on_message: OnMessage, prefetch: int) -> None:
        super().__init__(retrier, on_message, prefetch)
        self._connection: Any = retrier._blocking
        self._error: Error | None = None
        retrier.declare()
        try:
            self._open()
        except pika.exceptions.AMQPChannelError as error:
            self._is_cancelled = True
            raise self._error or self._refusal(error) from error

    def _failed(self, error: Error) -> None:
        self._error = error

    def start_consuming(self) -> None:
        """As it says."""
        while not self._is_cancelled:
            self._connection.process_data_events(None)

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return self._connection.call_later(delay, callback)  # where it may wait for the broker

    def _open(self) -> None:
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.add_on_cancel_callback(partial(self._ended, channel))
        channel._impl.add_on_close_callback(lambda _, reason: self._lost(channel, reason))
        self._channel = channel
        self._subscribe_on(channel)

    def _subscribe_on(self, channel: Any) -> None:
        self._tag = channel.basic_consume(self._queue, self._on_message)
        self._is_ready = True
        self._failures = 0

    def _waited(self) -> None:
        try:
            super()._waited()
        except (Error, pika.exceptions.AMQPChannelError) as error:
            self._again(error)

    def _subscribe(self) -> None:
        self._retrier.declare()
        self._open()


class AsyncConsumer(Consumer):
    """Of an asynchronous connection."""

    def __init__(
        self,
        retrier: Retrier,
        on_message: OnMessage,
        prefetch: int,
        callback: Callable[[Error | None], None] | None,
    ) -> None:
        super().__init__(retrier, on_message, prefetch)
        self._callback = callback
        self._subscribe()

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return self._retrier._connection._adapter_call_later(delay, callback)

    def _subscribe(self) -> None:
        self._retrier.declare(self._declared)

    def _declared(self, error: Error | None) -> None:
        if self._is_cancelled:
            return
        if error and self._is_ready:
            self._again(error)
        elif error:
            self._failed(error)
        else:
            try:
                channel = self._retrier._open_channel(self._opened)
            except pika.exceptions.AMQPError as lost:
                self._again(lost)
                return
            self._channel = channel
            channel.add_on_close_callback(self._lost)
            channel.add_on_cancel_callback(partial(self._ended, channel))

    def _opened(self, channel: Any) -> None:
        channel.basic_qos(prefetch_count=self._prefetch, callback=lambda _: self._subscribe_on(channel))

    def _subscribe_on(self, channel: Any) -> None:
        if not self._is_cancelled and channel.is_open:
            self._tag = channel.basic_consume(self._queue, self._on_message, callback=self._subscribed)

    def _subscribed(self, _: Any) -> None:
        self._failures = 0
        if not self._is_ready:
            self._is_ready = True
            self._tell(None)

    def _failed(self, error: Error) -> None:
        self._is_cancelled = True
        self._tell(error)

    def _tell(self, error: Error | None) -> None:
        if self._callback:
            self._callback(error)
        elif error:
            why: Fields = {"status": error.status, "connection": "consume", "cause": str(error)}
            self._retrier._events.tell(self._retrier._events.make(c.BH_EVENT_UNAVAILABLE, why))
