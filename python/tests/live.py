"""A broker for the live tests: the one that AMQP_URL names, as tests/broker/broker sets it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

import backhop

URL = os.environ.get("AMQP_URL", "")
CONTROL = os.environ.get("BACKHOP_BROKER_CTL", "")  # a program that controls the broker, if it is a private one
IS_MODEL = bool(os.environ.get("BACKHOP_MODEL_URL"))
PATIENCE = 120.0  # seconds that no test takes which passes

needs_broker = pytest.mark.broker
needs_worker = pytest.mark.worker


def parameters(url: str) -> Any:
    """pika's, as patient as the tests."""
    made = pytest.importorskip("pika").URLParameters(url)
    made.socket_timeout = made.stack_timeout = PATIENCE
    return made


def until(is_so: Callable[[], Any]) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def parsed(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@cache
def version() -> tuple[int, ...]:
    """Returns the broker's version; the newest if there is no broker, which the tests then report."""
    if named := os.environ.get("BACKHOP_BROKER_VERSION"):
        return parsed(named)
    pika = pytest.importorskip("pika")
    with suppress(OSError, pika.exceptions.AMQPError), pika.BlockingConnection(parameters(URL)) as connection:
        return parsed(connection._impl.server_properties["version"])
    return parsed("4.3")


def control(*words: str) -> None:
    """Controls a private broker."""
    subprocess.run([CONTROL, *words], check=True, capture_output=True)


LOCKS = "BACKHOP_TEST_LOCKS"  # the variable with their directory, which the processes of pytest-xdist share


@contextmanager
def locked(name: str, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Holds a lock of this run of the tests."""
    with Path(os.environ[LOCKS], name).open("w") as file:  # closing it unlocks
        fcntl.flock(file, kind)
        yield


class Turn:
    """A test's turn on the broker: beside others, or alone."""

    def __init__(self, *, is_alone: bool) -> None:
        self._kind = fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH
        self._stack = ExitStack()

    def __enter__(self) -> None:
        # The door: a test that waits to be alone holds it, so that no other begins meanwhile.
        with locked("door", self._kind):
            self._stack.enter_context(locked("broker", self._kind))

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Broker:
    """Declares, publishes and looks, by pika."""

    def __init__(self, url: str = URL) -> None:
        pika = pytest.importorskip("pika")
        self._pika = pika
        self._url = url
        self._queues: list[str] = []
        self._connect()

    def reconnect(self) -> None:
        """Connects again, after the broker closed the connection."""
        with suppress(self._pika.exceptions.AMQPError):
            self._connection.close()
        self._connect()

    def _connect(self) -> None:
        self._connection = self._pika.BlockingConnection(parameters(self._url))
        self.channel = self._connection.channel()

    def queue(self, arguments: dict[str, Any] | None = None) -> str:
        """A new work queue, a classic one by default."""
        name = f"test-{uuid.uuid4().hex}"
        self.channel.queue_declare(name, durable=True, arguments=arguments or {"x-queue-type": "classic"})
        self._queues += [name, f"{name}.parked"]
        return name

    def insist(self, body: bytes, queue: str) -> None:
        """Publishes until the broker takes it.

        It refuses some while it makes a quorum queue of the name of one that was just deleted.
        """
        channel = self._connection.channel()
        channel.confirm_delivery()
        end = time.monotonic() + PATIENCE
        while True:
            try:
                channel.basic_publish("", queue, body)
                break
            except self._pika.exceptions.NackError:
                assert time.monotonic() < end
        channel.close()

    def publish(
        self,
        body: bytes,
        routing_key: str,
        *,
        exchange: str = "",
        headers: dict[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        """Publishes, and waits for nothing."""
        self.channel.basic_publish(
            exchange, routing_key, body, self._pika.BasicProperties(headers=headers, **properties)
        )

    def get(self, queue: str) -> tuple[bytes, Any]:
        """The next message of a queue, once it is there: body and properties."""
        for method, properties, body in self.channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE):
            assert method is not None, f"nothing came to {queue}"
            self.channel.cancel()
            return body, properties
        raise AssertionError(f"{queue} is gone")

    def count(self, queue: str) -> int:
        """Messages that are ready in a queue. A busy broker may not count the latest of a quorum queue yet."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def consumers(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.consumer_count)

    def holds(self, queue: str, count: int) -> None:
        """Waits until so many messages are ready in a queue."""
        until(lambda: self.count(queue) == count)

    def is_empty(self, queue: str) -> bool:
        """Returns whether a queue has no message, once what its consumers left is back in it. Takes a message else."""
        until(lambda: self.consumers(queue) == 0)
        return self.channel.basic_get(queue, auto_ack=True)[0] is None

    def delete(self, queues: Iterable[str], exchanges: Iterable[str] = ()) -> None:
        """Deletes these if they exist: awaits one answer of the broker, and not one for each."""
        channel = self.channel._impl
        for name in queues:
            channel.queue_delete(name, callback=None)
        for name in exchanges:
            channel.exchange_delete(name, callback=None)
        self.channel.basic_qos()

    def close(self) -> None:
        """Deletes the declared queues."""
        self.delete(self._queues)
        self._connection.close()


@contextmanager
def vhost() -> Iterator[str]:
    """The URL of a new virtual host, for programs that use fixed names.

    On a broker of yours it is AMQP_URL, for one test at a time.
    """
    if not CONTROL:
        with locked("names"):
            yield URL
        return
    name = f"test-{uuid.uuid4().hex}"
    control(
        "eval",
        f'rabbit_vhost:add(<<"{name}">>, <<"a test">>), rabbit_auth_backend_internal:set_permissions(<<"guest">>, '
        f'<<"{name}">>, <<".*">>, <<".*">>, <<".*">>, <<"a test">>).',
    )
    yield urlunsplit(urlsplit(URL)._replace(path=f"/{name}"))
    control("eval", f'rabbit_vhost:delete(<<"{name}">>, <<"a test">>).')


@contextmanager
def running(
    worker: backhop.Worker, handle: Callable[[backhop.Message], Any], *, serves: bool = False
) -> Iterator[None]:
    """Runs a worker in a thread, or serves in an event loop of that thread, and stops it."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            if serves:
                asyncio.run(worker.serve(handle))
            else:
                worker.run(handle)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]
