"""The tutorial's third consumer: a message that fails waits in the broker, longer each time."""

import cdn
import pika

import backhop.pika

api = cdn.PurgeApi()
channel = pika.BlockingConnection(pika.URLParameters(cdn.AMQP_URL)).channel()
cdn.change_pages(channel)

ended: list[backhop.Event] = []


def purge(message: backhop.pika.Message) -> None:
    api.purge(message.body.decode())  # returns: acknowledged; raises: retried


def note(event: backhop.Event) -> None:
    if event.name in ("succeeded", "parked"):
        ended.append(event)
    if len(ended) == len(cdn.PAGES):
        consumer.cancel()


policy = backhop.Policy(initial=0.5, factor=2, max=4, max_attempts=5)  # seconds
retrier = backhop.pika.Retrier(channel, queue=cdn.QUEUE, policy=policy, on_event=note)
consumer = retrier.consume(purge, prefetch=10)
consumer.start_consuming()
retrier.drain(timeout=20)
print(f"{len(api.purged)} of {len(cdn.PAGES)} pages purged, {api.refused} refusals, {cdn.clean_up(channel)} parked")
