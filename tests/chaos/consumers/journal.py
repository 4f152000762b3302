"""Helpers of the consumers in Python: the handler, and its journal."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import backhop

QUEUE, JOURNAL, *URLS = sys.argv[1:]
PREFETCH = int(os.environ["BACKHOP_CHAOS_PREFETCH"])
POLICY = backhop.Policy(initial=0.3, factor=2, max=3, jitter=0.2, max_attempts=5, max_crashes=0)
FILE = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def write(*fields: object) -> None:
    """Writes a line at once: a process may be killed between two lines, not inside of one."""
    line = "\t".join(map(str, (time.time_ns() // 1_000_000, *fields)))
    os.write(FILE, f"{line}\n".encode())


def note(event: backhop.Event) -> None:
    """Writes how many messages came back from the unroutable queue."""
    if event.name == "replayed":
        write("returned", event.count)


def handle(message: Any, message_id: str | None) -> None:
    """Fails as often as the body's second word says."""
    body = message.body.decode()
    fails = message.attempt <= int(body.split()[1])
    delay_ms = round((message.last_delay or 0) * 1000)
    outcome = "failed" if fails else "done"
    mark = message.headers.get("x-mark")
    write(outcome, message.attempt, delay_ms, message.routing_key, mark, message_id, body)
    if fails:
        raise RuntimeError("507 queue is full")
