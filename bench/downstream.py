"""The downstream of bench/outage and bench/hosts, and the consumers that call it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pika
from contenders import languages
from pika.adapters.blocking_connection import BlockingChannel

ROOT = Path(__file__).parents[1]
CALL_S = 0.1
CLIENTS = {
    "python": ["pika", "aio-pika", "worker", "worker-serve"],
    "ruby": ["bunny", "worker"],
    "node": ["amqplib", "amqplib-callbacks", "amqp", "worker"],
}


class Downstream:
    """An HTTP server that answers a call after 100 ms, and its counters."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.calls_while_down = self.wrong = self.opened = 0
        self.failures: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.is_done = asyncio.Event()

    def is_down(self, number: int) -> bool:
        """Returns whether a call for this message fails now."""
        raise NotImplementedError

    def succeed(self, number: int) -> None:
        """Notes a successful call for this message."""
        self.done[number] += 1
        if len(self.done) == self.messages:
            self.is_done.set()

    def answer(self, path: str) -> tuple[int, int]:
        """Returns the status for a call of /good/NUMBER/ATTEMPT or /bad/NUMBER/ATTEMPT, and NUMBER.

        /opened/0/0 notes an opened breaker.
        """
        kind, *numbers = path.split("/")[1:]
        number, attempt = map(int, numbers)
        if kind == "opened":
            self.opened += 1
            return 204, number
        if kind != "bad" and attempt != self.failures[number] + 1:
            self.wrong += 1
        if not self.is_down(number):
            return 200, number
        self.calls_while_down += 1
        self.failures[number] += 1
        return 503, number

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):  # the consumer was killed
            writer.close()
            return
        status, number = self.answer(request.split()[1].decode())
        await asyncio.sleep(CALL_S)
        if status == 200:
            self.succeed(number)
        writer.write(f"HTTP/1.1 {status} {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    @property
    def twice(self) -> int:
        """The number of messages that succeeded more than once."""
        return sum(count > 1 for count in self.done.values())


def command(client: str) -> tuple[list[str], dict[str, str]]:
    """Returns the program of a client, and its environment."""
    language, name = client.split("/")
    here = languages(ROOT)[language]
    program = next(iter(here.contenders.values())).command[0]
    where = ROOT / "build/node/default/bench" if language == "node" else ROOT / "bench"
    suffix = {"python": "py", "ruby": "rb", "node": "js"}[language]
    return [program, str(where / f"outage.{suffix}"), name], dict(here.environment)


class Consumer:
    """The process that consumes the queue and calls the downstream."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.words, self.environment = words, environment

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(*self.words, env=self.environment)

    async def end(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        await self.process.wait()


@contextlib.asynccontextmanager
async def consumer(client: str, downstream: Downstream, queue: str, **environment: str) -> AsyncIterator[Consumer]:
    """Serves the downstream, and runs the consumer of the queue that calls it."""
    server = await asyncio.start_server(downstream.serve, "127.0.0.1", 0, backlog=500)
    port = str(server.sockets[0].getsockname()[1])
    words, more = command(client)
    made = Consumer(words, {**os.environ, **more, **environment, "OUTAGE_PORT": port, "OUTAGE_QUEUE": queue})
    await made.start()
    try:
        yield made
    finally:
        await made.end(signal.SIGTERM)
        server.close()


@contextlib.contextmanager
def connected() -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    try:
        yield connection.channel()
    finally:
        connection.close()


def declare(channel: BlockingChannel, queue: str) -> None:
    """Declares an empty work queue."""
    for each in (queue, f"{queue}.parked"):
        channel.queue_delete(each)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1000})


def publish(channel: BlockingChannel, queue: str, number: int) -> None:
    channel.basic_publish("", queue, str(number).encode(), pika.BasicProperties(delivery_mode=2))


def purge_parked(queue: str) -> int:
    """Returns how many messages are parked, and deletes them."""
    with connected() as channel:
        return int(channel.queue_purge(f"{queue}.parked").method.message_count)


def arguments_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the arguments. All programs have --without and CLIENT."""
    known = [f"{language}/{name}" for language, names in CLIENTS.items() for name in names]
    parser.add_argument("--without", action="store_true")
    parser.add_argument("clients", metavar="CLIENT", nargs="*")
    given = parser.parse_args()
    if unknown := set(given.clients) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    given.clients = given.clients or known
    return given
