"""Possible faults of the adapters, on a broker: AMQP_URL names it, as tests/broker/broker sets it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import struct
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, control, needs_broker, parameters, until
from support import QUICK, Handler, carriers, there

import backhop
import backhop.aio_pika
import backhop.pika
from backhop import Message
from backhop.adapters.pika.replay import Replay
from backhop.adapters.pika.waiting import run_until

pika = pytest.importorskip("pika")
aio_pika = pytest.importorskip("aio_pika")

import aiormq  # noqa: E402
from aiormq.abc import ChannelFrame  # noqa: E402
from clients import CLIENTS, connected, consuming, each_client  # noqa: E402
from pamqp.body import ContentBody  # noqa: E402
from pamqp.commands import Basic  # noqa: E402
from pamqp.header import ContentHeader  # noqa: E402
from proxy import Proxy  # noqa: E402

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def _collected() -> None:
    """aiormq 6 leaves connections that were cut unclosed: the warnings come here, and not in another test."""
    gc.collect()


async def headers_of(queue: str) -> dict[str, Any]:
    """The next message's headers, as aio-pika reads them."""
    async with await aio_pika.connect(URL) as connection:
        message = await (await (await connection.channel()).get_queue(queue)).get(no_ack=True, timeout=PATIENCE)
        return dict(message.headers)


def on_the_wire(value: Any) -> bytes:
    """A header's value with its type's tag, also where pika cannot write it."""
    if isinstance(value, dict):
        inside = b"".join(bytes([len(name)]) + name.encode() + on_the_wire(each) for name, each in value.items())
        return b"F" + struct.pack(">I", len(inside)) + inside
    if isinstance(value, list):
        inside = b"".join(map(on_the_wire, value))
        return b"A" + struct.pack(">I", len(inside)) + inside
    if isinstance(value, str):
        return b"S" + struct.pack(">I", len(value)) + value.encode()
    if isinstance(value, Decimal):
        return b"D" + struct.pack(">Bi", 2, int(value.scaleb(2)))
    return struct.pack(">cd" if isinstance(value, float) else ">ci", b"d" if isinstance(value, float) else b"I", value)


def bodies(broker: Broker, queue: str, count: int) -> list[bytes]:
    """Takes so many messages out of a queue."""
    taken = []
    for _ in range(count):
        until(lambda: there(broker, queue) > 0)
        taken.append(broker.channel.basic_get(queue, auto_ack=True)[2])
    return taken


# --- What comes back ------------------------------------------------------------------------------


HEADERS: dict[str, Any] = {
    "text": "grün",
    "binary": b"\xff\x00",
    "small": 7,
    "minus": -4711,
    "large": 2**40,
    "true": True,
    "nothing": None,
    "moment": datetime(2026, 1, 2, 3, 4, 5),
    "decimal": Decimal("1.25"),
    "table": {"deep": {"list": [1, "two", {"three": b"\xfe"}, None]}, "empty": {}},
    "list": [],
}
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "priority": 3,
    "correlation_id": "correlation",
    "reply_to": "answers",
    "message_id": "message 1",
    "timestamp": 1_767_323_045,
    "type": "kind",
    "app_id": "shop",
    "cluster_id": "c",
}


@each_client
def test_properties_and_headers_are_kept_with_their_types(client: str, broker: Broker, own_namespace: str) -> None:
    queue, original = broker.queue(), broker.queue()
    for each in (queue, original):
        broker.publish(b"", each, headers=HEADERS, user_id="guest", expiration="600000", delivery_mode=1, **PROPERTIES)
    with consuming(client, URL, queue, Handler(backhop.Park("why")), policy=QUICK, namespace=own_namespace):
        _, parked = broker.get(f"{queue}.parked")
    _, before = broker.get(original)
    kept = {name: value for name, value in parked.headers.items() if name in HEADERS}
    assert kept == before.headers
    assert {name: type(value) for name, value in kept.items()} == {
        name: type(value) for name, value in before.headers.items()
    }
    assert {name: getattr(parked, name) for name in PROPERTIES} == PROPERTIES
    assert (parked.delivery_mode, parked.user_id, parked.expiration) == (2, None, None)
    own = {name: value for name, value in parked.headers.items() if name.startswith("backhop-")}
    assert own.pop("backhop-first-failure") > 1_700_000_000_000
    assert own == {
        "backhop-queue": queue,
        "backhop-attempts": 1,
        "backhop-id": "message 1",
        "backhop-exchange": "",
        "backhop-routing-key": queue,
        "backhop-error": "why",
        "backhop-expiration": "600000",
        "backhop-user-id": "guest",
        "backhop-parked": "permanent",
    }


