"""Consumers of retriers and workers: health, threads, and what ends them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, needs_broker, needs_worker, parameters, running, until
from support import QUICK, Handler, there

import backhop

pika = pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import connected, each_client  # noqa: E402

import backhop.pika  # noqa: E402

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]


def state_of(worker: backhop.Worker) -> str:
    return worker.state


def names(events: list[backhop.Event]) -> list[str]:
    return [event.name for event in list(events)]


# --- Health ---------------------------------------------------------------------------------------


def test_T3_a_consumer_over_aio_pika_can_be_awaited(broker: Broker, namespace: str) -> None:
    queue = broker.queue()
    with connected("aio-pika robust", URL, queue, Handler(), policy=QUICK, namespace=namespace) as consumer:
        consumer.begin_by_itself()
        consumer.call(consumer.consumer.ready(PATIENCE))
        broker.channel.queue_delete(queue)
        until(lambda: consumer.consumer.state == "reconnecting")
        with pytest.raises(backhop.WaitTimeoutError, match=r"consumer is not ready after 0\.1 s; its state is reconn"):
            consumer.call(consumer.consumer.ready("100ms"))
        broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
        consumer.call(consumer.consumer.ready(PATIENCE))
        consumer.cancel()
        with pytest.raises(backhop.StateError, match=r"^the consumer has stopped .* ready; consume again"):
            consumer.call(consumer.consumer.ready())


def test_T3_a_consumer_over_pika_waits_for_itself(broker: Broker, namespace: str) -> None:
    queue = broker.queue()
    connection = pika.BlockingConnection(parameters(URL))
    retrier = backhop.pika.Retrier(connection.channel(), queue, QUICK, namespace=namespace)
    consumer = retrier.consume(Handler())
    consumer.ready(PATIENCE)
    broker.channel.queue_delete(queue)
    while consumer.state == "ready":
        connection.process_data_events(0.01)
    with pytest.raises(backhop.WaitTimeoutError, match=r"not ready after 0\.2 s; its state is reconnecting"):
        consumer.ready("200ms")
    broker.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
    consumer.ready(PATIENCE)
    connection.close()
    assert consumer.state == "stopped"
    with pytest.raises(backhop.StateError):
        consumer.ready(PATIENCE)


@needs_worker
def test_T3_a_worker_can_be_waited_for(broker: Broker, namespace: str) -> None:
    worker = backhop.Worker(URL, broker.queue(), QUICK, namespace=namespace)
    assert state_of(worker) == "stopped"
    with pytest.raises(backhop.WaitTimeoutError, match=r"^the worker is not ready after 0\.1 s; its state is stopped"):
        worker.ready("100ms")
    for _ in range(2):  # it can run again
        with running(worker, Handler()):
            until(lambda: state_of(worker) != "stopped")
            worker.ready(PATIENCE)
            assert state_of(worker) == "ready"
        assert state_of(worker) == "stopped"
        with pytest.raises(backhop.StateError, match=r"^the worker has stopped .* ready; run it again"):
            worker.ready(PATIENCE)


@needs_worker
def test_T3_a_worker_that_runs_again_forgets_that_it_had_stopped(
    broker: Broker,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = backhop.Worker(URL, broker.queue(), QUICK, namespace=namespace)
    with running(worker, Handler()):
        worker.ready(PATIENCE)
    open_intake = worker._intake.open

    def open_late() -> None:
        until(lambda: state_of(worker) == "ready")
        open_intake()

    monkeypatch.setattr(worker._intake, "open", open_late)
    with running(worker, Handler()):
        until(lambda: state_of(worker) != "stopped")
        worker.ready(PATIENCE)


@needs_worker
def test_T3_a_worker_that_cannot_be_ready_raises_to_all_who_wait(broker: Broker, namespace: str) -> None:
    queue = broker.queue()
    broker.channel.queue_delete(queue)
    worker = backhop.Worker(URL, queue, QUICK, namespace=namespace)

    async def main() -> None:
        serving = asyncio.create_task(worker.serve(Handler()))
        with pytest.raises(backhop.MissingError, match="does not exist"):
            await worker.ready_async(PATIENCE)
        with pytest.raises(backhop.MissingError, match="does not exist"):
            await serving

    asyncio.run(main())
    assert worker.state == "stopped"
    assert "does not exist" in worker.state_reason


@each_client
@pytest.mark.parametrize("mode", ["create", "none"])
def test_a_consumer_that_cannot_begin_leaves_no_gauge_and_no_thread(
    client: str,
    mode: str,
    broker: Broker,
    namespace: str,
) -> None:
    pytest.importorskip("prometheus_client")
    from backhop import prometheus

    queue, metrics = broker.queue(), prometheus.Metrics(None)
    broker.channel.queue_delete(queue)
    options: Any = {"policy": QUICK, "namespace": namespace, "mode": mode, "on_event": metrics}
    with connected(client, URL, queue, Handler(), **options) as consumer:
        if client == "blocking":
            consumer.consuming["threads"] = 4
        with pytest.raises(backhop.MissingError):
            consumer.begin_by_itself()
        assert f'backhop_consumers_ready{{queue="{queue}"}}' not in metrics.text
        until(lambda: not any(each.name.startswith(f"backhop-{queue}-") for each in threading.enumerate()))


# --- Threads --------------------------------------------------------------------------------------


def test_T8_handlers_run_in_threads_while_the_connection_lives(broker: Broker, namespace: str) -> None:
    queue, together, ids = broker.queue(), threading.Barrier(4), list[int]()

    def handle(message: backhop.Message) -> None:
        ids.append(threading.get_ident())
        together.wait(PATIENCE)
        if message.attempt == 1:
            raise ValueError("once")

    for _ in range(4):
        broker.publish(b"body", queue)
    with connected("blocking", URL, queue, handle, policy=QUICK, namespace=namespace) as consumer:
        consumer.consuming = {"threads": 4}
        consumer.begin_by_itself()
        until(lambda: len(ids) == 8)
        assert consumer._thread.ident not in ids
    assert broker.is_empty(queue)


def test_T8_a_lost_connection_leaves_messages_that_no_thread_has(
    broker: Broker,
    namespace: str,
) -> None:
    queue, events, handled, go_on = broker.queue(), list[backhop.Event](), list[bytes](), threading.Event()

    def handle(message: backhop.Message) -> None:
        handled.append(message.body)
        assert go_on.wait(PATIENCE)

    for body in (b"1", b"2", b"3"):
        broker.publish(body, queue)
    connection = pika.BlockingConnection(parameters(URL))
    retrier = backhop.pika.Retrier(connection.channel(), queue, QUICK, namespace=namespace, on_event=events.append)
    retrier.consume(handle, threads=1, prefetch=3)
    while len(handled) + names(events).count("delivered") < 4:
        connection.process_data_events(0.01)
    connection.close()
    go_on.set()
    until(lambda: names(events).count("stale") == 3)
    assert handled == [b"1"]
    until(lambda: there(broker, queue) == 3)


@pytest.mark.parametrize("threads", [-1, 0, 10_001])
def test_a_number_of_threads_out_of_its_range_is_named(broker: Broker, namespace: str, threads: int) -> None:
    with pika.BlockingConnection(parameters(URL)) as connection:
        retrier = backhop.pika.Retrier(connection.channel(), broker.queue(), QUICK, namespace=namespace)
        with pytest.raises(
            backhop.ArgumentError, match=f"^threads is {threads}: give a whole number, from 1 to 10000$"
        ):
            retrier.consume(print, threads=threads)


# --- What ends a consumer -------------------------------------------------------------------------


@each_client
def test_the_contract_closes_channel(client: str, broker: Broker, namespace: str) -> None:
    """The message comes again to a new consumer, which Backhop makes."""
    queue, events, handled = broker.queue(), list[backhop.Event](), list[bytes]()
    is_async = client.startswith("aio-pika")

    def handle(message: Any) -> Any:
        handled.append(message.body)
        if len(handled) == 1:
            closing = message._original.channel.close()
            return closing if is_async else None
        return None

    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    broker.publish(b"body", queue)  # without an id, as F2 has a case with one
    with connected(client, URL, queue, handle, **options) as consumer:
        consumer.begin_by_itself()
        until(lambda: "succeeded" in names(events))
    assert handled == [b"body", b"body"]
    assert {"stale", "cancelled"} <= set(names(events))
    assert names(events).count("connected") == 2
    assert not {"failed", "retried"} & set(names(events))


@pytest.mark.parametrize("carrier", ["worker", "worker-async", "aio-pika", "pika-threads"])
def test_the_contract_never_ends(carrier: str, broker: Broker, namespace: str) -> None:
    """The message stays unacknowledged, and the other slots go on."""
    queue, events, handled, ends = broker.queue(), list[backhop.Event](), list[bytes](), threading.Event()

    def handle(message: backhop.Message) -> None:
        handled.append(message.body)
        if message.body == b"never":
            assert ends.wait(PATIENCE)

    async def handle_async(message: backhop.Message) -> None:
        handled.append(message.body)
        while message.body == b"never" and not ends.is_set():
            await asyncio.sleep(0.01)

    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    with contextlib.ExitStack() as stack:
        if carrier.startswith("worker"):
            worker = backhop.Worker(URL, queue, threads=2, **options)
            if carrier == "worker-async":
                stack.enter_context(running(worker, handle_async, serves=True))
            else:
                stack.enter_context(running(worker, handle))
        else:
            client = "aio-pika" if carrier == "aio-pika" else "blocking"
            given: Any = handle_async if carrier == "aio-pika" else handle
            consumer = stack.enter_context(connected(client, URL, queue, given, **options))
            consumer.consuming.update({"threads": 2} if carrier == "pika-threads" else {})
            consumer.begin_by_itself()
        broker.publish(b"never", queue, message_id="never")
        until(lambda: b"never" in handled)
        broker.publish(b"ok", queue, message_id="ok")
        until(lambda: "succeeded" in names(events))
        assert [event.name for event in events if event.id == "never"] == ["delivered"]
        ends.set()
        until(lambda: names(events).count("succeeded") == 2)


def test_T15_a_retrier_of_the_parent_raises_in_a_forked_child(broker: Broker, namespace: str) -> None:
    connection = pika.BlockingConnection(parameters(URL))
    retrier = backhop.pika.Retrier(connection.channel(), broker.queue(), QUICK, namespace=namespace)
    child = os.fork()
    if not child:
        try:
            retrier.declare()
        except backhop.ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    retrier.declare()
    connection.close()


def test_P4_12_a_context_that_ends_in_a_forked_child_raises(broker: Broker, namespace: str) -> None:
    """Its caller ends the child. The contract's case "forks" has the handlers that Backhop calls."""
    queue = broker.queue()
    broker.publish(b"body", queue)
    with pika.BlockingConnection(parameters(URL)) as connection:
        channel = connection.channel()
        retrier = backhop.pika.Retrier(channel, queue, QUICK, namespace=namespace)
        retrier.declare()
        method, properties, body = next(channel.consume(queue))
        child = 1
        try:
            with retrier.process(method, properties, body):
                child = os.fork()
        except backhop.ForkedError:
            os._exit(7)
        finally:
            if not child:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert broker.is_empty(queue)


