"""Consumers over pika, on channels of their own.

They subscribe again if the broker cancels them or closes their channel. A lost connection ends
them, because pika makes no new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pika.exceptions

from ... import _backhop as c
from ..._checks import wait_limit
from ..._errors import ArgumentTypeError, Error
from ..._times import Seconds
from ...observe.event import Fields
from ...observe.health import Health, State
from ...topology import Topology
from ..declaring import CONSUME_ARGUMENTS, Refusal, consumer_refused, forget
from .channels import asynchronous
from .gate import OnMessage, PikaGate

_LOOK_AFTER = 0.1  # seconds


class ConsumingRetrier(Protocol):
    """The part of the retrier that a consumer uses."""

    _blocking: Any
    _connection: Any
    _consumers: set[Any]

    @property
    def topology(self) -> Topology: ...

    def declare(self, callback: Callable[[Error | None], None] | None = None) -> None: ...

    def _open_channel(self, opened: Callable[[Any], None]) -> Any: ...

    def _has_copies_of(self, channel: object) -> bool: ...

    def _watch(self) -> None: ...

    def _resubscribe_delay(self, failures: int) -> float: ...

    def _doubt_acks(self, channel: object = None) -> None: ...

    def _emit_of(self, consumer: Any, kind: int, fields: Fields) -> None: ...

    def _emit_consumer_lost(
        self, consumer: Any, failures: int, delay: float, cause: object
    ) -> None: ...


class Consumer:
    """The consumer that ``Retrier.consume`` returns. Its context manager cancels it at the end.

    Call its methods in the connection's thread, as pika's.
    """

    def __init__(
        self,
        retrier: ConsumingRetrier,
        on_message: OnMessage,
        prefetch: int,
        gate: PikaGate | None,
    ) -> None:
        self._retrier = retrier
        self._queue = retrier.topology.queue
        self._on_message = on_message
        self._prefetch = prefetch
        self._channel: Any = None
        self._tag = ""
        self._failures = 0
        self._is_ready = False  # it consumed once
        self._is_waiting = False
        self._is_consuming = False
        self._is_cancelled = False
        self._health = Health()
        self._gate = gate
        if gate is not None:
            gate.consumer = self
        retrier._consumers.add(self)

    @property
    def is_cancelled(self) -> bool:
        """True after ``cancel`` was called."""
        return self._is_cancelled

    @property
    def state(self) -> State:
        """Its state: starting, ready, reconnecting, paused or stopped.

        It is stopped after ``cancel``, and after the connection is lost. While the broker blocks
        the connection, or its breaker is open, it is paused. For any thread.
        """
        is_over = self._is_cancelled or not self._retrier._connection.is_open
        return "stopped" if is_over else self._health.state

    @property
    def state_reason(self) -> str:
        """The text of the event that led to the state; "" for none."""
        return self._health.reason

    def ready(self, timeout: Seconds | None = None) -> None:
        """BlockingConnection: does I/O until it consumes, also after the broker cancelled it.

        Meanwhile messages arrive at the handler.

        :param timeout: seconds; default: no limit
        :raises WaitTimeoutError: if it does not consume in that time
        :raises StateError: if it is stopped
        :raises ArgumentTypeError: if the connection is asynchronous: use the callback of
            ``consume``
        """
        raise ArgumentTypeError(
            "an asynchronous connection cannot wait: use the callback of consume, or look at state"
        )

    def cancel(self) -> None:
        """Stops taking messages.

        Messages in hand are still settled: ``drain`` of the retrier waits for them.
        """
        is_first, self._is_cancelled = not self._is_cancelled, True
        self._retrier._consumers.discard(self)
        if self._gate is not None:
            self._gate.close()
        if is_first and self._is_consuming:
            self._is_consuming = False
            self._cancel()

    def start_consuming(self) -> None:
        """BlockingConnection: passes messages to the handler until ``cancel``.

        Call ``cancel`` in a handler, or in another thread by
        ``connection.add_callback_threadsafe(consumer.cancel)``.

        :raises pika.exceptions.AMQPConnectionError: if the connection is lost
        :raises ArgumentTypeError: if the connection is asynchronous
        """
        raise ArgumentTypeError(
            "an asynchronous connection consumes while its loop runs: start that"
        )

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _is_on(self, _: object) -> bool:
        """Returns whether it consumes. A pika retrier has one connection."""
        return self._is_ready and not self._is_cancelled

    @property
    def _is_paused(self) -> bool:
        """Returns whether the breaker cancelled it."""
        return self._gate is not None and self._gate.is_cancelled

    def _cancel(self) -> None:
        """Cancels the consumer at the broker."""
        if self._channel is not None and self._channel.is_open:
            self._channel.basic_cancel(self._tag)

    def _pause(self) -> None:
        """Stops to consume while the breaker is open."""
        self._is_consuming = False
        self._cancel()

    def _resume(self) -> None:
        """Consumes again."""
        if self._channel is not None and self._channel.is_open:
            self._subscribe_on(self._channel)
        elif not self._is_waiting:
            self._waited()

    def _subscribed(self, _: Any = None) -> None:
        """The broker accepted the subscription."""
        is_new, self._is_ready = self._failures > 0 or not self._is_ready, True
        self._failures = 0
        self._is_consuming = True
        self._retrier._watch()
        if is_new:
            self._retrier._emit_of(self, c.BH_EVENT_CONNECTED, {})
        if self._gate is not None:
            self._gate.look()

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        raise NotImplementedError

    def _subscribe(self) -> None:
        """Declares, opens a channel and subscribes."""
        raise NotImplementedError

    def _subscribe_on(self, channel: Any) -> None:
        """Subscribes once more, on the channel that there is."""
        raise NotImplementedError

    def _failed(self, error: Error) -> None:
        """The first subscription failed."""
        raise NotImplementedError

    def _lost(self, channel: Any, reason: Any) -> None:
        """The channel was closed."""
        if channel is not self._channel or self._is_cancelled:
            return
        self._channel = None
        self._is_consuming = False
        self._retrier._doubt_acks()
        if isinstance(reason, pika.exceptions.ChannelClosedByClient):
            # BlockingConnection.close closes each channel before the connection.
            self._later(_LOOK_AFTER, partial(self._closed_by_client, reason))
        elif self._is_ready:
            self._again(reason)
        else:
            self._failed(self._refusal(reason))

    def _closed_by_client(self, reason: Any) -> None:
        """Subscribes again if a handler closed the channel, and not the whole connection."""
        if self._channel is None and self._is_ready:
            self._again(reason)

    def _refusal(self, reason: Any) -> Error:
        """Returns why the broker closed the channel."""
        code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
        return consumer_refused(self._retrier.topology, Refusal(code, text))

    def _ended(self, channel: Any, _: Any) -> None:
        """The broker cancelled the consumer."""
        if channel is self._channel:
            self._is_consuming = False
            self._retrier._doubt_acks(asynchronous(channel))
            if self._gate is not None:
                self._gate.leave()
            self._again("")

    def _again(self, cause: object) -> None:
        if self._is_cancelled or self._is_waiting or not self._retrier._connection.is_open:
            return
        self._is_waiting = True
        self._failures += 1
        forget(self._retrier._connection)
        delay = self._retrier._resubscribe_delay(self._failures)
        self._retrier._emit_consumer_lost(self, self._failures, delay, cause)
        self._later(delay, self._waited)

    def _waited(self) -> None:
        self._is_waiting = False
        if self._is_cancelled or self._is_paused or not self._retrier._connection.is_open:
            return
        before, self._channel = self._channel, None
        if before is not None:
            self._close(before)
        self._subscribe()

    def _close(self, channel: Any) -> None:
        """Closes the channel of a consumer that the broker cancelled.

        RabbitMQ 4.3 may still deliver to that consumer. The channel stays open until the broker has
        confirmed the copies of its messages. If their queue was deleted, the broker does not
        redeliver them.
        """
        if not channel.is_open:
            return
        if self._retrier._has_copies_of(asynchronous(channel)):
            self._later(_LOOK_AFTER, partial(self._close, channel))
        else:
            channel.close()


class _Known(dict[str, Any]):
    """The consumers of a BlockingChannel by tag. It still finds one that the broker cancelled.

    RabbitMQ 4.3 may deliver to that consumer, or cancel it again, and pika raises KeyError then,
    out of the application's loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cancelled: dict[str, Any] = {}

    def __delitem__(self, tag: str) -> None:
        self._cancelled[tag] = self.pop(tag, None) or self._cancelled[tag]

    def __missing__(self, tag: str) -> Any:
        return self._cancelled[tag]