@each_client
def test_a_header_that_the_client_reads_and_would_not_write_goes_out_as_it_was(
    client: str, broker: Broker, namespace: str
) -> None:
    queue = broker.queue()
    headers: dict[str, Any] = {
        "double": 1e300,
        "list": [-1e39, {"deep": 2.5}],
        "minus": Decimal("-1.25"),
        "n" * 200: "long",
        "small": -7,
    }
    properties = pika.BasicProperties()
    properties.encode = lambda: [b"\x20\0", on_the_wire(headers)[1:]]  # headers alone: pika cannot write all these
    broker.channel.basic_publish("", queue, b"", properties)
    with consuming(client, URL, queue, Handler(backhop.Park("why")), policy=QUICK, namespace=namespace):
        until(lambda: there(broker, f"{queue}.parked") == 1)
    copy = asyncio.run(headers_of(f"{queue}.parked"))
    deep = 2.5 if "aio" in client else 2  # pika reads floats as integers
    assert copy["minus"] in (headers.pop("minus"), Decimal(2**32 - 125).scaleb(-2))  # pamqp does not read its sign
    assert {name: copy[name] for name in headers} == headers | {"list": [-1e39, {"deep": deep}]}
    assert type(copy["double"]) is float


# --- Outcomes -------------------------------------------------------------------------------------


# --- Confirm, then acknowledge --------------------------------------------------------------------


