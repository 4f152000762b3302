"""The tutorial's first consumer: RabbitMQ forgets each message when it sends it."""

import cdn
import pika

api = cdn.PurgeApi()
channel = pika.BlockingConnection(pika.URLParameters(cdn.AMQP_URL)).channel()
cdn.change_pages(channel)

for method, _properties, body in channel.consume(cdn.QUEUE, auto_ack=True, inactivity_timeout=1):
    if method is None:
        break
    try:
        api.purge(body.decode())
    except Exception as error:
        print(f"{body.decode():18} {error}")
print(f"{len(api.purged)} of {len(cdn.PAGES)} pages purged")
cdn.delete(channel)
