"""The one place that turns AMQP clients' values into the core's and back.

A client decodes a header into a Python value, which does not tell all of its AMQP type:

===================  ==================================================================================================
Python               is pushed as
===================  ==================================================================================================
str                  string
bytes                string where it is not UTF-8 (clients give UTF-8 strings as str), else bytes
bytearray            bytes
bool                 boolean
int                  int64, above it uint64: the widest, so that no copy is larger than the core reckons
float                double
Decimal              decimal
datetime             timestamp; without a zone it is in UTC
None                 void
dict, list, tuple    table, array
Typed                as it says
===================  ==================================================================================================

A copy's kept headers are encoded here too, from the values that the client decoded: pika and pamqp (aio-pika) refuse
some that they read, and change others. What the client did not tell cannot be kept: the width of integers (they go out
as int32, or int64 where they are larger) and of floats (aio-pika: double); pika reads floats as integers, and strings
that are not UTF-8 as bytes; aio-pika reads timestamps after the year 2106 as milliseconds. The worker keeps them all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias

from . import _backhop as c
from ._core import number
from ._errors import ArgumentError, ArgumentTypeError, Error, check
from ._time import whole_seconds

Text: TypeAlias = str | bytes
Headers: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]

TYPES: dict[str, int] = {
    "boolean": c.BH_TYPE_BOOLEAN,
    "int8": c.BH_TYPE_INT8,
    "uint8": c.BH_TYPE_UINT8,
    "int16": c.BH_TYPE_INT16,
    "uint16": c.BH_TYPE_UINT16,
    "int32": c.BH_TYPE_INT32,
    "uint32": c.BH_TYPE_UINT32,
    "int64": c.BH_TYPE_INT64,
    "uint64": c.BH_TYPE_UINT64,
    "float": c.BH_TYPE_FLOAT,
    "double": c.BH_TYPE_DOUBLE,
    "decimal": c.BH_TYPE_DECIMAL,
    "string": c.BH_TYPE_STRING,
    "bytes": c.BH_TYPE_BYTES,
    "timestamp": c.BH_TYPE_TIMESTAMP,
    "void": c.BH_TYPE_VOID,
    "array": c.BH_TYPE_ARRAY,
    "table": c.BH_TYPE_TABLE,
}
TYPE_NAMES = {number: name for name, number in TYPES.items()}

_STRING = c.BH_TYPE_STRING
_DOUBLE = c.BH_TYPE_DOUBLE


@dataclass(frozen=True, slots=True)
class Typed:
    """A header's value with its AMQP type, where Python's does not tell it: ``Typed("int8", 3)``.

    Types: boolean, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float, double, decimal, string, bytes,
    timestamp (seconds), void, array (of values), table (a mapping, or pairs of name and value).
    """

    type: str
    value: Any


def push_headers(handle: c.Delivery, headers: Headers) -> None:
    """Pushes headers of any depth.

    :raises ArgumentTypeError: for what has no type in AMQP
    """
    try:
        inside = headers if type(headers) is dict else _entries(headers)
        if status := c.push_all(handle, handle, inside, _push_other):
            check(status)
    except Error:
        raise
    except (TypeError, ValueError, OverflowError):  # of the binding: it speaks of C
        raise ArgumentTypeError(
            "headers hold a name that is no str or bytes, or a value that AMQP has no type for: give a mapping of "
            "names, or pairs of name and value"
        ) from None


def _entries(headers: Headers) -> Iterator[tuple[Text, Any]]:
    return iter(headers.items() if isinstance(headers, Mapping) else headers)


def _signed(value: int) -> int:
    """The int64 of the same 64 bits."""
    return value - 2**64 if 2**63 <= value < 2**64 else value


def _push_other(handle: c.Delivery, name: Text | None, value: Any) -> tuple[Iterator[tuple[Text, Any]] | None, int]:
    """Pushes what the binding does not: of a table or an array what is left to push, and the status.

    :param name: None in an array
    """
    name = name or ""
    if isinstance(value, int):
        if 2**63 <= value < 2**64:
            return None, c.Delivery_push_int(handle, name, c.BH_TYPE_UINT64, _signed(value))
        return None, c.Delivery_push_float(handle, name, _DOUBLE, float(value))  # pika reads a float as an integer
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
        f"header {name!r} holds a {type(value).__name__}, for which AMQP has no type: give str, bytes, int, "
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
    return max(-exponent, 0), -unscaled if sign else unscaled


def pull_headers(handle: c.Delivery) -> dict[str, Any]:
    """Headers of any depth, as Python's values; of those with one name, the first."""
    headers: dict[str, Any] = {}
    outer: list[tuple[dict[str, Any] | list[Any], int]] = [(headers, c.Delivery_value_count(handle))]
    for index in range(c.Delivery_value_count(handle)):
        while index == outer[-1][1]:
            outer.pop()
        kind = c.Delivery_value_type(handle, index)
        value: Any = {} if kind == c.BH_TYPE_TABLE else [] if kind == c.BH_TYPE_ARRAY else _value(handle, index, kind)
        inside = outer[-1][0]
        if isinstance(inside, list):
            inside.append(value)
        else:
            inside.setdefault(c.Delivery_value_name(handle, index), value)
        if isinstance(value, dict | list):
            outer.append((value, c.Delivery_value_end(handle, index)))
    return headers


