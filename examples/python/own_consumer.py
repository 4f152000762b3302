import os

import pika

import backhop.pika

url = os.environ.get("AMQP_URL", "amqp://localhost")
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
retrier = backhop.pika.Retrier(channel, queue="purges", work_queue="quorum")
retrier.declare()
channel.basic_qos(prefetch_count=10)
for method, properties, body in channel.consume("purges"):
    with retrier.process(method, properties, body) as message:  # an exception ends it, and is logged
        print(f"{message.body.decode()}, attempt {message.attempt}", flush=True)
        if message.attempt < 3:
            raise RuntimeError("507 queue is full")
