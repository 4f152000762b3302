"""A consumer over each client that there is an adapter for, in a thread of its own, with one face for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import aio_pika
import pika
import pytest
from live import PATIENCE, parameters
from pika.adapters.asyncio_connection import AsyncioConnection
from support import carriers

import backhop
import backhop.aio_pika
import backhop.pika
from backhop import Message

Handle = Callable[[Message], Any]


class Consumer:
    """The interface that the tests use."""

    def __init__(self, url: str, queue: str, handle: Handle, **options: Any) -> None:
        self.url = url
        self.queue = queue
        self.handle = handle
        self.options = options
        self.consuming: dict[str, Any] = {"prefetch": 100}  # options of consume
        self.ready: Future[None] = Future()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.ready.result(PATIENCE)

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as failure:
            self.failure = failure
            if not self.ready.done():
                self.ready.set_exception(failure)

    def run(self) -> None:
        raise NotImplementedError

    def begin_together(self, count: int) -> None:
        """Consumes, and handles nothing before so many messages have come: then all of them."""
        raise NotImplementedError

    def declare(self) -> None:
        raise NotImplementedError

    def verify(self) -> None:
        raise NotImplementedError

    def replay(self, most: int | None = None) -> int:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def failure(handle: Handle, message: Message) -> Exception | None:
    """Returns the exception of the handler."""
    try:
        handle(message)
    except Exception as error:
        return error
    return None


def together(consumer: Any, count: int) -> Callable[[Any, Any, Any, bytes], None]:
    """A callback of pika's that handles nothing before so many messages have come."""
    held: list[backhop.pika.Message] = []

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        held.append(consumer.retrier.read(method, properties, body, channel))
        for message in held if len(held) == count else []:
            consumer.retrier.settle(message, failure(consumer.handle, message))

    return on_message


