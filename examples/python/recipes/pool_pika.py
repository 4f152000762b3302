"""Handlers in a pool of threads over pika, until SIGTERM or Ctrl-C.

AMQP_URL=amqp://guest:guest@localhost/ python pool_pika.py
"""

from __future__ import annotations

import os
import signal
import time

import pika

import backhop.pika

policy = backhop.Policy(initial=1, max=60, max_attempts=5)


def handle(message: backhop.pika.Message) -> None:
    print(f"began {message.body.decode()}\n", end="", flush=True)
    time.sleep(0.2)
    print(f"ended {message.body.decode()}\n", end="", flush=True)


connection = pika.BlockingConnection(pika.URLParameters(os.environ.get("AMQP_URL", "amqp://localhost")))
channel = connection.channel()
retrier = backhop.pika.Retrier(channel, os.environ.get("QUEUE", "cdn-purge"), policy)
# README: begin
with retrier, retrier.consume(handle, threads=16) as consumer:
    signal.signal(signal.SIGTERM, lambda _number, _frame: connection.add_callback_threadsafe(consumer.cancel))
    consumer.start_consuming()           # ends after cancel; then the retrier drains
# README: end
connection.close()
