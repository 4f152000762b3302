from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live import PATIENCE, Broker, needs_broker, needs_worker, vhost

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/python"
START, TUTORIAL = ROOT / "docs/start.md", ROOT / "docs/tutorial.md"
THREE_ATTEMPTS = [f"/index.html, attempt {attempt}" for attempt in (1, 2, 3)]

pika = pytest.importorskip("pika")
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="no examples are beside these tests")


@pytest.fixture
def url() -> Iterator[str]:
    """A virtual host of the test's own: the examples use fixed names."""
    with vhost() as made:
        yield made


def output_of(example: str, url: str = "") -> str:
    command = [sys.executable, str(EXAMPLES / example)]
    environment = {**os.environ, **({"AMQP_URL": url} if url else {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment).stdout


def shown(page: Path) -> list[str]:
    """Returns the blocks of text of a page, without their numbers."""
    return [plain(each) for each in re.findall(r"^```text\n(.*?)^```$", page.read_text(), re.M | re.S)]


def plain(text: str) -> str:
    return re.sub(r"\d+ refusals", "N refusals", text.strip())


def purge_everything(example: str, url: str) -> str:
    """Runs it; it ends once every page but the one that does not exist is purged, and that one is parked."""
    output = output_of(example, url)
    last = output.splitlines()[-1]
    purged, refusals, parked = map(int, re.findall(r"\d+", last))
    assert (purged, parked) == (19, 1)
    assert refusals >= 18
    assert output.count("507 queue is full") == refusals
    return plain(last)


@needs_broker
@pytest.mark.long
def test_the_cdn_purge_over_pika_ends_with_every_page_purged(url: str) -> None:
    last = purge_everything("cdn_purge_pika.py", url)
    assert last == shown(TUTORIAL)[-1]


@needs_broker
@pytest.mark.long
@needs_worker
def test_the_cdn_purge_with_the_worker_ends_with_every_page_purged(url: str) -> None:
    purge_everything("cdn_purge_worker.py", url)


@needs_broker
@pytest.mark.long
def test_the_tutorials_first_consumer_loses_what_fails(url: str) -> None:
    lines = output_of("tutorial_loses.py", url).splitlines()
    assert lines[-1] == shown(TUTORIAL)[0]
    assert "/old/front-page    404 no such site" in lines  # P4-23


@needs_broker
@pytest.mark.long
def test_the_tutorials_retries_spare_the_api_that_requeueing_hammers(url: str) -> None:
    for example in ("tutorial_hammers.py", "tutorial_retries.py"):
        last = output_of(example, url).splitlines()[-1]
        purged, _, refusals, *_ = map(int, re.findall(r"\d+", last))
        assert purged == 19
    assert last.endswith(", 1 parked")  # so no message of this example comes back in the next one
    # The fifth attempt is the last. How often requeueing calls depends on the machine.
    assert refusals <= 19 * 4


@contextmanager
def running(example: str, url: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Runs it on a broker without the queue "purges"."""
    broker = Broker(url)
    broker.delete(["purges", "purges.parked"])
    broker.close()
    command = [sys.executable, str(EXAMPLES / example)]
    environment = {**os.environ, "AMQP_URL": url, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        try:
            yield program
        finally:
            program.kill()


def lines_of(program: subprocess.Popen[str], count: int) -> list[str]:
    assert program.stdout
    return [program.stdout.readline().strip() for _ in range(count)]


def publish_when_declared(url: str) -> None:
    broker = Broker(url)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            broker.count("purges")
            break
        except pika.exceptions.ChannelClosedByBroker:
            assert time.monotonic() < end
            broker.reconnect()
            time.sleep(0.1)
    broker.insist(b"/index.html", "purges")
    broker.close()


@needs_broker
@pytest.mark.long
def test_the_quickstart_ends_with_the_third_attempt(url: str) -> None:
    with running("quickstart.py", url) as program:
        lines = lines_of(program, 3)
    assert lines == THREE_ATTEMPTS
    assert shown(START) == ["\n".join(lines)]


@needs_broker
@pytest.mark.long
@pytest.mark.parametrize("example", ["quickstart", "quickstart_aio_pika"])
def test_p4_21_p4_24_a_quickstart_ends_with_ctrl_c_and_without_a_word(example: str, url: str) -> None:
    pytest.importorskip("aio_pika")
    logs = "logging.basicConfig(stream=sys.stdout); logging.getLogger('backhop').setLevel('DEBUG')"
    listens = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a program in the background ignores it
    path = str(EXAMPLES / example) + ".py"
    runs = f"import logging, runpy, signal, sys; {logs}; {listens}; runpy.run_path({path!r}, run_name='__main__')"
    command = [sys.executable, "-X", "dev", "-c", runs]
    environment = {**os.environ, "AMQP_URL": url}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as program:
        try:
            if example != "quickstart":
                publish_when_declared(url)
            assert program.stdout
            assert any("succeeded" in line for line in program.stdout)  # its handler has ended
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
    assert (program.returncode, errors) == (0, "")


@needs_broker
@pytest.mark.long
@pytest.mark.parametrize("example", ["quickstart_aio_pika", "own_consumer"])
def test_a_consumer_retries_until_the_third_attempt(example: str, url: str) -> None:
    pytest.importorskip("aio_pika")
    with running(f"{example}.py", url) as program:
        publish_when_declared(url)
        assert lines_of(program, 3) == THREE_ATTEMPTS


@needs_broker
@pytest.mark.long
@needs_worker
@pytest.mark.parametrize("example", ["quickstart_worker.py", "breaker.py"])
def test_a_worker_retries_until_the_third_attempt(example: str, url: str) -> None:
    with running(example, url) as program:
        publish_when_declared(url)
        assert lines_of(program, 3) == THREE_ATTEMPTS


@needs_broker
@pytest.mark.long
def test_an_observed_consumer_counts_a_parked_message(url: str) -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    with running("observed.py", url, PORT=port) as program:
        publish_when_declared(url)
        lines = lines_of(program, 4)
        assert lines[:3] == THREE_ATTEMPTS
        assert lines[3].startswith("parked: message ")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    assert 'backhop_parked_total{queue="purges",reason="exhausted"} 1.0' in text


@needs_worker
def test_the_outcomes_are_as_their_comments_have_them() -> None:
    lines = output_of("outcomes.py").splitlines()
    assert lines == [
        "429: acked after 2",
        "503: acked after 2",
        "404: parked after 1",
        "410: dropped after 1",
        "500: acked after 2",
    ]


def test_the_rehearsal_of_the_guide_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "rehearsal.py")]
    subprocess.run(command, check=True, capture_output=True)
