"""What users give, checked before anything is done with it: an error names the option, its value, and what to give."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ._amqp import Text
from ._errors import ArgumentError, ArgumentTypeError, InvalidNameError
from ._time import Seconds, milliseconds

Given = TypeVar("Given")

LONGEST_MS = 100_000_000_000
"""No delay, cap or age of a policy is longer: three years."""
HOUR_MS = 3_600_000

_MOST = 2**63 - 1


def whole(
    name: str, value: object, least: int = 0, most: int = _MOST, *, refused: Callable[[str], Exception] = ArgumentError
) -> int:
    """A whole number in a range."""
    if type(value) is int and least <= value <= most:
        return value
    limits = f"from {least} to {most}" if most < _MOST else f"{least} or more"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a whole number, {limits}") from None
    if not least <= number <= most:
        raise refused(f"{name} is {shortened(value)}: give a whole number, {limits}")
    return number


def real(name: str, value: object, advice: str) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: {advice}")
    return value


def span_ms(
    name: str, value: Seconds, least_ms: int, most_ms: int, *, refused: Callable[[str], Exception] = ArgumentError
) -> int:
    """A time in a range, in milliseconds."""
    ms = milliseconds(value, name)
    if not least_ms <= ms <= most_ms:
        raise refused(f"{name} is {shortened(value)}: give seconds, from {least_ms / 1000:g} to {most_ms // 1000}")
    return ms


def truth(name: str, value: object) -> bool:
    """True or False, and nothing that is only like it."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give True or False")
    return value


def instance(name: str, value: object, kind: type[Given], advice: str) -> Given:
    """An object of a class."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: {advice}")
    return value


def function(name: str, value: object) -> None:
    """Something to call."""
    if not callable(value):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a function")


def short_text(name: str, value: object, what: str) -> Text:
    """A name of AMQP's, of 1 to 255 bytes."""
    if not isinstance(value, str | bytes):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give {what}, as str or bytes")
    if not 1 <= _size(value) <= 255:
        raise ArgumentError(f"{name} is {shortened(value)}: give {what}, of 1 to 255 bytes")
    return value


def legacy_header(value: object) -> Text:
    """History's legacy_counter."""
    return short_text("legacy_counter", value, "a header's name")


def queues(name: str, value: object) -> tuple[Text, ...]:
    """Names of queues."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a list of queues' names")
    return tuple(short_text(f"one of {name}", each, "a queue's name") for each in value)


def queue_name(name: str, value: object, most: int) -> Text:
    """The name of a queue, or the beginning of names; bytes where it is not to be UTF-8's str."""
    if not isinstance(value, str | bytes):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give a name, as str or bytes")
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
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
    """A value in an error's text."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def _size(text: Text) -> int:
    return len(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
