"""Delivery: one arrival of a message."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from . import _backhop as c
from ._amqp import TYPE_NAMES, Headers, Text, pull_headers, push_headers
from ._checks import shortened
from ._core import made, numbers
from ._errors import ArgumentError, ArgumentTypeError, check
from ._times import milliseconds, moment, whole_seconds

PROPERTIES: dict[str, int] = {
    name.replace("-", "_"): number for name, number in numbers("BH_PROPERTY_", "HEADERS").items()
}
"""AMQP's basic properties as Python's clients name them, without headers."""

_NUMBERS = frozenset({"delivery_mode", "priority", "timestamp"})
NUMBERED = tuple((name, number, name in _NUMBERS) for name, number in PROPERTIES.items())
"""The properties' names and numbers, and whether they are numbers, in their order on the wire."""


class Delivery:
    """One arrival of a message: exchange, routing key, properties, headers. A delivery never
    changes.

    :param exchange: the exchange, as basic.deliver has it.
    :param routing_key: the routing key, as basic.deliver has it.
    :param properties: AMQP's basic properties by name, for example ``{"message_id": "42"}``. Or an
        object with these attributes, for example pika.BasicProperties or aio_pika.Message. None is
        absent. A timestamp is a datetime, or seconds. An expiration is a string of ms, or (as in
        aio-pika) seconds.
    :param headers: a mapping, or pairs of name and value; None: the message has none.
    :raises ArgumentError: if a name or a property has more than 255 bytes, or a value has no type
        in AMQP.
    """

    __slots__ = ("_handle",)

    def __init__(
        self,
        exchange: Text = "",
        routing_key: Text = "",
        properties: object = None,
        headers: Headers | None = None,
    ) -> None:
        handle = self._handle = made(c.bh_delivery_new())
        if not (isinstance(exchange, (str, bytes)) and isinstance(routing_key, (str, bytes))):
            raise ArgumentTypeError(
                f"exchange and routing_key are {shortened(exchange)} and {shortened(routing_key)}: "
                "give str or bytes"
            )
        check(c.Delivery_set_address(handle, exchange, routing_key))
        if properties is not None:
            _set_properties(handle, properties)
        if headers is not None:
            push_headers(handle, headers)

    @classmethod
    def _of_client(
        cls,
        exchange: Text,
        routing_key: Text,
        properties: object,
        headers: Headers | None,
        blank: Container[object],
    ) -> Delivery:
        """Returns the delivery of a client's message, as a copy of it will be written.

        :param blank: stands for an absent property besides None.
        """
        self = cls.__new__(cls)
        handle = self._handle = made(c.bh_delivery_new())
        check(c.Delivery_set_address(handle, exchange, routing_key))
        if properties is not None:
            _set_properties(handle, properties, blank)
        if headers is not None:
            push_headers(handle, headers, is_client=True)
        return self

    @property
    def exchange(self) -> str:
        """The exchange that the message was published to.

        Retry: the exchange that brought it back.
        """
        return c.Delivery_exchange(self._handle)

    @property
    def routing_key(self) -> str:
        """The routing key."""
        return c.Delivery_routing_key(self._handle)

    @property
    def properties(self) -> dict[str, str | int]:
        """The basic properties that the message has; the timestamp is seconds since the epoch."""
        handle = self._handle
        return {
            name: c.Delivery_number(handle, number)
            if name in _NUMBERS
            else c.Delivery_property(handle, number)
            for name, number in PROPERTIES.items()
            if c.Delivery_has_property(handle, number)
        }

    def _text(self, name: str) -> str | None:
        """Returns a property that is a text; None if the message has none."""
        handle, number = self._handle, PROPERTIES[name]
        return (
            c.Delivery_property(handle, number) if c.Delivery_has_property(handle, number) else None
        )

    @property
    def _timestamp(self) -> datetime | None:
        handle, number = self._handle, c.BH_PROPERTY_TIMESTAMP
        has_one = c.Delivery_has_property(handle, number)
        return moment(c.Delivery_number(handle, number) * 1000) if has_one else None

    @property
    def _priority(self) -> int:
        handle, number = self._handle, c.BH_PROPERTY_PRIORITY
        return c.Delivery_number(handle, number) if c.Delivery_has_property(handle, number) else 0

    @property
    def has_headers(self) -> bool:
        """True if the message has headers."""
        return bool(c.Delivery_has_property(self._handle, c.BH_PROPERTY_HEADERS))

    @property
    def headers(self) -> dict[str, Any]:
        """All headers, as a new dict each time.

        Values are str, bytes, bool, int, float, Decimal, datetime (in UTC), None, list and dict. A
        str that was not UTF-8 has surrogate escapes. A timestamp out of datetime's range is its
        seconds. If two headers have the same name, the first counts. ``header_type`` returns the
        AMQP type.
        """
        return pull_headers(self._handle)

    def header_type(self, name: Text) -> str | None:
        """Returns the AMQP type of a header, for example ``"int32"``; None if it is missing."""
        return TYPE_NAMES.get(c.Delivery_header(self._handle, name)[0])

    def header(self, name: Text) -> str | bytes | int | None:
        """Returns a header that is a string, bytes, boolean, integer or timestamp.

        None for any other.
        """
        kind, _, string, integer, *_ = c.Delivery_header(self._handle, name)
        if kind == c.BH_TYPE_STRING:
            return string
        if kind == c.BH_TYPE_BYTES:
            return string.encode("utf-8", "surrogateescape")
        if kind == c.BH_TYPE_BOOLEAN:
            return bool(integer)
        if kind == c.BH_TYPE_UINT64:
            return integer % 2**64
        return integer if kind in _INTEGERS else None

    @property
    def is_truncated(self) -> bool:
        """True if headers are missing: more than 32 levels, 65,536 values or 1 MiB."""
        return bool(c.Delivery_is_truncated(self._handle))

    @property
    def header_bytes(self) -> int:
        """The size of properties and headers on the wire, in bytes."""
        return c.Delivery_header_bytes(self._handle)

    def __repr__(self) -> str:
        origin = f"{self.exchange!r} by {self.routing_key!r}"
        return f"<Delivery from {origin}, {self.header_bytes} bytes of headers>"


