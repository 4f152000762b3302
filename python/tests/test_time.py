"""Times: seconds in, whole milliseconds for the core."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import pytest

from backhop._time import Seconds, milliseconds, since_epoch

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (7, 7000),
        (-7, -7000),
        (0.0014, 1),
        (0.0016, 2),
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


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number"):
        milliseconds(math.nan)


@pytest.mark.parametrize(
    "moment", [1.5, datetime(1970, 1, 1, 0, 0, 1, 500_000), datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc)]
)
def test_a_moment_is_milliseconds_since_the_epoch(moment: float | datetime) -> None:
    assert since_epoch(moment) == 1500
