"""Retries over pika.

    retrier = backhop.pika.Retrier(channel, queue="cdn-purge", policy=policy)
    retrier.consume(handle).start_consuming()   # returns: ack; raises: later; raise Park: parked

    def handle(message):
        purge(message.body, message.attempt)

It works with a BlockingConnection and with pika's asynchronous connections. It publishes on a
confirm channel of its own, on the connection of your channel. Your channel stays as it is.

A failed message is acknowledged after the broker confirms its copy. Nothing waits for a single
confirm, so a burst of failures takes one round trip.
"""

from .adapters.pika import Consumer, Message, PoisonError, Retrier

__all__ = ["Consumer", "Message", "PoisonError", "Retrier"]
