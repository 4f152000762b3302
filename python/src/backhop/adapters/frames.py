"""Encodes the frames that the adapters write themselves.

Neither pika nor aio-pika can write all headers that it reads. Their publish also takes several
times as long, and a system call for each frame.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Literal, TypeAlias

from .._amqp import Text

How: TypeAlias = Literal["ack", "reject", "return", "requeue"]
"""Settles by basic.ack, basic.nack, basic.reject with requeue, or basic.nack with requeue."""

_OVERHEAD = 8  # bytes around a frame's content
_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC = 60
_PUBLISH, _ACK, _REJECT, _NACK = 40, 80, 90, 120
_MANDATORY, _REQUEUE = 1, 2
_END = b"\xce"

_frame_start = struct.Struct(">BHI").pack
_publish_start = struct.Struct(">HHH").pack
_settlement = struct.Struct(">HHQB").pack
_content_start = struct.Struct(">HHQ").pack


def settlement(number: int, tag: int, how: How) -> bytes:
    """Returns the frame that settles a delivery.

    :param number: the channel's number
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
    """Returns the frame of a basic.publish; the content's frames follow it."""
    names = _short_string(exchange) + _short_string(routing_key)
    return _frame(
        _METHOD,
        number,
        _publish_start(_BASIC, _PUBLISH, 0) + names + bytes([is_mandatory * _MANDATORY]),
    )


def content_header(properties: bytes, body_size: int) -> bytes:
    """Returns a content header.

    :param properties: properties and headers as they are on the wire
    """
    return _content_start(_BASIC, 0, body_size) + properties


def content_frames(number: int, header: bytes, body: bytes, frame_max: int) -> list[bytes]:
    """Returns the frames of a content.

    :param number: the channel's number
    :param header: of content_header
    :param frame_max: the longest frame of the connection, in bytes
    """
    size = frame_max - _OVERHEAD
    bodies = (body[start : start + size] for start in range(0, len(body), size))
    return [_frame(_HEADER, number, header), *(_frame(_BODY, number, each) for each in bodies)]


def _frame(kind: int, number: int, content: bytes) -> bytes:
    return _frame_start(kind, number, len(content)) + content + _END


def _short_string(text: Text) -> bytes:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return bytes([len(data)]) + data
