"""The tutorial's third consumer: a message that fails waits in the broker, longer each time."""

import cdn
import pika

import backhop.pika

api = cdn.PurgeApi()
channel = pika.BlockingConnection(pika.URLParameters(cdn.AMQP_URL)).channel()
cdn.change_pages(channel)

policy = backhop.Policy(initial=0.5, factor=2, max=4, max_attempts=6)  # seconds
retrier = backhop.pika.Retrier(channel, queue=cdn.QUEUE, policy=policy)


def purge(message: backhop.pika.Message) -> None:
    api.purge(message.body.decode())  # returns: acknowledged; raises: retried
    if len(api.purged) == 19:
        consumer.cancel()


consumer = retrier.consume(purge, prefetch=10)
consumer.start_consuming()
retrier.drain(timeout=20)
print(f"{len(api.purged)} of {len(cdn.PAGES)} pages purged, {api.refused} refusals")
cdn.delete(channel)
