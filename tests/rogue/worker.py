"""worker.py URI [idle]: like worker.c, with the Python package."""

import sys
import threading

from backhop import Event, Message
from backhop.worker import Worker

PREFETCH = 20


def on_event(event: Event) -> None:
    print(event.name, int((getattr(event, "delay", None) or 0) * 1000), event, flush=True)


def main() -> None:
    ended = threading.Event()

    def handle(message: Message) -> None:
        if sys.argv[2:] == ["idle"]:
            ended.wait()
        raise RuntimeError("507 queue is full")

    worker = Worker(
        sys.argv[1],
        "work",
        threads=4,
        prefetch=PREFETCH,
        connect_timeout=3,
        confirm_timeout=1,
        drain=0.5,
        fail_fast=False,
        on_event=on_event,
        retry_events=True,
    )
    try:
        worker.run(handle)  # until SIGTERM
    finally:
        ended.set()


main()
