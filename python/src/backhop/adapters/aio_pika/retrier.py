"""Retrier over aio-pika."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aio_pika
from aiormq.abc import AbstractConnection as WireConnection

from ... import _backhop as c
from ..._checks import instance, wait_limit, whole
from ..._errors import ConnectionFailedError, Error
from ..._exceptions import is_kind
from ..._handlers import ENDS_PROGRAM, check_handler
from ..._times import Seconds
from ...observe.event import Fields
from ...observe.limit import TimeLimit
from ..declaring import CLOSED, Steps, check_broker
from ..retrier import MAY_BE_POISON, check_error
from ..watch import Watch
from .channels import AMQP_ERRORS
from .consumers import Consumer
from .declaring import execute
from .gate import AioPikaGate, gated
from .holding import heartbeat_of
from .message import Message
from .replay import Replay
from .settling import Settling, is_cancelled, shielded


class Retrier(Settling):
    """Acknowledges handled messages, and retries failed ones later.

    Call ``await retrier.drain()`` before you close the connection: messages without a confirm are
    delivered again.

    :param channel: your channel. The retrier declares and consumes on its connection.
    :param queue: the work queue, at most 247 bytes.
    :param policy: the delays of retries and their limits; default: Policy().
    :param topology: replaces queue, policy, and the options from strategy to work_queue_arguments.
    :param strategy: as Topology's: ``"ladder"``, ``"message-ttl"``, ``"reject"``,
        ``"delayed-exchange"`` or ``"native"``.
    :param queue_type: as Topology's; likewise namespace, series, stripes, work_queue and
        work_queue_arguments.
    :param mode: what ``declare`` does: ``"create"`` declares missing things, ``"verify"`` checks
        that all exist, ``"none"`` does nothing. A rung that only a handler's RetryAfter can need is
        made on demand under ``"create"`` alone.
    :param never: exceptions that park a message at once: a class, a predicate, or a list of these.
        A predicate gets the exception and returns True, False, or seconds: the shortest delay of a
        retry.
    :param only: the exceptions that are retried, likewise; all others park at once. Default: all
        are retried.
    :param policies: other policies for the retries of some exceptions, for example ``{RateLimited:
        slow}``. The first matching class or predicate counts. All policies share the count of
        attempts. A topology that you give needs them in its ``policies``.
    :param legacy_counter: as History's; likewise wait_queues.
    :param confirm_timeout: seconds for the broker's confirm, 1 ms to an hour. Then one copy is
        published again, and the others after the broker confirms one.
    :param back_off: delays before a copy is published again, without limits; default: 100 ms,
        doubled up to 10 s, jitter equal.
    :param breaker: stops ``consume`` and ``wrap`` while a downstream is down. Under ``wrap`` the
        consumer is yours: it stays subscribed, and its messages wait in this process.
    :param on_event: called with each Event in the event loop; or a bridge of backhop.prometheus or
        backhop.opentelemetry; or a list of these.
    :param clock: returns seconds since the epoch.
    :param random: returns a given number of random bytes.
    :raises ArgumentError: if an option is wrong.
    :raises InvalidNameError: if a name of a queue cannot be used.
    :raises StrategyError: if the strategy cannot serve the policies, or the breaker has a key and
        the strategy cannot defer a message.
    """

    # Declaring

    async def declare(self) -> None:
        """Declares exchanges, queues and bindings on a channel of its own, or verifies them, by the
        mode.

        :raises ClashError: if an exchange or queue exists with other arguments.
        :raises MissingError: if the work queue does not exist; under mode verify, if anything is
            missing.
        :raises AccessError: if the user may not declare.
        :raises BrokerError: if the broker cannot serve the strategy.
        """
        await self._declare_by(self._declaring)
        self._restores = self._restores or self._mode == "create"

    async def verify(self) -> None:
        """Checks that all exchanges and queues exist, whatever the mode. Declares nothing.

        A rung that only a handler's RetryAfter can need may be missing under mode ``"create"``. It
        is made on demand then, if the user may declare. AMQP cannot check bindings.

        :raises ClashError: if an exchange or queue exists with other arguments.
        :raises MissingError: if something does not exist.
        :raises BrokerError: if the broker cannot serve the strategy.
        """
        await self._declare_by(lambda _: self._verifying())

    async def _declare_by(self, steps: Callable[[WireConnection], Steps]) -> None:
        self._check_fork()
        self._was_declared = True
        connection = await self._open_connection()
        check_broker(self.topology, connection.server_properties)
        await execute(connection, steps(connection))

    def _held(self, connection: WireConnection) -> Fields:
        return self._holding.fields(heartbeat_of(connection))

    async def _wire_connection(self) -> WireConnection:
        return (await self._channel.get_underlay_channel()).connection

    async def _open_connection(self) -> WireConnection:
        """Returns the channel's connection.

        :raises ConnectionFailedError: if it is closed.
        """
        if not self._is_closing():  # else a robust channel would wait for a reconnect
            connection = await self._wire_connection()
            if connection.is_opened:
                return connection
        raise ConnectionFailedError(CLOSED)

    def _follow(self) -> None:
        """Watches the channel's connection, also if no message arrives.

        Outside the event loop, the first message does so.
        """
        is_running = asyncio._get_running_loop() is not None
        if is_running and self._mode != "none" and not self._is_over():
            self._following = asyncio.create_task(self._watch_connection())

    async def _watch_connection(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError, *AMQP_ERRORS):
            connection = await asyncio.wait_for(self._wire_connection(), Watch.pause)
            if not connection.is_closed:
                self._publisher(connection)
                return
        # It is lost, and aio-pika connects again.
        asyncio.get_running_loop().call_later(Watch.pause, self._follow)

    # Handling

    async def consume(
        self,
        handle: Callable[[Message], Awaitable[None] | None],
        *,
        prefetch: int = 100,
        timeout: Seconds | None = None,
    ) -> Consumer:
        """Declares, subscribes to the work queue on a channel of its own, and passes each message
        to ``handle``.

        It subscribes again if the broker cancels the consumer or closes the channel, and, with
        ``connect_robust``, after a reconnect.

        :param handle: called with each Message, as in ``wrap``, up to ``prefetch`` at once.
        :param prefetch: number of unacknowledged messages that the broker delivers, 1 to 65,535.
        :param timeout: seconds that a handler may run, 1 ms to a day. The task of a coroutine
            function is cancelled at the limit. A plain function fails when it returns, even if it
            succeeded. The exception is a TimeoutError. Default: no limit.
        :returns: the consumer, with ``cancel``, ``ready`` and ``state``.
        :raises Error: as declare.
        """
        on_message, gate = self._handler(handle, TimeLimit(timeout))
        consumer = Consumer(self, on_message, whole("prefetch", prefetch, 1, 65535), gate)
        await consumer._start()
        return consumer

    def wrap(
        self, handle: Callable[[Message], Awaitable[None] | None]
    ) -> Callable[[aio_pika.abc.AbstractIncomingMessage], Coroutine[Any, Any, None]]:
        """Returns a callback for your own ``queue.consume`` that passes each message to ``handle``.

        If ``handle`` returns, the message is acknowledged. If it raises, the message is retried
        later, or parked. An awaitable result is awaited. A plain function blocks the event loop
        while it runs. Use the callback for this retrier's queue alone: aio-pika does not report the
        queue of a message. Once a minute the retrier looks for the return exchange.

        :raises ArgumentTypeError: if ``handle`` is not callable, or is a generator function.
        """
        on_message, _ = self._handler(handle, TimeLimit(None))
        self._follow()
        return on_message

    def _handler(
        self, handle: Callable[[Message], object], limit: TimeLimit
    ) -> tuple[
        Callable[[aio_pika.abc.AbstractIncomingMessage], Coroutine[Any, Any, None]],
        AioPikaGate | None,
    ]:
        """Returns the callback of a consumer, and its gate if it has a breaker without keys."""
        self._check_fork()
        check_handler(handle)
        start, gate = gated(self, self._starting(handle, limit))

        async def on_message(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
            message = self._message(incoming)
            if not await self._admitted(message):
                return
            headers = incoming.headers
            if headers and MAY_BE_POISON in headers:
                try:
                    poison = self._guard(message)
                except Exception as error:
                    self._refuse(message, error)
                    return
                if poison:
                    await self._execute(message, poison)
                    return
            await start(message)

        return on_message, gate

    def _starting(
        self, handle: Callable[[Message], object], limit: TimeLimit
    ) -> Callable[[Message], Coroutine[Any, Any, None]]:
        """Returns a coroutine function that calls a handler and settles its message."""
        events, holding = self._events, self._holding
        run = events.surrounded_async(handle)

        async def start(message: Message) -> None:
            task = asyncio.current_task()
            self._running.add(task)
            events.delivered(message)
            began = holding.watch(message)
            try:
                await limit.awaited(run, message)
                await holding.until_closed(message, began)
            except BaseException as error:
                await self._failed(message, error)
            else:
                self._succeeded(
                    message
                )  # written soon: nothing comes after it that would have to wait
            finally:
                self._running.discard(task)

        return start

    @contextlib.asynccontextmanager
    async def process(
        self, incoming: aio_pika.abc.AbstractIncomingMessage
    ) -> AsyncIterator[Message]:
        """Returns a context for a message, in place of aio-pika's ``message.process()``.

        The context settles the message. It logs an exception and suppresses it, so that your loop
        goes on.

        :raises PoisonError: at its entry: the message crashed its consumers, and waits or is
            parked. ``wrap`` raises nothing then.
        :raises Error: if the message is malformed.
        """
        message = self._read(incoming)
        if poison := self._guard(message):
            await self._execute(message, poison)
            raise self._poison(poison)
        self._events.delivered(message)
        try:
            with self._events.handling(message):
                yield message
        except BaseException as error:
            if is_kind(error, GeneratorExit) or is_cancelled(error):
                self._release(message)  # the caller is aborted, and the message is not at fault
                raise
            await self._failed(message, error)
        else:
            await self.settle(message)

    async def _failed(self, message: Message, error: BaseException) -> None:
        self._check_fork()
        if is_kind(error, ENDS_PROGRAM):
            self._ends_program(message, error)
            raise error
        if is_cancelled(error) and self._is_aborted(message):
            self._release(message)
            raise error
        if is_kind(error, GeneratorExit) and asyncio._get_running_loop() is None:
            self._forget_call(message)
            raise error  # a coroutine that its loop left behind is closed
        await self.settle(message, error)

    def read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        """Returns the message as a handler gets it, if you call the handler yourself, in
        ``handling``.

        Then give the message to ``settle``. The poison guard is not used.

        :raises ArgumentTypeError: if there is no message, because ``queue.get(fail=False)`` found
            none.
        """
        message = self._read(incoming)
        self._events.delivered(message)
        return message

    async def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Settles a message of ``read``.

        :param error: None if the handler succeeded, or the exception that it raised.
        :raises ArgumentTypeError: if an argument has another type.
        """
        self._check_fork()
        instance("message", message, Message, "give a message of read")
        check_error(error)
        if error is None:
            if written := self._succeeded(message):
                await shielded(written)
            return
        try:
            plan = self._plan(message, error)
        except Error as problem:
            self._refuse(message, problem)
        else:
            await self._execute(message, plan, error)

    # Waiting

    @property
    def pending(self) -> int:
        """The number of copies that are not confirmed yet. Their originals are unacknowledged."""
        return sum(
            publisher.pending for publisher in [*self._publishers.values()]
        )  # a copy: in any thread

    async def __aenter__(self) -> Retrier:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Waits for the handlers that run, and then until every copy is confirmed and its original
        acknowledged.

        Cancel the consumer first. A handler that still runs after ``timeout`` is aborted when the
        connection closes: its message goes back to the queue.

        :param timeout: seconds for both; default: no limit.
        :raises WaitTimeoutError: if handlers still run, or copies are not confirmed, at the end of
            that time.
        """
        limit = wait_limit(timeout)
        own = asyncio.current_task()
        drainers = {
            task for task in self._running if task is own
        }  # they do not wait for each other
        self._running -= drainers
        try:
            await asyncio.wait_for(self._drained(), limit)
        except asyncio.TimeoutError:
            if remaining := self.pending + len(self._running):
                raise self._undrained(remaining) from None
        finally:
            self._running |= drainers

    async def _drained(self) -> None:
        await asyncio.sleep(0)  # messages that arrived before the cancel begin their handlers
        if self._running:
            await asyncio.wait(self._running)
        await asyncio.gather(*(publisher.drain() for publisher in self._publishers.values()))

    # Replaying

    async def replay(self, most: int | None = None) -> int:
        """Moves parked messages back to their work queue, as if they had never failed.

        It ends with the messages that were parked when it began. Then, if the user may read it, it
        looks at the first 10,000 messages of ``topology.unroutable_queue``. It moves this work
        queue's messages back, and leaves the others in order. A message that cannot be moved stays
        in its queue. If its content is the reason, the replay goes on with the next.

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
        limit = None if most is None else whole("most", most)
        replay = Replay(self, await self._open_connection(), limit)
        try:
            await replay.run()
        finally:
            self._emit_replayed(replay.count, replay.error)
        return replay.count

    def _replay_unroutable(self, connection: Any, done: Callable[[int, int], None]) -> None:
        replay = Replay(self, connection, c.BH_REPLAY_MOST_SHARED, self._unroutable)

        async def run() -> None:
            try:
                await replay.run()
            except (Error, *AMQP_ERRORS):
                pass  # the next look tries again
            finally:
                done(replay.count, replay.foreign)

        self._publisher(connection)._go(run())
