"""The rest of the world for the examples: a CDN's purge API, which is full at its peak, and a site whose pages change.

Nothing here knows of Backhop. The API is a real HTTP server on this machine.
"""

from __future__ import annotations

import os
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pika

EXCHANGE, QUEUE = "backhop-example.events", "backhop-example.cdn-purge"
PAGES = [f"/article/{i}" for i in range(1, 20)] + ["/old/front-page"]
AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost/")


class QueueFullError(Exception):
    """507: the API takes no more at the moment; ``retry_after`` in seconds, 0 if it does not say."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("507 queue is full")
        self.retry_after = retry_after


class NoSuchSiteError(Exception):
    """404: the API does not know the site, and never will."""


class PurgeApi(ThreadingHTTPServer):
    """A purge API whose peak begins with the first request: it takes one page then, and answers 507 to all others."""

    def __init__(self, peak: float = 4.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.started = 0.0
        self.peak = peak
        self.refused = 0
        self.purged: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, path: str) -> tuple[int, str, int]:
        """Status, text and Retry-After."""
        with self.lock:
            self.started = self.started or time.monotonic()
            if path.startswith("/old/"):
                return 404, "no such site", 0
            # A slow machine needs longer than the peak for the first call of each page.
            is_peak = time.monotonic() - self.started < self.peak or self.refused < len(PAGES) - 2
            if is_peak and self.purged:
                self.refused += 1
                return 507, "queue is full", 3 if self.refused % 9 == 0 else 0
            self.purged.append(path)
            return 202, "accepted", 0

    def purge(self, path: str) -> None:
        """Purges a page, as a client of the API does."""
        connection = HTTPConnection("127.0.0.1", self.server_port, timeout=10)
        try:
            connection.request("PURGE", path)
            response = connection.getresponse()
            response.read()
        finally:
            connection.close()
        if response.status == 507:
            raise QueueFullError(float(response.headers.get("Retry-After", 0)))
        if response.status == 404:
            raise NoSuchSiteError("404 no such site")


class _Handler(BaseHTTPRequestHandler):
    server: PurgeApi

    def do_PURGE(self) -> None:
        time.sleep(0.005)  # a call takes as long on any machine
        status, text, retry_after = self.server.answer(self.path)
        self.send_response(status, text)
        self.send_header("Content-Length", "0")
        if retry_after:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def change_pages(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """Declares the site's own exchange and the work queue, and publishes an event for each page."""
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1000000000})
    channel.queue_bind(QUEUE, EXCHANGE, "article.*")
    for page in PAGES:
        channel.basic_publish(EXCHANGE, "article.updated", page.encode(), pika.BasicProperties(delivery_mode=2))


def clean_up(channel: pika.adapters.blocking_connection.BlockingChannel) -> int:
    """Deletes the example's queues and its exchange. Returns the number of parked messages."""
    parked = channel.queue_purge(f"{QUEUE}.parked").method.message_count
    delete(channel)
    return int(parked)


def delete(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """Deletes the example's queues and its exchange."""
    for queue in (QUEUE, f"{QUEUE}.parked"):
        channel.queue_delete(queue)
    channel.exchange_delete(EXCHANGE)
