"""One handler, over each client, the worker and in a rehearsal: it finds the same message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from queue import Queue
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, needs_broker, needs_worker, running, until
from support import QUICK, SLOWER, Handler, carriers, is_missing, there

import backhop
from backhop.testing import Clock, rehearse

pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import connected, consuming, each_client

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]

NAMES = [
    "body",
    "headers",
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "type",
    "app_id",
    "timestamp",
    "priority",
    "message_id",
    "id",
    "attempt",
    "max_attempts",
    "last_attempt",
    "last_error",
    "last_delay",
    "deaths",
    "exchange",
    "routing_key",
    "redelivered",
    "queue",
]
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "correlation_id": "correlation",
    "reply_to": "answers",
    "message_id": "m1",
    "timestamp": 1_767_323_045,
    "type": "kind",
    "app_id": "shop",
    "priority": 3,
}
HEADERS: dict[str, Any] = {"tenant": "acme", "n": {"list": [1, "two", None, True]}, "moment": datetime(2026, 1, 2)}


class Noting:
    """Notes all fields of a message, and fails at first."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.second = threading.Event()

    def __call__(self, message: Any) -> None:
        told = {name: getattr(message, name) for name in NAMES}
        told["headers"] = {name: value for name, value in told["headers"].items() if not name.startswith("backhop-")}
        told["headers"] = {name: value for name, value in told["headers"].items() if not name.startswith("x-")}
        told["deaths"] = [death.reason for death in told["deaths"]][:1] if told["deaths"] else []
        told["has failed"] = message.first_failure is not None
        told["history"] = message.history.attempts
        self.seen.append(told)
        if message.attempt == 1:
            raise OSError("507")
        self.second.set()

    async def asynchronously(self, message: Any) -> None:
        self(message)


def rehearsed(queue: str) -> list[dict[str, Any]]:
    noting = Noting()
    properties = {**PROPERTIES, "timestamp": 1_767_323_045}
    rehearse(
        noting,
        b"body",
        queue=queue,
        policy=QUICK,
        headers=HEADERS,
        properties=properties,
        clock=Clock(),
    )
    for told in noting.seen:
        told["deaths"] = []
    return noting.seen


@each_client
def test_a_handler_runs_unchanged_over_each_client_and_in_a_rehearsal(
    client: str,
    broker: Broker,
    namespace: str,
) -> None:
    queue, noting = broker.queue(), Noting()
    broker.publish(b"body", queue, headers=HEADERS, **PROPERTIES)
    with consuming(client, URL, queue, noting, policy=QUICK, namespace=namespace):
        assert noting.second.wait(PATIENCE)
    expect_the_same(noting.seen, rehearsed(queue))


@needs_worker
@pytest.mark.parametrize("go", ["run", "serve", "serve a plain function"])
def test_a_handler_runs_unchanged_with_the_worker(go: str, broker: Broker) -> None:
    queue, noting = broker.queue(), Noting()
    broker.publish(b"body", queue, headers=HEADERS, **PROPERTIES)
    worker = backhop.Worker(URL, queue, QUICK, threads=1)
    if go == "run":
        with running(worker, noting):
            assert noting.second.wait(PATIENCE)
    else:

        async def serve() -> None:
            serving = asyncio.create_task(worker.serve(noting if "plain" in go else noting.asynchronously))
            assert await asyncio.to_thread(noting.second.wait, PATIENCE)
            worker.stop()
            await serving

        asyncio.run(serve())
    expect_the_same(noting.seen, rehearsed(queue))
    assert broker.is_empty(queue)
    assert broker.is_empty(f"{queue}.parked")


@pytest.mark.parametrize("client", ["aio-pika", "aio-pika robust"])
def test_a_plain_function_is_a_handler_over_aio_pika_too(client: str, broker: Broker, namespace: str) -> None:
    queue, handler = broker.queue(), Handler()
    broker.publish(b"body", queue)
    with connected(client, URL, queue, handler, policy=QUICK, namespace=namespace) as consumer:
        consumer._handle = handler
        consumer.declare()
        consumer.begin()
        handler.saw(1)
    assert [message.attempt for message in handler.messages] == [1]
    assert broker.is_empty(queue)
    assert broker.is_empty(f"{queue}.parked")


