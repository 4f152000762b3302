"""A small AMQP 0-9-1 server that misbehaves as its scenario defines, and accounts for its answers.

It answers each method of a client. A scenario replaces answers by name (`Scenario.answers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amqp import BODY, HEADER, METHOD, content, long, method, short, table

CANARY = "CANARYpw"
PREFETCH = 20  # of the clients; after basic.consume as many messages are delivered


class Cut(bytes):
    """Bytes to send before the socket is closed."""


class Reset(bytes):
    """Bytes to send before the connection is reset."""


# -------------------------------------------------------------------------------------- encoding


def start(
    mechanisms: bytes = b"PLAIN AMQPLAIN",
    product: bytes = b"RabbitMQ",
    version: bytes = b"4.3.6",
    properties: bytes | None = None,
    cluster: bytes = b"rogue@host",
) -> bytes:
    """connection.start."""
    if properties is None:
        texts = {"product": product, "version": version, "cluster_name": cluster}
        capabilities = b"F" + table({"publisher_confirms": b"t\1", "basic.nack": b"t\1"})
        fields = {name: b"S" + long(text) for name, text in texts.items()}
        properties = table({**fields, "capabilities": capabilities})
    return method(0, 10, 10, b"\0\x09" + properties + long(mechanisms) + long("en_US"))


def tune(channels: int = 2047, frame_max: int = 131072, heartbeat: int = 60) -> bytes:
    return method(0, 10, 30, struct.pack(">HIH", channels, frame_max, heartbeat))


def message_properties(message_id: str, headers: bytes | None = None) -> bytes:
    if headers is None:
        return struct.pack(">H", 1 << 7) + short(message_id)
    return struct.pack(">H", 1 << 13 | 1 << 7) + headers + short(message_id)


def message_id_of(properties: bytes) -> str:
    """The message-id of a content header's properties; "": none."""
    flags, at = struct.unpack(">H", properties[:2])[0], 2
    for bit in range(15, 6, -1):
        if not flags & 1 << bit:
            continue
        if bit == 13:
            at += 4 + struct.unpack(">I", properties[at : at + 4])[0]
        elif bit in (12, 11):
            at += 1
        elif bit == 7:
            return properties[at + 1 : at + 1 + properties[at]].decode("utf-8", "replace")
        else:
            at += 1 + properties[at]
    return ""


# -------------------------------------------------------------------------------------- scenarios

# answer(peer, channel, honest) -> bytes; Cut or Reset end the connection
Answer = Callable[["Peer", int, bytes], Any]


@dataclass
class Scenario:
    """One way to misbehave.

    :param answers: replacements, by the name of the honest answer (`Peer.reply`)
    :param until: the condition that ends the run
    :param check: returns the problem after the run; "": none
    :param pace: bytes that are sent at a time, and the seconds between them
    """

    name: str
    answers: dict[str, Answer | bytes] = field(default_factory=dict)
    until: Callable[[Any], bool] | None = None
    check: Callable[[Any], str] | None = None
    pace: tuple[int, float] | None = None
    takes: bool = True  # whether the client takes messages
    is_patient: bool = False  # waits long for confirms, as much has to be sent
    most_mib: int = 160  # resident memory of the C client, with the sanitizer's own
    most_connects: int = 40
    is_for_python: bool = True
    is_for_command: bool = True  # whose limits for an answer are 10 and 30 s


# ------------------------------------------------------------------------------------ connections


@dataclass
class Publishing:
    """A channel that the client publishes on."""

    ids: list[str] = field(default_factory=list)
    is_confirming: bool = False
    left: int = -1  # bytes of the body that are still to come; -1: no content is expected
    properties: bytes = b""


