from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

import backhop
from backhop.decider import Decider
from backhop.outcomes import Result, called, parking, result_of


def test_an_exception_is_a_failure_with_its_name_and_text() -> None:
    assert result_of(OSError("507 queue is full")) == Result("failed", "OSError: 507 queue is full")
    assert result_of(KeyError()) == Result("failed", "KeyError")


def test_a_class_in_never_parks_and_so_do_its_children() -> None:
    assert result_of(UnicodeError("bad"), (ValueError,)).outcome == "permanent"
    assert result_of(OSError("bad"), (ValueError,)).outcome == "failed"


@pytest.mark.parametrize("what", ["ValueError", ValueError("x"), int, None])
def test_what_is_no_class_of_exceptions_cannot_be_in_never(what: Any) -> None:
    assert parking([ValueError, KeyboardInterrupt]) == (ValueError, KeyboardInterrupt)
    for take in (parking, lambda never: Decider(backhop.Topology("orders"), never=never)):
        with pytest.raises(backhop.ArgumentError, match=rf"^never holds {re.escape(repr(what))}: give classes"):
            take([ValueError, what])


def test_retry_after_is_a_floor() -> None:
    assert result_of(backhop.RetryAfter(30)) == Result("failed", "", 30)
    assert result_of(backhop.RetryAfter(timedelta(minutes=1), "busy")) == Result("failed", "busy", timedelta(minutes=1))


def test_retry_after_of_what_is_no_time_fails_where_it_is_raised() -> None:
    delay: Any = "soon"
    with pytest.raises(TypeError, match="give seconds"):
        backhop.RetryAfter(delay)


def test_park_and_drop_say_what_they_mean() -> None:
    assert result_of(backhop.Park("no such file")) == Result("permanent", "no such file")
    assert result_of(backhop.Drop()) == Result("dropped")


def test_what_an_outcome_was_raised_from_is_the_error() -> None:
    try:
        raise backhop.Park from LookupError("gone")
    except backhop.Park as park:
        assert result_of(park) == Result("permanent", "LookupError: gone")


def test_an_exception_that_cannot_be_printed_is_named() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert result_of(MuteError()) == Result("failed", "MuteError")


def test_a_text_that_is_no_unicode_can_be_written() -> None:
    assert result_of(OSError("lone \ud800")).error == "OSError: lone \\ud800"


def test_an_exception_can_be_given_as_the_reason() -> None:
    assert result_of(backhop.Park(LookupError("gone"))) == Result("permanent", "LookupError: gone")
    assert result_of(backhop.RetryAfter(5, OSError("busy"))) == Result("failed", "OSError: busy", 5)


def test_what_nobody_awaits_was_not_done() -> None:
    async def handle(_: str) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        called(handle, "message")