@each_client
def test_a_burst_of_failures_waits_for_no_confirm(client: str, broker: Broker, namespace: str) -> None:
    queue, pending = broker.queue(), []
    for _ in range(80):
        broker.publish(b"", queue)

    def handle(_: Message) -> None:
        pending.append(consumer.retrier.pending)
        raise backhop.Park("why")

    with connected(client, URL, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.declare()
        consumer.begin()
        until(lambda: there(broker, f"{queue}.parked") == 80)
    assert max(pending) > 4
    assert broker.is_empty(queue)


@pytest.mark.long
@each_client
def test_a_broker_that_answers_late_gets_one_copy_more_for_each_timeout_and_not_all_of_them(
    client: str, broker: Broker, namespace: str, proxy: Proxy
) -> None:
    queue, count = broker.queue(), 20
    expected = sorted(str(i).encode() for i in range(count))
    handled: list[bytes] = []
    events: list[backhop.Event] = []

    def handle(message: Message) -> None:
        proxy.hold()
        handled.append(message.body)
        raise backhop.Park("why")

    def timeouts() -> int:
        return sum(event.name == "unconfirmed" for event in events)

    options = {"policy": QUICK, "namespace": namespace, "confirm_timeout": 0.3, "on_event": events.append}
    with connected(client, proxy.url, queue, handle, **options) as consumer:
        consumer.declare()
        broker.publish(expected[0], f"{queue}.parked")
        until(lambda: there(broker, f"{queue}.parked") == 1)
        assert consumer.replay() == 1  # which opens the channel that publishes
        for body in expected[1:]:
            broker.publish(body, queue)
        consumer.begin_together(count)
        until(lambda: timeouts() >= 3 and consumer.retrier.pending == count)
        proxy.release()
        until(lambda: consumer.retrier.pending == 0)
    assert sorted(handled) == expected  # and each was acknowledged: in the queue is none, and none comes again
    assert broker.is_empty(queue)
    parked = bodies(broker, f"{queue}.parked", there(broker, f"{queue}.parked"))
    assert sorted(set(parked)) == expected
    assert count < len(parked) <= count + timeouts()
    assert sum(event.name == "parked" for event in events) == count


@pytest.mark.alone
@pytest.mark.control
@pytest.mark.long
def test_a_copy_that_the_broker_does_not_read_for_want_of_memory_goes_once(
    broker: Broker, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All clients in one test: each would need an alarm of its own, and the time of a confirm timeout."""
    count = 3
    queues = {client: broker.queue() for client in CLIENTS}
    told: dict[str, list[tuple[str, str, int]]] = {client: [] for client in CLIENTS}
    consumers: dict[str, Any] = {}

    def listener(client: str) -> Callable[[backhop.Event], None]:
        def on_event(event: backhop.Event) -> None:
            if event.name in ("blocked", "unblocked"):
                told[client].append((event.name, event.connection, event.count))

        return on_event

    with contextlib.ExitStack() as stack:
        for client, queue in queues.items():
            for i in range(count):
                broker.publish(str(i).encode(), queue)
            options = {"policy": QUICK, "namespace": namespace, "confirm_timeout": 1, "on_event": listener(client)}
            consumer = connected(client, URL, queue, Handler(*[backhop.Park()] * count), **options)
            consumers[client] = stack.enter_context(consumer)
            consumers[client].declare()
        control("set-alarm")
        try:
            for consumer in consumers.values():
                consumer.begin()
            until(lambda: all(told[client] and each.retrier.pending == count for client, each in consumers.items()))
            time.sleep(1.2)  # The confirm timeout passes, and nothing may happen.
            assert "not confirmed" not in caplog.text
            for client, consumer in consumers.items():
                assert consumer.retrier.pending == count, client
                ((name, connection, number),) = told[client]
                assert (name, connection, 1 <= number <= count) == ("blocked", "publish", True), client
        finally:
            control("clear-alarm")
        until(lambda: all(len(told[client]) == 2 and not each.retrier.pending for client, each in consumers.items()))
    assert {each[1][:2] for each in told.values()} == {("unblocked", "publish")}
    assert "not confirmed" not in caplog.text
    for queue in queues.values():
        assert sorted(bodies(broker, f"{queue}.parked", count)) == [b"0", b"1", b"2"]
        assert broker.is_empty(f"{queue}.parked")
        assert broker.is_empty(queue)


@each_client
def test_a_copy_that_cannot_be_encoded_leaves_its_original_and_confuses_no_other(
    client: str, broker: Broker, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = broker.queue()

    def handle(message: Message) -> None:
        if message.body == b"bad":
            adapters: Any = message
            adapters._keep()
            adapters._kept.headers["unknown to AMQP"] = object()
        raise backhop.Park("why")

    with consuming(client, URL, queue, handle, policy=QUICK, namespace=namespace):
        for body in (b"one", b"bad", b"two", b"bad", b"three"):
            broker.publish(body, queue, headers={"number": 1})
        assert set(bodies(broker, f"{queue}.parked", 3)) == {b"one", b"two", b"three"}
        until(lambda: caplog.text.count("it stays unacknowledged") == 2)
    assert bodies(broker, queue, 2) == [b"bad", b"bad"]
    assert broker.is_empty(f"{queue}.parked")


def test_pikas_generator_goes_on_after_a_failure(broker: Broker, namespace: str) -> None:
    queue = broker.queue()
    seen = []
    connection = pika.BlockingConnection(parameters(URL))
    channel = connection.channel()
    retrier = backhop.pika.Retrier(channel, queue, QUICK, namespace=namespace)
    retrier.declare()
    broker.publish(b"one", queue)
    broker.publish(b"poison", queue, headers={"x-delivery-count": 1, "backhop-crashes": 20})
    poisoned = 0
    for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE):
        try:
            with retrier.process(method, properties, body) as message:
                seen.append(message.attempt)
                if message.attempt < 3:
                    raise ValueError
        except backhop.pika.PoisonError:
            poisoned += 1
        if seen == [1, 2, 3]:
            break
    retrier.drain()
    assert channel.consumer_tags
    assert not channel._delivery_confirmation
    connection.close()
    assert poisoned == 1
    assert bodies(broker, f"{queue}.parked", 1) == [b"poison"]
    assert broker.is_empty(queue)


def test_a_handler_of_pika_may_run_in_a_thread(broker: Broker, namespace: str) -> None:
    queue = broker.queue()
    connection = pika.BlockingConnection(parameters(URL))
    channel = connection.channel()
    retrier = backhop.pika.Retrier(channel, queue, QUICK, namespace=namespace)
    retrier.declare()
    for _ in range(10):
        broker.publish(b"", queue)

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        message = retrier.read(method, properties, body, channel)
        settle = partial(retrier.settle, message, backhop.Park("in a thread"))
        threading.Thread(target=connection.add_callback_threadsafe, args=(settle,)).start()

    channel.basic_consume(queue, on_message)
    end = time.monotonic() + PATIENCE
    while there(broker, f"{queue}.parked") < 10:
        connection.process_data_events(0.05)
        assert time.monotonic() < end
    retrier.drain(PATIENCE)
    connection.close()
    assert broker.is_empty(queue)


def test_aio_pikas_iterator_goes_on_after_a_failure(broker: Broker, namespace: str) -> None:
    queue_name = broker.queue()
    broker.publish(b"one", queue_name)
    broker.publish(b"poison", queue_name, headers={"x-delivery-count": 1, "backhop-crashes": 20})

    async def run() -> tuple[list[int], int]:
        seen, poisoned = [], 0
        connection = await aio_pika.connect(URL)
        channel = await connection.channel()
        retrier = backhop.aio_pika.Retrier(channel, queue_name, QUICK, namespace=namespace)
        await retrier.declare()
        queue = await channel.get_queue(queue_name)
        async with queue.iterator(timeout=PATIENCE) as messages:
            async for incoming in messages:
                try:
                    async with retrier.process(incoming) as message:
                        seen.append(message.attempt)
                        if message.attempt < 3:
                            raise ValueError
                except backhop.aio_pika.PoisonError:
                    poisoned += 1
                if len(seen) == 3:
                    break
        await retrier.drain()
        await connection.close()
        return seen, poisoned

    assert asyncio.run(run()) == ([1, 2, 3], 1)
    assert bodies(broker, f"{queue_name}.parked", 1) == [b"poison"]
    assert broker.is_empty(queue_name)


def test_what_finds_aiormqs_queue_full_is_written_once_there_is_room(broker: Broker, namespace: str) -> None:
    queue_name, sink = broker.queue(), broker.queue()
    broker.publish(b"body", queue_name)
    was_full: list[bool] = []

    async def run() -> None:
        connection = await aio_pika.connect(URL)
        channel = await connection.channel()
        retrier = backhop.aio_pika.Retrier(channel, queue_name, QUICK, namespace=namespace)
        await retrier.declare()

        async def handle(message: backhop.aio_pika.Message) -> None:
            if message.attempt == 1:
                raise ValueError("opens the channel that publishes")
            if message.attempt == 3:
                return
            frames = wire.connection.write_queue
            written = asyncio.get_running_loop().create_future()
            frames.put_nowait(ChannelFrame(big, False, written))  # while it is being written nothing else is
            while not frames.empty():
                await asyncio.sleep(0)
            while not frames.full():
                frames.put_nowait(ChannelFrame(b"", False))
            was_full.append(not written.done())
            raise ValueError("in front of a full queue")

        wire = await (await connection.channel(publisher_confirms=False)).get_underlay_channel()
        piece = ContentBody(bytes(100_000))
        big = ChannelFrame.marshall(
            wire.number,
            [Basic.Publish(routing_key=sink), ContentHeader(body_size=12_000_000), *[piece] * 120],
        ).payload
        queue = await channel.get_queue(queue_name)
        done = asyncio.Event()

        async def until_acknowledged(incoming: Any) -> None:
            await on_message(incoming)
            if incoming.headers.get("backhop-attempts") == 2:
                done.set()

        on_message = retrier.wrap(handle)
        await queue.consume(until_acknowledged)
        await asyncio.wait_for(done.wait(), PATIENCE)
        await retrier.drain()
        await connection.close()

    asyncio.run(run())
    assert was_full == [True]
    until(lambda: there(broker, sink) == 1)
    assert broker.is_empty(queue_name)


def test_a_cancelled_handler_gives_its_message_back(broker: Broker, namespace: str) -> None:
    queue_name = broker.queue()
    broker.publish(b"body", queue_name)
    until(lambda: there(broker, queue_name) == 1)

    async def run() -> None:
        connection = await aio_pika.connect(URL)
        channel = await connection.channel()
        retrier = backhop.aio_pika.Retrier(channel, queue_name, QUICK, namespace=namespace)
        queue = await channel.get_queue(queue_name)
        incoming = await queue.get(timeout=PATIENCE)

        async def handle() -> None:
            async with retrier.process(incoming):
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(handle())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await retrier.drain()
        await asyncio.to_thread(until, lambda: there(broker, queue_name) == 1)
        again = await queue.get(timeout=PATIENCE)
        assert again.redelivered
        await again.ack()
        await connection.close()

    asyncio.run(run())


def test_a_cancelled_replay_leaves_the_connection_open(broker: Broker, namespace: str, proxy: Proxy) -> None:
    queue_name = broker.queue()
    passed: list[object] = []

    async def run() -> int:
        connection = await aio_pika.connect(proxy.url)
        channel = await connection.channel()
        retrier = backhop.aio_pika.Retrier(channel, queue_name, QUICK, namespace=namespace)
        await retrier.declare()
        for body in (b"one", b"two"):
            broker.publish(body, f"{queue_name}.parked")
        await asyncio.to_thread(until, lambda: there(broker, f"{queue_name}.parked") == 2)
        publisher = retrier._session.publisher(await retrier._session.wire_connection())
        asyncio.get_running_loop().set_exception_handler(lambda _, about: passed.append(about))
        replaying = asyncio.create_task(retrier.replay())
        while not publisher.pending:
            await asyncio.sleep(0)
        proxy.hold()
        replaying.cancel()
        await asyncio.sleep(0)
        proxy.release()
        with pytest.raises(asyncio.CancelledError):
            await replaying
        while publisher.pending:
            await asyncio.sleep(0.01)
        count = await retrier.replay()
        await connection.close()
        return count

    assert asyncio.run(run()) in (1, 2)  # the first one too, if its channel was closed before its confirm
    assert passed == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell whose task was cancelled")
def test_a_handler_that_awaited_what_was_cancelled_failed(broker: Broker, namespace: str) -> None:
    queue, handler = broker.queue(), Handler()
    broker.publish(b"body", queue)

    async def fail() -> None:
        inner = asyncio.create_task(asyncio.sleep(PATIENCE))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    def handle(message: Message) -> object:
        handler(message)
        return fail() if len(handler.messages) == 1 else None

    with consuming("aio-pika", URL, queue, handle, policy=QUICK, namespace=namespace):
        handler.saw(2)
    assert [message.attempt for message in handler.messages] == [1, 2]
    assert handler.messages[1].last_error == "CancelledError"
    assert broker.is_empty(queue)


def test_after_a_reconnect_no_stale_message_is_acknowledged(broker: Broker, namespace: str, proxy: Proxy) -> None:
    queue = broker.queue()
    seen: list[Message] = []
    broker.publish(b"body", queue)

    async def wait(message: Message) -> None:
        if len(seen) == 1:
            while len(seen) < 2:
                await asyncio.sleep(0.01)
        if len(seen) == 2 and message is seen[0]:
            raise ValueError("stale")

    def handle(message: Message) -> object:
        seen.append(message)
        return wait(message)

    with consuming("aio-pika robust", proxy.url, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        until(lambda: len(seen) == 1)
        proxy.cut()
        until(lambda: len(seen) == 2)
        broker.publish(b"another", queue)
        until(lambda: len(seen) == 3)
        assert not consumer.channel.is_closed
    assert [message.body for message in seen] == [b"body", b"body", b"another"]
    assert not seen[0].redelivered
    assert seen[1].redelivered
    assert broker.is_empty(queue)


@pytest.mark.parametrize("client", carriers("blocking", "select", "aio-pika"))
def test_a_message_whose_channel_is_gone_when_its_handler_ends_is_told_as_stale_alone(
    client: str, broker: Broker, namespace: str
) -> None:
    queue = broker.queue()
    events: list[backhop.Event] = []
    broker.publish(b"body", queue, message_id="m1")

    async def close() -> None:
        await consumer.channel.close()

    def handle(_: Message) -> object:
        return close() if client == "aio-pika" else consumer.channel.close()

    with connected(client, URL, queue, handle, policy=QUICK, namespace=namespace, on_event=events.append) as consumer:
        consumer.declare()
        consumer.begin()
        until(lambda: any(event.name == "stale" for event in events))
    stale = next(event for event in events if event.name == "stale")
    assert stale.id == "m1"
    assert "the broker delivers it again" in stale.text
    assert "succeeded" not in [event.name for event in events]
    until(lambda: there(broker, queue) == 1)


@pytest.mark.parametrize("client", ["blocking", "aio-pika"])
def test_a_drain_that_meets_its_limit_says_how_many_are_not_confirmed(
    client: str, broker: Broker, namespace: str, proxy: Proxy
) -> None:
    queue = broker.queue()

    def handle(_: Message) -> None:
        proxy.hold()
        raise backhop.Park

    with connected(client, proxy.url, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.declare()
        consumer.begin()
        broker.publish(b"body", queue)
        until(lambda: consumer.retrier.pending == 1)
        with pytest.raises(backhop.WaitTimeoutError, match=f'queue "{queue}", 1 message: .*not confirmed'):
            consumer.call(
                (lambda: consumer.retrier.drain(0.1)) if client == "blocking" else consumer.retrier.drain(0.1)
            )
        proxy.release()


# --- Strategies -----------------------------------------------------------------------------------


# --- Declaring and replaying ----------------------------------------------------------------------


@each_client
def test_replaying_ends_with_what_was_parked_when_it_began(
    client: str, broker: Broker, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, count = broker.queue(), 3
    for _ in range(count):
        broker.publish(b"", queue)
    with consuming(
        client, URL, queue, Handler(*[backhop.Park()] * 1000), policy=QUICK, namespace=namespace
    ) as consumer:
        until(lambda: there(broker, f"{queue}.parked") == count)
        with monkeypatch.context() as patch:  # of a quorum queue a busy broker answers a passive declare with 0
            for channel in (pika.channel.Channel, aiormq.Channel):
                patch.setattr(channel, "queue_declare", None)
            assert consumer.replay(0) == 0
            assert consumer.replay() == count
        until(lambda: there(broker, f"{queue}.parked") == count)


@pytest.mark.long
@pytest.mark.parametrize("count", [0, 3])
def test_a_connection_of_pika_closes_after_a_replay(broker: Broker, namespace: str, count: int) -> None:
    queue = broker.queue()
    for _ in range(6):  # the broker's close-ok may be early or late
        connection = pika.BlockingConnection(parameters(URL))
        retrier = backhop.pika.Retrier(connection.channel(), queue, policy=QUICK, namespace=namespace)
        retrier.declare()
        for _ in range(count):
            broker.publish(b"", f"{queue}.parked")
        until(lambda: there(broker, f"{queue}.parked") == count)
        assert retrier.replay() == count
        connection.close()
        with pika.BlockingConnection(parameters(URL)) as connection:
            retrier = backhop.pika.Retrier(connection.channel(), queue, policy=QUICK, namespace=namespace)
            assert retrier.replay() == 0
            retrier.drain()


def test_a_drain_of_pika_waits_for_channels_that_close(broker: Broker, namespace: str) -> None:
    queue = broker.queue()
    with pika.BlockingConnection(parameters(URL)) as connection:
        retrier = backhop.pika.Retrier(connection.channel(), queue, policy=QUICK, namespace=namespace)
        retrier.declare()
        ends: list[Any] = []
        replay = Replay(retrier._session, None, lambda *end: ends.append(end))
        replay.begin()
        run_until(connection, lambda: replay._is_over)
        assert not ends
        retrier.drain(timeout=20)
        assert ends == [(0, None)]


@pytest.mark.parametrize("timeout", [None, 20])
def test_a_drain_of_pika_returns_if_the_connection_is_closed_or_lost(
    broker: Broker, namespace: str, proxy: Proxy, timeout: float | None
) -> None:
    queue = broker.queue()
    for is_lost_meanwhile in (False, True):
        connection = pika.BlockingConnection(parameters(proxy.url))
        channel = connection.channel()
        retrier = backhop.pika.Retrier(channel, queue, policy=QUICK, namespace=namespace)
        retrier.declare()
        broker.publish(b"", queue)
        until(lambda: there(broker, queue) == 1)
        method, properties, body = channel.basic_get(queue)
        if is_lost_meanwhile:
            proxy.hold()
            with retrier.process(method, properties, body):
                raise OSError
            assert retrier.pending == 1
            threading.Timer(0.3, proxy.cut).start()
            retrier.drain(timeout)
            proxy.release()
        else:
            connection.close()
        assert not connection.is_open
        retrier.drain(timeout)
        with retrier:
            pass
        until(lambda: there(broker, queue) == 1)
        broker.channel.queue_purge(queue)


@pytest.mark.parametrize("client", carriers("blocking", "select", "aio-pika", "aio-pika robust"))
def test_calls_on_a_closed_connection_say_so(client: str, broker: Broker, own_namespace: str) -> None:
    ends: list[Any] = []

    def call(begin: Callable[..., Any]) -> None:
        try:
            ends.append(begin())
        except Exception as error:
            ends.append(error)

    async def on_aio_pika() -> None:
        connect = aio_pika.connect if client == "aio-pika" else aio_pika.connect_robust
        connection = await connect(URL)
        retrier = backhop.aio_pika.Retrier(await connection.channel(), broker.queue(), namespace=own_namespace)
        await connection.close()
        for begin in (retrier.declare, retrier.verify, retrier.replay, lambda: retrier.consume(print)):
            try:
                await begin()
            except Exception as error:
                ends.append(error)

    def on_pika() -> None:
        connection = pika.BlockingConnection(parameters(URL))
        retrier = backhop.pika.Retrier(connection.channel(), broker.queue(), namespace=own_namespace)
        connection.close()
        for begin in (
            retrier.declare,
            retrier.verify,
            retrier.replay,
            lambda: retrier.consume(print),
            lambda: retrier.consume(print, threads=2),
        ):
            call(begin)

    def on_asynchronous_pika() -> None:
        def opened(channel: Any) -> None:
            retriers.append(backhop.pika.Retrier(channel, queue, namespace=own_namespace))
            channel.connection.close()

        def closed(connection: Any, _: object) -> None:
            (retrier,) = retriers
            retrier.declare(callback=ends.append)
            retrier.verify(callback=ends.append)
            retrier.replay(callback=lambda _, error: ends.append(error))
            retrier.consume(print, callback=ends.append)
            connection.ioloop.stop()

        queue, retriers = broker.queue(), list[backhop.pika.Retrier]()
        connection = pika.SelectConnection(
            parameters(URL), lambda connection: connection.channel(on_open_callback=opened), on_close_callback=closed
        )
        connection.ioloop.start()
        connection.ioloop.close()

    if "aio-pika" in client:
        asyncio.run(on_aio_pika())
    elif client == "blocking":
        on_pika()
    else:
        on_asynchronous_pika()
    assert len(ends) >= 4
    for error in ends:
        assert isinstance(error, backhop.ConnectionFailedError)
        assert str(error) == "the connection is closed"


@each_client
def test_a_further_queue_of_a_namespace_declares_its_own_part_alone(
    client: str, broker: Broker, own_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for channel in (pika.channel.Channel, aiormq.Channel):
        for what, name in (("exchange_declare", "exchange"), ("queue_declare", "queue")):
            real = getattr(channel, what)

            def declare(self: Any, *names: Any, real: Any = real, name: str = name, **options: Any) -> Any:
                made.append(names[0] if names else options[name])
                return real(self, *names, **options)

            monkeypatch.setattr(channel, what, declare)

    def declared(declare: Callable[[], object]) -> set[str]:
        made.clear()
        declare()
        return set(made)

    queue, sibling = broker.queue(), broker.queue()
    with connected(client, URL, queue, Handler(), policy=QUICK, namespace=own_namespace) as consumer:
        everything = declared(consumer.declare)
        assert everything > {f"{queue}.parked", f"{own_namespace}.return", f"{own_namespace}.wait.100"}
        first = consumer.retrier
        consumer.retrier = type(first)(consumer.channel, sibling, policy=QUICK, namespace=own_namespace)
        assert declared(consumer.declare) == {f"{sibling}.parked"}
        consumer.retrier = first
        assert declared(consumer.declare) == everything  # who declares again doubts
