"""AMQP 0-9-1 on the wire: frames, methods, properties and typed values.

Typed values are as in tests/vectors/README.md: {"int32": 5}; a JSON value stands for its usual type.
"""

from __future__ import annotations

import struct
from typing import Any

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
PROTOCOL = b"AMQP\0\0\x09\x01"


# -------------------------------------------------------------------------------------- encoding


def short(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return bytes([len(data)]) + data


def long(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data


def table(fields: dict[str, bytes]) -> bytes:
    """A table of fields that are encoded already: b"S" + long("text")."""
    return long(b"".join(short(name) + value for name, value in fields.items()))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def content(
    channel: int, properties: bytes, body: bytes, size: int | None = None, most: int = 131000
) -> bytes:
    """A header frame and body frames of at most `most` bytes each."""
    size = len(body) if size is None else size
    header = frame(HEADER, channel, struct.pack(">HHQ", 60, 0, size) + properties)
    pieces = [body[at : at + most] for at in range(0, len(body), most)]
    return header + b"".join(frame(BODY, channel, piece) for piece in pieces)


def connection_close(code: int = 320, text: str | bytes = "CONNECTION_FORCED") -> bytes:
    return method(0, 10, 50, struct.pack(">H", code) + short(text) + b"\0\0\0\0")


def channel_close(
    channel: int, code: int = 406, text: str | bytes = "PRECONDITION_FAILED"
) -> bytes:
    return method(channel, 20, 40, struct.pack(">H", code) + short(text) + b"\0\0\0\0")


# ---------------------------------------------------------------------------------- typed values

NUMBERS = {  # of a type: its tag and format
    "boolean": (b"t", ">?"),
    "int8": (b"b", ">b"),
    "uint8": (b"B", ">B"),
    "int16": (b"s", ">h"),
    "uint16": (b"u", ">H"),
    "int32": (b"I", ">i"),
    "uint32": (b"i", ">I"),
    "int64": (b"l", ">q"),
    "uint64": (b"L", ">Q"),
    "float": (b"f", ">f"),
    "double": (b"d", ">d"),
    "timestamp": (b"T", ">Q"),
}
TAGS = {tag: (name, form) for name, (tag, form) in NUMBERS.items()}

Entries = list[tuple[str, Any]]


def typed(value: Any) -> dict[str, Any]:
    """Returns a typed value in full: an object of one key."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"boolean": value}
    if isinstance(value, int):
        return {"int64": value}
    if isinstance(value, float):
        return {"double": value}
    if value is None:
        return {"void": None}
    return {"string": value}


def entries(fields: Any) -> Entries:
    """Returns the entries of a table: a list of [name, value], or an object."""
    pairs = fields.items() if isinstance(fields, dict) else fields or []
    return [(name, typed(value)) for name, value in pairs]


def octets(text: Any) -> bytes:
    """Returns the bytes of "text", {"hex": "00ff"}, {"times": 3, "text": ...} or {"join": [...]}."""
    if isinstance(text, str):
        return text.encode()
    if "hex" in text:
        return bytes.fromhex(text["hex"])
    if "times" in text:
        return octets(text["text"]) * int(text["times"])
    return b"".join(octets(each) for each in text["join"])


def readable(data: bytes) -> Any:
    """Returns UTF-8 as text, and other bytes as {"hex": ...}."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def encode_value(value: Any) -> bytes:
    [(kind, inner)] = typed(value).items()
    if kind in NUMBERS:
        tag, form = NUMBERS[kind]
        return tag + struct.pack(form, inner if kind == "boolean" else _number(kind, inner))
    if kind == "decimal":
        return b"D" + struct.pack(">Bi", inner["places"], inner["value"])
    if kind == "string":
        return b"S" + long(octets(inner))
    if kind == "bytes":
        return b"x" + long(octets(inner))
    if kind == "void":
        return b"V"
    if kind == "array":
        return b"A" + long(b"".join(encode_value(each) for each in inner))
    if kind == "table":
        return b"F" + encode_table(inner)
    raise ValueError(f"no AMQP type is called {kind}")


def _number(kind: str, value: Any) -> Any:
    return float(value) if kind in ("float", "double") else int(value)


def encode_table(fields: Any) -> bytes:
    return long(b"".join(short(name) + encode_value(value) for name, value in entries(fields)))


class Reader:
    """Reads fields from the bytes of a frame."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) < size:
            raise ValueError("the frame is too short")
        self.at += size
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def short(self) -> bytes:
        return self.take(self.number(">B"))

    def long(self) -> bytes:
        return self.take(self.number(">I"))

    def is_over(self) -> bool:
        return self.at == len(self.data)

    def value(self) -> dict[str, Any]:
        tag = self.take(1)
        if tag in TAGS:
            name, form = TAGS[tag]
            return {name: self.number(form)}
        if tag == b"D":
            return {"decimal": {"places": self.number(">B"), "value": self.number(">i")}}
        if tag == b"S":
            return {"string": readable(self.long())}
        if tag == b"x":
            return {"bytes": readable(self.long())}
        if tag == b"V":
            return {"void": None}
        if tag == b"A":
            inner, found = Reader(self.long()), []
            while not inner.is_over():
                found.append(inner.value())
            return {"array": found}
        if tag == b"F":
            return {"table": self.table()}
        raise ValueError(f"the broker sent a value with the unknown tag {tag!r}")

    def table(self) -> list[Any]:
        inner, found = Reader(self.long()), []
        while not inner.is_over():
            name = inner.short().decode()
            found.append([name, inner.value()])
        return found


# --------------------------------------------------------------------------------------- methods

# Class, method and fields. A field's type follows its name. s and S are short and long strings, b is a bit, F is a
# table. B, H, I and Q have 8, 16, 32 and 64 bits.
METHODS: dict[str, tuple[int, int, str]] = {
    "connection.start": (10, 10, "major:B minor:B server-properties:F mechanisms:S locales:S"),
    "connection.start-ok": (10, 11, "client-properties:F mechanism:s response:S locale:s"),
    "connection.secure": (10, 20, "challenge:S"),
    "connection.secure-ok": (10, 21, "response:S"),
    "connection.tune": (10, 30, "channel-max:H frame-max:I heartbeat:H"),
    "connection.tune-ok": (10, 31, "channel-max:H frame-max:I heartbeat:H"),
    "connection.open": (10, 40, "vhost:s reserved-1:s reserved-2:b"),
    "connection.open-ok": (10, 41, "reserved-1:s"),
    "connection.close": (10, 50, "code:H text:s class:H method:H"),
    "connection.close-ok": (10, 51, ""),
    "connection.blocked": (10, 60, "reason:s"),
    "connection.unblocked": (10, 61, ""),
    "channel.open": (20, 10, "reserved-1:s"),
    "channel.open-ok": (20, 11, "reserved-1:S"),
    "channel.flow": (20, 20, "active:b"),
    "channel.flow-ok": (20, 21, "active:b"),
    "channel.close": (20, 40, "code:H text:s class:H method:H"),
    "channel.close-ok": (20, 41, ""),
    "exchange.declare": (
        40,
        10,
        "reserved-1:H exchange:s type:s passive:b durable:b auto-delete:b internal:b nowait:b arguments:F",
    ),
    "exchange.declare-ok": (40, 11, ""),
    "exchange.delete": (40, 20, "reserved-1:H exchange:s if-unused:b nowait:b"),
    "exchange.delete-ok": (40, 21, ""),
    "exchange.bind": (40, 30, "reserved-1:H destination:s source:s key:s nowait:b arguments:F"),
    "exchange.bind-ok": (40, 31, ""),
    "exchange.unbind": (40, 40, "reserved-1:H destination:s source:s key:s nowait:b arguments:F"),
    "exchange.unbind-ok": (40, 51, ""),
    "queue.declare": (
        50,
        10,
        "reserved-1:H queue:s passive:b durable:b exclusive:b auto-delete:b nowait:b arguments:F",
    ),
    "queue.declare-ok": (50, 11, "queue:s ready:I consumers:I"),
    "queue.bind": (50, 20, "reserved-1:H queue:s exchange:s key:s nowait:b arguments:F"),
    "queue.bind-ok": (50, 21, ""),
    "queue.purge": (50, 30, "reserved-1:H queue:s nowait:b"),
    "queue.purge-ok": (50, 31, "count:I"),
    "queue.delete": (50, 40, "reserved-1:H queue:s if-unused:b if-empty:b nowait:b"),
    "queue.delete-ok": (50, 41, "count:I"),
    "queue.unbind": (50, 50, "reserved-1:H queue:s exchange:s key:s arguments:F"),
    "queue.unbind-ok": (50, 51, ""),
    "basic.qos": (60, 10, "size:I count:H global:b"),
    "basic.qos-ok": (60, 11, ""),
    "basic.consume": (
        60,
        20,
        "reserved-1:H queue:s consumer:s no-local:b no-ack:b exclusive:b nowait:b arguments:F",
    ),
    "basic.consume-ok": (60, 21, "consumer:s"),
    "basic.cancel": (60, 30, "consumer:s nowait:b"),
    "basic.cancel-ok": (60, 31, "consumer:s"),
    "basic.publish": (60, 40, "reserved-1:H exchange:s key:s mandatory:b immediate:b"),
    "basic.return": (60, 50, "code:H text:s exchange:s key:s"),
    "basic.deliver": (60, 60, "consumer:s tag:Q redelivered:b exchange:s key:s"),
    "basic.get": (60, 70, "reserved-1:H queue:s no-ack:b"),
    "basic.get-ok": (60, 71, "tag:Q redelivered:b exchange:s key:s remaining:I"),
    "basic.get-empty": (60, 72, "reserved-1:s"),
    "basic.ack": (60, 80, "tag:Q multiple:b"),
    "basic.reject": (60, 90, "tag:Q requeue:b"),
    "basic.recover-async": (60, 100, "requeue:b"),
    "basic.recover": (60, 110, "requeue:b"),
    "basic.recover-ok": (60, 111, ""),
    "basic.nack": (60, 120, "tag:Q multiple:b requeue:b"),
    "confirm.select": (85, 10, "nowait:b"),
    "confirm.select-ok": (85, 11, ""),
    "tx.select": (90, 10, ""),
    "tx.select-ok": (90, 11, ""),
    "tx.commit": (90, 20, ""),
    "tx.commit-ok": (90, 21, ""),
    "tx.rollback": (90, 30, ""),
    "tx.rollback-ok": (90, 31, ""),
}
NAMES = {(class_id, number): name for name, (class_id, number, _) in METHODS.items()}
NAMES[0, 0] = ""  # of a close that no method caused
WITH_CONTENT = ("basic.deliver", "basic.get-ok", "basic.return")
FORMS = {"B": ">B", "H": ">H", "I": ">I", "Q": ">Q"}


def encode_method(channel: int, name: str, **given: Any) -> bytes:
    """A method's frame. Fields that are not given are 0, "" or empty; `-` in their names is `_`."""
    class_id, number, fields = METHODS[name]
    values = {key.replace("_", "-"): value for key, value in given.items()}
    data, bits, used = b"", 0, 0
    for each in fields.split():
        field, kind = each.split(":")
        value = values.pop(field, None)
        if kind == "b":
            bits |= bool(value) << used
            used += 1
            continue
        if used:
            data, bits, used = data + bytes([bits]), 0, 0
        if kind == "s":
            data += short(octets(value or ""))
        elif kind == "S":
            data += long(octets(value or ""))
        elif kind == "F":
            data += encode_table(value)
        else:
            data += struct.pack(FORMS[kind], int(value or 0))
    if used:
        data += bytes([bits])
    if values:
        raise ValueError(f"{name} has no field {', '.join(values)}")
    return method(channel, class_id, number, data)


def decode_method(payload: bytes) -> tuple[str, dict[str, Any]]:
    reader = Reader(payload)
    which = (reader.number(">H"), reader.number(">H"))
    if which not in NAMES:
        raise ValueError(f"the broker sent the unknown method {which}")
    name = NAMES[which]
    found: dict[str, Any] = {}
    bits, left = 0, 0
    for each in METHODS[name][2].split():
        field, kind = each.split(":")
        if kind == "b":
            if not left:
                bits, left = reader.number(">B"), 8
            found[field] = bool(bits & 1)
            bits, left = bits >> 1, left - 1
            continue
        left = 0
        if kind in "sS":
            found[field] = readable(reader.short() if kind == "s" else reader.long())
        else:
            found[field] = reader.table() if kind == "F" else reader.number(FORMS[kind])
    return name, found


# ------------------------------------------------------------------------------------ properties

PROPERTIES = (
    ("content-type", "s"),
    ("content-encoding", "s"),
    ("headers", "F"),
    ("delivery-mode", "B"),
    ("priority", "B"),
    ("correlation-id", "s"),
    ("reply-to", "s"),
    ("expiration", "s"),
    ("message-id", "s"),
    ("timestamp", "Q"),
    ("type", "s"),
    ("user-id", "s"),
    ("app-id", "s"),
    ("cluster-id", "s"),
)


def encode_properties(properties: dict[str, Any]) -> bytes:
    """Flags and values; `headers` is a list of entries or an object."""
    left = dict(properties)
    flags, data = 0, b""
    for index, (name, kind) in enumerate(PROPERTIES):
        if name not in left:
            continue
        value = left.pop(name)
        flags |= 1 << (15 - index)
        if kind == "s":
            data += short(octets(value))
        else:
            data += encode_table(value) if kind == "F" else struct.pack(FORMS[kind], int(value))
    if left:
        raise ValueError(f"AMQP has no property {', '.join(left)}")
    return struct.pack(">H", flags) + data


def decode_properties(reader: Reader) -> dict[str, Any]:
    flags = reader.number(">H")
    found: dict[str, Any] = {}
    for index, (name, kind) in enumerate(PROPERTIES):
        if not flags & 1 << (15 - index):
            continue
        if kind == "s":
            found[name] = readable(reader.short())
        else:
            found[name] = reader.table() if kind == "F" else reader.number(FORMS[kind])
    return found
