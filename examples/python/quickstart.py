import os

import pika

import backhop.pika


def purge(message: backhop.pika.Message) -> None:
    print(f"{message.body.decode()}, attempt {message.attempt}", flush=True)
    if message.attempt < 3:
        raise RuntimeError("507 queue is full")  # an exception: the message is retried


url = os.environ.get("AMQP_URL", "amqp://localhost")
connection = pika.BlockingConnection(pika.URLParameters(url))
channel = connection.channel()
policy = backhop.Policy(initial=1, factor=2, max_attempts=8)  # seconds
retrier = backhop.pika.Retrier(channel, queue="purges", policy=policy, work_queue="quorum")
retrier.declare()
channel.basic_publish("", "purges", b"/index.html", pika.BasicProperties(message_id="1"))
consumer = retrier.consume(purge, prefetch=10)
try:
    consumer.start_consuming()
except KeyboardInterrupt:  # Ctrl-C
    consumer.cancel()
    retrier.drain(timeout=20)
connection.close()
