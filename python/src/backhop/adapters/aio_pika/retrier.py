"""Retrier over aio-pika."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aio_pika

from ... import _backhop as c
from ..._checks import instance, wait_limit, whole
from ..._errors import Error
from ..._exceptions import is_kind
from ..._handlers import check_handler
from ..._times import Seconds
from ...observe.limit import TimeLimit
from ..retrier import BaseRetrier, check_error
from ..session import MAY_BE_POISON
from .channels import AMQP_ERRORS
from .consumers import Consumer
from .gate import AioPikaGate, gated
from .message import Message
from .replay import Replay
from .session import AioPikaSession, is_cancelled


class Retrier(BaseRetrier[aio_pika.abc.AbstractChannel, AioPikaSession]):
    """Acknowledges handled messages, and retries failed ones later.

    Call ``await retrier.drain()`` before you close the connection: messages without a confirm are
    delivered again.
    """

    def _begin(self, channel: aio_pika.abc.AbstractChannel, *parts: Any) -> AioPikaSession:
        session = AioPikaSession(channel, *parts)
        session.replay_unroutable = self._replay_unroutable
        return session

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
        await self._session.declare()

    async def verify(self) -> None:
        """Checks that all exchanges and queues exist, whatever the mode. Declares nothing.

        A rung that only a handler's RetryAfter can need may be missing under mode ``"create"``. It
        is made on demand then, if the user may declare. AMQP cannot check bindings.

        :raises ClashError: if an exchange or queue exists with other arguments.
        :raises MissingError: if something does not exist.
        :raises BrokerError: if the broker cannot serve the strategy.
        """
        await self._session.declare_by(lambda _: self._session.verifying())

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
        consumer = Consumer(self._session, on_message, whole("prefetch", prefetch, 1, 65535), gate)
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
        self._session.follow()
        return on_message

    def _handler(
        self, handle: Callable[[Message], object], limit: TimeLimit
    ) -> tuple[
        Callable[[aio_pika.abc.AbstractIncomingMessage], Coroutine[Any, Any, None]],
        AioPikaGate | None,
    ]:
        """Returns the callback of a consumer, and its gate if it has a breaker without keys."""
        self._session.check_fork()
        check_handler(handle)
        start, gate = gated(self._session, self._starting(handle, limit))

        async def on_message(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
            message = self._session.message(incoming)
            if not await self._session.admitted(message):
                return
            headers = incoming.headers
            if headers and MAY_BE_POISON in headers:
                try:
                    poison = self._session.guard(message)
                except Exception as error:
                    self._session.refuse(message, error)
                    return
                if poison:
                    await self._session.execute(message, poison)
                    return
            await start(message)

        return on_message, gate

    def _starting(
        self, handle: Callable[[Message], object], limit: TimeLimit
    ) -> Callable[[Message], Coroutine[Any, Any, None]]:
        """Returns a coroutine function that calls a handler and settles its message."""
        events, holding = self._session.events, self._session.holding
        run = events.surrounded_async(handle)

        async def start(message: Message) -> None:
            task = asyncio.current_task()
            self._session.running.add(task)
            events.delivered(message)
            began = holding.watch(message)
            try:
                await limit.awaited(run, message)
                await holding.until_closed(message, began)
            except BaseException as error:
                await self._session.failed(message, error)
            else:
                self._session.succeeded(message)  # written soon: nothing after it has to wait
            finally:
                self._session.running.discard(task)

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
        message = self._session.read(incoming)
        if poison := self._session.guard(message):
            await self._session.execute(message, poison)
            raise self._session.poison(poison)
        self._session.events.delivered(message)
        try:
            with self._session.events.handling(message):
                yield message
        except BaseException as error:
            if is_kind(error, GeneratorExit) or is_cancelled(error):
                # The caller is aborted, and the message is not at fault.
                self._session.release(message)
                raise
            await self._session.failed(message, error)
        else:
            await self.settle(message)

    def read(self, incoming: aio_pika.abc.AbstractIncomingMessage) -> Message:
        """Returns the message as a handler gets it, if you call the handler yourself, in
        ``handling``.

        Then give the message to ``settle``. The poison guard is not used.

        :raises ArgumentTypeError: if there is no message, because ``queue.get(fail=False)`` found
            none.
        """
        message = self._session.read(incoming)
        self._session.events.delivered(message)
        return message

    async def settle(self, message: Message, error: BaseException | None = None) -> None:
        """Settles a message of ``read``.

        :param error: None if the handler succeeded, or the exception that it raised.
        :raises ArgumentTypeError: if an argument has another type.
        """
        self._session.check_fork()
        instance("message", message, Message, "give a message of read")
        check_error(error)
        await self._session.settle(message, error)

    # Waiting

    @property
    def pending(self) -> int:
        """The number of copies that are not confirmed yet. Their originals are unacknowledged."""
        return sum(
            publisher.pending for publisher in [*self._session.publishers.values()]
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
            task for task in self._session.running if task is own
        }  # they do not wait for each other
        self._session.running -= drainers
        try:
            await asyncio.wait_for(self._drained(), limit)
        except asyncio.TimeoutError:
            if remaining := self.pending + len(self._session.running):
                raise self._session.undrained(remaining) from None
        finally:
            self._session.running |= drainers

    async def _drained(self) -> None:
        await asyncio.sleep(0)  # messages that arrived before the cancel begin their handlers
        if self._session.running:
            await asyncio.wait(self._session.running)
        await asyncio.gather(
            *(publisher.drain() for publisher in self._session.publishers.values())
        )

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
        replay = Replay(self._session, await self._session.open_connection(), limit)
        try:
            await replay.run()
        finally:
            self._session.emit_replayed(replay.count, replay.error)
        return replay.count

    def _replay_unroutable(self, connection: Any, done: Callable[[int, int], None]) -> None:
        replay = Replay(
            self._session, connection, c.BH_REPLAY_MOST_SHARED, self._session.unroutable
        )

        async def run() -> None:
            try:
                await replay.run()
            except (Error, *AMQP_ERRORS):
                pass  # the next look tries again
            finally:
                done(replay.count, replay.foreign)

        self._session.publisher(connection)._go(run())
