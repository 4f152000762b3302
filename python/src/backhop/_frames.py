"""The frames that the adapters write themselves: what clients make of a copy takes several times as long, and a system
call for each frame, and none of them can write all headers that it reads."""

from __future__ import annotations

import struct
from collections.abc import Container
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._time import whole_seconds
from .delivery import NUMBERED

How: TypeAlias = Literal["ack", "reject", "return", "requeue"]
"""How an original is settled."""

_OVERHEAD = 8  # bytes around a frame's content
_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC = 60
_PUBLISH, _ACK, _REJECT, _NACK = 40, 80, 90, 120
_MANDATORY, _REQUEUE = 1, 2
_END = b"\xce"

_frame_start = struct.Struct(">BHI").pack
_publish_start = struct.Struct(">HHH").pack
_settlement = struct.Struct(">HHQB").pack


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
    original: Any, body_size: int, kept: int, expiration: str, table: bytes, blank: Container[object] = ()
) -> bytes:
    """A copy's content header; its delivery-mode is 2.

    :param original: has the original's properties as attributes; None is absent
    :param kept: the bits of those that the copy keeps, by their numbers
    :param expiration: the copy's own; "" for none
    :param table: its headers, of encode_table
    :param blank: what stands for a property that is absent besides None
    :raises Exception: for a value that its property cannot have
    """
    return c.content_header(original, body_size, kept, expiration, table, _OPTIONAL, blank, whole_seconds)


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


_OPTIONAL = tuple(each for each in NUMBERED if each[0] != "delivery_mode")
