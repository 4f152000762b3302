from __future__ import annotations

import gc
import json
import os
import shutil
import sysconfig
import tempfile
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import live
import pytest
from proxy import Proxy
from support import QUICK, Looks, delete_namespace

import backhop

DURATIONS = os.environ.get("BACKHOP_DURATIONS", "")  # a directory, for tools that find slow tests
SECONDS: Counter[str] = Counter()  # of each test, with its fixtures

LEFT_OUT: Counter[str] = Counter()
"""Reasons to leave tests out, with their numbers."""
NEEDS = {
    "broker": "needs the broker that AMQP_URL names",
    "control": "controls the broker, by BACKHOP_BROKER_CTL",
    "rabbitmq": "shows what the model of RabbitMQ lacks, or waits in real time",
    "worker": "needs the worker, which a build without librabbitmq lacks",
    "bare": "needs a build without librabbitmq",
    "free_threaded": "needs a Python without a GIL",
}
IS_GIVEN = {
    "broker": bool(live.URL),
    "control": bool(live.CONTROL),
    "rabbitmq": not live.IS_MODEL,
    "worker": backhop.build_info().worker,
    "bare": not backhop.build_info().worker,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "long: slow, or a further carrier; `-m 'broker and not long'` is the fast profile"
    )
    config.addinivalue_line("markers", "alone: disturbs all clients of the broker, so no other test runs meanwhile")
    for name, text in {**NEEDS, "since": "since(VERSION): shows what older versions of RabbitMQ lack"}.items():
        config.addinivalue_line("markers", f"{name}: {text}")
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


def lacks(item: pytest.Item) -> str:
    """Returns why this run has no such test; "" if it has."""
    for name, text in NEEDS.items():
        if item.get_closest_marker(name) and not IS_GIVEN[name]:
            return text
    since = item.get_closest_marker("since")
    return f"needs RabbitMQ {since.args[0]}" if since and live.version() < live.parsed(since.args[0]) else ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests that cannot be, so that a skipped test is a surprise. Runs after -m and -k."""
    found = {item: lacks(item) for item in items}
    LEFT_OUT.update(reason for reason in found.values() if reason)
    config.hook.pytest_deselected(items=[item for item in items if found[item]])
    items[:] = [item for item in items if not found[item]]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if output := getattr(session.config, "workeroutput", None):  # of a worker of pytest-xdist
        output["left_out"] = dict(LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes what a worker of pytest-xdist left out. All workers leave out the same."""
    LEFT_OUT.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - LEFT_OUT)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for reason, count in LEFT_OUT.items():
        terminalreporter.write_line(f"left out: {count} of what {reason}")


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
    if live.URL and not live.CONTROL:  # a private broker ends with the tests
        broker = live.Broker()
        delete_namespace(broker, name, QUICK, backhop.Policy())
        broker.close()


@pytest.fixture
def own_namespace(broker: live.Broker) -> Iterator[str]:
    """A namespace of the test's own; its exchanges and queues are deleted."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    delete_namespace(broker, name, QUICK, backhop.Policy())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(live.URL)
    yield made
    made.close()
