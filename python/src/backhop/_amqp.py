"""Converts AMQP clients' header values to the core's and back.

A client decodes a header into a Python value, which may lose its AMQP type:

===================  ===========================================================================
Python               pushed as
===================  ===========================================================================
str                  string
bytes                string if it is not UTF-8 (clients give UTF-8 strings as str), else bytes
bytearray            bytes
bool                 boolean
int                  int32, above it int64, above it uint64. A subclass: int64, as pika's ``long``
float                double
Decimal              decimal
datetime             timestamp; without a zone it is in UTC
None                 void
dict, list, tuple    table, array
Typed                its own type
===================  ===========================================================================

A copy has the types that the core's values have, so it loses a type that the client hides.
aio-pika: floats become doubles, and timestamps after the year 2106 are ms. pika: floats become
integers, and strings that are not UTF-8 become bytes. The worker keeps all types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias

from . import _backhop as c
from ._core import names, number, numbers
from ._errors import ArgumentError, ArgumentTypeError, Error, check
from ._times import whole_seconds

Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]

TYPES: dict[str, int] = numbers("BH_TYPE_")
TYPE_NAMES: dict[int, str] = names("BH_TYPE_")

_STRING = c.BH_TYPE_STRING
_DOUBLE = c.BH_TYPE_DOUBLE


@dataclass(frozen=True, slots=True)
class Typed:
    """A header's value with its AMQP type, for types that Python lacks: ``Typed("int8", 3)``.

    The types are boolean, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float, double,
    decimal, string, bytes, timestamp (seconds) and void. An array has a list of values. A table has
    a mapping, or pairs of name and value.
    """

    type: str
    value: Any


def push_headers(handle: c.Delivery, headers: Headers, *, is_client: bool = False) -> None:
    """Pushes headers of any depth.

    :param is_client: whether a client decoded them. Then an integer above int64 is a double: pika
        reads floats as integers, and RabbitMQ reads no uint64.
    :raises ArgumentTypeError: if a value has no type in AMQP.
    """
    try:
        inside = headers if type(headers) is dict else _entries(headers)
        if status := c.push_all(
            handle, handle, inside, _push_of_client if is_client else _push_other
        ):
            check(status)
    except Error:
        raise
    except (TypeError, ValueError, OverflowError):  # the binding's text has types of C
        raise ArgumentTypeError(
            "headers hold a name that is no str or bytes, or a value that AMQP has no type for: "
            "give a mapping of "
            "names, or pairs of name and value"
        ) from None


def _entries(headers: Headers) -> Iterator[tuple[Text, Any]]:
    return iter(headers.items() if isinstance(headers, Mapping) else headers)


def _signed(value: int) -> int:
    """Returns the int64 with the same 64 bits."""
    return value - 2**64 if 2**63 <= value < 2**64 else value


def _push_of_client(
    handle: c.Delivery, name: Text | None, value: Any
) -> tuple[Iterator[tuple[Text, Any]] | None, int]:
    """Pushes a value as _push_other does, except integers above int64."""
    if isinstance(value, int):
        return None, c.Delivery_push_float(handle, name or "", _DOUBLE, float(value))
    return _push_other(handle, name, value)


def _push_other(
    handle: c.Delivery, name: Text | None, value: Any
) -> tuple[Iterator[tuple[Text, Any]] | None, int]:
    """Pushes a value that the binding does not push.

    :param name: None in an array.
    :returns: the remaining items of a table or an array, or None; and the status.
    """
    name = name or ""
    if isinstance(value, int):
        if 2**63 <= value < 2**64:
            return None, c.Delivery_push_int(handle, name, c.BH_TYPE_UINT64, _signed(value))
        return None, c.Delivery_push_float(
            handle, name, _DOUBLE, float(value)
        )  # pika reads a float as an integer
    if isinstance(value, float):
        return None, c.Delivery_push_float(handle, name, _DOUBLE, value)
    if isinstance(value, bytes | bytearray):
        kind = c.BH_TYPE_BYTES if isinstance(value, bytearray) or _is_utf8(value) else _STRING
        return None, c.Delivery_push_string(handle, name, kind, bytes(value))
    if isinstance(value, Decimal):
        return None, c.Delivery_push_decimal(handle, name, *_places_and_digits(value))
    if isinstance(value, Typed):
        if value.type == "table":
            return _entries(value.value), c.Delivery_begin_table(handle, name)
        if value.type == "array":
            return zip(repeat(""), value.value), c.Delivery_begin_array(handle, name)
        return None, _push_typed(handle, name, value)
    if isinstance(value, str):
        return None, c.Delivery_push_string(handle, name, _STRING, str(value))
    if isinstance(value, datetime):
        return None, c.Delivery_push_int(handle, name, c.BH_TYPE_TIMESTAMP, whole_seconds(value))
    if isinstance(value, Mapping):
        return _entries(value), c.Delivery_begin_table(handle, name)
    if isinstance(value, list | tuple):
        return zip(repeat(""), value), c.Delivery_begin_array(handle, name)
    raise ArgumentTypeError(
        f"header {name!r} holds a {type(value).__name__}, for which AMQP has no type: give str, "
        "bytes, int, "
        "float, bool, None, datetime, Decimal, dict, list or Typed"
    )


def _push_typed(handle: c.Delivery, name: Text, typed: Typed) -> int:
    tag, value = number(TYPES, typed.type, "a type"), typed.value
    if typed.type in ("string", "bytes"):
        return c.Delivery_push_string(handle, name, tag, value)
    if typed.type in ("float", "double"):
        return c.Delivery_push_float(handle, name, tag, value)
    if typed.type == "decimal":
        return c.Delivery_push_decimal(handle, name, *_places_and_digits(value))
    if typed.type == "void":
        return c.Delivery_push_void(handle, name)
    return c.Delivery_push_int(handle, name, tag, _signed(value))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _places_and_digits(value: Decimal) -> tuple[int, int]:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ArgumentError(f"a header holds {value}, for which AMQP has no decimal")
    unscaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    unscaled = -unscaled if sign else unscaled
    if not -(2**31) <= unscaled < 2**32:  # pamqp reads the digits as if they had no sign
        raise ArgumentError(f"a header holds {value}, for which AMQP has no decimal")
    return max(-exponent, 0), unscaled


def pull_headers(handle: c.Delivery) -> dict[str, Any]:
    """Returns headers of any depth as Python's values.

    If two have the same name, the first counts.
    """
    headers: dict[str, Any] = {}
    outer: list[tuple[dict[str, Any] | list[Any], int]] = [
        (headers, c.Delivery_value_count(handle))
    ]
    for index in range(c.Delivery_value_count(handle)):
        while index == outer[-1][1]:
            outer.pop()
        kind, name, string, integer, real, places, end = c.Delivery_value(handle, index)
        value: Any = {} if kind == c.BH_TYPE_TABLE else [] if kind == c.BH_TYPE_ARRAY else None
        if value is None:
            value = _value(kind, string, integer, real, places)
        inside = outer[-1][0]
        if isinstance(inside, list):
            inside.append(value)
        else:
            inside.setdefault(name, value)
        if isinstance(value, dict | list):
            outer.append((value, end))
    return headers


def _value(kind: int, string: str, number: int, real: float, places: int) -> Any:
    if kind == _STRING:
        return string
    if kind == c.BH_TYPE_BYTES:
        return string.encode("utf-8", "surrogateescape")
    if kind == c.BH_TYPE_VOID:
        return None
    if kind in (c.BH_TYPE_FLOAT, _DOUBLE):
        return real
    if kind == c.BH_TYPE_BOOLEAN:
        return bool(number)
    if kind == c.BH_TYPE_UINT64:
        return number % 2**64
    if kind == c.BH_TYPE_DECIMAL:
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -places))
    if kind == c.BH_TYPE_TIMESTAMP:
        return moment(number)
    return number


def moment(timestamp: int) -> datetime | int:
    """Returns the time in UTC; the number itself if it is out of datetime's range."""
    try:
        return datetime.fromtimestamp(timestamp, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return timestamp


def wire_text(text: str) -> str | bytes:
    """Returns a text of the core for a client to write: str, or bytes if it is not UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def encoded(text: str) -> bytes:
    """Returns a text in UTF-8. Lone surrogates become bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def copied(value: Any) -> Any:
    """Returns a deep copy of a header's value."""
    if isinstance(value, dict):
        table = {}
        for name, item in value.items():
            table[name] = copied(item)
        return table
    if isinstance(value, list):
        array = []
        for item in value:
            array.append(copied(item))  # noqa: PERF401  one call a level: what a client could decode is not too deep
        return array
    return bytearray(value) if isinstance(value, bytearray) else value