class BlockingConsumer(Consumer):
    """A consumer on a BlockingConnection.

    Messages arrive in ``start_consuming``, or in ``connection.process_data_events`` of a loop of
    your own.
    """

    def __init__(
        self,
        retrier: ConsumingRetrier,
        on_message: OnMessage,
        prefetch: int,
        gate: PikaGate | None,
        on_cancel: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(retrier, on_message, prefetch, gate)
        self._on_cancel = on_cancel
        self._connection: Any = retrier._blocking
        self._error: Error | None = None
        try:
            retrier.declare()
            self._open_first()
        except BaseException:
            self.cancel()
            raise

    def _open_first(self) -> None:
        try:
            self._open()
        except pika.exceptions.AMQPChannelError as error:
            raise self._error or self._refusal(error) from error

    def _failed(self, error: Error) -> None:
        self._error = error

    def start_consuming(self) -> None:
        """Passes messages to the handler until ``cancel``. Errors as Consumer's."""
        while not self._is_cancelled:
            self._connection.process_data_events(None)

    def cancel(self) -> None:
        """Stops taking messages. As Consumer's."""
        super().cancel()
        self._on_cancel()

    def ready(self, timeout: Seconds | None = None) -> None:
        """Does I/O until it consumes. Parameters and errors as Consumer's."""
        limit = wait_limit(timeout)
        end = None if limit is None else time.monotonic() + limit
        while (state := self.state) not in ("ready", "paused"):
            if state == "stopped":
                raise self._health.stopped()
            remaining = _LOOK_AFTER if end is None else end - time.monotonic()
            if remaining <= 0:
                raise self._health.late(limit)
            self._connection.process_data_events(min(_LOOK_AFTER, remaining))

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return self._connection.call_later(delay, callback)  # there a call may wait for the broker

    def _open(self) -> None:
        channel = self._connection.channel()
        channel._consumer_infos = _Known()
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.add_on_cancel_callback(partial(self._ended, channel))
        channel._impl.add_on_close_callback(lambda _, reason: self._lost(channel, reason))
        self._channel = channel
        self._subscribe_on(channel)

    def _subscribe_on(self, channel: Any) -> None:
        self._tag = channel.basic_consume(
            self._queue, self._on_message, arguments=CONSUME_ARGUMENTS
        )
        self._subscribed()

    def _pause(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPChannelError):  # _lost takes it
            super()._pause()

    def _resume(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPChannelError):
            super()._resume()

    def _waited(self) -> None:
        try:
            super()._waited()
        except (Error, pika.exceptions.AMQPChannelError) as error:
            self._again(error)

    def _subscribe(self) -> None:
        self._retrier.declare()
        self._open()


class AsyncConsumer(Consumer):
    """A consumer on an asynchronous connection."""

    def __init__(
        self,
        retrier: ConsumingRetrier,
        on_message: OnMessage,
        prefetch: int,
        gate: PikaGate | None,
        callback: Callable[[Error | None], None] | None,
    ) -> None:
        super().__init__(retrier, on_message, prefetch, gate)
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
        channel.basic_qos(
            prefetch_count=self._prefetch, callback=lambda _: self._subscribe_on(channel)
        )

    def _subscribe_on(self, channel: Any) -> None:
        if not self._is_cancelled and channel.is_open:
            self._tag = channel.basic_consume(
                self._queue,
                self._on_message,
                arguments=CONSUME_ARGUMENTS,
                callback=self._subscribed,
            )
            self._is_consuming = True

    def _subscribed(self, _: Any = None) -> None:
        is_first = not self._is_ready
        super()._subscribed()
        if is_first:
            self._report(None)

    def _failed(self, error: Error) -> None:
        self.cancel()
        self._report(error)

    def _report(self, error: Error | None) -> None:
        if self._callback:
            self._callback(error)
        elif error:
            why: Fields = {"status": error.status, "cause": str(error)}
            self._retrier._emit_of(self, c.BH_EVENT_UNAVAILABLE, why)
