"""aio_pika_consumer.py QUEUE JOURNAL URL...: consumes over aio-pika, from the next node if one is lost."""

from __future__ import annotations

import asyncio
import itertools
import logging

import aio_pika
import aiormq
from journal import POLICY, PREFETCH, QUEUE, URLS, handle, note, write

import backhop
import backhop.aio_pika


async def consume(url: str) -> None:
    connection = await asyncio.wait_for(aio_pika.connect(f"{url}?heartbeat=5"), 8)
    try:
        lost = asyncio.get_running_loop().create_future()

        def ended(_: object, error: BaseException | None) -> None:
            if not lost.done():
                lost.set_result(error)

        connection.close_callbacks.add(ended)
        channel = await connection.channel()
        channel.close_callbacks.add(ended)
        await channel.set_qos(prefetch_count=PREFETCH)
        retrier = backhop.aio_pika.Retrier(channel, QUEUE, POLICY, on_event=note)
        await retrier.declare()
        queue = await channel.get_queue(QUEUE)

        async def on_message(message: backhop.aio_pika.Message) -> None:
            handle(message, message.incoming.message_id)

        await queue.consume(retrier.wrap(on_message))
        write("connected", url)
        logging.warning("%s: %r", url, await lost)
    finally:
        await asyncio.wait_for(connection.close(), 8)


async def run() -> None:
    for each in itertools.cycle(URLS):
        try:
            await asyncio.wait_for(consume(each), None)
        except (
            aio_pika.exceptions.AMQPError,
            aiormq.exceptions.AMQPError,
            backhop.Error,
            asyncio.TimeoutError,
            OSError,
        ) as error:
            logging.warning("%s: %r", each, error)
        await asyncio.sleep(0.2)


logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.WARNING)
logging.getLogger("aiormq").setLevel(logging.CRITICAL)
asyncio.run(run())
