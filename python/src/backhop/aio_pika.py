"""Retries over aio-pika.

    retrier = backhop.aio_pika.Retrier(channel, queue="cdn-purge", policy=policy)
    consumer = await retrier.consume(handle)   # async handle: returns: ack; raises: later

    await retrier.declare()                    # or, in a loop of your own:
    async for message in queue:
        async with retrier.process(message):   # returns: ack; raises: later; raise Park: parked
            await purge(message.body)

It publishes on a confirm channel of its own, on the connection that the message arrived on. Your
channel stays as it is.

A failed message is acknowledged after the broker confirms its copy. Leaving ``process`` does not
wait for a confirm.

It works with ``connect`` and ``connect_robust``. After a reconnect no stale message is settled.

aio-pika hides two things, so a copy loses them: a priority of 0 becomes none, and integers become
32 or 64 bits wide.
"""

from .adapters.aio_pika import Consumer, Message, PoisonError, Retrier

__all__ = ["Consumer", "Message", "PoisonError", "Retrier"]
