"""The CDN purge with the worker, which keeps connections of its own and hands messages to threads.

AMQP_URL=amqp://guest:guest@localhost/ python cdn_purge_worker.py
"""

from __future__ import annotations

import cdn
import pika

import backhop


def main() -> None:
    api = cdn.PurgeApi()
    connection = pika.BlockingConnection(pika.URLParameters(cdn.AMQP_URL))
    channel = connection.channel()
    cdn.change_pages(channel)

    policy = backhop.Policy(initial=0.5, factor=2, max=4, jitter=0.2, max_attempts=10, max_retry_after=10)
    worker = backhop.Worker(cdn.AMQP_URL, queue=cdn.QUEUE, policy=policy, threads=4, never=(cdn.NoSuchSiteError,))

    def purge(message: backhop.Message) -> None:
        page = message.body.decode()
        try:
            api.purge(page)
        except cdn.QueueFullError as full:
            print(f"{page:18} attempt {message.attempt}: {full}")
            raise backhop.RetryAfter(full.retry_after) from full
        print(f"{page:18} attempt {message.attempt}: purged")
        if len(api.purged) == len(cdn.PAGES) - 1:
            worker.stop()

    worker.run(purge)
    print(f"{len(api.purged)} pages purged, {api.refused} refusals, {cdn.clean_up(channel)} parked")
    connection.close()


if __name__ == "__main__":
    main()
