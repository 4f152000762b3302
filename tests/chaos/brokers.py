"""The cluster as the chaos run sees it: actions on nodes and queues, over the first node that answers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pika
import pika.exceptions

URLS = os.environ["AMQP_URLS"].split()
VERSION = os.environ["BACKHOP_BROKER_VERSION"]
CTL_LIMIT = 240.0  # seconds, for one request
ASK_LIMIT = 120.0  # seconds until some node answers
Answer = TypeVar("Answer")


class Unanswered(Exception):
    """No node executed the request; the text has the last one's answer."""


def ctl(*request: object) -> str:
    """Has the cluster's supervisor do something; returns its output."""
    command = [os.environ["BACKHOP_BROKER_CTL"], *map(str, request)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CTL_LIMIT, check=False)
    if done.returncode != 0:
        raise Unanswered(f"ctl {' '.join(map(str, request))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def connect(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.URLParameters(f"{url}?heartbeat=5&socket_timeout=5&stack_timeout=8&blocked_connection_timeout=30")
    )


@contextlib.contextmanager
def channel_to(url: str) -> Iterator[Any]:
    connection = connect(url)
    try:
        yield connection.channel()
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            connection.close()


def ask(what: Callable[[Any], Answer], limit_s: float = ASK_LIMIT) -> Answer:
    """Calls `what` with a channel to a node, and to the next one if that fails, until one answers."""
    limit = time.monotonic() + limit_s
    while True:
        for url in URLS:
            try:
                with channel_to(url) as channel:
                    return what(channel)
            except (pika.exceptions.AMQPError, OSError) as error:
                last = error
        if time.monotonic() > limit:
            raise Unanswered(f"no node answered within {limit_s:.0f} s: {last!r}")
        time.sleep(1)


def take_all(channel: Any, queue: str) -> list[tuple[Any, bytes]]:
    """Takes all messages of a queue, as properties and body."""
    taken: list[tuple[Any, bytes]] = []
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            return taken
        taken.append((properties, body))
        channel.basic_ack(method.delivery_tag)


def depth_of(channel: Any, queue: str) -> int:
    """Returns the number of messages that are ready in a queue; 0 if it does not exist."""
    with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
        return int(channel.queue_declare(queue, passive=True).method.message_count)
    return 0


def queues_like(prefix: str) -> list[str]:
    listing = ctl("rabbitmqctl", "--silent", "list_queues", "name")
    return sorted(name for name in listing.split() if name.startswith(prefix))
