"""Consumers over pika, on channels of their own.

They subscribe again if the broker cancels them or closes their channel. A lost connection ends
them, because pika makes no new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pika.exceptions

from ... import _backhop as c
from ..._checks import wait_limit
from ..._errors import ArgumentTypeError, Error
from ..._times import Seconds
from ...breaker import now_ms
from ...observe.event import Fields
from ...observe.health import Health, State
from ..declaring import CONSUME_ARGUMENTS, Refusal, consumer_refused, forget
from ..subscription import CONSUME, DECLARE, EMIT, NEVER, REST, Subscription
from .channels import asynchronous
from .gate import OnMessage, PikaGate
from .session import PikaSession

_LOOK_AFTER = 0.1  # seconds


class Consumer:
    """The consumer that ``Retrier.consume`` returns. Its context manager cancels it at the end.

    Call its methods in the connection's thread, as pika's.
    """

    def __init__(
        self,
        session: PikaSession,
        on_message: OnMessage,
        prefetch: int,
        gate: PikaGate | None,
    ) -> None:
        self._session = session
        self._queue = session.topology.queue
        self._on_message = on_message
        self._prefetch = prefetch
        self._channel: Any = None
        self._tag = ""
        self._subscription = Subscription(session.back_off)
        self._is_looking = False
        self._timer: int | None = None  # the time of the next look; None: there is none
        self._is_consuming = False
        self._is_cancelled = False
        self._health = Health()
        self._gate = gate
        if gate is not None:
            gate.consumer = self
        session.consumers.add(self)

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
        is_over = self._is_cancelled or not self._session.connection.is_open
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
        self._subscription.stop()
        self._session.consumers.discard(self)
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
        return self._subscription.was_consuming and not self._is_cancelled

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
        if self._channel is not None and self._channel.is_open and self._subscription.is_consuming:
            self._subscribe_on(self._channel)
        else:
            self._look()

    def _look(self) -> None:
        """Executes the subscription's steps until none is due."""
        if self._is_looking:
            return  # the outer call executes the new steps too
        self._is_looking = True
        try:
            while (step := self._subscription.next(self._may_subscribe))[0] != REST:
                self._execute(step)
        finally:
            self._is_looking = False
        self._set_timer(step[4])

    def _execute(self, step: c.SubscriptionStep) -> None:
        kind = step[0]
        if kind == EMIT:
            self._session.emit_subscription(self, step)
            if self._gate is not None and step[1] == c.BH_EVENT_CONNECTED:
                self._gate.look()
        elif kind == DECLARE:
            if self._subscription.was_consuming:
                forget(self._session.connection)
            before, self._channel = self._channel, None
            if before is not None:
                self._close(before)
            self._declare()
        elif kind == CONSUME:
            self._consume()
        else:
            self._give_up()

    def _report_loss(self) -> None:
        """Emits a loss. A callback of pika's must not wait for the broker, as other steps may."""
        if self._is_looking:
            return
        while (step := self._subscription.next(False))[0] != REST:
            self._execute(step)
        if self._session.connection.is_open:
            self._later(0, self._look)

    @property
    def _may_subscribe(self) -> bool:
        is_open = self._session.connection.is_open
        return (is_open or not self._subscription.was_consuming) and not self._is_paused

    def _set_timer(self, due_ms: int) -> None:
        if due_ms in (NEVER, self._timer):
            return
        self._timer = due_ms
        self._later(max(0, due_ms - now_ms()) / 1000, partial(self._due, due_ms))

    def _due(self, due_ms: int) -> None:
        """A timer ended."""
        if due_ms == self._timer:
            self._timer = None
            self._look()

    def _subscribed(self, _: Any = None) -> None:
        """The broker accepted the subscription."""
        self._is_consuming = True
        self._subscription.subscribed()
        self._session.watch()
        if self._is_paused:
            self._pause()
        if not self._is_looking:
            self._look()
            if self._gate is not None:
                self._gate.look()

    def _has_channel(self, channel: Any) -> None:
        """Notes its new channel."""
        self._channel = channel
        self._session.deliver_on(asynchronous(channel), self._subscription, self._prefetch)

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        raise NotImplementedError

    def _declare(self) -> None:
        """Declares. Calls the subscription's ``declared`` or ``failed`` in the end."""
        raise NotImplementedError

    def _consume(self) -> None:
        """Opens a channel and subscribes. Calls ``_subscribed`` in the end, or reports a loss."""
        raise NotImplementedError

    def _subscribe_on(self, channel: Any) -> None:
        """Subscribes once more, on the channel that there is."""
        raise NotImplementedError

    def _give_up(self) -> None:
        """The first attempt failed."""
        raise NotImplementedError

    def _lost(self, channel: Any, reason: Any) -> None:
        """The channel was closed."""
        if channel is not self._channel or self._is_cancelled:
            return
        self._channel = None
        self._is_consuming = False
        if isinstance(reason, pika.exceptions.ChannelClosedByClient):
            # BlockingConnection.close closes each channel before the connection.
            self._later(_LOOK_AFTER, partial(self._closed_by_client, reason))
        else:
            self._channel_lost(reason)

    def _closed_by_client(self, reason: Any) -> None:
        """Subscribes again if a handler closed the channel, and not the whole connection."""
        if self._channel is None and self._subscription.was_consuming:
            self._channel_lost(reason)

    def _channel_lost(self, reason: Any) -> None:
        is_open = self._session.connection.is_open
        loss = c.BH_LOSS_CHANNEL if is_open else c.BH_LOSS_CONNECTION
        self._subscription.lost(loss, reason, self._refusal(reason))
        self._report_loss()

    def _refusal(self, reason: Any) -> Error:
        """Returns why the broker closed the channel."""
        code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
        return consumer_refused(self._session.topology, Refusal(code, text))

    def _ended(self, channel: Any, _: Any) -> None:
        """The broker cancelled the consumer."""
        self._session.lose_acks(asynchronous(channel))
        if channel is self._channel:
            self._is_consuming = False
            if self._gate is not None:
                self._gate.leave()
            self._subscription.lost(c.BH_LOSS_CONSUMER)
            self._report_loss()

    def _close(self, channel: Any) -> None:
        """Closes the channel of a consumer that the broker cancelled.

        RabbitMQ 4.3 may still deliver to that consumer. The channel stays open until the broker has
        confirmed the copies of its messages. If their queue was deleted, the broker does not
        redeliver them.
        """
        if not channel.is_open:
            return
        if self._session.has_copies_of(asynchronous(channel)):
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
        session: PikaSession,
        on_message: OnMessage,
        prefetch: int,
        gate: PikaGate | None,
        on_cancel: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(session, on_message, prefetch, gate)
        self._on_cancel = on_cancel
        self._connection: Any = session.blocking
        self._closed_with: BaseException | None = None  # pika's error, of its first attempt
        try:
            self._look()
        except BaseException:
            self.cancel()
            raise

    def _give_up(self) -> None:
        assert self._subscription.error is not None
        raise self._subscription.error from self._closed_with

    def start_consuming(self) -> None:
        """Passes messages to the handler until ``cancel``. Errors as Consumer's."""
        while not self._is_cancelled:
            self._connection.process_data_events(None)

    def cancel(self) -> None:
        """Stops taking messages. As Consumer's."""
        super().cancel()
        self._on_cancel()

    def _cancel(self) -> None:
        channel = self._channel
        if channel is None or not channel.is_open or not self._session.publisher._is_blocked:
            super()._cancel()
            return
        # pika's own would wait for the broker, which answers nothing during an alarm.
        pending = channel._remove_pending_deliveries(self._tag)
        for each in pending:
            channel._impl.basic_reject(each.method.delivery_tag, requeue=True)
        channel._impl.basic_cancel(self._tag)

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

    def _declare(self) -> None:
        try:
            self._session.declare()
        except Error as error:
            self._subscription.failed(error, error)
        else:
            self._subscription.declared()

    def _consume(self) -> None:
        try:
            self._open()
        except pika.exceptions.AMQPChannelError as error:
            self._closed_with = error
            self._subscription.lost(c.BH_LOSS_CHANNEL, error, self._refusal(error))

    def _open(self) -> None:
        channel = self._connection.channel()
        channel._consumer_infos = _Known()
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.add_on_cancel_callback(partial(self._ended, channel))
        channel._impl.add_on_close_callback(lambda _, reason: self._lost(channel, reason))
        self._has_channel(channel)
        self._subscribe_on(channel)

    def _subscribe_on(self, channel: Any) -> None:
        self._tag = channel.basic_consume(
            self._queue, self._on_message, arguments=CONSUME_ARGUMENTS
        )
        self._subscribed()

    def _close(self, channel: Any) -> None:
        with contextlib.suppress(pika.exceptions.AMQPChannelError):  # it is closed
            super()._close(channel)

    def _pause(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPChannelError):  # _lost takes it
            super()._pause()

    def _resume(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPChannelError):
            super()._resume()


