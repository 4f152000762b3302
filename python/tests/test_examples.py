from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from live import PATIENCE, Broker, needs_broker, needs_worker

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"

pytest.importorskip("pika")


def purge_everything(example: str) -> None:
    """Runs it; it ends once every page but the one that does not exist is purged, and that one is parked."""
    command = [sys.executable, str(EXAMPLES / example)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    purged, refusals, parked = map(int, re.findall(r"\d+", output.splitlines()[-1]))
    assert (purged, parked) == (19, 1)
    assert refusals >= 18
    assert output.count("507 queue is full") == refusals


@needs_broker
def test_the_cdn_purge_over_pika_ends_with_every_page_purged() -> None:
    purge_everything("cdn_purge_pika.py")


@needs_broker
@needs_worker
def test_the_cdn_purge_with_the_worker_ends_with_every_page_purged() -> None:
    purge_everything("cdn_purge_worker.py")


@needs_broker
def test_the_quickstart_ends_with_the_third_attempt() -> None:
    broker = Broker()
    broker.channel.queue_delete("purges")
    broker.close()
    command = [sys.executable, str(EXAMPLES / "quickstart.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        lines = [program.stdout.readline().strip() for _ in range(3)]
        program.kill()
    assert lines == [f"/index.html, attempt {attempt}" for attempt in (1, 2, 3)]
