"""What the retrier over pika does on channels of its own: declare, and publish with confirms.

It is pika's asynchronous way throughout: nothing here waits. A BlockingConnection runs the same way inside, and drives
these callbacks whenever it does I/O. No callback raises, as that would leave pika's loop half done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pika.exceptions
import pika.spec

from ._amqp import wire_text
from ._declaring import Refusal, Step, Steps, creating
from ._errors import ConnectionFailedError, Error, PublishError
from ._retrier import LOGGER, BaseRetrier, back_off, tell_refused, tell_unpublished
from .history import History
from .plan import Plan

_COMMAND_INVALID = 503
"""So RabbitMQ before 4.0 closes the connection for an exchange type that it does not know."""

OpenChannel = Callable[[Callable[[Any], None]], Any]
"""Begins to open a channel, and calls back with it once it is open."""


class Original:
    """A delivery to settle, on the channel that it came by and on no other."""

    __slots__ = ("channel", "tag")

    def __init__(self, channel: Any, tag: int) -> None:
        self.channel = channel
        self.tag = tag

    @property
    def is_here(self) -> bool:
        """Whether it can still be settled."""
        return bool(self.channel.is_open)

    def settle(self, action: str) -> None:
        """Settles it; where its channel is gone, the broker delivers it again."""
        try:
            if action == "reject":
                self.channel.basic_nack(self.tag, requeue=False)
            elif action == "return":
                self.channel.basic_reject(self.tag, requeue=True)
            else:
                self.channel.basic_ack(self.tag)
        except (pika.exceptions.ChannelWrongStateError, pika.exceptions.ConnectionWrongStateError):
            LOGGER.info("delivery %d is not settled: its channel is closed, and the broker delivers it again", self.tag)


class Copy:
    """A copy to publish, and to confirm before its original is acknowledged."""

    __slots__ = (
        "body",
        "exchange",
        "failures",
        "history",
        "is_returned",
        "is_suspect",
        "key",
        "original",
        "plan",
        "properties",
        "replayed",
        "routing_key",
        "sent_at",
    )

    def __init__(
        self,
        plan: Plan,
        history: History,
        headers: dict[Any, Any],
        properties: Any,
        body: bytes,
        original: Original,
        replayed: Callable[[Error | None], None] | None = None,
    ) -> None:
        self.plan = plan
        self.history = history
        self.properties = properties
        self.body = body
        self.original = original
        self.replayed = replayed  # of a replay: called with its end, and nothing is tried again
        self.exchange = wire_text(plan.exchange)
        self.routing_key = wire_text(plan.routing_key)
        self.key = (self.exchange, self.routing_key, headers.get("backhop-id"))  # what a return tells
        self.failures = 0
        self.is_returned = False
        self.is_suspect = False
        self.sent_at = 0.0


class AsyncConnection(Protocol):
    """What is used of pika's connections; their timers have a name of one underscore, and are in every adapter."""

    is_open: bool

    def _adapter_call_later(self, delay: float, callback: Callable[[], None]) -> object: ...

    def add_on_connection_blocked_callback(self, callback: Callable[[Any, Any], None]) -> None: ...

    def add_on_connection_unblocked_callback(self, callback: Callable[[Any, Any], None]) -> None: ...


