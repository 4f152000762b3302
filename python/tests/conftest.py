from __future__ import annotations

import gc
from collections.abc import Iterator

import live
import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "broker: needs the broker that AMQP_URL names")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not live.URL and item.get_closest_marker("broker"):
        pytest.skip("AMQP_URL is not set: tests/broker/broker run 4.3 -- ...")


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
