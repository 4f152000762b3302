"""A client's connections and channels. They keep each frame in the order of its arrival."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp

LIMIT_S = 120.0  # for whatever a step waits for: RabbitMQ 3.10, busy, took 30 s to declare 255 priorities


class Failure(Exception):
    """The broker showed something else than the script has."""


class Closed(Exception):
    """The broker closed a channel: the item of its channel.close."""

    def __init__(self, item: Item):
        super().__init__(f"channel closed: {said(item)}")
        self.item = item


class Ended(Exception):
    """The connection is over. The item is its connection.close; None: it was cut."""

    def __init__(self, item: Item | None):
        super().__init__(f"connection closed: {said(item)}" if item else "connection cut")
        self.item = item


@dataclass
class Item:
    """A method from the broker, with its content."""

    name: str
    fields: dict[str, Any]
    properties: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""


def said(item: Item) -> list[Any]:
    """Returns the code, the text and the method of a close."""
    fields = item.fields
    caused_by = amqp.NAMES.get((fields["class"], fields["method"]), "unknown")
    return [fields["code"], fields["text"], caused_by]


class Channel:
    """A channel and the items that no step took yet."""

    def __init__(self, link: Link, number: int):
        self.link, self.number = link, number
        self.inbox: list[Item] = []
        self.pending: tuple[Item, int] | None = None  # an item whose content is to come
        self.published = 0  # messages since confirm.select
        self.is_confirming = False
        self.is_closed = False

    def send(self, name: str, **fields: Any) -> None:
        self.link.write(amqp.encode_method(self.number, name, **fields))

    async def next(self) -> Item:
        """Waits for the next item and takes it."""
        await self.link.wait(lambda: bool(self.inbox), "something on a channel")
        item = self.inbox.pop(0)
        if item.name == "channel.close":
            self.over()
            raise Closed(item)
        return item

    async def reply(self, name: str) -> Item:
        """Waits for a reply, and leaves the items before it."""
        names = (*name.split(), "channel.close")
        await self.link.wait(lambda: any(each.name in names for each in self.inbox), name)
        item = next(each for each in self.inbox if each.name in names)
        self.inbox.remove(item)
        if item.name == "channel.close":
            self.over()
            raise Closed(item)
        return item

    async def call(self, name: str, **fields: Any) -> Item:
        """Calls a method and waits for its reply. The reply is `name`-ok, but for basic.get."""
        self.send(name, **fields)
        reply = "basic.get-ok basic.get-empty" if name == "basic.get" else f"{name}-ok"
        return await self.reply(reply)

    def over(self) -> None:
        self.is_closed = True
        self.send("channel.close-ok")
        self.link.channels.pop(self.number, None)


class Link:
    """A connection."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 5672
        self.user, self.password = (
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
        )
        self.vhost = unquote(parts.path[1:]) or "/"
        self.channels: dict[int, Channel] = {}
        self.control: list[Item] = []  # of channel 0
        self.closed: Item | None = None
        self.is_over = False
        self.frame_max = 131072
        self.changed = asyncio.Event()
        self.server: dict[str, Any] = {}
        self.tuned: dict[str, int] = {}
        self.stray = b""  # what the broker sent in place of a frame

    async def connect(
        self,
        name: str,
        capabilities: dict[str, bool] | None = None,
        header: bytes = amqp.PROTOCOL,
        mechanism: str = "PLAIN",
        response: Any = None,
        tune: dict[str, int] | None = None,
    ) -> None:
        """Connects. Raises Ended if the broker refuses."""
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        self.task = asyncio.create_task(self.receive())
        self.write(header)
        start = await self.control_reply("connection.start")
        self.server = start.fields
        if capabilities is None:
            capabilities = {
                "publisher_confirms": True,
                "basic.nack": True,
                "consumer_cancel_notify": True,
                "connection.blocked": True,
                "authentication_failure_close": True,
            }
        properties = {
            "product": "Backhop's scripts",
            "connection_name": name,
            "capabilities": {"table": [[key, on] for key, on in capabilities.items()]},
        }
        if response is None:
            response = f"\0{self.user}\0{self.password}"
        self.write(
            amqp.encode_method(
                0,
                "connection.start-ok",
                client_properties=properties,
                mechanism=mechanism,
                response=response,
                locale="en_US",
            )
        )
        offered = (await self.control_reply("connection.tune")).fields
        self.tuned = offered
        chosen = {
            "channel_max": offered["channel-max"],
            "frame_max": self.frame_max,
            "heartbeat": 0,
        }
        chosen.update(tune or {})
        self.frame_max = chosen["frame_max"] or self.frame_max
        self.write(amqp.encode_method(0, "connection.tune-ok", **chosen))
        self.write(amqp.encode_method(0, "connection.open", vhost=self.vhost))
        await self.control_reply("connection.open-ok")

    def write(self, data: bytes) -> None:
        if not self.is_over:
            self.writer.write(data)

    async def receive(self) -> None:
        try:
            while True:
                head = await self.reader.readexactly(7)
                if head[:4] == b"AMQP":
                    self.stray = head + await self.reader.read(1)
                    break
                kind, channel, size = struct.unpack(">BHI", head)
                payload = await self.reader.readexactly(size)
                if await self.reader.readexactly(1) != amqp.END:
                    raise ValueError("the broker sent a frame without its end")
                self.on_frame(kind, channel, payload)
                self.changed.set()
        except (OSError, EOFError):
            pass
        except Exception as error:  # a fault in the broker's frames fails the script
            self.stray = repr(error).encode()
        finally:
            self.is_over = True
            self.changed.set()
            self.writer.close()

    def on_frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == amqp.HEARTBEAT:
            return
        if kind == amqp.METHOD:
            name, fields = amqp.decode_method(payload)
            item = Item(name, fields)
            if number == 0:
                self.control.append(item)
                if name == "connection.close":
                    self.closed = item
                    self.write(amqp.encode_method(0, "connection.close-ok"))
                return
            channel = self.channels.get(number)
            if channel is None:
                if name not in ("channel.close-ok",):
                    raise ValueError(f"{name} on channel {number}, which is closed")
            elif name in amqp.WITH_CONTENT:
                channel.pending = (item, -1)
            else:
                channel.inbox.append(item)
            return
        channel = self.channels[number]
        assert channel.pending, "content without a method"
        item, left = channel.pending
        if kind == amqp.HEADER:
            reader = amqp.Reader(payload)
            reader.take(4)
            left = reader.number(">Q")
            item.properties = amqp.decode_properties(reader)
        else:
            item.body += payload
            left -= len(payload)
        channel.pending = (item, left)
        if left == 0:
            channel.pending = None
            channel.inbox.append(item)

    async def wait(self, is_there: Any, what: str, limit_s: float = LIMIT_S) -> None:
        end = time.monotonic() + limit_s
        while not is_there():
            if self.is_over:
                if self.stray and not self.closed:
                    raise Failure(f"the broker sent {self.stray!r}")
                raise Ended(self.closed)
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), end - time.monotonic())
            except asyncio.TimeoutError:
                raise Failure(f"{what} did not come in {limit_s:.0f} s") from None

    async def control_reply(self, name: str) -> Item:
        await self.wait(lambda: any(each.name == name for each in self.control), name)
        item = next(each for each in self.control if each.name == name)
        self.control.remove(item)
        return item

    async def open(self) -> Channel:
        number = next(each for each in range(1, 2048) if each not in self.channels)
        channel = self.channels[number] = Channel(self, number)
        await channel.call("channel.open")
        return channel

    async def close(self) -> None:
        """Closes in order."""
        if not self.is_over:
            self.write(amqp.encode_method(0, "connection.close", code=200))
            with contextlib.suppress(Ended):
                await self.wait(
                    lambda: any(each.name == "connection.close-ok" for each in self.control),
                    "connection.close-ok",
                )
        await self.cut()

    async def cut(self) -> None:
        if hasattr(self, "task"):
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
