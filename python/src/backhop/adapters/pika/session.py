"""PikaSession: a message over pika, from its arrival until it is settled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pika.channel
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from ... import _backhop as c
from ..._errors import ArgumentTypeError, ConnectionFailedError, Error
from ...plan import OK, Plan
from ..declaring import CLOSED, Steps, check_broker, diagnosis
from ..session import LOGGER, MAY_BE_POISON, Session
from .channels import PikaOriginal, asynchronous
from .declaring import Declarer
from .message import Message
from .publisher import PikaPublisher
from .waiting import run_until

_WITH_ACKS = "auto_ack=False"


class PikaSession(Session):
    """Reads, settles and refuses the messages of one retrier, and declares."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        channel = self.channel
        if not isinstance(channel, BlockingChannel | pika.channel.Channel):
            raise ArgumentTypeError(f"channel is {channel!r}: give a channel of pika's")
        self.blocking: Any = channel.connection if isinstance(channel, BlockingChannel) else None
        self.connection = asynchronous(channel).connection
        self._opened: list[Any] = []  # channels of its own
        self.waiting: set[Message] = set()  # for earlier calls of the same messages
        self.decider.frame_max = self.connection.params.frame_max
        self.publisher = PikaPublisher(
            self,
            self.connection,
            self.open_channel,
            self.confirm_timeout,
            is_blocking=self.blocking is not None,
        )
        asynchronous(channel).add_on_close_callback(self._channel_closed)

    def _channel_closed(self, _: Any, reason: Any) -> None:
        if not isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            return
        refusal = reason.reply_code, reason.reply_text
        if advice := diagnosis(self.topology, c.BH_REFUSAL_SETTLING, *refusal, of=_WITH_ACKS):
            LOGGER.error("%s", advice)

    def open_channel(self, opened: Callable[[Any], None]) -> Any:
        channel = self.connection.channel(on_open_callback=opened)
        if self.blocking is not None:  # as BlockingConnection.channel does, but for waiting
            channel._set_cookie(BlockingChannel(channel, self.blocking))
        self._opened = [each for each in self._opened if not each.is_closed]
        self._opened.append(channel)
        return channel

    def declare(self, callback: Callable[[Error | None], None] | None = None) -> None:
        """Declares or verifies, by the mode. As the retrier's."""
        self.declare_by(self.declaring(self.connection), self.mode == "create", callback)

    def declare_by(
        self, steps: Steps, makes: bool, callback: Callable[[Error | None], None] | None
    ) -> None:
        self.check_fork()
        ends: list[Error | None] = []

        def done(error: Error | None) -> None:
            if error is None and makes:
                self.restores = True
                self.publisher.declared()
            ends.append(error)
            if self.blocking is not None:
                return
            if callback:
                callback(error)
            elif error:
                LOGGER.error("the topology of %r: %s", self.topology.queue, error)

        self.was_declared = True
        declarer = Declarer(self.open_channel, self._checked(steps), done)
        if self.blocking is not None:
            try:
                run_until(self.blocking, lambda: bool(ends) and declarer.is_closed)
            except pika.exceptions.AMQPConnectionError as lost:
                if ends and ends[0]:
                    raise ends[0] from lost
                raise
            if ends[0]:
                raise ends[0]

    def _checked(self, steps: Steps) -> Steps:
        if not self.connection.is_open:
            raise ConnectionFailedError(CLOSED)
        check_broker(self.topology, self.connection.server_properties)
        yield from steps

    def later(self, delay: float, callback: Callable[[], None]) -> None:
        if not self.connection.is_open:
            return
        if self.blocking is None:
            self.connection._adapter_call_later(delay, callback)
        else:
            self.blocking.call_later(delay, callback)  # there a handler may run

    def can_settle(self, message: Message) -> bool:
        return message._original.is_here

    def has_copies_of(self, channel: object) -> bool:
        return self.publisher.has_copies_of(channel)

    @property
    def is_closing_channel(self) -> bool:
        """Returns whether a channel closes. pika cannot close a connection meanwhile."""
        return any(each.is_closing for each in self._opened)

    def watch(self) -> None:
        """Looks for the return exchange once a minute from now on.

        A consumer calls it once it is subscribed. A look beside its declaration could find nothing.
        """
        self.publisher.watch.begin()

    def watch_deliveries(self, channel: Any) -> None:
        channel.add_on_close_callback(self._deliveries_ended)

    def _deliveries_ended(self, channel: Any, reason: Any) -> None:
        is_orderly = isinstance(reason, pika.exceptions.ChannelClosedByClient)
        self.stop_deliveries(channel, is_orderly=is_orderly)

    def arrived(
        self,
        channel: Any,
        method: Any,
        properties: Any,
        body: bytes,
        begin: Callable[[Message], object],
    ) -> None:
        """Passes a message on to its handler, unless it is settled, or the broker redelivers it.

        :param begin: called with the message, now or once an earlier call of it has ended.
        """
        message = self.message(channel, method, properties, body)
        if message._original.is_here:
            self._admit(message, begin)
        else:  # pika read it before its channel was closed
            self.emit_stale(message)

    def _admit(self, message: Message, begin: Callable[[Message], object]) -> None:
        kept = message._kept
        has_id = kept.message_id is not None or bool(kept.headers)
        kind, action = self.earlier(message, has_id, partial(self._call_over, message, begin))
        if kind == c.BH_ARRIVAL_WAIT:
            self.waiting.add(message)
        elif kind == c.BH_ARRIVAL_CALL:
            if self._is_admitted(message):
                begin(message)
        elif action == c.BH_ACTION_ACK:
            self.events.delivered(message)
            self.succeeded(message)
        else:  # its copy is confirmed, or it was dropped
            self.acknowledge(message, action)
            self.flush()

    def _call_over(self, message: Message, begin: Callable[[Message], object]) -> None:
        """An earlier call of a message has ended. In any thread."""
        go_on = partial(self._admit_again, message, begin)
        add: Any = self.connection._adapter_add_callback_threadsafe
        if self.blocking is not None:
            add = self.blocking.add_callback_threadsafe  # a handler may run there
        with contextlib.suppress(pika.exceptions.AMQPError, RuntimeError):  # the connection is lost
            add(go_on)

    def _admit_again(self, message: Message, begin: Callable[[Message], object]) -> None:
        self.waiting.discard(message)
        if message._original.is_here:  # else the broker delivers it again
            self._admit(message, begin)

    def _is_admitted(self, message: Message) -> bool:
        """Returns False if the guard has settled a message that crashed its consumers."""
        headers = message._kept.headers
        if headers and MAY_BE_POISON in headers:
            try:
                poison = self.guard(message)
            except Exception as error:
                self.refuse(message, error)
                return False
            if poison:
                self.execute(message, poison)
                return False
        return True

    def message(self, channel: Any, method: Any, properties: Any, body: bytes) -> Message:
        wire = asynchronous(channel)
        tag = method.delivery_tag
        if wire._consumers_with_noack:
            consumer = getattr(method, "consumer_tag", None)
            if consumer in wire._consumers_with_noack:
                self.log_no_ack(consumer, _WITH_ACKS)
                tag = 0
        original = PikaOriginal(wire, tag)
        return Message(self.decider, self.topology, original, method, properties, body)

    def read(self, method: Any, properties: Any, body: bytes | None, channel: Any) -> Message:
        self.check_fork()
        if method is None or properties is None or body is None:
            raise ArgumentTypeError(
                "method, properties or body is None: there is no message, as basic_get found none "
                "or consume waited for inactivity_timeout; look whether method is None first"
            )
        self.watch()
        message = self.message(channel or self.channel, method, properties, body)
        message._keep()
        return message

    def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Settles a message whose handler has ended."""
        if error is None:
            self.succeeded(message)
        else:
            self.failed(message, error)

    def succeeded(self, message: Message) -> None:
        self.record(message, OK)
        if self.acknowledge(message, c.BH_ACTION_ACK):
            self.flush()
            self.events.succeeded(message)

    def acknowledge(self, message: Message, action: int) -> bool:
        """Acknowledges a message. Returns False if its channel is closed."""
        if message._original.settle("ack"):
            self.acknowledged(message, action)
            return True
        self.lost_ack(message, action)
        return False

    def failed(self, message: Message, error: BaseException) -> None:
        try:
            plan = self.plan(message, error)
        except Error as problem:
            self.refuse(message, problem)
        else:
            self.execute(message, plan, error)

    def execute(self, message: Message, plan: Plan, error: BaseException | None = None) -> None:
        if plan.action in ("ack", "drop"):
            self.acknowledge(message, c.Plan_action(plan._handle))
        else:
            self.publisher.settle(plan, message, message._original, error)
        self.flush()

    publish = execute

    def refuse(self, message: Message, problem: Exception) -> None:
        self.forget_call(message)
        self.publisher.refuse(message._original, message._history, problem)
        self.flush()

    def flush(self) -> None:
        """Writes pending output now; a BlockingConnection would write it at its next wait."""
        if self.blocking is not None:
            self.blocking._flush_output()