def _value(handle: c.Delivery, index: int, kind: int) -> Any:
    if kind == _STRING:
        return c.Delivery_value_string(handle, index)
    if kind == c.BH_TYPE_BYTES:
        return c.Delivery_value_string(handle, index).encode("utf-8", "surrogateescape")
    if kind == c.BH_TYPE_VOID:
        return None
    if kind in (c.BH_TYPE_FLOAT, _DOUBLE):
        return c.Delivery_value_float(handle, index)
    number = c.Delivery_value_int(handle, index)
    if kind == c.BH_TYPE_BOOLEAN:
        return bool(number)
    if kind == c.BH_TYPE_UINT64:
        return number % 2**64
    if kind == c.BH_TYPE_DECIMAL:
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -c.Delivery_value_places(handle, index)))
    if kind == c.BH_TYPE_TIMESTAMP:
        return moment(number)
    return number


def moment(timestamp: int) -> datetime | int:
    """The time in UTC; the number itself where it is none that Python knows."""
    try:
        return datetime.fromtimestamp(timestamp, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return timestamp


def wire_text(text: str) -> str | bytes:
    """A text of the core as a client writes it: str, or bytes where it is not UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


class Int64(int):
    """An integer to encode as one of 64 bits, however small it is."""

    __slots__ = ()


def encode_table(table: dict[Any, Any], tag_of_bytes: bytes, plan: c.Plan | None = None) -> bytes:
    """Headers as they are on the wire, from the values that a client decoded.

    :param tag_of_bytes: what bytes are: ``b"S"``, a string that is not UTF-8, or ``b"x"``
    :param plan: of a copy: what of the original's headers it keeps goes out, and its own
    :raises ArgumentTypeError: for what has no type in AMQP
    :raises ArgumentError: for what is beyond its type's range
    """
    try:
        return c.encoded_table(plan, table, tag_of_bytes, _encoded_other)
    except (struct.error, OverflowError) as error:
        raise ArgumentError(f"a header is beyond its type's range: {error}") from error


def _encoded_other(value: Any, tag_of_bytes: bytes) -> bytes:
    """What the binding does not encode, with the tag of its type before it."""
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return _TAG_AND_LENGTH(b"S", len(data)) + data
    if isinstance(value, int | float):  # pika reads a float as an integer
        return b"d" + _DOUBLE_OF(value)
    if isinstance(value, datetime):
        return b"T" + _INT64_OF(whole_seconds(value))
    if isinstance(value, Decimal):
        places, digits = _places_and_digits(value)  # pamqp reads the digits as if they had no sign
        return b"D" + _DECIMAL_OF(places, digits - 2**32 if 2**31 <= digits < 2**32 else digits)
    if isinstance(value, bytes | bytearray):
        return _TAG_AND_LENGTH(tag_of_bytes if isinstance(value, bytes) else b"x", len(value)) + value
    raise ArgumentTypeError(
        f"a header holds a {type(value).__name__}, for which AMQP has no type: give str, bytes, int, "
        "float, bool, None, datetime, Decimal, dict, list or Typed"
    )


_TAG_AND_LENGTH = struct.Struct(">cI").pack
_INT64_OF = struct.Struct(">q").pack
_DOUBLE_OF = struct.Struct(">d").pack
_DECIMAL_OF = struct.Struct(">Bi").pack


def copied(value: Any) -> Any:
    """A value of a header that shares nothing with the one given that can change."""
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
