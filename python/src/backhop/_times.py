"""Times: seconds in Python, whole milliseconds in the core."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from math import inf, isnan, nan
from numbers import Real
from typing import Any, TypeAlias

from . import _backhop as c
from ._errors import ArgumentError, ArgumentTypeError

Seconds: TypeAlias = int | float | timedelta | str
"""Seconds as a number or a timedelta, or a text with units: ``"30s"``, ``"4 min 30 s"``."""

_ADVICE = 'give seconds, as int, float or timedelta, or a text as "30s"'

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST = datetime.max.replace(tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_MOST_MS = 2**63 - 1


def milliseconds(value: Seconds, name: str = "a time") -> int:
    """Returns a time in seconds as whole ms, limited to the core's range.

    Only 0 becomes 0, which can mean no limit: a shorter time than 1 ms becomes 1 ms.

    :param name: its name, for the error.
    :raises ArgumentError: if it is no time.
    """
    if type(value) is float or type(value) is int:
        ms = value * 1000
        if -_MOST_MS <= ms <= _MOST_MS:
            return _whole(ms)
    if isinstance(value, str):
        ms = c.bh_duration_ms(value)
        if ms < 0:
            raise ArgumentTypeError(f"{name} is {_shown(value)}: {_ADVICE}")
        return ms
    if isinstance(value, bool) or not isinstance(value, timedelta | Real):
        raise ArgumentTypeError(f"{name} is {_shown(value)}: {_ADVICE}")
    try:
        if isinstance(value, timedelta):
            return _whole(value / _MILLISECOND)
        number = float(value)  # a numpy scalar has limits of its own
    except OverflowError:
        number = -inf if str(value).startswith("-") else inf
    except (TypeError, ValueError):  # pandas.NaT
        number = nan
    if isnan(number):
        raise ArgumentError(f"{name} is {_shown(value)}: {_ADVICE}")
    return _whole(max(-_MOST_MS, min(_MOST_MS, number * 1000)))


def _whole(ms: float) -> int:
    return round(ms) or (ms > 0) - (ms < 0)


def retry_after(value: object, name: str = "the delay") -> Seconds:
    """Returns the shortest delay that a handler or predicate gave; 0 for the policy's own delay.

    :param value: seconds; or the value of HTTP's header Retry-After, a text or None
    :raises ArgumentError: if it is negative, or no time
    """
    if value is None:
        return 0
    if isinstance(value, str) and c.bh_duration_ms(value) < 0:
        return seconds(c.bh_retry_after_ms(value, int(time.time() * 1000)))
    given: Any = value
    ms = milliseconds(given, name)
    if ms < 0:
        raise ArgumentError(f"{name} is {_shown(value)}: give seconds, 0 or more")
    return given if ms else 0


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def seconds(ms: int) -> float:
    """Returns the core's ms in seconds."""
    return ms / 1000


def moment(ms: int) -> datetime | None:
    """Returns ms since the epoch as a time in UTC.

    None for -1; at most the end of the year 9999.
    """
    if ms < 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _LAST


def since_epoch(value: float | datetime) -> int:
    """Returns a moment in ms since the epoch.

    A datetime without a zone is in UTC, as in AMQP clients.
    """
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return (aware - _EPOCH) // _MILLISECOND
    return milliseconds(value)


def whole_seconds(value: datetime) -> int:
    """Returns a moment in seconds since the epoch, as AMQP's timestamps.

    Without a zone it is in UTC.
    """
    return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH) // _SECOND


def duration(value: float) -> str:
    """Returns seconds as a text for people: ``0.25 s``, ``4 min 30 s``, ``2 h``, ``3 d 4 h``."""
    return c.bh_duration_text(milliseconds(value))
