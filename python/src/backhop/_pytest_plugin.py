"""The fixtures of backhop.testing, which pytest finds by the package's entry point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from .testing import Clock, Rehearsal, SeededRandom, rehearse


@pytest.fixture
def backhop_clock() -> Clock:
    """A clock that goes on only when it is told to."""
    return Clock()


@pytest.fixture
def backhop_random() -> SeededRandom:
    """Random bytes, the same in every run."""
    return SeededRandom()


@pytest.fixture
def backhop_rehearse(backhop_clock: Clock, backhop_random: SeededRandom) -> Callable[..., Rehearsal]:
    """backhop.testing.rehearse with these two."""
    return partial(rehearse, clock=backhop_clock, random=backhop_random)
