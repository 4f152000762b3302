"""Retries over pika.

    retrier = backhop.pika.Retrier(channel, queue="cdn-purge", policy=policy)
    retrier.consume(handle).start_consuming()       # returns: ack; raises: later; raise Park: parked

    def handle(message):
        purge(message.body, message.attempt)

It works with a BlockingConnection and with pika's asynchronous connections, and publishes on a confirm channel of its
own, on the connection of your channel, which stays as it is. A message that failed is acknowledged when the broker
confirmed its copy. These confirms are pipelined: nothing waits for them, and a burst of failures takes one round trip.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.channel
import pika.compat
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from . import _backhop as c
from ._amqp import copied
from ._checks import LONGEST_MS, instance, span_ms, whole
from ._declaring import Refusal, Steps, check_broker, diagnosis, replay_refused
from ._errors import (
    AccessError,
    ArgumentTypeError,
    ConnectionFailedError,
    Error,
    MissingError,
    PoisonError,
)
from ._pika_channels import Declarer, PikaOriginal, PikaPublisher
from ._pika_consumers import AsyncConsumer, BlockingConsumer, Consumer
from ._retrier import (
    LOGGER,
    MAY_BE_POISON,
    REFUSALS,
    BaseRetrier,
    check_error,
    replayed_messages,
    replayed_queues,
    unreadable,
)
from ._time import Seconds, milliseconds, seconds
from .decider import Decider
from .history import History
from .message import Message as _Message
from .outcomes import called, check_handler
from .plan import Plan
from .topology import Topology

__all__ = ["Consumer", "Message", "PoisonError", "Retrier"]

_WITH_ACKS = "auto_ack=False"
_ASYNC_ELSEWHERE = "give a plain function, or consume over aio-pika, or with Worker.serve"


class Message(_Message):
    """What a handler gets: besides what every message has, pika's ``method`` and ``properties``."""

    __slots__ = ("_decider", "_kept", "_original", "_properties", "method")

    def __init__(
        self, decider: Decider, topology: Topology, original: PikaOriginal, method: Any, properties: Any, body: bytes
    ) -> None:
        _Message.__init__(self, topology)
        self._decider = decider
        self._original = original
        self._properties = self._kept = properties
        self.body = body
        self.redelivered: bool = method.redelivered
        self.method = method
        """pika's Basic.Deliver, or Basic.GetOk."""

    @property
    def properties(self) -> Any:
        """pika's BasicProperties. Changing them changes nothing of a retry."""
        self._keep()
        return self._properties

    def _keep(self) -> None:
        """From now on somebody else may change the properties."""
        if self._kept is self._properties:
            kept = self._kept = copy.copy(self._properties)
            kept.headers = copied(kept.headers)

    def _read(self) -> History:
        kept, method = self._kept, self.method
        return self._decider.read(method.exchange, method.routing_key, kept, kept.headers)


