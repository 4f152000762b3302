"""Times: seconds in Python, whole milliseconds in the core."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from math import isnan
from typing import TypeAlias

from ._errors import ArgumentError, ArgumentTypeError

Seconds: TypeAlias = int | float | timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST = datetime.max.replace(tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_MOST_MS = 2**63 - 1


def milliseconds(value: Seconds, name: str = "a time") -> int:
    """A time in seconds as whole milliseconds; what the core cannot hold becomes the most that it can.

    :param name: what it is, for the error
    """
    if type(value) is float or type(value) is int:
        ms = value * 1000
        if -_MOST_MS <= ms <= _MOST_MS:
            return round(ms)
    if isinstance(value, timedelta):
        return round(value / _MILLISECOND)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"{name} is {value!r}: give seconds, as int, float or timedelta")
    if isnan(value):
        raise ArgumentError(f"{name} is not a number: give seconds, as int, float or timedelta")
    return round(max(-_MOST_MS, min(_MOST_MS, value * 1000)))


def seconds(ms: int) -> float:
    """Milliseconds of the core in seconds."""
    return ms / 1000


def moment(ms: int) -> datetime | None:
    """Milliseconds since the epoch as a time in UTC; None for -1; no later than the year 9999."""
    if ms < 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _LAST


def since_epoch(value: float | datetime) -> int:
    """A moment in milliseconds since the epoch; a datetime without a zone is in UTC, as in AMQP clients."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return (aware - _EPOCH) // _MILLISECOND
    return milliseconds(value)


def whole_seconds(value: datetime) -> int:
    """A moment in seconds since the epoch, as AMQP's timestamps are; without a zone it is in UTC."""
    return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH) // _SECOND


def duration(value: float) -> str:
    """Seconds for people: ``0.25 s``, ``12 s``, ``4 min 30 s``, ``2 h``, ``3 d 4 h``."""
    if value < 60:
        return f"{value:.3g} s"
    left = round(value)
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
