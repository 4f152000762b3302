"""A consumer for bench/outage and bench/hosts: calls the downstream for each message.

    python outage.py pika|aio-pika|worker|worker-serve

The environment has AMQP_URL, OUTAGE_PORT and OUTAGE_QUEUE.

- OUTAGE_BAD: every fifth message fails by its own fault.
- OUTAGE_HOSTS: the number of hosts, which are the keys of the breaker.
- OUTAGE_WITHOUT: without a breaker.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import sys
from typing import Any

import aio_pika
import pika

import backhop
import backhop.aio_pika
import backhop.pika

AT_ONCE = 50
URL, PORT, QUEUE = os.environ["AMQP_URL"], int(os.environ["OUTAGE_PORT"]), os.environ["OUTAGE_QUEUE"]


def is_bad(number: int) -> bool:
    return bool(os.environ.get("OUTAGE_BAD")) and number % 5 == 0


def get(path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def note(event: backhop.Event) -> None:
    if event.name == "breaker_opened":
        get("/opened/0/0")


def host_of(message: backhop.Message) -> str:
    return str(int(message.body) % int(os.environ["OUTAGE_HOSTS"]))


OPTIONS: dict[str, Any] = {"policy": backhop.Policy(max_attempts=1000), "never": (ValueError,), "on_event": note}
if not os.environ.get("OUTAGE_WITHOUT"):
    key = host_of if os.environ.get("OUTAGE_HOSTS") else None
    OPTIONS["breaker"] = backhop.Breaker("the API", errors=(ConnectionError,), key=key)


def path_of(message: backhop.Message) -> str:
    number = int(message.body)
    return f"/{'bad' if is_bad(number) else 'good'}/{number}/{message.attempt}"


def check(message: backhop.Message, status: int) -> None:
    if is_bad(int(message.body)):
        raise ValueError("the message is bad")
    if status == 503:
        raise ConnectionError("503")


def handle(message: backhop.Message) -> None:
    check(message, get(path_of(message)))


async def handle_async(message: backhop.Message) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(f"GET {path_of(message)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    check(message, status)


async def over_aio_pika() -> None:
    channel = await (await aio_pika.connect_robust(URL)).channel()
    retrier = backhop.aio_pika.Retrier(channel, QUEUE, **OPTIONS)
    await retrier.consume(handle_async, prefetch=AT_ONCE)
    await asyncio.Event().wait()


def over_pika() -> None:
    channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
    backhop.pika.Retrier(channel, QUEUE, **OPTIONS).consume(handle, threads=AT_ONCE, prefetch=AT_ONCE).start_consuming()


def main() -> None:
    if sys.argv[1] == "pika":
        over_pika()
    elif sys.argv[1] == "aio-pika":
        asyncio.run(over_aio_pika())
    elif sys.argv[1] == "worker":
        backhop.Worker(URL, QUEUE, threads=AT_ONCE, prefetch=AT_ONCE, **OPTIONS).run(handle)
    else:
        asyncio.run(backhop.Worker(URL, QUEUE, prefetch=AT_ONCE, **OPTIONS).serve(handle_async))


main()
