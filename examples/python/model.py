"""A test of a whole consumer with its client, for pytest: from the first failure to the parked message."""

import pika

import backhop.pika
from backhop.testing import Broker

policy = backhop.Policy(initial=10, factor=3, max=3600, max_attempts=8)


def purge(message: backhop.pika.Message) -> None:
    raise RuntimeError("507 queue is full")


# begin
def test_a_purge_is_parked_after_its_last_attempt(backhop_broker: Broker) -> None:
    channel = pika.BlockingConnection(pika.URLParameters(backhop_broker.url)).channel()
    attempts: list[int] = []

    def on_event(event: backhop.Event) -> None:
        if event.name == "failed":
            attempts.append(event.attempt)
        elif event.name == "parked":
            consumer.cancel()

    retrier = backhop.pika.Retrier(
        channel, queue="purges", policy=policy, work_queue="quorum", on_event=on_event
    )
    retrier.declare()
    channel.basic_publish("", "purges", b"/index.html")
    consumer = retrier.consume(purge)
    consumer.start_consuming()  # more than an hour of delays, which the model skips
    assert attempts == [1, 2, 3, 4, 5, 6, 7, 8]
    parked = channel.basic_get("purges.parked")
    assert parked[2] == b"/index.html"
# end
