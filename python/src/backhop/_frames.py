"""The frames that the adapters write themselves: what clients make of a copy takes several times as long, and a system
call for each frame, and none of them can write all headers that it reads."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from ._amqp import Text, encode_table
from ._time import whole_seconds
from .delivery import PROPERTIES

How: TypeAlias = Literal["ack", "reject", "return", "requeue"]
"""How an original is settled."""

_OVERHEAD = 8  # bytes around a frame's content
_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC = 60
_PUBLISH, _ACK, _REJECT, _NACK = 40, 80, 90, 120
_MANDATORY, _REQUEUE = 1, 2
_HEADERS, _PERSISTENT = 1 << 13, 1 << 12
_END = b"\xce"

_frame_start = struct.Struct(">BHI").pack
_header_start = struct.Struct(">HHQH").pack
_publish_start = struct.Struct(">HHH").pack
_settlement = struct.Struct(">HHQB").pack
_uint64 = struct.Struct(">Q").pack


def settlement(number: int, tag: int, how: How) -> bytes:
    """The frame of a basic.ack, basic.nack (reject, requeue) or basic.reject (return).

    :param number: the channel's
    """
    if how == "ack":
        content = _settlement(_BASIC, _ACK, tag, 0)
    elif how == "return":
        content = _settlement(_BASIC, _REJECT, tag, 1)
    else:
        content = _settlement(_BASIC, _NACK, tag, _REQUEUE if how == "requeue" else 0)
    return _frame(_METHOD, number, content)


@lru_cache
def publish_frame(number: int, exchange: Text, routing_key: Text, is_mandatory: bool) -> bytes:
    """The frame of a basic.publish, behind which the content comes."""
    names = _short_string(exchange) + _short_string(routing_key)
    return _frame(_METHOD, number, _publish_start(_BASIC, _PUBLISH, 0) + names + bytes([is_mandatory * _MANDATORY]))


def content_header(
    original: Any,
    body_size: int,
    kept: int,
    expiration: str,
    headers: Mapping[Any, Any],
    tag_of_bytes: bytes,
    blank: Container[object] = (),
) -> bytes:
    """A copy's content header; its delivery-mode is 2.

    :param original: has the original's properties as attributes; None is absent
    :param kept: the bits of those that the copy keeps, by their numbers
    :param expiration: the copy's own; "" for none
    :param tag_of_bytes: as encode_table's
    :param blank: what stands for a property that is absent besides None
    :raises Exception: for a value that its property cannot have
    """
    flags = _HEADERS | _PERSISTENT
    before, behind = b"", b"\2"
    for name, number_, bit, encode in _OPTIONAL:
        if name == "expiration":
            value = expiration or None
        elif kept >> number_ & 1:
            value = getattr(original, name)
        else:
            continue
        if value is None or value in blank:
            continue
        flags |= bit
        if bit > _HEADERS:
            before += encode(value)
        else:
            behind += encode(value)
    start = _header_start(_BASIC, 0, body_size, flags)
    return start + before + encode_table(headers, tag_of_bytes) + behind


def content_frames(number: int, header: bytes, body: bytes, most: int) -> list[bytes]:
    """The frames of a content, behind that of its publish.

    :param number: the channel's
    :param header: of content_header
    :param most: the longest frame of the connection, in bytes
    """
    size = most - _OVERHEAD
    bodies = (body[start : start + size] for start in range(0, len(body), size))
    return [_frame(_HEADER, number, header), *(_frame(_BODY, number, each) for each in bodies)]


def _frame(kind: int, number: int, content: bytes) -> bytes:
    return _frame_start(kind, number, len(content)) + content + _END


def _short_string(text: Text) -> bytes:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return bytes([len(data)]) + data


def _octet(value: int) -> bytes:
    return bytes([value])


def _timestamp(value: datetime | int) -> bytes:
    return _uint64(whole_seconds(value) if isinstance(value, datetime) else value)


_ENCODERS: dict[str, Callable[[Any], bytes]] = {"priority": _octet, "timestamp": _timestamp}
_OPTIONAL = [
    (name, number, 1 << 15 - number, _ENCODERS.get(name, _short_string))
    for name, number in PROPERTIES.items()
    if name != "delivery_mode"
]
"""In the order of the wire, which is that of their numbers: the flag of the first is the highest bit."""