class Blocking(Consumer):
    def run(self) -> None:
        self.is_over = False
        self.connection = pika.BlockingConnection(parameters(self.url))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=100)
        self.retrier = backhop.pika.Retrier(self.channel, self.queue, **self.options)
        self.ready.set_result(None)
        while not self.is_over:
            self.connection.process_data_events(0.05)
        self.retrier.drain()
        self.connection.close()

    def call(self, function: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self.connection.add_callback_threadsafe(run)
        return done.result(PATIENCE)

    def begin(self, needs_ack: bool = True) -> None:
        def consume() -> None:
            self.channel.basic_consume(self.queue, self.retrier.wrap(self.handle), auto_ack=not needs_ack)

        self.call(consume)

    def begin_together(self, count: int) -> None:
        self.call(lambda: self.channel.basic_consume(self.queue, together(self, count)))

    def begin_by_itself(self) -> None:
        self.consumer = self.call(lambda: self.retrier.consume(self.handle, **self.consuming))

    def cancel(self) -> None:
        self.call(self.consumer.cancel)

    def declare(self) -> None:
        self.call(self.retrier.declare)

    def verify(self) -> None:
        self.call(self.retrier.verify)

    def replay(self, most: int | None = None) -> int:
        return int(self.call(lambda: self.retrier.replay(most)))

    def stop(self) -> None:
        self.is_over = True
        self.join()


class Select(Consumer):
    def connect(self) -> Any:
        return pika.SelectConnection(
            parameters(self.url), self._opened, on_close_callback=lambda connection, _: connection.ioloop.stop()
        )

    def run(self) -> None:
        self.connection = self.connect()
        self.connection.ioloop.start()
        self.connection.ioloop.close()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        channel.basic_qos(prefetch_count=100)
        self.channel = channel
        self.retrier = backhop.pika.Retrier(channel, self.queue, **self.options)
        self.ready.set_result(None)

    def schedule(self, function: Callable[[], None]) -> None:
        self.connection.ioloop.add_callback_threadsafe(function)

    def begin(self, needs_ack: bool = True) -> None:
        done: Future[None] = Future()
        self.schedule(
            lambda: self.channel.basic_consume(
                self.queue,
                self.retrier.wrap(self.handle),
                auto_ack=not needs_ack,
                callback=lambda _: done.set_result(None),
            )
        )
        done.result(PATIENCE)

    def begin_together(self, count: int) -> None:
        done: Future[None] = Future()
        on_message = together(self, count)
        self.schedule(
            lambda: self.channel.basic_consume(self.queue, on_message, callback=lambda _: done.set_result(None))
        )
        done.result(PATIENCE)

    def begin_by_itself(self) -> None:
        def consume(done: Callable[[backhop.Error | None], None]) -> None:
            self.consumer = self.retrier.consume(self.handle, **self.consuming, callback=done)

        self._told(consume)

    def cancel(self) -> None:
        done: Future[None] = Future()

        def cancel() -> None:
            self.consumer.cancel()
            done.set_result(None)

        self.schedule(cancel)
        done.result(PATIENCE)

    def declare(self) -> None:
        self._told(self.retrier.declare)

    def verify(self) -> None:
        self._told(self.retrier.verify)

    def _told(self, begin: Callable[[Callable[[backhop.Error | None], None]], object]) -> None:
        done: Future[backhop.Error | None] = Future()

        def run() -> None:
            begin(done.set_result)

        self.schedule(run)
        if error := done.result(PATIENCE):
            raise error

    def replay(self, most: int | None = None) -> int:
        done: Future[tuple[int, backhop.Error | None]] = Future()

        def begin() -> None:
            self.retrier.replay(most, lambda count, error: done.set_result((count, error)))

        self.schedule(begin)
        count, error = done.result(PATIENCE)
        if error:
            raise error
        return count

    def stop(self) -> None:
        def end() -> None:
            if self.retrier.pending and self.connection.is_open:
                self.connection._adapter_call_later(0.01, end)
            elif self.connection.is_open:
                self.connection.close()

        with contextlib.suppress(Exception):  # its loop may be over by itself
            self.schedule(end)
        self.join()


class Asyncio(Select):
    def connect(self) -> Any:
        self._loop = asyncio.new_event_loop()
        return AsyncioConnection(
            parameters(self.url),
            self._opened,
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
            custom_ioloop=self._loop,
        )

    def run(self) -> None:
        self.connection = self.connect()
        self._loop.run_forever()
        self._loop.close()

    def schedule(self, function: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(function)


class AioPika(Consumer):
    drain: float | None = None  # seconds that handlers may take at the stop

    async def connect(self) -> aio_pika.abc.AbstractConnection:
        return await aio_pika.connect(self.url)

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        self.connection = await self.connect()
        self.channel = await self.connection.channel()
        await self.channel.set_qos(prefetch_count=100)
        self.retrier = backhop.aio_pika.Retrier(self.channel, self.queue, **self.options)
        self.ready.set_result(None)
        await self.over.wait()
        with contextlib.suppress(backhop.WaitTimeoutError):  # then the close aborts the handlers
            await self.retrier.drain(self.drain)
        await self.connection.close()

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    async def _handle(self, message: Message) -> Any:
        result = self.handle(message)
        return await result if asyncio.iscoroutine(result) else result

    def begin(self, needs_ack: bool = True) -> None:
        async def consume() -> None:
            queue = await self.channel.get_queue(self.queue)
            await queue.consume(self.retrier.wrap(self._handle), no_ack=not needs_ack)

        self.call(consume())

    def begin_together(self, count: int) -> None:
        held: list[backhop.aio_pika.Message] = []

        async def on_message(incoming: Any) -> None:
            held.append(self.retrier.read(incoming))
            for message in held if len(held) == count else []:
                await self.retrier.settle(message, failure(self.handle, message))

        async def consume() -> None:
            await (await self.channel.get_queue(self.queue)).consume(on_message)

        self.call(consume())

    def begin_by_itself(self) -> None:
        self.consumer = self.call(self.retrier.consume(self._handle, **self.consuming))

    def cancel(self) -> None:
        self.call(self.consumer.cancel())

    def declare(self) -> None:
        self.call(self.retrier.declare())

    def verify(self) -> None:
        self.call(self.retrier.verify())

    def replay(self, most: int | None = None) -> int:
        return int(self.call(self.retrier.replay(most)))

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.over.set)
        self.join()


class Robust(AioPika):
    async def connect(self) -> aio_pika.abc.AbstractConnection:
        return await aio_pika.connect_robust(self.url, reconnect_interval=0.1)


CLIENTS: dict[str, type[Any]] = {
    "blocking": Blocking,
    "select": Select,
    "asyncio": Asyncio,
    "aio-pika": AioPika,
    "aio-pika robust": Robust,
}
each_client = pytest.mark.parametrize("client", carriers(*CLIENTS))


def break_channel(client: Any, consumer: Any) -> None:
    """Acknowledges an unknown delivery, so that the broker closes the consumer's channel."""
    if isinstance(client, AioPika):
        client.call(consumer._wire.basic_ack(4711))
    elif isinstance(client, Select):
        client.schedule(lambda: consumer._channel.basic_ack(4711))
    else:  # not the BlockingChannel's, which raises if it reads the answer
        client.call(lambda: consumer._channel._impl.basic_ack(4711))


def channels_of(consumer: Any) -> int:
    """Returns the number of open channels of a consumer's connection."""
    if hasattr(consumer, "call") and hasattr(consumer, "loop"):
        wire = consumer.call(consumer.retrier._session.wire_connection())
        return sum(channel is not None for channel in list(wire.channels.values()))
    return sum(channel.is_open for channel in list(consumer.retrier._session.connection._channels.values()))


@contextlib.contextmanager
def connected(kind: str, url: str, queue: str, handle: Handle, **options: Any) -> Iterator[Any]:
    """A consumer that does not consume yet."""
    consumer = CLIENTS[kind](url, queue, handle, **options)
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop()


@contextlib.contextmanager
def consuming(kind: str, url: str, queue: str, handle: Handle, **options: Any) -> Iterator[Any]:
    """A consumer that has declared, and consumes."""
    with connected(kind, url, queue, handle, **options) as consumer:
        consumer.declare()
        consumer.begin()
        yield consumer
