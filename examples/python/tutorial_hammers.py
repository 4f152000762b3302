"""The tutorial's second consumer: a message that fails goes back to its queue, and comes again at once."""

import cdn
import pika

api = cdn.PurgeApi()
channel = pika.BlockingConnection(pika.URLParameters(cdn.AMQP_URL)).channel()
cdn.change_pages(channel)

for method, _properties, body in channel.consume(cdn.QUEUE):
    try:
        api.purge(body.decode())
    except Exception:
        channel.basic_nack(method.delivery_tag, requeue=True)
    else:
        channel.basic_ack(method.delivery_tag)
    if len(api.purged) == 19:
        break
print(f"{len(api.purged)} of {len(cdn.PAGES)} pages purged, {api.refused} refusals")
channel.cancel()
cdn.delete(channel)
