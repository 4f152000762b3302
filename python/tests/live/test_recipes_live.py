"""The README's recipes, run as they stand there."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from live import URL, Broker, needs_broker, needs_worker, parameters
from test_adapters_live import QUICK, namespace, until  # noqa: F401  fixtures

import backhop

pika = pytest.importorskip("pika")
import backhop.pika  # noqa: E402

README = Path(__file__).parents[2] / "README.md"

pytestmark = [needs_broker, pytest.mark.skipif(not README.exists(), reason="the README is not beside these tests")]


def recipe(part: str) -> str:
    """The block of the README that has this."""
    (found,) = [each for each in re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S) if part in each]
    return str(found)


def test_a_pool_of_threads_handles_what_pikas_thread_reads(broker: Broker, namespace: str) -> None:  # noqa: F811
    queue, purged, failures = broker.queue(), list[bytes](), [OSError("busy")]
    threads: set[int] = set()
    connection = pika.BlockingConnection(parameters(URL))
    channel = connection.channel()

    def purge(body: bytes) -> None:
        threads.add(threading.get_ident())
        if body == b"2" and failures:
            raise failures.pop()
        purged.append(body)
        if len(purged) == 3:
            connection.add_callback_threadsafe(channel.stop_consuming)

    for body in (b"1", b"2", b"3"):
        broker.publish(body, queue)
    with ThreadPoolExecutor(4) as pool:
        retrier = backhop.pika.Retrier(channel, queue, QUICK, namespace=namespace)
        known = {"Any": Any, "backhop": backhop, "functools": functools, "pool": pool, "purge": purge}
        known |= {"connection": connection, "channel": channel, "retrier": retrier}
        exec(recipe("pool.submit").replace("cdn-purge", queue), known)
        channel.start_consuming()
    retrier.drain()
    connection.close()
    assert sorted(purged) == [b"1", b"2", b"3"]
    assert threading.get_ident() not in threads
    assert broker.count(queue) == 0


IMPORTS = """
import asyncio, contextlib, sys, time
from collections.abc import AsyncGenerator
from typing import Any
import backhop
"""
UVICORN = """
import uvicorn
from starlette.applications import Starlette

async def async_handle(message: backhop.Message) -> None:
    print("began", flush=True)
    await asyncio.sleep(0.2)             # so that it has to be waited for
    print("ended", flush=True)

worker = backhop.Worker({url!r}, {queue!r}, namespace={namespace!r})
{recipe}
uvicorn.run(Starlette(lifespan=lifespan), port=0)
"""
DJANGO = """
import django.conf, django.core.management
{recipe}
policy = backhop.Policy()

def purge(body: bytes) -> None:
    print("began", flush=True)
    time.sleep(0.2)
    print("ended", flush=True)

django.conf.settings.configure(
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
)
django.setup()
django.core.management.call_command(Command())
"""


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", IMPORTS + text], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@needs_worker
@pytest.mark.parametrize("host", ["uvicorn", "django"])
def test_a_program_that_is_told_to_end_drains(host: str, broker: Broker, namespace: str) -> None:  # noqa: F811
    for package in ("uvicorn", "starlette") if host == "uvicorn" else ("django",):
        pytest.importorskip(package)
    queue = broker.queue()
    broker.publish(b"/index.html", queue)
    if host == "uvicorn":
        text = UVICORN.format(url=URL, queue=queue, namespace=namespace, recipe=recipe("async def lifespan"))
    else:
        of_django = recipe("class Command").replace("amqp://localhost", URL).replace("cdn-purge", queue)
        text = DJANGO.format(recipe=of_django.replace("policy)", f"policy, namespace={namespace!r})"))
    with program(text) as process:
        assert process.stdout
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ended\n"
        assert process.wait() in (0, -signal.SIGTERM)
    assert broker.count(queue) == 0
