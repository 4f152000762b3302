"""Stops: what a drain waits for. Consumers that the broker cancels: their channels and handlers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, control, needs_broker, parameters, running, until
from support import QUICK, TIMES_OUT, Handler, carriers, there

import backhop

pika = pytest.importorskip("pika")
pytest.importorskip("aio_pika")

import aiormq  # noqa: E402
from clients import CLIENTS, connected, each_client  # noqa: E402

import backhop.pika  # noqa: E402

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]


def names(events: list[backhop.Event]) -> list[str]:
    return [event.name for event in list(events)]


# --- P4-3: a stop waits for the handlers that run -------------------------------------------------


class Slow:
    """A handler that ends when the test lets it."""

    def __init__(self) -> None:
        self.began: list[bytes] = []
        self.ended: list[bytes] = []
        self.may_end = threading.Event()

    def __call__(self, message: backhop.Message) -> None:
        self.began.append(message.body)
        assert self.may_end.wait(PATIENCE)
        self.ended.append(message.body)
        if message.body == b"fails":
            raise backhop.Park("why")

    async def asynchronously(self, message: backhop.Message) -> None:
        await asyncio.to_thread(self, message)


@contextlib.contextmanager
def stopping(carrier: str, queue: str, slow: Slow, **options: Any) -> Iterator[Callable[[], None]]:
    """Consumes by a carrier. Gives a function that stops it, as the page on deploys has it."""
    if carrier.startswith("worker"):
        worker = backhop.Worker(URL, queue, threads=3, drain=PATIENCE, **options)
        serves = carrier == "worker serve"
        with running(worker, slow.asynchronously if serves else slow, serves=serves):
            yield worker.stop
        return
    client = carrier.split(" ", maxsplit=1)[0]
    handle: Any = slow.asynchronously if client == "aio-pika" else slow
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.declare()
        if carrier.endswith("wrap"):
            consumer.begin()
            yield lambda: None  # the application's consumer; the end drains
        elif carrier.endswith("context"):
            done = threading.Event()

            async def consume() -> None:
                async with consumer.retrier, await consumer.retrier.consume(handle):
                    await asyncio.to_thread(done.wait, PATIENCE)

            ending = asyncio.run_coroutine_threadsafe(consume(), consumer.loop)
            yield done.set
            ending.result(PATIENCE)
        else:
            consumer.consuming.update({"threads": 3} if carrier.endswith("threads") else {})
            consumer.begin_by_itself()
            yield consumer.cancel
    # Its end drains, and closes the connection.


@pytest.mark.parametrize(
    "carrier",
    carriers("blocking threads", "aio-pika consume", "aio-pika wrap", "aio-pika context", "worker run", "worker serve"),
)
def test_P4_3_a_stop_waits_for_the_handlers_that_run(carrier: str, broker: Broker, namespace: str) -> None:
    queue, slow = broker.queue(), Slow()
    for body in (b"1", b"2", b"fails"):
        broker.publish(body, queue)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stopping(carrier, queue, slow, policy=QUICK, namespace=namespace))
        until(lambda: len(slow.began) == 3)
        stop()
        threading.Timer(0.3, slow.may_end.set).start()  # the stop has nothing to do until then
    assert sorted(slow.ended) == [b"1", b"2", b"fails"]
    assert broker.is_empty(queue)
    assert broker.get(f"{queue}.parked")[0] == b"fails"


def test_P4_3_a_drain_over_aio_pika_waits_within_its_limit(broker: Broker, namespace: str) -> None:
    queue, slow = broker.queue(), Slow()
    broker.publish(b"body", queue)
    with connected("aio-pika", URL, queue, slow.asynchronously, policy=QUICK, namespace=namespace) as consumer:
        consumer.begin_by_itself()
        until(lambda: slow.began)
        consumer.cancel()
        began = time.monotonic()
        with pytest.raises(backhop.WaitTimeoutError, match=f'queue "{queue}", 1 message: .*not settled'):
            consumer.call(consumer.retrier.drain(0.2))
        assert time.monotonic() - began >= 0.19
        assert not slow.ended
        slow.may_end.set()
    assert slow.ended == [b"body"]
    assert broker.is_empty(queue)


def test_P4_3_a_drain_over_pika_waits_for_threads_within_its_limit(broker: Broker, namespace: str) -> None:
    queue, slow = broker.queue(), Slow()
    broker.publish(b"body", queue)
    with pika.BlockingConnection(parameters(URL)) as connection:
        retrier = backhop.pika.Retrier(connection.channel(), queue, QUICK, namespace=namespace)
        consumer = retrier.consume(slow, threads=1)
        while not slow.began:
            connection.process_data_events(0.01)
        consumer.cancel()
        with pytest.raises(backhop.WaitTimeoutError, match=f'queue "{queue}", 1 message: .*not settled'):
            retrier.drain(0.2)
        assert not slow.ended
        slow.may_end.set()
        retrier.drain(PATIENCE)
    assert slow.ended == [b"body"]
    assert broker.is_empty(queue)


def test_P4_3_a_handler_that_drains_does_not_wait_for_itself(broker: Broker, namespace: str) -> None:
    queue, handler = broker.queue(), Handler()
    broker.publish(b"body", queue)

    async def handle(message: backhop.Message) -> None:
        await consumer.retrier.drain()
        handler(message)

    with connected("aio-pika", URL, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.begin_by_itself()
        handler.saw(1)
    assert broker.is_empty(queue)


@pytest.mark.alone
@pytest.mark.control
@pytest.mark.long
def test_F3_a_stop_keeps_its_limits_during_an_alarm(broker: Broker, namespace: str) -> None:
    """All clients in one test: each would need an alarm of its own."""
    policy = backhop.Policy(kind="fixed", initial=0.1, jitter="none", max_attempts=1000)
    events: dict[str, list[backhop.Event]] = {client: [] for client in CLIENTS}
    consumers: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for client in CLIENTS:
            queue, handler = broker.queue(), Handler(*[RuntimeError("507")] * 1000)
            options: Any = {"policy": policy, "namespace": namespace, "on_event": events[client].append}
            consumers[client] = stack.enter_context(connected(client, URL, queue, handler, **options))
            consumers[client].begin_by_itself()
            broker.publish(b"body", queue)
            until(lambda: "retried" in names(events[client]))  # noqa: B023
        control("set-alarm")
        try:
            for client, consumer in consumers.items():
                until(lambda: "blocked" in names(events[client]))  # noqa: B023
                until(lambda: consumer.retrier.pending)  # noqa: B023
                began = time.monotonic()
                consumer.cancel()
                assert consumer.consumer.state == "stopped"
                drain: Any = consumer.retrier.drain
                if client == "blocking" or "aio-pika" in client:
                    with pytest.raises(backhop.WaitTimeoutError):
                        consumer.call(partial(drain, 0.2) if client == "blocking" else drain(0.2))
                assert time.monotonic() - began < PATIENCE / 4, client
        finally:
            control("clear-alarm")


# --- W1: a consumer that the broker cancelled -----------------------------------------------------


@pytest.mark.parametrize("client", carriers("aio-pika", "aio-pika robust"))
def test_W1_a_handler_runs_on_if_the_broker_cancels_its_consumer(
    client: str,
    broker: Broker,
    namespace: str,
) -> None:
    queue, events, slow = broker.queue(), list[backhop.Event](), Slow()
    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    with connected(client, URL, queue, slow.asynchronously, **options) as consumer:
        consumer.begin_by_itself()
        broker.publish(b"body", queue)
        until(lambda: slow.began)
        old = consumer.consumer._wire
        broker.channel.queue_delete(queue)
        until(lambda: old.is_closed)
        slow.may_end.set()
        until(lambda: "stale" in names(events))
        broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
        until(lambda: names(events).count("connected") == 2)
    assert slow.ended == [b"body"]
    assert "retried" not in names(events)


@pytest.mark.parametrize("client", carriers("aio-pika", "aio-pika robust"))
def test_W1_a_cancel_that_comes_late_on_the_channel_that_was_left_changes_nothing(
    client: str, broker: Broker, namespace: str
) -> None:
    queue, events, handler = broker.queue(), list[backhop.Event](), Handler()
    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    with connected(client, URL, queue, handler, **options) as consumer:
        consumer.begin_by_itself()
        old, tag = consumer.consumer._wire, consumer.consumer._tag
        broker.channel.queue_delete(queue)
        until(lambda: "cancelled" in names(events))
        broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
        until(lambda: names(events).count("connected") == 2)
        before = names(events)
        consumer.call(old.frames.put((0, aiormq.spec.Basic.Cancel(consumer_tag=tag))))
        broker.publish(b"body", queue)
        handler.saw(1)
        assert consumer.consumer.state == "ready"
    for name in ("cancelled", "connected"):
        assert names(events).count(name) == before.count(name)


@pytest.mark.since("4.3")  # before, the broker keeps the message until the client has closed the channel
@pytest.mark.long
@pytest.mark.parametrize("is_single", [True, False])
@each_client
def test_W1_a_handler_that_outlasts_the_consumer_timeout_stops_no_other_message(
    client: str, is_single: bool, broker: Broker, namespace: str
) -> None:
    queue = broker.queue({**TIMES_OUT, "x-single-active-consumer": is_single})
    events, handled = list[backhop.Event](), list[bytes]()

    def wait(message: backhop.Message) -> None:
        if message.body == b"slow" and b"slow" not in handled:
            handled.append(message.body)
            until(lambda: "cancelled" in names(events) if in_thread else there(broker, queue) == 7)
            return
        handled.append(message.body)

    async def wait_in_thread(message: backhop.Message) -> None:
        await asyncio.to_thread(wait, message)

    in_thread = client == "blocking" or client.startswith("aio-pika")
    handle: Any = wait_in_thread if client.startswith("aio-pika") else wait
    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    sent = [b"slow", *(b"%d" % i for i in range(6))]
    for body in sent:
        broker.publish(body, queue, message_id=body.decode())
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.consuming = {"prefetch": 1, **({"threads": 1} if client == "blocking" else {})}
        consumer.begin_by_itself()
        until(lambda: set(handled) == set(sent))
        until(lambda: broker.consumers(queue) == 1)
        until(lambda: consumer.consumer.state == "ready")
    assert handled.count(b"slow") == 1
    broker.holds(queue, 0)  # a get is refused if the consumer is single


@pytest.mark.since("4.3")
@pytest.mark.long
def test_P4_15_a_second_cancel_of_a_consumer_whose_handler_outlasts_the_timeout_ends_no_loop(
    broker: Broker, namespace: str
) -> None:
    queue, handled = broker.queue(TIMES_OUT), list[bytes]()

    def handle(message: backhop.Message) -> None:
        handled.append(message.body)
        if handled == [b"slow"]:
            time.sleep(0.5)  # half of the timeout: the next message times out later, and RabbitMQ cancels once more
            other.publish(b"late", queue)
            until(lambda: there(other, queue) == 2)

    other = Broker()  # for the thread of the handler
    broker.publish(b"slow", queue, message_id="slow")
    with connected("blocking", URL, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.begin_by_itself()
        until(lambda: b"late" in handled or consumer.failure)
        assert consumer.failure is None
        until(lambda: consumer.consumer.state == "ready")
    other.close()
