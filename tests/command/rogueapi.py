"""A management API for the tests, which can be silent or endless."""

from __future__ import annotations

import contextlib
import json
import queue
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

from harness import http_api


@contextlib.contextmanager
def api(answer: Callable[[int], dict | None]) -> Iterator[tuple[str, queue.Queue]]:
    """Serves pages of queues, `answer(page)`; None: never answers. Yields its address, and the paths of requests."""
    asked: queue.Queue[str] = queue.Queue()

    def page_of(path: str) -> tuple[int, bytes] | None:
        asked.put(path)
        found = answer(int(parse_qs(urlsplit(path).query).get("page", ["1"])[0]))
        return None if found is None else (200, json.dumps(found).encode())

    with http_api(page_of) as address:
        yield f"http://{address}", asked