class Peer:
    """One connection of a client."""

    def __init__(self, broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.broker, self.reader, self.writer = broker, reader, writer
        self.number = broker.connects
        self.delivered: dict[int, dict[int, list[str]]] = {}  # by channel and tag
        self.publishing: dict[int, Publishing] = {}
        self.consumer_tag = b""
        self.seen: dict[str, int] = {}  # how often each answer was given

    # what the account needs to know

    def deliver(
        self,
        channel: int,
        tag: int,
        body: bytes = b"body",
        properties: bytes | None = None,
        size: int | None = None,
        exchange: bytes = b"",
        key: bytes = b"work",
        consumer: bytes | None = None,
        redelivered: bool = False,
        mark: str = "",
    ) -> bytes:
        """A delivery with a message-id of its own, which begins with `mark`."""
        message_id = f"{mark}m{self.broker.next_id}"
        self.broker.next_id += 1
        self.delivered.setdefault(channel, {}).setdefault(tag, []).append(message_id)
        properties = message_properties(message_id) if properties is None else properties
        consumer = self.consumer_tag if consumer is None else consumer
        arguments = (
            short(consumer) + struct.pack(">Q?", tag, redelivered) + short(exchange) + short(key)
        )
        return method(channel, 60, 60, arguments) + content(channel, properties, body, size)

    def confirm(self, channel: int, tag: int, multiple: bool = False, is_ack: bool = True) -> bytes:
        """A confirm. Copies that it covers are confirmed from now on."""
        ids = self.publishing[channel].ids if channel in self.publishing else []
        covered = ids[: tag or None] if multiple else ids[tag - 1 : tag] if tag else []
        if is_ack:
            self.broker.confirmed.update(covered)
        return method(channel, 60, 80 if is_ack else 120, struct.pack(">QB", tag, multiple))

    def on_settled(self, channel: int, tag: int, multiple: bool, is_ack: bool) -> None:
        delivered = self.delivered.get(channel, {})
        for each in [
            each for each in delivered if each == tag or (multiple and (each < tag or tag == 0))
        ]:
            for message_id in delivered.pop(each):
                if not is_ack:
                    self.broker.requeues += 1
                    continue
                self.broker.acks += 1
                if message_id not in self.broker.confirmed:
                    self.broker.early.append(message_id)

    # sending

    async def send(self, data: bytes) -> None:
        size, pause = self.broker.scenario.pace or (len(data) or 1, 0)
        is_paced = self.broker.scenario.pace is not None
        self.broker.paced_sends += is_paced
        try:
            for at in range(0, len(data), size):
                self.writer.write(data[at : at + size])
                await self.writer.drain()
                if is_paced:
                    await asyncio.sleep(pause)
        finally:
            self.broker.paced_sends -= is_paced
        if isinstance(data, Reset):
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
            self.writer.transport.abort()
        if isinstance(data, (Cut, Reset)):
            raise ConnectionError

    async def reply(self, name: str, channel: int, honest: bytes) -> None:
        """Sends an answer, or what the scenario has in its place."""
        self.seen[name] = self.seen.get(name, 0) + 1
        answer: Any = self.broker.scenario.answers.get(name, honest)
        if callable(answer):
            answer = answer(self, channel, honest)
            if inspect.isawaitable(answer):
                answer = await answer
        await self.send(answer)

    # receiving

    async def serve(self) -> None:
        await self.reader.readexactly(8)
        await self.reply("start", 0, start())
        while True:
            kind, channel, size = struct.unpack(">BHI", await self.reader.readexactly(7))
            payload = await self.reader.readexactly(size)
            await self.reader.readexactly(1)
            if CANARY.encode() in payload:
                self.broker.passwords += 1
            if kind == METHOD:
                class_id, method_id = struct.unpack(">HH", payload[:4])
                await self.on_method(channel, (class_id, method_id), payload[4:])
            elif kind in (HEADER, BODY) and channel in self.publishing:
                await self.on_content(channel, kind, payload)

    REPLIES = {
        (10, 31): ("", None),
        (10, 40): ("open-ok", (10, 41, b"\0")),
        (10, 51): ("", None),
        (20, 10): ("channel.open-ok", (20, 11, b"\0\0\0\0")),
        (20, 40): ("channel.close-ok", (20, 41, b"")),
        (20, 41): ("", None),
        (40, 10): ("exchange.declare-ok", (40, 11, b"")),
        (40, 20): ("exchange.delete-ok", (40, 21, b"")),
        (40, 30): ("exchange.bind-ok", (40, 31, b"")),
        (40, 40): ("exchange.unbind-ok", (40, 51, b"")),
        (50, 20): ("queue.bind-ok", (50, 21, b"")),
        (50, 30): ("queue.purge-ok", (50, 31, b"\0\0\0\0")),
        (50, 40): ("queue.delete-ok", (50, 41, b"\0\0\0\0")),
        (50, 50): ("queue.unbind-ok", (50, 51, b"")),
        (60, 10): ("qos-ok", (60, 11, b"")),
        (60, 70): ("get", (60, 72, b"\0")),
        (60, 110): ("recover-ok", (60, 111, b"")),
    }

    async def on_method(self, channel: int, which: tuple[int, int], arguments: bytes) -> None:
        if which in self.REPLIES:
            name, honest = self.REPLIES[which]
            if honest:
                await self.reply(name, channel, method(channel, *honest))
        elif which == (10, 11):
            await self.reply("tune", 0, tune())
        elif which == (10, 50):
            await self.reply("close-ok", 0, Cut(method(0, 10, 51)))
        elif which == (50, 10):
            queue = arguments[3 : 3 + arguments[2]]
            await self.reply(
                "queue.declare-ok", channel, method(channel, 50, 11, short(queue) + b"\0" * 8)
            )
        elif which == (60, 20):
            await self.on_consume(channel, arguments)
        elif which == (60, 30):
            await self.reply(
                "cancel-ok", channel, method(channel, 60, 31, short(self.consumer_tag))
            )
        elif which == (60, 40):
            self.publishing.setdefault(channel, Publishing()).left = 0
        elif which in ((60, 80), (60, 120)):
            tag, bits = struct.unpack(">QB", arguments[:9])
            self.on_settled(channel, tag, bool(bits & 1), which == (60, 80))
            await self.reply("ack" if which == (60, 80) else "nack", channel, b"")
        elif which == (60, 90):
            self.on_settled(channel, struct.unpack(">Q", arguments[:8])[0], False, False)
        elif which == (85, 10):
            self.publishing[channel] = Publishing(is_confirming=True)
            await self.reply("select-ok", channel, method(channel, 85, 11))

    async def on_consume(self, channel: int, arguments: bytes) -> None:
        at = 3 + arguments[2]
        self.consumer_tag = arguments[at + 1 : at + 1 + arguments[at]]
        await self.reply("consume-ok", channel, method(channel, 60, 21, short(self.consumer_tag)))
        answers = self.broker.scenario.answers
        honest = b""
        if "deliveries" not in answers:
            honest = b"".join(self.deliver(channel, tag) for tag in range(1, PREFETCH + 1))
        await self.reply("deliveries", channel, honest)

    async def on_content(self, channel: int, kind: int, payload: bytes) -> None:
        publishing = self.publishing[channel]
        if kind == HEADER:
            publishing.left = struct.unpack(">Q", payload[4:12])[0]
            publishing.properties = payload[12:]
        else:
            publishing.left -= len(payload)
        if publishing.left == 0:
            publishing.ids.append(message_id_of(publishing.properties))
            publishing.left = -1
            if not publishing.is_confirming:
                return
            tag = len(publishing.ids)
            # an honest confirm is accounted only if it is sent
            is_honest = "confirm" not in self.broker.scenario.answers
            await self.reply("confirm", channel, self.confirm(channel, tag) if is_honest else b"")


class Broker:
    """The server of one scenario, and its account."""

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.connects = self.acks = self.requeues = self.passwords = 0
        self.looks: int | None = None  # for the work queue, since the consumer was cancelled
        self.paced_sends = 0  # in flight
        self.problems: list[str] = []
        self.next_id = 1
        self.confirmed: set[str] = set()
        self.early: list[str] = []  # acknowledged before their copies were confirmed
        self.tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Broker:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.tasks.add(task)
        self.connects += 1
        try:
            await Peer(self, reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception as error:
            self.problems.append(f"the rogue broker failed: {error!r}")
        finally:
            self.tasks.discard(task)
            with contextlib.suppress(ConnectionError):
                writer.close()
