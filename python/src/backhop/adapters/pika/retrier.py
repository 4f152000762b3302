"""Retrier over pika."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pika
import pika.channel
import pika.exceptions

from ... import _backhop as c
from ..._checks import instance, wait_limit, whole
from ..._errors import ArgumentTypeError, ConnectionFailedError, Error
from ..._handlers import ENDS_PROGRAM, check_handler
from ..._times import Seconds
from ...observe.limit import TimeLimit
from ..retrier import BaseRetrier, check_error
from .consumers import AsyncConsumer, BlockingConsumer, Consumer
from .gate import OnMessage, PikaGate, gated
from .message import Message
from .pool import Pool
from .replay import Replay
from .session import PikaSession
from .waiting import run_callbacks, run_until

_ASYNC_ELSEWHERE = "give a plain function, or consume over aio-pika, or with Worker.serve"


class Retrier(BaseRetrier[Any, PikaSession]):
    """Acknowledges handled messages, and retries failed ones later.

    With a BlockingConnection copies go out on the asynchronous channel inside a BlockingChannel,
    because ``BlockingChannel.basic_publish`` waits for each confirm. Whenever the connection does
    I/O, confirms arrive and originals are acknowledged: in ``start_consuming``,
    ``process_data_events``, ``consume``, or any call that waits. Call ``drain`` before you close
    the connection: messages without a confirm are delivered again.

    Make a new retrier for a new connection, of a channel of a BlockingConnection or of an
    asynchronous connection. Call its methods in the connection's thread, as pika's.
    """

    def _begin(self, channel: Any, *parts: Any) -> PikaSession:
        session = PikaSession(channel, *parts)
        session.replay_unroutable = self._replay_unroutable
        self._pools: list[Pool] = []
        return session

    # Declaring

    def declare(self, callback: Callable[[Error | None], None] | None = None) -> None:
        """Declares exchanges, queues and bindings on a channel of its own, or verifies them, by the
        mode.

        With a BlockingConnection it raises the error. With an asynchronous connection it returns at
        once, and later calls back with None or the error. Without a callback it logs the error.

        :param callback: asynchronous connections only.
        :raises ClashError: if an exchange or queue exists with other arguments.
        :raises MissingError: if the work queue does not exist; under mode verify, if anything is
            missing.
        :raises AccessError: if the user may not declare.
        :raises BrokerError: if the broker cannot serve the strategy.
        """
        self._session.declare(callback)

    def verify(self, callback: Callable[[Error | None], None] | None = None) -> None:
        """Checks that all exchanges and queues exist, whatever the mode. Declares nothing.

        A rung that only a handler's RetryAfter can need may be missing under mode ``"create"``. It
        is made on demand then, if the user may declare. AMQP cannot check bindings.

        :param callback: asynchronous connections only, as declare's.
        :raises ClashError: if an exchange or queue exists with other arguments.
        :raises MissingError: if something does not exist.
        :raises BrokerError: if the broker cannot serve the strategy.
        """
        self._session.declare_by(self._session.verifying(), False, callback)

    # Handling

    def consume(
        self,
        handle: Callable[[Message], None],
        *,
        prefetch: int | None = None,
        threads: int | None = None,
        timeout: Seconds | None = None,
        callback: Callable[[Error | None], None] | None = None,
    ) -> Consumer:
        """Declares, subscribes to the work queue on a channel of its own, and passes each message
        to ``handle``.

        It subscribes again if the broker cancels the consumer or closes the channel. A lost
        connection ends it.

        :param handle: called with each Message, as in ``wrap``.
        :param prefetch: number of unacknowledged messages that the broker delivers, 1 to 65,535;
            default: 100, or the number of threads.
        :param threads: BlockingConnection: number of handlers that run at once, in threads of their
            own, 1 to 10,000. The connection's thread sends heartbeats meanwhile. Default: the
            connection's thread calls the handlers.
        :param timeout: seconds that a handler may run, 1 ms to a day. Nothing aborts a handler: it
            fails with a TimeoutError when it returns, even if it succeeded. Default: no limit.
        :param callback: asynchronous connections: called with None when it consumes, or with the
            error. Without a callback the error is logged.
        :returns: the consumer, with ``cancel`` and, for a BlockingConnection, ``start_consuming``.
        :raises Error: BlockingConnection: as declare.
        """
        if threads is not None:
            whole("threads", threads, 1, 10_000)
        count = whole("prefetch", (threads or 100) if prefetch is None else prefetch, 1, 65535)
        limit = TimeLimit(timeout, self._session.emit_busy if threads is None else None)
        self._session.check_fork()
        check_handler(handle, instead=_ASYNC_ELSEWHERE)
        if threads is not None:
            if self._session.blocking is None:
                raise ArgumentTypeError(
                    "an asynchronous connection has no threads: leave out threads"
                )
            pool = Pool(self._session, handle, threads, limit, f"backhop-{self.topology.queue}")
            self._pools.append(pool)
            on_message, gate = gated(self._session, pool.start, lambda: pool.has_room)
            pool.gate = gate
            return BlockingConsumer(self._session, on_message, count, gate, pool.close)
        on_message, gate = self._handler(handle, limit)
        if self._session.blocking is None:
            return AsyncConsumer(self._session, on_message, count, gate, callback)
        return BlockingConsumer(self._session, on_message, count, gate)

    def wrap(self, handle: Callable[[Message], None]) -> Callable[[Any, Any, Any, bytes], None]:
        """Returns a callback for your own ``basic_consume`` (with ``auto_ack=False``) that passes
        each message to ``handle``.

        If ``handle`` returns, the message is acknowledged. If it raises, the message is retried
        later, or parked. Use the callback for this retrier's queue alone: pika does not report the
        queue of a message. Once a minute the retrier looks for the return exchange.

        :raises ArgumentTypeError: if ``handle`` is not callable, or is a coroutine or generator
            function.
        """
        self._session.check_fork()
        check_handler(handle, instead=_ASYNC_ELSEWHERE)
        self._session.watch()
        return self._handler(handle, TimeLimit(None))[0]

    def _handler(
        self, handle: Callable[[Message], object], limit: TimeLimit
    ) -> tuple[OnMessage, PikaGate | None]:
        """Returns the callback of a consumer, and its gate if it has a breaker without keys."""
        succeeded, delivered, call = (
            self._session.succeeded,
            self._session.events.delivered,
            limit.called,
        )
        run = self._session.events.surrounded(handle)

        def start(message: Message) -> None:
            delivered(message)
            try:
                copy_context().run(call, run, message)  # each handler has a context of its own
            except ENDS_PROGRAM as error:
                self._session.ends_program(message, error)
                raise
            except BaseException as error:
                self._session.failed(message, error)
            else:
                succeeded(message)

        return gated(self._session, start)

    @contextlib.contextmanager
    def process(
        self, method: Any, properties: Any, body: bytes | None, channel: Any = None
    ) -> Iterator[Message]:
        """Returns a context for a message of ``channel.consume`` or ``channel.basic_get``.

            for method, properties, body in channel.consume("cdn-purge"):
                with retrier.process(method, properties, body) as message:
                    purge(message.body)

        The context settles the message. It logs an exception and suppresses it, so that your loop
        goes on.

        :param channel: the message's channel; default: the retrier's channel.
        :raises PoisonError: at its entry: the message crashed its consumers, and waits or is
            parked. ``wrap`` raises nothing then.
        :raises ArgumentTypeError: if there is no message, because basic_get found none.
        :raises Error: if the message is malformed.
        """
        message = self._session.read(method, properties, body, channel)
        if poison := self._session.guard(message):
            self._session.execute(message, poison)
            raise self._session.poison(poison)
        self._session.events.delivered(message)
        try:
            with self._session.events.handling(message):
                yield message
        except (GeneratorExit, *ENDS_PROGRAM) as error:  # the caller's generator may be closed
            self._session.ends_program(message, error)
            raise
        except BaseException as error:
            self.settle(message, error)
        else:
            self.settle(message)

    def read(
        self, method: Any, properties: Any, body: bytes | None, channel: Any = None
    ) -> Message:
        """Returns the message as a handler gets it, if you call the handler yourself, in
        ``handling``.

        Call the handler in any thread. Then give the message to ``settle`` in the connection's
        thread. The poison guard is not used.

        :param channel: the message's channel; default: the retrier's channel.
        :raises ArgumentTypeError: if there is no message.
        """
        message = self._session.read(method, properties, body, channel)
        self._session.events.delivered(message)
        return message

    def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Settles a message of ``read``.

        In another thread: ``connection.add_callback_threadsafe(lambda: retrier.settle(message,
        error))``.

        :param error: None if the handler succeeded, or the exception that it raised.
        :raises ArgumentTypeError: if an argument has another type.
        """
        self._session.check_fork()
        instance("message", message, Message, "give a message of read")
        check_error(error)
        self._session.settle(message, error)

    # Waiting

    @property
    def pending(self) -> int:
        """The number of copies that are not confirmed yet. Their originals are unacknowledged."""
        return self._session.publisher.pending

    def __enter__(self) -> Retrier:
        return self

    def __exit__(self, *_: object) -> None:
        """Drains, with a BlockingConnection."""
        if self._session.blocking is not None and self._session.blocking.is_open:
            self.drain()

    def drain(self, timeout: Seconds | None = None) -> None:
        """Waits until every copy is confirmed and its original acknowledged. BlockingConnection
        only.

        Handlers in threads end first, and callbacks that other threads added by
        ``connection.add_callback_threadsafe`` run. If the connection is closed or lost, it returns:
        the broker delivers the originals again.

        :param timeout: seconds for all of that; default: no limit.
        :raises WaitTimeoutError: if handlers still run, or copies are not confirmed, at the end of
            that time.
        :raises ArgumentTypeError: if the connection is asynchronous.
        """
        self._session.check_fork()
        limit = wait_limit(timeout)
        end = None if limit is None else time.monotonic() + limit
        try:
            self._drain(end)
        except pika.exceptions.AMQPConnectionError:
            if self._session.connection.is_open:
                raise

    def _drain(self, end: float | None) -> None:
        if self._session.blocking is not None:
            run_callbacks(self._session.blocking, lambda: not self._is_busy, end)
            if not self._session.blocking.is_open:
                return
        remaining = None if end is None else max(0.0, end - time.monotonic())
        watch = self._session.publisher.watch

        def is_drained() -> bool:
            return not (self.pending or watch.is_looking or self._session.is_closing_channel)

        run_until(self._session.blocking, is_drained, remaining)
        is_late = end is not None and time.monotonic() >= end
        busy = sum(each.busy for each in self._pools) if is_late else 0  # else a caller's callback
        if self._session.connection.is_open and (self.pending or busy):
            raise self._session.undrained(self.pending + busy)

    @property
    def _is_busy(self) -> bool:
        """Returns whether handlers run in threads, or messages wait for them."""
        return any(each.busy for each in self._pools) or bool(self._pools and self._session.waiting)

    # Replaying

    def replay(
        self, most: int | None = None, callback: Callable[[int, Error | None], None] | None = None
    ) -> int:
        """Moves parked messages back to their work queue, as if they had never failed.

        It ends with the messages that were parked when it began. Then, if the user may read it, it
        looks at the first 10,000 messages of ``topology.unroutable_queue``. It moves this work
        queue's messages back, and leaves the others in order. A message that cannot be moved stays
        in its queue. If its content is the reason, the replay goes on with the next.

        With an asynchronous connection it returns 0 at once. Later it calls back with the number of
        moved messages, and None or the error.

        :param most: the largest number of messages; default: all that are parked when it begins.
        :returns: the number of moved messages.
        :raises PublishError: if a message could not be published.
        :raises FrameError: if a message's own headers exceed the connection's frame_max.
        :raises ContentError: if a message cannot be copied.
        :raises ChannelClosedError: if the broker refuses the content of a copy.
        :raises MissingError: if the parked queue does not exist.
        :raises AccessError: if the user may not read the parked queue.
        :raises ConnectionFailedError: if the connection is closed or lost.
        """
        ends: list[tuple[int, Error | None]] = []

        def done(count: int, error: Error | None) -> None:
            ends.append((count, error))
            self._session.emit_replayed(count, error)
            if self._session.blocking is None and callback:
                callback(count, error)

        self._session.check_fork()
        Replay(self._session, None if most is None else whole("most", most), done).begin()
        if self._session.blocking is None:
            return 0
        cause = None
        try:
            run_until(self._session.blocking, lambda: bool(ends))
        except pika.exceptions.AMQPConnectionError as lost:
            if not ends:
                raise ConnectionFailedError(f"the connection was lost: {lost!r}") from lost
            cause = lost
        count, error = ends[0]
        if error:
            raise error from cause
        return count

    def _replay_unroutable(self, connection: object, done: Callable[[int, int], None]) -> None:
        def ended(count: int, _: Error | None) -> None:
            done(count, replay.foreign)

        replay = Replay(self._session, c.BH_REPLAY_MOST_SHARED, ended, self._session.unroutable)
        replay.begin()
