"""Times: seconds in, whole milliseconds for the core."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from numbers import Real
from typing import Any

import pytest

import backhop
from backhop._times import Seconds, milliseconds, since_epoch

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (7, 7000),
        (-7, -7000),
        (0.0014, 1),
        (0.0016, 2),
        (0.0004, 1),
        (1e-300, 1),
        (-1e-300, -1),
        (-0.0, 0),
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (Fraction(1, 10_000), 1),
        (1_700_000_000.123, 1_700_000_000_123),
        (timedelta(seconds=1, microseconds=600), 1001),
        (2**63 // 1000, 2**63 // 1000 * 1000),
        (2**63, MOST),
        (-(2**63), -MOST),
        (1e300, MOST),
        (-1e300, -MOST),
        (2**63 / 1000, MOST),
        (math.inf, MOST),
        (-math.inf, -MOST),
    ],
)
def test_seconds_are_whole_milliseconds_and_no_more_than_the_core_holds(value: Seconds, ms: int) -> None:
    assert milliseconds(value) == ms
    assert type(milliseconds(value)) is int


@pytest.mark.parametrize("value", [True, False, "1", None, 1j])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="give seconds"):
        milliseconds(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("30s", 30_000),
        ("500ms", 500),
        (" 1.5 min ", 90_000),
        ("2m", 120_000),
        ("2h", 7_200_000),
        ("4 min 30 s", 270_000),
    ],
)
def test_a_text_with_a_unit_is_a_time(value: str, ms: int) -> None:
    assert milliseconds(value) == ms


@pytest.mark.parametrize("value", ["", "30", "s", "-1s", "1e3s", "30s\0", "\u0663s", "\ud800s"])
def test_another_text_is_refused(value: str) -> None:
    with pytest.raises(backhop.ArgumentError, match="give seconds"):
        milliseconds(value)


class Scalar:
    """As a scalar of numpy's: a number that is no int and no float."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return float(self.value)


Real.register(Scalar)


class NotATime(timedelta):
    """As pandas.NaT."""

    def __truediv__(self, _: object) -> Any:
        return math.nan


def test_a_scalar_of_numpy_is_a_time() -> None:
    scalar: Any = Scalar(2.5)
    assert milliseconds(scalar) == 2500
    assert backhop.Policy(initial=scalar, factor=scalar, jitter="none").delay(1) == 2.5


def test_not_a_time_of_pandas_is_refused() -> None:
    with pytest.raises(backhop.ArgumentError, match="give seconds"):
        milliseconds(NotATime())


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="give seconds"):
        milliseconds(math.nan)


@pytest.mark.parametrize(
    "moment", [1.5, datetime(1970, 1, 1, 0, 0, 1, 500_000), datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc)]
)
def test_a_moment_is_milliseconds_since_the_epoch(moment: float | datetime) -> None:
    assert since_epoch(moment) == 1500