class Publisher:
    """Publishes copies on a confirm channel of its own, any number at a time."""

    def __init__(
        self, retrier: BaseRetrier[Any], connection: AsyncConnection, open_channel: OpenChannel, confirm_timeout: float
    ) -> None:
        self._retrier = retrier
        self._connection = connection
        self._open_channel = open_channel
        self._confirm_timeout = confirm_timeout
        self._channel: Any = None
        self._is_ready = False
        self._is_blocked = False
        self._is_watched = False
        self._is_declaring = False
        self._waiting = 0  # for their back-off
        self._due: deque[Copy] = deque()
        self._sent: dict[int, Copy] = {}
        self._tag = 0
        connection.add_on_connection_blocked_callback(partial(self._set_blocked, True))
        connection.add_on_connection_unblocked_callback(partial(self._set_blocked, False))

    @property
    def pending(self) -> int:
        """Copies that are not confirmed yet."""
        return len(self._due) + len(self._sent) + self._waiting

    def publish(self, copy: Copy) -> None:
        """Publishes it as soon as it can be, and then acknowledges its original."""
        self._due.append(copy)
        self._pump()

    def _set_blocked(self, is_blocked: bool, *_: Any) -> None:
        self._is_blocked = is_blocked
        for copy in self._sent.values():
            copy.sent_at = time.monotonic()  # the broker read nothing meanwhile

    # The channel

    def _open(self) -> None:
        self._sent.clear()
        self._tag = 0
        try:
            self._channel = self._open_channel(self._opened)
        except pika.exceptions.AMQPError as error:
            if not self._connection.is_open:
                self._lost(error)
                return
            due, self._due = list(self._due), type(self._due)()  # no channel number is free, for now
            for copy in due:
                self._postpone(copy, f"cannot be published: {error!r}")
            return
        self._channel.add_on_close_callback(self._closed)

    def _opened(self, channel: Any) -> None:
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(ack_nack_callback=partial(self._answered, channel), callback=self._confirming)

    def _confirming(self, _: Any) -> None:
        self._is_ready = True
        self._pump()

    def _leave_channel(self) -> list[Copy]:
        """Forgets the channel; returns the copies of which nothing is known."""
        sent = list(self._sent.values())
        self._sent.clear()
        self._channel = None
        self._is_ready = False
        for copy in sent:
            copy.is_returned = False
        return sent

    def _closed(self, channel: Any, reason: Exception) -> None:
        if channel is not self._channel:
            return
        sent = self._leave_channel()
        if not self._connection.is_open:
            self._due.extend(sent)
            self._lost(reason)
            return
        self._retrier._doubt()
        if len(sent) == 1:
            self._postpone(sent[0], f"closed the channel ({reason})")
        else:  # which one it was shows where each goes alone
            for copy in sent:
                copy.is_suspect = True
            self._due.extendleft(reversed(sent))
        self._pump()

    def _lost(self, reason: Exception) -> None:
        """The connection is gone, and the deliveries with it: the broker gives them again."""
        if self._due:
            LOGGER.warning(
                "%d copies were not confirmed: the connection is lost (%s), and the broker delivers their originals "
                "again",
                len(self._due),
                reason,
            )
        dropped = list(self._due)
        self._due.clear()
        self._channel = None
        self._is_ready = False
        for copy in dropped:
            if copy.replayed:
                copy.replayed(ConnectionFailedError(f"the connection was lost: {reason}"))

    # Sending

    def _pump(self) -> None:
        while self._due and not self._is_declaring:
            if not self._is_ready:
                if self._channel is None:
                    self._open()
                return
            copy = self._due[0]
            if not copy.original.is_here:
                self._due.popleft()
                continue
            if self._sent and (copy.is_suspect or next(iter(self._sent.values())).is_suspect):
                return
            if not self._has_topology(copy):
                return
            self._due.popleft()
            self._send(copy)

    def _has_topology(self, copy: Copy) -> bool:
        """Whether all is there that the copy needs; begins to declare it where it is not."""
        retrier, plan = self._retrier, copy.plan
        needed = retrier._needed(plan)
        if not needed:
            return True

        def declared(error: Error | None) -> None:
            self._is_declaring = False
            if error is None:
                retrier._made(plan)
            elif self._due and self._due[0] is copy:
                self._due.popleft()
                self._postpone(copy, f"cannot be published: {error}")
            self._pump()

        self._is_declaring = True
        Declarer(self._open_channel, creating(retrier.topology, needed), declared)
        return False

    def _send(self, copy: Copy) -> None:
        try:
            self._channel.basic_publish(
                copy.exchange, copy.routing_key, copy.body, copy.properties, mandatory=copy.plan.mandatory
            )
        except (pika.exceptions.ChannelWrongStateError, pika.exceptions.ConnectionWrongStateError):
            self._due.appendleft(copy)  # the channel is just being closed
            self._is_ready = False
            return
        except Exception as error:  # what cannot be encoded; pika wrote nothing then
            if copy.replayed:
                copy.replayed(PublishError(f"the copy cannot be written: {error!r}"))
            else:
                tell_refused(copy.history, error)
            return
        self._tag += 1
        self._sent[self._tag] = copy
        copy.sent_at = time.monotonic()
        self._watch()

    def _postpone(self, copy: Copy, why: str) -> None:
        copy.is_returned = copy.is_suspect = False
        if copy.replayed:
            copy.replayed(PublishError(f"the copy {why}"))
            return
        copy.failures += 1
        wait = back_off(copy.failures)
        tell_unpublished(copy.history, why, wait)
        self._waiting += 1
        self._connection._adapter_call_later(wait, partial(self._waited, copy))

    def _waited(self, copy: Copy) -> None:
        self._waiting -= 1
        if self._connection.is_open:
            self.publish(copy)

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._connection._adapter_call_later(self._confirm_timeout / 2, self._look)

    def _look(self) -> None:
        """Gives the channel up where confirms do not come."""
        self._is_watched = False
        if not self._sent or not self._connection.is_open:
            return
        oldest = next(iter(self._sent.values()))
        if self._is_blocked or time.monotonic() - oldest.sent_at < self._confirm_timeout:
            self._watch()
            return
        channel = self._channel
        for copy in self._leave_channel():
            self._postpone(copy, f"was not confirmed within {self._confirm_timeout:g} s")
        if channel.is_open:
            channel.close()
        self._pump()

    # The broker's answer

    def _answered(self, channel: Any, frame: Any) -> None:
        if channel is not self._channel:
            return
        method = frame.method
        tag = method.delivery_tag
        is_ack = isinstance(method, pika.spec.Basic.Ack)
        if method.multiple:
            for each in [each for each in self._sent if each <= tag]:
                self._answered_one(self._sent.pop(each), is_ack)
        elif tag in self._sent:
            self._answered_one(self._sent.pop(tag), is_ack)
        self._pump()

    def _answered_one(self, copy: Copy, is_ack: bool) -> None:
        if copy.is_returned:
            self._postpone(copy, "was returned by the broker: no queue takes it")
        elif not is_ack:
            self._postpone(copy, "was nacked by the broker: a queue is full (reject-publish) or not available")
        else:
            copy.original.settle("ack")
            if copy.replayed:
                copy.replayed(None)

    def _returned(self, channel: Any, method: Any, properties: Any, _: bytes) -> None:
        """A return names no delivery tag: every copy that it could be is sent again, a duplicate at worst."""
        if channel is not self._channel:
            return
        self._retrier._doubt()
        key = (method.exchange, method.routing_key, (properties.headers or {}).get("backhop-id"))
        for copy in self._sent.values():
            copy.is_returned |= copy.key == key


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
