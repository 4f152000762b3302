"""One handler, over each client, the worker and in a rehearsal: it finds the same message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from live import URL, Broker, needs_broker, until
from support import QUICK, Handler, carriers, there

import backhop

pytest.importorskip("pika")
pytest.importorskip("aio_pika")

from clients import connected, each_client

pytestmark = [needs_broker, pytest.mark.filterwarnings("default")]


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


# --- consume --------------------------------------------------------------------------------------


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


# --- What gets a sentence -------------------------------------------------------------------------


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