def expect_the_same(seen: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for told in seen:
        told["deaths"] = []
    assert seen == expected
    first, second = seen
    assert first["timestamp"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert first["headers"]["moment"] == datetime(2026, 1, 2, tzinfo=timezone.utc)
    assert (first["attempt"], first["last_attempt"], second["attempt"], second["last_error"]) == (
        1,
        False,
        2,
        "OSError: 507",
    )


def ends(events: Queue[backhop.Event], count: int) -> list[backhop.Event]:
    """So many events of what became of messages, or of a replay."""
    told: list[backhop.Event] = []
    while len(told) < count:
        event = events.get(timeout=PATIENCE)
        told += [event] if event.name in ("retried", "parked", "replayed") else []
    return told


# --- consume ---------------------------------------------------------------------------------------------------------


@each_client
def test_each_class_of_errors_waits_by_its_policy_and_the_listener_hears_of_it(
    client: str,
    broker: Broker,
    namespace: str,
) -> None:
    queue, events = broker.queue(), Queue[backhop.Event]()
    broker.publish(b"body", queue, message_id="m1")
    handler = Handler(ValueError("quick"), KeyError("slow"), OSError("last"))
    policy = backhop.Policy(initial=0.1, jitter="none", max=0.1, max_attempts=3, max_retry_after=0)
    options = {"policy": policy, "policies": {LookupError: SLOWER}, "namespace": namespace}
    with consuming(client, URL, queue, handler, on_event=events.put, **options) as consumer:
        told = ends(events, 3)
        assert consumer.replay() == 1
        told += ends(events, 1)
    assert [message.last_delay for message in handler.messages[:3]] == [None, 0.1, 0.4]
    assert [(event.name, event.delay, event.attempts, event.text) for event in told] == [
        ("retried", 0.1, 1, "ValueError: quick"),
        ("retried", 0.4, 2, "KeyError: 'slow'"),
        ("parked", 0, 3, "exhausted"),
        ("replayed", 0, 0, ""),
    ]
    assert {(event.id, event.queue) for event in told[:3]} == {("m1", queue)}
    assert [event.error_class for event in told[:3]] == ["ValueError", "KeyError", "OSError"]
    assert (told[2].exception, told[3].count) == (handler.errors_raised[2], 1)


@each_client
def test_consume_declares_subscribes_and_is_cancelled(client: str, broker: Broker, namespace: str) -> None:
    queue, handler = broker.queue(), Handler(OSError("507"))
    broker.publish(b"body", queue)
    with connected(client, URL, queue, handler, policy=QUICK, namespace=namespace) as consumer:
        consumer.begin_by_itself()
        handler.saw(2)
        consumer.cancel()
        broker.publish(b"another", queue)
        until(lambda: there(broker, queue) == 1)
        assert consumer.consumer.is_cancelled
    assert [message.body for message in handler.messages] == [b"body", b"body"]
    broker.holds(queue, 1)


@each_client
def test_consume_subscribes_again_once_its_queue_is_there_again(
    client: str,
    broker: Broker,
    own_namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue, handler = f"{own_namespace}.work", Handler()
    options = {"policy": QUICK, "namespace": own_namespace, "work_queue": "classic"}
    with connected(client, URL, queue, handler, **options) as consumer:
        consumer.begin_by_itself()
        broker.publish(b"one", queue)
        handler.saw(1)
        broker.channel.queue_delete(queue)
        until(lambda: "it consumes again" in caplog.text)

        def published() -> bool:
            broker.publish(b"two", queue)
            return len(handler.messages) > 1

        until(published)
    broker.channel.queue_delete(queue)
    broker.channel.queue_delete(f"{queue}.parked")


@each_client
def test_consume_subscribes_again_on_a_new_channel(
    client: str,
    broker: Broker,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = broker.queue()
    seen: list[bytes] = []

    def handle(message: Any) -> None:
        seen.append(message.body)
        if message.body == b"closes the channel" and len(seen) == 1:
            message._original.settle("ack")
            message._original.settle("ack")  # the second makes the broker close the channel

    with connected(client, URL, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.begin_by_itself()
        broker.publish(b"closes the channel", queue)
        until(lambda: "it consumes again" in caplog.text)
        broker.publish(b"another", queue)
        until(lambda: b"another" in seen)
    assert broker.is_empty(queue)


@each_client
def test_consume_says_what_is_wrong(client: str, broker: Broker, own_namespace: str) -> None:
    with (
        connected(client, URL, f"{own_namespace}.none", Handler(), policy=QUICK, namespace=own_namespace) as consumer,
        pytest.raises(backhop.MissingError, match="the work queue"),
    ):
        consumer.begin_by_itself()
    broker.channel.queue_delete(f"{own_namespace}.none.parked")
    with (
        connected(client, URL, f"{own_namespace}.none", Handler(), policy=QUICK, mode="none") as consumer,
        pytest.raises(backhop.MissingError, match=r"cannot be consumed.*declare it first.*work_queue=.quorum."),
    ):
        consumer.begin_by_itself()


@pytest.mark.rabbitmq  # the model has no streams
@each_client
@pytest.mark.long
def test_w3_a_stream_is_no_work_queue(client: str, broker: Broker, own_namespace: str) -> None:
    queue = f"{own_namespace}.stream"
    broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    with (
        connected(client, URL, queue, Handler(), policy=QUICK, namespace=own_namespace) as consumer,
        pytest.raises(backhop.ClashError, match="is a stream"),
    ):
        consumer.begin_by_itself()
    for name in (queue, f"{queue}.parked"):
        broker.channel.queue_delete(name)


@each_client
def test_the_modes_are_create_verify_and_none(client: str, broker: Broker, own_namespace: str) -> None:
    queue = broker.queue()
    options = {"policy": QUICK, "namespace": own_namespace}
    with connected(client, URL, queue, Handler(), mode="none", **options) as consumer:
        consumer.declare()
        with pytest.raises(backhop.MissingError):
            consumer.verify()
    with (
        connected(client, URL, queue, Handler(), mode="verify", **options) as consumer,
        pytest.raises(backhop.MissingError),
    ):
        consumer.declare()
    assert is_missing(broker, f"{queue}.parked")
    with connected(client, URL, queue, Handler(), **options) as consumer:
        consumer.declare()
    with connected(client, URL, queue, Handler(), mode="verify", **options) as consumer:
        consumer.declare()


# --- What gets a sentence --------------------------------------------------------------------------------------------


@each_client
def test_a_forgotten_declare_is_asked_about(
    client: str,
    broker: Broker,
    own_namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue, handler = broker.queue(), Handler(OSError("507"))
    broker.publish(b"body", queue)
    with connected(client, URL, queue, handler, policy=QUICK, namespace=own_namespace) as consumer:
        consumer.begin()
        until(lambda: "was declare() of the retrier forgotten?" in caplog.text)
        consumer.declare()
        handler.saw(2)
    assert broker.is_empty(queue)


@pytest.mark.parametrize("client", carriers("blocking", "select", "aio-pika"))
def test_a_consumer_without_acknowledgements_is_told_so_and_loses_nothing_more(
    client: str,
    broker: Broker,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue, handler = broker.queue(), Handler(OSError("507"))
    for body in (b"one", b"two"):
        broker.publish(body, queue)
    with connected(client, URL, queue, handler, policy=QUICK, namespace=namespace) as consumer:
        consumer.declare()
        consumer.begin(needs_ack=False)
        handler.saw(3)
    assert sorted(message.body for message in handler.messages) == [b"one", b"one", b"two"]
    assert caplog.text.count("gets its messages without acknowledgements") == 1
    assert broker.is_empty(queue)


@pytest.mark.parametrize("client", carriers("blocking", "select", "aio-pika"))
def test_a_ported_handler_that_still_acknowledges_is_told_so(
    client: str,
    broker: Broker,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = broker.queue()
    broker.publish(b"body", queue)

    def over_pika(message: Any) -> None:
        consumer.channel.basic_ack(message.method.delivery_tag)

    async def over_aio_pika(message: Any) -> None:
        await message.incoming.ack()

    handle: Callable[[Any], Any] = over_aio_pika if client == "aio-pika" else over_pika
    with connected(client, URL, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.declare()
        consumer.begin()
        until(
            lambda: (
                "acknowledged or rejected twice" in caplog.text or "is acknowledged or rejected already" in caplog.text
            )
        )
    assert broker.is_empty(queue)


@each_client
def test_a_handler_that_changes_its_clients_message_changes_no_retry(
    client: str,
    broker: Broker,
    namespace: str,
) -> None:
    queue, tenants = broker.queue(), []
    broker.publish(b"body", queue, headers={"tenant": "acme", "n": {"list": [1]}}, message_id="m1")

    def handle(message: Any) -> None:
        tenants.append((message.headers["tenant"], message.headers["n"], message.message_id))
        theirs = getattr(message, "incoming", None) or message.properties
        theirs.headers["tenant"] = "evil"
        theirs.headers["n"]["list"].append(object())
        theirs.message_id = "evil"
        if message.attempt == 1:
            raise OSError("507")

    with consuming(client, URL, queue, handle, policy=QUICK, namespace=namespace):
        until(lambda: len(tenants) == 2)
    assert tenants == [("acme", {"list": [1]}, "m1")] * 2


def test_pikas_wrap_takes_no_coroutine_function_and_basic_get_may_find_nothing(broker: Broker) -> None:
    import backhop.pika

    async def handle(_: backhop.Message) -> None: ...

    queue = broker.queue()
    retrier = backhop.pika.Retrier(broker.channel, queue, QUICK)
    for wrong in (handle, None, "handle"):
        with pytest.raises(backhop.ArgumentTypeError, match="the handler is"):
            retrier.wrap(wrong)  # type: ignore[arg-type]
    with (
        pytest.raises(backhop.ArgumentTypeError, match="basic_get found none"),
        retrier.process(*broker.channel.basic_get(queue)),
    ):
        raise AssertionError
    broker.publish(b"", queue)
    until(lambda: there(broker, queue) == 1)
    message = retrier.read(*broker.channel.basic_get(queue))
    with pytest.raises(backhop.ArgumentTypeError, match="error is 'bad'"):
        retrier.settle(message, "bad")  # type: ignore[arg-type]
    retrier.settle(message)


def test_what_is_parked_at_a_consumer_of_its_own_ends_with_its_context(broker: Broker, namespace: str) -> None:
    import pika

    import backhop.pika

    queue = broker.queue()
    broker.publish(b"body", queue)
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        retrier = backhop.pika.Retrier(connection.channel(), queue, QUICK, namespace=namespace)

        def handle(_: backhop.Message) -> None:
            consumer.cancel()
            raise backhop.Park("why")

        with retrier, retrier.consume(handle) as consumer:
            consumer.start_consuming()
        assert retrier.pending == 0
        assert there(broker, f"{queue}.parked") == 1
