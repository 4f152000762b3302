"""Checks options of users. An error has the option's name, its value, and what to give."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar

from ._amqp import Text, encoded
from ._errors import ArgumentError, ArgumentTypeError, InvalidNameError
from ._times import Seconds, milliseconds, seconds

Given = TypeVar("Given")

LONGEST_MS = 100_000_000_000
"""The longest delay, cap or age of a policy: three years, in ms."""
HOUR_MS = 3_600_000

_MOST = 2**63 - 1


def whole(
    name: str,
    value: object,
    least: int = 0,
    most: int = _MOST,
    *,
    refused: Callable[[str], Exception] = ArgumentError,
) -> int:
    """Returns a whole number in a range."""
    if type(value) is int and least <= value <= most:
        return value
    limits = f"from {least} to {most}" if most < _MOST else f"{least} or more"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(
            f"{name} is {shortened(value)}: give a whole number, {limits}"
        ) from None
    if not least <= number <= most:
        raise refused(f"{name} is {shortened(value)}: give a whole number, {limits}")
    return number


def real(name: str, value: object, advice: str) -> float:
    """Returns a number. One that is too large for a float becomes an infinity."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: {advice}")
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    return value if isinstance(value, int | float) else number


def fraction(name: str, value: object) -> float:
    """Returns a number from 0 to below 1."""
    advice = "give a number from 0 to below 1"
    number = real(name, value, advice)
    if not 0 <= number < 1:
        raise ArgumentError(f"{name} is {shortened(value)}: {advice}")
    return number


def span_ms(
    name: str,
    value: Seconds,
    least_ms: int,
    most_ms: int,
    *,
    refused: Callable[[str], Exception] = ArgumentError,
) -> int:
    """Returns a time in a range, in ms."""
    ms = milliseconds(value, name)
    if not least_ms <= ms <= most_ms:
        raise refused(
            f"{name} is {shortened(value)}: give seconds, from {least_ms / 1000:g} to "
            f"{most_ms // 1000}"
        )
    return ms


def wait_limit(timeout: Seconds | None) -> float | None:
    """Returns the time limit of a wait, in seconds; None for no limit."""
    return None if timeout is None else seconds(span_ms("timeout", timeout, 0, LONGEST_MS))


def truth(name: str, value: object) -> bool:
    """Returns True or False; no other value is accepted."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give True or False")
    return value


def instance(name: str, value: object, kind: type[Given], advice: str) -> Given:
    """Returns an object of a class."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: {advice}")
    return value


def function(name: str, value: object) -> None:
    """Checks that a value is callable."""
    if not callable(value):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a function")


def text(name: str, value: object, what: str) -> Text:
    """Returns a text: str or bytes."""
    if not isinstance(value, str | bytes):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give {what}, as str or bytes")
    return value


def short_text(name: str, value: object, what: str) -> Text:
    """Returns a name of AMQP's, of 1 to 255 bytes."""
    given = text(name, value, what)
    if not 1 <= _size(given) <= 255:
        raise ArgumentError(f"{name} is {shortened(value)}: give {what}, of 1 to 255 bytes")
    return given


def legacy_header(value: object) -> Text:
    """Returns History's legacy_counter."""
    return short_text("legacy_counter", value, "a header's name")


def queues(name: str, value: object) -> tuple[Text, ...]:
    """Returns names of queues."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a list of queues' names")
    return tuple(short_text(f"one of {name}", each, "a queue's name") for each in value)


def queue_name(name: str, value: object, most: int) -> Text:
    """Returns the name of a queue, or a prefix of names, of at most ``most`` bytes.

    :raises InvalidNameError: if it is empty, too long, not UTF-8, has a zero byte, or begins with
        ``amq.``.
    """
    if not isinstance(value, str | bytes):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a name, as str or bytes")
    data = value if isinstance(value, bytes) else encoded(value)
    why = ""
    if not data:
        why = f"give a name of 1 to {most} bytes"
    elif len(data) > most:
        why = f"it has {len(data)} bytes: give a name of at most {most}"
    elif data.startswith(b"amq."):
        why = 'names that begin with "amq." are the broker\'s: give another'
    elif b"\0" in data:
        why = "it has a zero byte in it: give a name without"
    else:
        try:
            data.decode()
        except UnicodeDecodeError:
            why = "it is not UTF-8: give a name that is"
    if why:
        raise InvalidNameError(f"{name} is {shortened(value)}: {why}")
    return value


def shortened(value: Any) -> str:
    """Returns a value for an error's text, 80 characters at most."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def _size(text: Text) -> int:
    return len(text if isinstance(text, bytes) else encoded(text))
