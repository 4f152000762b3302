"""A message over pika, from its arrival until it is settled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pika.channel
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from ... import _backhop as c
from ..._errors import ArgumentTypeError, Error
from ...plan import OK, Plan
from ..declaring import diagnosis
from ..retrier import LOGGER, MAY_BE_POISON, BaseRetrier
from .channels import PikaOriginal, asynchronous
from .message import Message
from .pool import Pool
from .publisher import PikaPublisher

_WITH_ACKS = "auto_ack=False"


class Settling(BaseRetrier[Any]):
    """The part of the retrier that reads, settles and refuses messages."""

    def _begin(self) -> None:
        channel = self._channel
        if not isinstance(channel, BlockingChannel | pika.channel.Channel):
            raise ArgumentTypeError(f"channel is {channel!r}: give a channel of pika's")
        self._blocking = channel.connection if isinstance(channel, BlockingChannel) else None
        self._connection = asynchronous(channel).connection
        self._pools: list[Pool] = []
        self._opened: list[Any] = []  # channels of its own
        self._waiting: set[Message] = set()  # for earlier calls of the same messages
        self._decider.frame_max = self._connection.params.frame_max
        self._publisher = PikaPublisher(
            self,
            self._connection,
            self._open_channel,
            self._confirm_timeout,
            is_blocking=self._blocking is not None,
        )
        asynchronous(channel).add_on_close_callback(self._channel_closed)

    def _channel_closed(self, _: Any, reason: Any) -> None:
        if not isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            return
        refusal = reason.reply_code, reason.reply_text
        if advice := diagnosis(self._topology, c.Declaring_refuse_settling, *refusal, _WITH_ACKS):
            LOGGER.error("%s", advice)

    def _open_channel(self, opened: Callable[[Any], None]) -> Any:
        channel = self._connection.channel(on_open_callback=opened)
        if self._blocking is not None:  # as BlockingConnection.channel does, but for waiting
            channel._set_cookie(BlockingChannel(channel, self._blocking))
        self._opened = [each for each in self._opened if not each.is_closed]
        self._opened.append(channel)
        return channel

    def _has_copies_of(self, channel: object) -> bool:
        return self._publisher.has_copies_of(channel)

    @property
    def _is_closing_channel(self) -> bool:
        """Returns whether a channel closes. pika cannot close a connection meanwhile."""
        return any(each.is_closing for each in self._opened)

    def _watch(self) -> None:
        """Looks for the return exchange once a minute from now on.

        A consumer calls it once it is subscribed. A look beside its declaration could find nothing.
        """
        self._publisher.watch.begin()

    def _watch_deliveries(self, channel: Any) -> None:
        channel.add_on_close_callback(self._deliveries_ended)

    def _deliveries_ended(self, channel: Any, reason: Any) -> None:
        is_orderly = isinstance(reason, pika.exceptions.ChannelClosedByClient)
        self._stop_deliveries(channel, is_orderly=is_orderly)

    def _arrived(
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
        message = self._message(channel, method, properties, body)
        if message._original.is_here:
            self._admit(message, begin)
        else:  # pika read it before its channel was closed
            self._emit_stale(message)

    def _admit(self, message: Message, begin: Callable[[Message], object]) -> None:
        kept = message._kept
        has_id = kept.message_id is not None or bool(kept.headers)
        kind, action = self._earlier(message, has_id, partial(self._call_over, message, begin))
        if kind == c.BH_ARRIVAL_WAIT:
            self._waiting.add(message)
        elif kind == c.BH_ARRIVAL_CALL:
            if self._is_admitted(message):
                begin(message)
        elif action == c.BH_ACTION_ACK:
            self._events.delivered(message)
            self._succeeded(message)
        else:  # its copy is confirmed, or it was dropped
            self._acknowledge(message, action)
            self._flush()

    def _call_over(self, message: Message, begin: Callable[[Message], object]) -> None:
        """An earlier call of a message has ended. In any thread."""
        go_on = partial(self._admit_again, message, begin)
        add: Any = self._connection._adapter_add_callback_threadsafe
        if self._blocking is not None:
            add = self._blocking.add_callback_threadsafe  # a handler may run there
        with contextlib.suppress(pika.exceptions.AMQPError, RuntimeError):  # the connection is lost
            add(go_on)

    def _admit_again(self, message: Message, begin: Callable[[Message], object]) -> None:
        self._waiting.discard(message)
        if message._original.is_here:  # else the broker delivers it again
            self._admit(message, begin)

    def _is_admitted(self, message: Message) -> bool:
        """Returns False if the guard has settled a message that crashed its consumers."""
        headers = message._kept.headers
        if headers and MAY_BE_POISON in headers:
            try:
                poison = self._guard(message)
            except Exception as error:
                self._refuse(message, error)
                return False
            if poison:
                self._execute(message, poison)
                return False
        return True

    def _message(self, channel: Any, method: Any, properties: Any, body: bytes) -> Message:
        wire = asynchronous(channel)
        tag = method.delivery_tag
        if wire._consumers_with_noack:
            consumer = getattr(method, "consumer_tag", None)
            if consumer in wire._consumers_with_noack:
                self._log_no_ack(consumer, _WITH_ACKS)
                tag = 0
        original = PikaOriginal(wire, tag)
        return Message(self._decider, self._topology, original, method, properties, body)

    def _read(self, method: Any, properties: Any, body: bytes | None, channel: Any) -> Message:
        self._check_fork()
        if method is None or properties is None or body is None:
            raise ArgumentTypeError(
                "method, properties or body is None: there is no message, as basic_get found none "
                "or consume waited for inactivity_timeout; look whether method is None first"
            )
        self._watch()
        message = self._message(channel or self._channel, method, properties, body)
        message._keep()
        return message

    def _succeeded(self, message: Message) -> None:
        self._record(message, OK)
        if self._acknowledge(message, c.BH_ACTION_ACK):
            self._flush()
            self._events.succeeded(message)

    def _acknowledge(self, message: Message, action: int) -> bool:
        """Acknowledges a message. Returns False if its channel is closed."""
        if message._original.settle("ack"):
            self._acknowledged(message, action)
            return True
        self._lost_ack(message, action)
        return False

    def _failed(self, message: Message, error: BaseException) -> None:
        try:
            plan = self._plan(message, error)
        except Error as problem:
            self._refuse(message, problem)
        else:
            self._execute(message, plan, error)

    def _execute(self, message: Message, plan: Plan, error: BaseException | None = None) -> None:
        if plan.action in ("ack", "drop"):
            self._acknowledge(message, c.Plan_action(plan._handle))
        else:
            self._publisher.settle(plan, message, message._original, error)
        self._flush()

    _publish = _execute

    def _refuse(self, message: Message, problem: Exception) -> None:
        self._forget_call(message)
        self._publisher.refuse(message._original, message._history, problem)
        self._flush()

    def _flush(self) -> None:
        """Writes pending output now; a BlockingConnection would write it at its next wait."""
        if self._blocking is not None:
            self._blocking._flush_output()