@pytest.mark.long
@pytest.mark.parametrize("plain", [True, False])
def test_T11_a_handler_that_holds_the_event_loop_is_named(plain: bool, broker: Broker, namespace: str) -> None:
    queue, events, held, took = broker.queue(), list[backhop.Event](), list[str](), list[float]()

    def hold(message: backhop.Message) -> None:
        held.append(str(message.id))
        if len(held) == 1:
            began = time.monotonic()
            until(lambda: broker.consumers(queue) == 0)  # the broker missed two heartbeats, and closed the connection
            took.append(time.monotonic() - began)

    async def hold_async(message: backhop.Message) -> None:
        hold(message)

    handle: Any = hold if plain else hold_async
    options: Any = {"policy": QUICK, "namespace": namespace, "on_event": events.append}
    broker.publish(b"body", queue, message_id="m0")
    url = f"{URL}{'&' if '?' in URL else '?'}heartbeat=1"
    with connected("aio-pika robust", url, queue, handle, **options) as consumer:
        consumer.consuming["prefetch"] = 1
        consumer.begin_by_itself()
        until(lambda: "succeeded" in names(events))
    assert held == ["m0"]  # F2: its success counts
    about = [event for event in events if event.id == "m0"]
    assert names(about).count("succeeded") == 1
    assert "stale" in names(about)
    (lost,) = [event for event in about if event.name == "disconnected"]
    assert lost.duration is not None
    assert lost.duration >= took[0] - 0.01
    assert lost.level == logging.WARNING
