from __future__ import annotations

from collections.abc import Iterator

import live
import pytest


@pytest.fixture
def broker() -> Iterator[live.Broker]:
    broker = live.Broker()
    yield broker
    broker.close()
