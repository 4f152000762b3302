"""Consumers that are lost while handlers run: how often they subscribe again, and whom they call twice."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from live import URL, Broker, needs_broker, until
from support import QUICK, TIMES_OUT, there

import backhop

pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import connected, each_client

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]

each_way = pytest.mark.parametrize("way", ["aio-pika", "threads", "aio-pika robust"])
"""The ways to have several messages in hand whose handlers run."""


def names(events: list[backhop.Event]) -> list[str]:
    return [event.name for event in list(events)]


def ids(events: list[backhop.Event], name: str) -> list[str]:
    return [event.id for event in list(events) if event.name == name]


def consumed(way: str, consumer: Any, prefetch: int) -> None:
    consumer.consuming = {"prefetch": prefetch, **({"threads": prefetch} if way == "threads" else {})}
    consumer.begin_by_itself()


def client_of(way: str) -> str:
    return "blocking" if way == "threads" else way


def handler_of(way: str, handle: Any) -> Any:
    """Returns a handler that waits in a thread of its own over asyncio."""

    async def handle_async(message: backhop.Message) -> None:
        await asyncio.to_thread(handle, message)

    return handle if way == "threads" else handle_async


def growing(namespace: str, events: list[backhop.Event]) -> dict[str, Any]:
    """Returns options with a back-off that grows without jitter."""
    return {
        "policy": QUICK,
        "namespace": namespace,
        "on_event": events.append,
        "back_off": backhop.Policy(initial=0.05, factor=2, max=10, jitter="none"),
        "work_queue": "classic",
    }


# --- Subscribing again ----------------------------------------------------------------------------


@each_client
def test_house_2_1_a_queue_whose_consumer_is_cancelled_at_once_is_consumed_less_and_less(
    client: str, broker: Broker, namespace: str
) -> None:
    queue, events, declared = broker.queue(), list[backhop.Event](), list[float]()
    options = growing(namespace, events)

    def count(name: str) -> int:
        return names(events).count(name)

    with connected(client, URL, queue, lambda _: None, **options) as consumer:
        declare = consumer.retrier._session.declare

        def counted(*given: Any) -> Any:
            declared.append(time.monotonic())
            return declare(*given)

        consumer.retrier._session.declare = counted
        consumer.begin_by_itself()
        for losses in range(1, 6):
            until(lambda: count("connected") == losses)  # noqa: B023
            broker.channel.queue_delete(queue)
            until(lambda: count("cancelled") == losses)  # noqa: B023
        until(lambda: count("connected") == 6)
    delays = [event.delay for event in events if event.name == "cancelled"]
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert len(declared) == 6
    # Declared so late after the first time, and never earlier: the clocks may differ by a few ms.
    assert declared[-1] - declared[0] >= sum(delays) - 0.05


@each_client
def test_house_2_1_a_settled_message_starts_the_back_off_again(client: str, broker: Broker, namespace: str) -> None:
    queue, events = broker.queue(), list[backhop.Event]()
    options = growing(namespace, events)

    def count(name: str) -> int:
        return names(events).count(name)

    with connected(client, URL, queue, lambda _: None, **options) as consumer:
        consumer.begin_by_itself()
        for losses in range(1, 4):
            until(lambda: count("connected") == losses)  # noqa: B023
            if losses == 3:
                broker.publish(b"body", queue)
                until(lambda: count("succeeded") == 1)
            broker.channel.queue_delete(queue)
            until(lambda: count("cancelled") == losses)  # noqa: B023
    assert [event.delay for event in events if event.name == "cancelled"] == [0.05, 0.1, 0.05]


# --- Messages that come again ---------------------------------------------------------------------


@pytest.mark.since("4.3")  # before, the broker keeps the message until the client has closed the channel
@pytest.mark.long
@each_way
def test_F4_3_a_message_whose_handler_runs_waits_for_that_call(way: str, broker: Broker, namespace: str) -> None:
    queue, events, handled = broker.queue(TIMES_OUT), list[backhop.Event](), list[bytes]()
    go_on = threading.Event()

    def handle(message: backhop.Message) -> None:
        handled.append(message.body)
        if message.body == b"slow":
            assert go_on.wait(60)

    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    with connected(client_of(way), URL, queue, handler_of(way, handle), **options) as first:
        consumed(way, first, 4)
        broker.publish(b"slow", queue, message_id="slow")
        until(lambda: handled == [b"slow"])
        until(lambda: names(events).count("connected") >= 2)
        broker.publish(b"next", queue, message_id="next")
        until(lambda: b"next" in handled)  # the redelivery of the slow one came before
        go_on.set()
        until(lambda: ids(events, "delivered").count("slow") > 1)
        until(lambda: "slow" in ids(events, "succeeded"))
    assert handled == [b"slow", b"next"]


@pytest.mark.since("4.3")
@pytest.mark.long
@pytest.mark.parametrize("way", ["blocking", "threads", "aio-pika"])
def test_P4_16_all_messages_in_hand_at_the_consumer_timeout_are_called_once(
    way: str, broker: Broker, namespace: str
) -> None:
    queue, events, handled = broker.queue(TIMES_OUT), list[backhop.Event](), list[bytes]()
    sent = [b"%d" % i for i in range(4)]
    lock = threading.Lock()

    def handle(message: backhop.Message) -> None:
        with lock:
            handled.append(message.body)
            is_first = len(handled) == 1
        if is_first:
            until(lambda: there(other, queue) >= (4 if way == "blocking" else 1) or "cancelled" in names(events))

    other = Broker()  # for the thread of the handler
    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    for body in sent:
        broker.publish(body, queue, message_id=body.decode())
    client = "blocking" if way == "threads" else way
    given = handle if way == "blocking" else handler_of(way, handle)
    with connected(client, URL, queue, given, **options) as consumer:
        if way == "threads":
            consumed(way, consumer, 4)
        else:
            consumer.consuming = {"prefetch": 4}
            consumer.begin_by_itself()
        until(lambda: names(events).count("connected") >= 2)
        came_again = {"0", "1", "2", "3"} if way == "blocking" else {"0"}
        until(lambda: came_again == {each for each in came_again if ids(events, "delivered").count(each) > 1})
        until(lambda: set(ids(events, "succeeded")) == {"0", "1", "2", "3"})
    assert sorted(handled) == sent
    assert broker.is_empty(queue)
    other.close()


@each_client
def test_R4_2_an_original_whose_copy_was_confirmed_is_acknowledged_at_its_redelivery(
    client: str, broker: Broker, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backhop.adapters.aio_pika.publisher import AioPikaPublisher
    from backhop.adapters.pika.publisher import PikaPublisher

    queue, events, handled = broker.queue(), list[backhop.Event](), list[int]()

    def handle(message: Any) -> None:
        handled.append(message.attempt)
        raise ValueError("always")

    for publisher in (PikaPublisher, AioPikaPublisher):

        def settle(self: Any, channel: Any, tag: int, how: Any, before: Any = publisher._settle) -> bool:
            """In place of the first acknowledgement, has the broker close the channel."""
            is_first = "cancelled" not in names(events)
            return bool(before(self, channel, 10_000 if is_first else tag, how))

        monkeypatch.setattr(publisher, "_settle", settle)
    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.begin_by_itself()
        broker.publish(b"body", queue, message_id="m1")
        until(lambda: "parked" in names(events) and names(events).count("connected") == 2)
        until(lambda: there(broker, queue) == 0)
        broker.holds(f"{queue}.parked", 1)
    assert handled == [1, 2, 3]
    assert names(events).count("retried") == 2
    broker.holds(f"{queue}.parked", 1)
    assert broker.is_empty(queue)