class Retrier(BaseRetrier[Any]):
    """Acknowledges what a handler did, and lets what it could not do come back later.

    With a BlockingConnection the copies go out on the asynchronous channel inside of a BlockingChannel, since
    ``BlockingChannel.basic_publish`` waits for each confirm. Confirms are heard, and originals acknowledged, whenever
    the connection does I/O: in ``start_consuming``, ``process_data_events``, ``consume``, any call that waits. Before
    you close the connection yourself, call ``drain``; what is unconfirmed then is delivered again.

    Make a new retrier for a new connection. Like pika's, its methods are for the thread of the connection.

    :param channel: your channel, of a BlockingConnection or of an asynchronous connection
    :param queue: the work queue; at most 247 bytes
    :param policy: how long, how often, how random, when to give up; default: Policy()
    :param topology: instead of queue, policy, and the options from strategy to work_queue_arguments
    :param strategy: where a message waits: ``"ladder"``, ``"message-ttl"``, ``"reject"``, ``"delayed-exchange"`` or
        ``"native"``
    :param queue_type: as Topology's, as are namespace, series, stripes, work_queue, work_queue_arguments
    :param mode: what ``declare`` does: ``"create"`` what is missing; ``"verify"`` that all is there, and change
        nothing; ``"none"``. Rungs that only a handler's RetryAfter can need are made on demand in ``"create"`` alone
    :param never: exceptions that park a message at once: a class, a predicate, or a list of these. A predicate is
        called with the exception, and answers True or False, or a delay: try again, not before so many seconds
    :param only: the exceptions that are tried again, likewise; any other parks at once. Default: all are
    :param policies: by which other policies some exceptions are tried again, as ``{RateLimited: slow}``: the first
        whose class or predicate meets the exception. Attempts are counted once for all. A topology that you give has to
        have them among its own ``policies``
    :param legacy_counter: as History's, as are wait_queues
    :param confirm_timeout: after so many seconds without a confirm one copy is published again, and the others once the
        broker confirms one
    :param back_off: how long to wait before a copy is published again; its limits are ignored; default: 100 ms, doubled
        up to 10 s, jitter equal
    :param on_event: called with each Event, in the connection's thread, or its event loop; or a bridge, as
        backhop.prometheus and backhop.opentelemetry have them; or a list of these
    :param clock: gives seconds since the epoch
    :param random: gives that many random bytes
    :raises ArgumentError: for an option that cannot be used; also InvalidNameError, PolicyError and StrategyError
    """

    def _begin(self) -> None:
        channel = self._channel
        if not isinstance(channel, BlockingChannel | pika.channel.Channel):
            raise ArgumentTypeError(f"channel is {channel!r}: give a channel of pika's")
        self._blocking = channel.connection if isinstance(channel, BlockingChannel) else None
        self._connection = _asynchronous(channel).connection
        self._decider.frame_max = self._connection.params.frame_max
        self._publisher = PikaPublisher(
            self,
            self._connection,
            self._open_channel,
            self._confirm_timeout,
            is_blocking=self._blocking is not None,
        )
        _asynchronous(channel).add_on_close_callback(self._channel_closed)

    def _channel_closed(self, _: Any, reason: Any) -> None:
        if not isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            return
        refusal = reason.reply_code, reason.reply_text
        if advice := diagnosis(self._topology, c.Declaring_refuse_settling, *refusal, _WITH_ACKS):
            LOGGER.error("%s", advice)

    # Declaring

    def declare(self, callback: Callable[[Error | None], None] | None = None) -> None:
        """Declares exchanges, queues and bindings, on a channel of its own; or what else the mode says.

        With a BlockingConnection it raises what is wrong. With an asynchronous one it returns at once, and calls back
        with None or with the error; without a callback an error is logged.

        :param callback: asynchronous connections only
        :raises ClashError: an exchange or queue exists with other arguments
        :raises MissingError: the work queue does not exist; with mode verify, anything
        :raises AccessError: the user may not declare
        :raises BrokerError: the broker cannot serve the strategy
        """
        self._take(self._declaring(self._connection), self._mode == "create", callback)

    def verify(self, callback: Callable[[Error | None], None] | None = None) -> None:
        """Makes nothing, and says what is missing or different, whatever the mode.

        A rung that only a handler's RetryAfter can need may be missing in the mode ``"create"``, as it is made on
        demand then, unless the user may not declare. AMQP cannot look at bindings.

        :param callback: asynchronous connections only, as declare's
        :raises ClashError: an exchange or queue exists with other arguments
        :raises MissingError: something does not exist
        :raises BrokerError: the broker cannot serve the strategy
        """
        self._take(self._verifying(), False, callback)

    def _take(self, steps: Steps, makes: bool, callback: Callable[[Error | None], None] | None) -> None:
        ends: list[Error | None] = []

        def done(error: Error | None) -> None:
            self._restores = self._restores or (error is None and makes)
            ends.append(error)
            if self._blocking is not None:
                return
            if callback:
                callback(error)
            elif error:
                LOGGER.error("the topology of %r: %s", self.topology.queue, error)

        self._was_asked = True
        Declarer(self._open_channel, self._checked(steps), done)
        if self._blocking is not None:
            try:
                self._run_until(lambda: bool(ends))
            except pika.exceptions.AMQPConnectionError as lost:
                if ends and ends[0]:
                    raise ends[0] from lost
                raise
            if ends[0]:
                raise ends[0]

    def _checked(self, steps: Steps) -> Steps:
        check_broker(self.topology, self._connection.server_properties)
        yield from steps

    def _open_channel(self, opened: Callable[[Any], None]) -> Any:
        channel = self._connection.channel(on_open_callback=opened)
        if self._blocking is not None:  # as BlockingConnection.channel does, but for waiting
            channel._set_cookie(BlockingChannel(channel, self._blocking))
        return channel

    # Handling

    def consume(
        self,
        handle: Callable[[Message], object],
        *,
        prefetch: int = 100,
        callback: Callable[[Error | None], None] | None = None,
    ) -> Consumer:
        """Declares, subscribes to the work queue on a channel of its own, and hands each message to ``handle``, as
        wrap.

        It subscribes again where the broker cancels the consumer or closes the channel. A connection that is lost ends
        it.

        :param handle: called with each Message
        :param prefetch: messages that the broker sends ahead, 1 to 65535
        :param callback: asynchronous connections: called with None once it consumes, or with what is wrong; without one
            an error is logged
        :returns: what has ``cancel`` and, of a BlockingConnection, ``start_consuming``
        :raises Error: BlockingConnection: as declare
        """
        count = whole("prefetch", prefetch, 1, 65535)
        if self._blocking is None:
            return AsyncConsumer(self, self.wrap(handle), count, callback)
        return BlockingConsumer(self, self.wrap(handle), count)

    def wrap(self, handle: Callable[[Message], object]) -> Callable[[Any, Any, Any, bytes], None]:
        """A callback for your own ``basic_consume`` (with ``auto_ack=False``) that hands each message to ``handle``.

        Where it returns the message is acknowledged; where it raises the message comes back later, or is parked. It is
        for consumers of this retrier's queue alone: pika does not tell which queue a message is from.

        :raises ArgumentTypeError: for what is not callable, and for a coroutine function
        """
        check_handler(handle, instead=_ASYNC_ELSEWHERE)
        succeeded, events = self._succeeded, self._events
        run = events.surrounded(handle)

        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            message = self._message(channel, method, properties, body)
            headers = properties.headers
            if headers and MAY_BE_POISON in headers:
                try:
                    poison = self._guard(message)
                except Exception as error:
                    self._refuse(message, error)
                    return
                if poison:
                    self._carry_out(message, poison)
                    return
            events.delivered(message)
            try:
                called(run, message)
            except Exception as error:
                self._failed(message, error)
            else:
                succeeded(message)

        return on_message

    def _message(self, channel: Any, method: Any, properties: Any, body: bytes) -> Message:
        asynchronous = channel._impl if isinstance(channel, BlockingChannel) else channel
        tag = method.delivery_tag
        if asynchronous._consumers_with_noack:
            consumer = getattr(method, "consumer_tag", None)
            if consumer in asynchronous._consumers_with_noack:
                self._say_no_ack(consumer, _WITH_ACKS)
                tag = 0
        original = PikaOriginal(asynchronous, tag)
        return Message(self._decider, self._topology, original, method, properties, body)

    @contextlib.contextmanager
    def process(self, method: Any, properties: Any, body: bytes | None, channel: Any = None) -> Iterator[Message]:
        """A context to handle a message in, where it comes from ``channel.consume`` or ``channel.basic_get``.

            for method, properties, body in channel.consume("cdn-purge"):
                with retrier.process(method, properties, body) as message:
                    purge(message.body)

        An exception ends the context, and not the loop: it is logged, and not raised again.

        :param channel: where the message came by, if not on the retrier's channel
        :raises PoisonError: instead of entering: the message crashed its consumers, and waits or is parked, as the text
            says; ``wrap`` raises nothing
        :raises ArgumentTypeError: there is no message, as basic_get found none
        :raises Error: a message that cannot be read
        """
        message = self._read(method, properties, body, channel)
        if poison := self._guard(message):
            self._carry_out(message, poison)
            raise self._poison(poison)
        self._events.delivered(message)
        try:
            with self._events.handling(message):
                yield message
        except Exception as error:
            self.settle(message, error)
        else:
            self.settle(message)

    def read(self, method: Any, properties: Any, body: bytes | None, channel: Any = None) -> Message:
        """The message as a handler gets it, for who calls the handler himself, in a thread as it may be: in
        ``handling``.

        The poison guard is not asked. Hand it to ``settle`` in the end, in the connection's thread.

        :param channel: where the message came by, if not on the retrier's channel
        :raises ArgumentTypeError: there is no message
        """
        message = self._read(method, properties, body, channel)
        self._events.delivered(message)
        return message

    def _read(self, method: Any, properties: Any, body: bytes | None, channel: Any) -> Message:
        if method is None or properties is None or body is None:
            raise ArgumentTypeError(
                "method, properties or body is None: there is no message, as basic_get found none or consume waited "
                "for inactivity_timeout; look whether method is None first"
            )
        message = self._message(channel or self._channel, method, properties, body)
        message._keep()
        return message

    def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Says what became of a message of ``read``: None, or the exception with which it failed.

        From another thread: ``connection.add_callback_threadsafe(lambda: retrier.settle(message, error))``.
        """
        instance("message", message, Message, "give a message of read")
        check_error(error)
        if error is None:
            self._succeeded(message)
        else:
            self._failed(message, error)

    def _succeeded(self, message: Message) -> None:
        if message._original.settle("ack"):
            self._flush()
            self._events.succeeded(message)
        else:
            self._announce_stale(message)

    def _failed(self, message: Message, error: BaseException) -> None:
        try:
            plan = self._plan(message, error)
        except Error as problem:
            self._refuse(message, problem)
        else:
            self._carry_out(message, plan, error)

    def _carry_out(self, message: Message, plan: Plan, error: BaseException | None = None) -> None:
        if plan.action in ("ack", "drop"):
            if not message._original.settle("ack"):
                self._announce_stale(message)
        else:
            self._publisher.settle(plan, message, message._original, error)
        self._flush()

    def _refuse(self, message: Message, problem: Exception) -> None:
        self._publisher.refuse(message._original, message._history, problem)
        self._flush()

    def _flush(self) -> None:
        """Hands what was written to the system: a BlockingConnection would do that at its next wait."""
        if self._blocking is not None:
            self._blocking._flush_output()

    # Waiting

    @property
    def pending(self) -> int:
        """How many copies are not confirmed yet; their originals are unacknowledged."""
        return self._publisher.pending

    def __enter__(self) -> Retrier:
        return self

    def __exit__(self, *_: object) -> None:
        """BlockingConnection: drains."""
        if self._blocking is not None and self._blocking.is_open:
            self.drain()

    def drain(self, timeout: Seconds | None = None) -> None:
        """BlockingConnection: waits until every copy is confirmed and its original acknowledged.

        What other threads asked for before, by ``connection.add_callback_threadsafe``, is done first.

        :param timeout: seconds; default: as long as it takes
        :raises WaitTimeoutError: some are not confirmed in that time
        """
        if timeout is not None:
            span_ms("timeout", timeout, 0, LONGEST_MS)
        self._run_callbacks()
        self._run_until(lambda: not self.pending, timeout)
        if self.pending:
            raise self._undrained()

    def _run_callbacks(self) -> None:
        """Those that wait for the connection's thread; within one of these, they are its caller's."""
        connection = self._blocking
        if connection is None or not connection.is_open:
            return
        with connection._acquire_event_dispatch() as is_ours:
            if not is_ours:
                return
        behind: list[bool] = []  # what is put behind the others, and so done after them
        connection.add_callback_threadsafe(lambda: behind.append(True))
        while not behind:
            connection._flush_output(lambda: bool(connection._ready_events))
            connection._dispatch_connection_events()

    def _run_until(self, is_done: Callable[[], bool], timeout: Seconds | None = None) -> None:
        """Does I/O, and hands no message to a handler meanwhile."""
        connection = self._blocking
        if connection is None:
            raise ArgumentTypeError("an asynchronous connection cannot wait: use the callback, or look at pending")
        end = None if timeout is None else time.monotonic() + seconds(milliseconds(timeout))
        is_over = False

        def wake() -> None:
            nonlocal is_over
            is_over = True

        timer = end and connection._impl._adapter_call_later(max(0.0, end - time.monotonic()), wake)
        try:
            connection._flush_output(lambda: is_done() or is_over)
        finally:
            if timer and not is_over and connection.is_open:
                connection._impl._adapter_remove_timeout(timer)

    # Replaying

    def replay(self, most: int | None = None, callback: Callable[[int, Error | None], None] | None = None) -> int:
        """Sends parked messages back to their work queue, as if they had never failed.

        It ends with the messages that were parked when it began. Then, where the user may read it, those of this work
        queue among the first 10,000 of ``topology.unroutable_queue``, which came back while it was gone; others stay
        there, in order. A message that does not go stays where it is; where it is refused for what it is, those behind
        it go. With an asynchronous connection it returns 0 at once,
        and calls back with how many went, and None or the error.

        :param most: how many at most; default: all that are parked when it begins
        :returns: how many went
        :raises PublishError: a message could not be published
        :raises FrameError: a message's own headers do not fit the connection's frame_max
        :raises ContentError: a message cannot be copied; ChannelClosedError: the broker refuses the copy as it is
        :raises MissingError: there is no queue of parked messages
        :raises AccessError: the user may not read it
        """
        ends: list[tuple[int, Error | None]] = []

        def done(count: int, error: Error | None) -> None:
            ends.append((count, error))
            self._announce_replay(count, error)
            if self._blocking is None and callback:
                callback(count, error)

        _Replay(self, None if most is None else whole("most", most), done)
        if self._blocking is None:
            return 0
        self._run_until(lambda: bool(ends))
        count, error = ends[0]
        if error:
            raise error
        return count


class _Replay:
    """Gets messages one by one, on channels of its own, and publishes their copies: those that are parked, and then
    those of the work queue that came back while it was gone.

    A channel for each queue: pika's BlockingChannel takes a second GetEmpty for an error.
    """

    def __init__(self, retrier: Retrier, most: int | None, done: Callable[[int, Error | None], None]) -> None:
        self._retrier = retrier
        self._done = done
        self._most = math.inf if most is None else most
        self._queues = replayed_queues(retrier.topology)
        self._queue = ""
        self._is_shared = False
        self._channel: Any = None
        self._left = 0  # to get from the queue
        self._is_counted = False
        self._is_getting = False
        self._open = 0
        self._count = 0
        self._error: Error | None = None  # the first
        self._is_stopped = False  # what is in flight then goes on
        self._is_over = False
        self._begin()

    def _begin(self) -> None:
        """Begins with the next queue."""
        self._leave()
        self._queue, self._is_shared = self._queues.pop(0)
        self._left, self._is_counted = 1, False
        self._channel = self._retrier._open_channel(lambda _: self._next())
        self._channel.add_on_close_callback(self._closed)
        self._channel.add_callback(self._empty, [pika.spec.Basic.GetEmpty])

    def _leave(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and channel.is_open:
            channel.close()

    def _next(self) -> None:
        if self._is_over or self._is_getting:
            return
        is_enough = self._is_stopped or self._count + self._open >= self._most
        if self._left and not is_enough:
            self._is_getting = True
            self._channel.basic_get(self._queue, self._got)
        elif self._open:
            return
        elif self._queues and not is_enough:
            self._begin()
        else:
            self._end(self._error)

    def _fail(self, error: Error) -> None:
        self._error = self._error or error
        self._is_stopped = self._is_stopped or not isinstance(error, REFUSALS)

    def _empty(self, _: Any) -> None:
        self._is_getting = False
        self._left = 0
        self._next()

    def _got(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        retrier = self._retrier
        self._is_getting = False
        if not self._is_counted:  # not by a passive declare: of a quorum queue a busy broker answers 0
            self._is_counted = True
            self._left = replayed_messages(method.message_count + 1, self._is_shared)
        self._left -= 1
        message = retrier._read(method, properties, body, channel)
        if not self._is_shared or retrier._owns(message):  # else it is in its queue again when the channel is closed
            try:
                plan = retrier._decider.replay(message.history)
            except Exception as error:
                self._fail(unreadable(error))
            else:
                self._open += 1
                retrier._publisher.settle(plan, message, message._original, replayed=self._replayed)
        self._next()

    def _replayed(self, error: Error | None) -> None:
        self._open -= 1
        if error:
            self._fail(error)
        else:
            self._count += 1
        self._next()

    def _closed(self, channel: Any, reason: Exception) -> None:
        if channel is not self._channel:
            return
        if not isinstance(reason, pika.exceptions.ChannelClosedByBroker):
            self._end(ConnectionFailedError(f"the channel was closed: {reason}"))
            return
        refusal = Refusal(reason.reply_code, reason.reply_text)
        refused = replay_refused(self._retrier.topology, self._queue, refusal)
        # Who may not read what others share, or has not declared it, replays what is parked all the same.
        is_left_out = self._is_shared and isinstance(refused, MissingError | AccessError)
        self._end(self._error if is_left_out else refused)

    def _end(self, error: Error | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._leave()
        self._done(self._count, error)


def _asynchronous(channel: Any) -> Any:
    """The asynchronous channel of a BlockingChannel; others are themselves."""
    return channel._impl if isinstance(channel, BlockingChannel) else channel
