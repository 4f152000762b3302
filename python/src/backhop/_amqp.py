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

A copy's kept headers go out as the client gave them, so the client chooses their types again. What that cannot keep:
the width of integers (pika: int32 or int64, aio-pika: the smallest); strings that are not UTF-8 become bytes; pika
reads floats as integers and refuses to write any; aio-pika writes doubles as 32-bit floats, cuts names to 128 bytes,
reads timestamps after the year 2106 as milliseconds and, on Python 3.10, refuses to write the integers from -128 to -1
(pamqp 3). The worker keeps them all.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias

from . import _backhop as c
from ._core import number
from ._errors import check

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
_INT64 = c.BH_TYPE_INT64
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
    """Pushes headers of any depth."""
    entries: Iterator[tuple[Text, Any]] = _entries(headers)
    outer: list[Iterator[tuple[Text, Any]]] = []
    while True:
        for name, value in entries:
            kind = type(value)
            if kind is str:
                status = c.Delivery_push_string(handle, name, _STRING, value)
            elif kind is dict:
                check(c.Delivery_begin_table(handle, name))
                outer.append(entries)
                entries = iter(value.items())
                break
            elif kind is list:
                check(c.Delivery_begin_array(handle, name))
                outer.append(entries)
                entries = zip(repeat(""), value)
                break
            elif kind is bool:
                status = c.Delivery_push_int(handle, name, c.BH_TYPE_BOOLEAN, value)
            elif kind is datetime:
                status = c.Delivery_push_int(handle, name, c.BH_TYPE_TIMESTAMP, calendar.timegm(value.utctimetuple()))
            elif value is None:
                status = c.Delivery_push_void(handle, name)
            elif kind is Typed and value.type in ("table", "array"):
                begin = c.Delivery_begin_table if value.type == "table" else c.Delivery_begin_array
                check(begin(handle, name))
                outer.append(entries)
                entries = _entries(value.value) if value.type == "table" else zip(repeat(""), value.value)
                break
            elif isinstance(value, int):
                status = _push_int(handle, name, value)
            else:
                nested, status = _push_other(handle, name, value)
                if nested is not None:
                    outer.append(entries)
                    entries = nested
                    break
            if status:
                check(status)
        else:
            if not outer:
                return
            check(c.Delivery_end(handle))
            entries = outer.pop()


def _entries(headers: Headers) -> Iterator[tuple[Text, Any]]:
    return iter(headers.items() if isinstance(headers, Mapping) else headers)


def _push_int(handle: c.Delivery, name: Text, value: int) -> int:
    if -(2**63) <= value < 2**63:
        return c.Delivery_push_int(handle, name, _INT64, value)
    if not -(2**63) <= value < 2**64:  # pika reads a float as an integer
        return c.Delivery_push_float(handle, name, _DOUBLE, float(value))
    return c.Delivery_push_int(handle, name, c.BH_TYPE_UINT64, _signed(value))


def _signed(value: int) -> int:
    """The int64 of the same 64 bits."""
    return value - 2**64 if 2**63 <= value < 2**64 else value


def _push_other(handle: c.Delivery, name: Text, value: Any) -> tuple[Iterator[tuple[Text, Any]] | None, int]:
    """Pushes a rarer value; of a table or an array it is the entries that are left to push."""
    if isinstance(value, float):
        return None, c.Delivery_push_float(handle, name, _DOUBLE, value)
    if isinstance(value, bytes | bytearray):
        kind = c.BH_TYPE_BYTES if isinstance(value, bytearray) or _is_utf8(value) else _STRING
        return None, c.Delivery_push_string(handle, name, kind, bytes(value))
    if isinstance(value, Decimal):
        return None, c.Delivery_push_decimal(handle, name, *_places_and_digits(value))
    if isinstance(value, Typed):
        return None, _push_typed(handle, name, value)
    if isinstance(value, str):
        return None, c.Delivery_push_string(handle, name, _STRING, str(value))
    if isinstance(value, datetime):
        return None, c.Delivery_push_int(handle, name, c.BH_TYPE_TIMESTAMP, calendar.timegm(value.utctimetuple()))
    if isinstance(value, Mapping):
        return _entries(value), c.Delivery_begin_table(handle, name)
    if isinstance(value, list | tuple):
        return zip(repeat(""), value), c.Delivery_begin_array(handle, name)
    raise TypeError(f"header {name!r} holds a {type(value).__name__}, for which AMQP has no type")


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
        raise ValueError(f"a header holds {value}, for which AMQP has no decimal")
    unscaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    return max(-exponent, 0), -unscaled if sign else unscaled


def wire_text(text: str, binary: Callable[[bytes], Any] = bytes) -> Any:
    """A text of the core as a client writes it: str, or what the client takes for bytes where it is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return binary(text.encode("utf-8", "surrogateescape"))
    return text


def wire_value(value: Any, binary: Callable[[bytes], Any] = bytes) -> Any:
    """A header's value as its client gave it, but for bytes, which aio-pika gives and does not take."""
    if binary is bytes:
        return value
    if isinstance(value, bytes):
        return binary(value)
    if isinstance(value, dict):
        return {name: wire_value(item, binary) for name, item in value.items()}
    if isinstance(value, list):
        return [wire_value(item, binary) for item in value]
    return value
