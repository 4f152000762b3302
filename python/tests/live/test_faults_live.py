"""Consumers that lose a part of their topology, or the acknowledgement of a success."""

from __future__ import annotations

from typing import Any

import pytest
from live import URL, Broker, needs_broker, until
from support import QUICK, TIMES_OUT, Handler, Looks, there

import backhop

pika = pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import connected, each_client  # noqa: E402
from proxy import Proxy  # noqa: E402

import backhop.pika  # noqa: E402
from backhop.adapters.watch import Watch  # noqa: E402

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]


# Only a BlockingConnection has handlers in threads.
def names(events: list[backhop.Event]) -> list[str]:
    return [event.name for event in list(events)]


def has_exchange(broker: Broker, name: str) -> bool:
    try:
        broker.channel.exchange_declare(name, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        broker.reconnect()
        return False
    return True


# --- F4: the return exchange ----------------------------------------------------------------------


@each_client
def test_F1_a_consumer_that_reads_messages_itself_looks_too(
    client: str,
    looks: Looks,
    broker: Broker,
    own_namespace: str,
) -> None:
    queue, events, handler = broker.queue(), list[backhop.Event](), Handler()
    options: Any = {"policy": QUICK, "namespace": own_namespace, "on_event": events.append}
    with connected(client, URL, queue, handler, **options) as consumer:
        consumer.declare()
        consumer.begin_together(1)
        broker.publish(b"first", queue)
        handler.saw(1)
        headers = {"backhop-queue": queue, "backhop-attempts": 1}
        broker.publish(b"lost", f"{own_namespace}.unroutable", headers=headers)
        until(lambda: "replayed" in names(events))
        looks.end()


@pytest.mark.parametrize("begins", ["consume", "wrap"])
def test_F1_an_idle_consumer_over_connect_robust_looks_again_after_a_lost_connection(
    begins: str,
    looks: Looks,
    broker: Broker,
    proxy: Proxy,
    own_namespace: str,
) -> None:
    queue, events, handler = broker.queue(), list[backhop.Event](), Handler()
    options: Any = {"policy": QUICK, "namespace": own_namespace, "on_event": events.append}
    with connected("aio-pika robust", proxy.url, queue, handler, **options) as consumer:
        consumer.declare()
        consumer.begin() if begins == "wrap" else consumer.begin_by_itself()
        wire = consumer.call(consumer.retrier._session.wire_connection())
        proxy.cut()
        until(lambda: wire.is_closed)
        headers = {"backhop-queue": queue, "backhop-attempts": 1}
        broker.publish(b"lost", f"{own_namespace}.unroutable", headers=headers)
        until(lambda: "replayed" in names(events))
        handler.saw(1)
        looks.end()
    assert [message.body for message in handler.messages] == [b"lost"]


@each_client
def test_F4_no_look_precedes_the_declaration(
    client: str,
    looks: Looks,
    broker: Broker,
    own_namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, events, handler = broker.queue(), list[backhop.Event](), Handler()
    options: Any = {"policy": QUICK, "namespace": own_namespace, "on_event": events.append}
    monkeypatch.setattr(Watch, "pause", 0.0)
    with connected(client, URL, queue, handler, **options) as consumer:
        consumer.begin_by_itself()
        broker.publish(b"body", queue)
        handler.saw(1)
        looks.end()
    assert "unavailable" not in names(events)


@pytest.mark.long
@each_client
def test_F4_a_binding_that_a_look_made_while_its_exchange_was_deleted_routes_again(
    client: str,
    looks: Looks,
    broker: Broker,
    own_namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, handler, exchange = broker.queue(), Handler(), f"{own_namespace}.return"

    def is_routed(body: bytes, key: str) -> bool:
        if has_exchange(broker, exchange):
            broker.publish(body, key, exchange=exchange)
        return any(message.body == body for message in list(handler.messages))

    monkeypatch.setattr(Watch, "pause", 0.001)
    with connected(client, URL, queue, handler, policy=QUICK, namespace=own_namespace) as consumer:
        consumer.declare()
        consumer.begin_by_itself()
        (key,) = (each.routing_key for each in consumer.retrier.topology.declarations if each.name == queue)
        for count in range(1, 21):
            broker.channel.exchange_delete(exchange)
            # Not one event for each deletion: RabbitMQ may refuse both binds of a look that
            # declares the exchange, and the next look mends that.
            until(lambda: is_routed(b"%d" % count, key))  # noqa: B023
        looks.end()


def test_F4_an_exchange_deleted_before_a_second_queue_declares_is_declared_again(
    broker: Broker,
    own_namespace: str,
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    options: Any = {"policy": QUICK, "namespace": own_namespace}
    backhop.pika.Retrier(connection.channel(), broker.queue(), **options).declare()
    broker.channel.exchange_delete(f"{own_namespace}.return")
    backhop.pika.Retrier(connection.channel(), broker.queue(), **options).declare()
    connection.close()
    assert has_exchange(broker, f"{own_namespace}.return")


@each_client
def test_F4_a_consumer_that_may_not_declare_reports_the_exchange(
    client: str,
    looks: Looks,
    broker: Broker,
    own_namespace: str,
) -> None:
    queue, events, exchange = broker.queue(), list[backhop.Event](), f"{own_namespace}.return"
    options: Any = {"policy": QUICK, "namespace": own_namespace, "on_event": events.append}
    with connected(client, URL, queue, Handler(), **options) as consumer:
        consumer.declare()
    with connected(client, URL, queue, Handler(), mode="verify", **options) as consumer:
        consumer.begin_by_itself()
        broker.channel.exchange_delete(exchange)
        until(lambda: "unavailable" in names(events))
        looks.end()
    assert not has_exchange(broker, exchange)
    missing = next(event for event in events if event.name == "unavailable")
    assert 'declare with mode="create", or import topology.definitions()' in missing.text


# --- W7: a connection that has no heartbeats, and no answers --------------------------------------


@each_client
def test_W7_a_consumer_reports_a_silent_connection_and_a_later_answer(
    client: str,
    looks: Looks,
    broker: Broker,
    proxy: Proxy,
    own_namespace: str,
) -> None:
    queue, events, handler = broker.queue(), list[backhop.Event](), Handler()
    options: Any = {"policy": QUICK, "namespace": own_namespace, "on_event": events.append, "confirm_timeout": 0.5}
    with connected(client, f"{proxy.url}?heartbeat=0", queue, handler, **options) as consumer:
        consumer.declare()
        consumer.begin_by_itself()
        proxy.hold()
        until(lambda: "unavailable" in names(events))
        assert consumer.consumer.state == "reconnecting"
        assert consumer.consumer.state_reason.startswith("the broker has not answered for 0.5 s")
        proxy.release()
        until(lambda: consumer.consumer.state == "ready")
        broker.publish(b"body", queue)
        handler.saw(1)
        looks.end()
    silent = next(event for event in events if event.name == "unavailable")
    assert (silent.connection, type(silent.error)) == ("consume", backhop.WaitTimeoutError)
    assert names(events).count("unavailable") == names(events).count("connected") - 1


@each_client
def test_W7_a_connection_that_is_silent_while_a_look_replays_is_reported(
    client: str,
    looks: Looks,
    broker: Broker,
    proxy: Proxy,
    own_namespace: str,
) -> None:
    queue, events = broker.queue(), list[backhop.Event]()
    options: Any = {"policy": QUICK, "namespace": own_namespace, "on_event": events.append, "confirm_timeout": 0.5}
    with connected(client, f"{proxy.url}?heartbeat=0", queue, Handler(), **options) as consumer:
        consumer.declare()
        session = consumer.retrier._session
        replay = session.replay_unroutable

        def hold_and_replay(*arguments: Any) -> None:
            proxy.hold()
            replay(*arguments)

        session.replay_unroutable = hold_and_replay
        consumer.begin_by_itself()
        until(lambda: "unavailable" in names(events))
        session.replay_unroutable = replay
        proxy.release()
        until(lambda: consumer.consumer.state == "ready")
        looks.end()
    silent = next(event for event in events if event.name == "unavailable")
    assert silent.text.startswith("the broker has not answered for 0.5 s")


# --- F2: a success that the broker delivers again -------------------------------------------------


@each_client
def test_F2_a_success_on_a_closed_channel_needs_no_second_call(
    client: str,
    broker: Broker,
    namespace: str,
) -> None:
    queue, events, handled = broker.queue(), list[backhop.Event](), list[bytes]()
    is_async = client.startswith("aio-pika")

    def handle(message: Any) -> Any:
        handled.append(message.body)
        closing = message._original.channel.close()
        return closing if is_async else None

    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    broker.publish(b"body", queue, message_id="m1")
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.begin_by_itself()
        until(lambda: "succeeded" in names(events))
    assert handled == [b"body"]
    assert names(events).count("stale") == 1
    until(lambda: there(broker, queue) == 0)


@pytest.mark.since("4.3")  # before, the broker keeps the message until the client has closed the channel
@pytest.mark.long
@each_client
def test_F2_a_handler_that_outlasts_the_consumer_timeout_is_called_once(
    client: str,
    broker: Broker,
    namespace: str,
) -> None:
    queue, events, handled = broker.queue(TIMES_OUT), list[backhop.Event](), list[bytes]()

    def handle(message: backhop.Message) -> None:
        handled.append(message.body)
        until(lambda: there(broker, queue) == 1)  # the broker has it again

    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    broker.publish(b"body", queue, message_id="m1")
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.begin_by_itself()
        until(lambda: "cancelled" in names(events) and names(events).count("succeeded") >= 2)
        until(lambda: there(broker, queue) == 0)
    assert handled == [b"body"]
