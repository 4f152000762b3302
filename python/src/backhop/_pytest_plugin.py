"""The fixtures of backhop.testing. pytest finds them by the package's entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from .testing import Broker, Clock, Rehearsal, SeededRandom, rehearse


@pytest.fixture
def backhop_clock() -> Clock:
    """Returns a clock that only ``advance`` moves."""
    return Clock()


@pytest.fixture
def backhop_random() -> SeededRandom:
    """Returns a source of random bytes that are the same in every run."""
    return SeededRandom()


@pytest.fixture
def backhop_rehearse(
    backhop_clock: Clock, backhop_random: SeededRandom
) -> Callable[..., Rehearsal]:
    """Returns backhop.testing.rehearse with the two fixtures above."""
    return partial(rehearse, clock=backhop_clock, random=backhop_random)


@pytest.fixture
def backhop_broker() -> Iterator[Broker]:
    """Yields a model of RabbitMQ 4.3, which ends after the test."""
    with Broker() as broker:
        yield broker
