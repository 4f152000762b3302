"""A broker for the live tests: the one that AMQP_URL names, as tests/broker/broker sets it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import backhop

URL = os.environ.get("AMQP_URL", "")
PATIENCE = 120.0  # seconds that no test takes which passes

needs_broker = pytest.mark.broker
needs_worker = pytest.mark.skipif(not backhop.build_info().worker, reason="built without librabbitmq")


def parameters(url: str) -> Any:
    """pika's, as patient as the tests."""
    made = pytest.importorskip("pika").URLParameters(url)
    made.socket_timeout = made.stack_timeout = PATIENCE
    return made


class Broker:
    """Declares, publishes and looks, by pika."""

    def __init__(self) -> None:
        pika = pytest.importorskip("pika")
        self._pika = pika
        self._queues: list[str] = []
        self._connect()

    def reconnect(self) -> None:
        """Connects again, after the broker closed the connection."""
        with suppress(self._pika.exceptions.AMQPError):
            self._connection.close()
        self._connect()

    def _connect(self) -> None:
        self._connection = self._pika.BlockingConnection(parameters(URL))
        self.channel = self._connection.channel()

    def queue(self, suffix: str = "") -> str:
        """A new work queue."""
        name = f"test-{uuid.uuid4().hex}{suffix}"
        self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": "classic"})
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
        """Messages that are ready in a queue."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def close(self) -> None:
        """Deletes the declared queues."""
        for name in self._queues:
            self.channel.queue_delete(name)
        self._connection.close()


@contextmanager
def running(
    worker: backhop.Worker, handle: Callable[[backhop.Message], object], *, serves: bool = False
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
