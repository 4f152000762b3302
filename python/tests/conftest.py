from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import live
import pytest
from proxy import Proxy
from support import QUICK, SLOWER, Looks, delete_namespace

import backhop

DURATIONS = os.environ.get("BACKHOP_DURATIONS", "")  # a directory, for tools that find slow tests
SECONDS: Counter[str] = Counter()  # of each test, with its fixtures


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "broker: needs the broker that AMQP_URL names")
    config.addinivalue_line(
        "markers", "long: slow, or a further carrier; `-m 'broker and not long'` is the fast profile"
    )
    config.addinivalue_line("markers", "alone: disturbs all clients of the broker, so no other test runs meanwhile")
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist inherit it
        os.environ[live.LOCKS] = tempfile.mkdtemp(prefix="backhop-locks-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(live.LOCKS))


def pytest_collection_finish() -> None:
    gc.freeze()  # the fixtures that collect garbage then look at less of it


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Gives each test on a broker its turn: beside others, or alone."""
    if not live.URL or not item.get_closest_marker("broker"):
        return (yield)
    with live.Turn(is_alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not live.URL and item.get_closest_marker("broker"):
        pytest.skip("AMQP_URL is not set: tests/broker/broker run 4.3 -- ...")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Writes the duration of each test, if BACKHOP_DURATIONS names a directory."""
    if not DURATIONS or hasattr(report, "node"):  # a report that a worker of pytest-xdist wrote already
        return
    SECONDS[report.nodeid] += report.duration  # type: ignore[assignment]  # counts parts of seconds
    if report.when == "teardown":
        line = {"suite": "python", "test": report.nodeid, "seconds": round(SECONDS.pop(report.nodeid), 3)}
        with Path(DURATIONS, f"python-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="module", autouse=True)
def _collected_with_its_module() -> Iterator[None]:
    """Collects a module's garbage in its last test. Otherwise its warnings would be errors of another module's test."""
    yield
    gc.collect()


@pytest.fixture
def broker() -> Iterator[live.Broker]:
    broker = live.Broker()
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def namespace() -> Iterator[str]:
    """A namespace that tests share: they neither harm nor look at its exchanges and wait queues."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    if live.URL and not os.environ.get("BACKHOP_BROKER_CTL"):  # a private broker ends with the tests
        broker = live.Broker()
        delete_namespace(broker, name, QUICK, SLOWER, backhop.Policy())
        broker.close()


@pytest.fixture
def own_namespace(broker: live.Broker) -> Iterator[str]:
    """A namespace of the test's own; its exchanges and queues are deleted."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    delete_namespace(broker, name, QUICK, SLOWER, backhop.Policy())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def consumer_timeout() -> Iterator[None]:
    """The broker's consumer timeout is 3 s, in place of 30 minutes."""
    control = os.environ.get("BACKHOP_BROKER_CTL")
    if not control:
        pytest.skip("BACKHOP_BROKER_CTL is not set")

    def set_ms(timeout: int) -> None:
        subprocess.run([control, "eval", f"application:set_env(rabbit,consumer_timeout,{timeout})."], check=True)

    set_ms(3000)
    yield
    set_ms(1_800_000)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(live.URL)
    yield made
    made.close()
