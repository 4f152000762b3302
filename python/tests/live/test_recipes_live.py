"""The recipes of the guide, run as they stand there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from live import PATIENCE, URL, Broker, needs_broker, needs_worker, until

import backhop

pytest.importorskip("pika")
pytest.importorskip("aio_pika")
from clients import consuming

RECIPES = Path(__file__).parents[3] / "examples" / "python" / "recipes"

pytestmark = [
    needs_broker,
    pytest.mark.long,
    pytest.mark.skipif(not RECIPES.exists(), reason="no examples are beside these tests"),
]


@contextmanager
def running_recipe(*command: str, queue: str, declares: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Runs a recipe in its own process."""
    environment = {**os.environ, "QUEUE": queue, **({"DECLARE": "1"} if declares else {})}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=RECIPES,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_T8_a_pool_of_threads_over_pika_drains_at_sigterm(broker: Broker) -> None:
    queue = broker.queue()
    for body in (b"1", b"2", b"3"):
        broker.publish(body, queue)
    with running_recipe("pool_pika.py", queue=queue) as process:
        assert process.stdout
        began = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        ended, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    lines = [*began, *ended.splitlines(keepends=True)]
    assert sorted(lines) == sorted(f"{word} {n}\n" for word in ("began", "ended") for n in (1, 2, 3))
    assert broker.is_empty(queue)


def uvicorn(port: int) -> tuple[str, str]:
    return "-c", f"import health_fastapi, uvicorn; uvicorn.run(health_fastapi.app, port={port})"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@needs_worker
def test_T2_an_app_reports_the_health_of_its_worker(broker: Broker) -> None:
    pytest.importorskip("fastapi")
    queue, port = broker.queue(), free_port()
    broker.publish(b"/index.html", queue)
    with running_recipe(*uvicorn(port), queue=queue) as process:
        assert process.stdout
        assert process.stdout.readline() == "began\n"
        answers: list[Any] = []

        def is_ready() -> bool:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                answers.append((answer.status, json.load(answer)["state"]))
            return bool(answers)

        until(is_ready)
        assert answers == [(200, "ready")]
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, -signal.SIGTERM), errors
        assert "ended\n" in output
    assert broker.is_empty(queue)


@needs_worker
def test_T3_an_app_does_not_start_if_its_queue_is_missing(broker: Broker) -> None:
    pytest.importorskip("fastapi")
    queue = broker.queue()
    broker.channel.queue_delete(queue)
    with running_recipe(*uvicorn(free_port()), queue=queue) as process:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
    assert "startup failed" in errors
    assert "does not exist" in errors


def test_T6_parked_messages_reach_sentry(broker: Broker, namespace: str) -> None:
    sentry_sdk = pytest.importorskip("sentry_sdk")
    captured: list[Any] = []
    sentry_sdk.init("http://key@127.0.0.1:1/1", before_send=lambda event, _: captured.append(event))
    known: dict[str, Any] = {}
    exec((RECIPES / "sentry.py").read_text(), known)
    policy = backhop.Policy(max_attempts=1)

    def handle(_: backhop.Message) -> None:
        raise KeyError("purge")

    queue = broker.queue()
    broker.publish(b"body", queue)
    with consuming("blocking", URL, queue, handle, policy=policy, namespace=namespace, on_event=known["to_sentry"]):
        until(lambda: captured)
    (event,) = captured
    assert event["exception"]["values"][-1]["type"] == "KeyError"


DJANGO = """
import django.conf, django.core.management

django.conf.settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
)
django.setup()
import django_command
django.core.management.call_command(django_command.Command())
"""


@needs_worker
def test_a_command_of_django_drains_at_sigterm(broker: Broker) -> None:
    pytest.importorskip("django")
    queue = broker.queue()
    broker.publish(b"/index.html", queue)
    with running_recipe("-c", DJANGO, queue=queue) as process:
        assert process.stdout
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert output == "ended\n"
        assert process.returncode in (0, -signal.SIGTERM), errors
    assert broker.is_empty(queue)
