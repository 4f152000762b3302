import asyncio
import contextlib
import os

import aio_pika

import backhop.aio_pika


async def purge(message: backhop.aio_pika.Message) -> None:
    print(f"{message.body.decode()}, attempt {message.attempt}", flush=True)
    if message.attempt < 3:
        raise RuntimeError("507 queue is full")  # an exception: the message is retried


async def main() -> None:
    policy = backhop.Policy(initial=1, factor=2, max_attempts=8)  # seconds
    async with await aio_pika.connect_robust(os.environ.get("AMQP_URL", "amqp://localhost")) as connection:
        channel = await connection.channel()
        retrier = backhop.aio_pika.Retrier(channel, queue="purges", policy=policy, work_queue="quorum")
        async with retrier, await retrier.consume(purge, prefetch=10):
            await asyncio.Future()  # until the task is cancelled; then the consumer ends and the retrier drains


with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C cancels the task
    asyncio.run(main())
