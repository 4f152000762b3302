"""pika_consumer.py QUEUE JOURNAL URL...: consumes over a BlockingConnection, from the next node if one is lost."""

from __future__ import annotations

import itertools
import logging
import time

import pika
import pika.exceptions
from journal import POLICY, PREFETCH, QUEUE, URLS, handle, note, write

import backhop
import backhop.pika


def consume(url: str) -> None:
    parameters = pika.URLParameters(f"{url}?heartbeat=5&socket_timeout=5&stack_timeout=8")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    retrier = backhop.pika.Retrier(channel, QUEUE, POLICY, on_event=note)
    retrier.declare()
    channel.basic_consume(QUEUE, retrier.wrap(lambda message: handle(message, message.properties.message_id)))
    write("connected", url)
    channel.start_consuming()


logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.WARNING)
logging.getLogger("pika").setLevel(logging.CRITICAL)
for each in itertools.cycle(URLS):
    try:
        consume(each)
    except (pika.exceptions.AMQPError, backhop.Error, OSError) as error:
        logging.warning("%s: %r", each, error)
    time.sleep(0.2)