_INTEGERS = frozenset(
    {
        c.BH_TYPE_INT8,
        c.BH_TYPE_UINT8,
        c.BH_TYPE_INT16,
        c.BH_TYPE_UINT16,
        c.BH_TYPE_INT32,
        c.BH_TYPE_UINT32,
        c.BH_TYPE_INT64,
        c.BH_TYPE_TIMESTAMP,
    }
)


def _set_properties(handle: c.Delivery, properties: Any, blank: Container[object] = ()) -> None:
    if isinstance(properties, Mapping):
        if not PROPERTIES.keys() >= properties.keys():
            unknown = ", ".join(sorted(properties.keys() - PROPERTIES.keys()))
            raise ArgumentError(
                f"AMQP has no property {unknown}: give any of {', '.join(PROPERTIES)}"
            )
        properties = SimpleNamespace(**properties)
    if status := c.set_properties(handle, handle, properties, NUMBERED, blank, _set_other):
        check(status)


def _set_other(handle: c.Delivery, name: str, number: int, value: Any) -> int:
    """Sets a value that the binding does not set, and returns the status."""
    if name in _NUMBERS:
        if isinstance(value, datetime):
            value = whole_seconds(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentTypeError(f"{name} is {shortened(value)}: give a number")
        return c.Delivery_set_number(handle, number, min(int(value), 2**63 - 1))
    if name == "expiration" and not isinstance(value, str | bytes):
        value = str(milliseconds(value, name))
    if not isinstance(value, str | bytes):
        raise ArgumentTypeError(f"{name} is {shortened(value)}: give str or bytes")
    return c.Delivery_set_property(handle, number, value)