class AsyncConsumer(Consumer):
    """A consumer on an asynchronous connection."""

    def __init__(
        self,
        session: PikaSession,
        on_message: OnMessage,
        prefetch: int,
        gate: PikaGate | None,
        callback: Callable[[Error | None], None] | None,
    ) -> None:
        super().__init__(session, on_message, prefetch, gate)
        self._callback = callback
        self._look()

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        return self._session.connection._adapter_call_later(delay, callback)

    def _declare(self) -> None:
        self._session.declare(self._declared)

    def _declared(self, error: Error | None) -> None:
        if error is None:
            self._subscription.declared()
        else:
            self._subscription.failed(error, error)
        self._look()

    def _consume(self) -> None:
        try:
            channel = self._session.open_channel(self._opened)
        except pika.exceptions.AMQPError as lost:
            self._subscription.lost(c.BH_LOSS_CHANNEL, lost, self._refusal(lost))
            return
        channel.add_on_close_callback(self._lost)
        channel.add_on_cancel_callback(partial(self._ended, channel))
        self._has_channel(channel)

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
        is_first = not self._subscription.was_consuming
        super()._subscribed()
        if is_first:
            self._report(None)

    def _give_up(self) -> None:
        error: Any = self._subscription.error
        self.cancel()
        self._report(error)

    def _report(self, error: Error | None) -> None:
        if self._callback:
            self._callback(error)
        elif error:
            why: Fields = {"status": error.status, "cause": str(error)}
            self._session.emit_of(self, c.BH_EVENT_UNAVAILABLE, why)
