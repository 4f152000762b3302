"""Clients' own shapes, as the clients themselves decode and encode them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

import backhop
from backhop import _backhop as c
from backhop._amqp import wire_text
from backhop.adapters import frames
from backhop.adapters.copies import Copy
from backhop.decider import Decider
from backhop.delivery import PROPERTIES as NUMBERS
from backhop.plan import Result

MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
HEADERS: dict[str, Any] = {
    "text": "grün",
    "binary": b"\xff\x00",
    "yes": True,
    "small": -300,
    "large": 2**62,
    "decimal": Decimal("3.14"),
    "moment": MOMENT,
    "nothing": None,
    "nested": {"list": [1, [None, {"deep": b"\xfe"}], "a"], "empty": {}, "none": []},
}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "string"),
        (b"\xff", "string"),
        (b"text", "bytes"),
        (bytearray(b"\xff"), "bytes"),
        (True, "boolean"),
        (-(2**31), "int32"),
        (2**31 - 1, "int32"),
        (2**31, "int64"),
        (-(2**63), "int64"),
        (2**63, "uint64"),
        (0.5, "double"),
        (Decimal("3.14"), "decimal"),
        (MOMENT, "timestamp"),
        (None, "void"),
        ([1], "array"),
        ((1,), "array"),
        ({"a": 1}, "table"),
    ],
)
def test_a_python_value_has_an_amqp_type(value: object, kind: str) -> None:
    assert backhop.Delivery(headers={"name": value}).header_type("name") == kind


@pytest.mark.parametrize("value", ["grün", "a\0b", b"\xff\0", b"text", True, -1, 2**63 - 1, 2**64 - 1])
def test_a_value_comes_out_as_it_went_in(value: str | bytes | int) -> None:
    got = backhop.Delivery(headers={"name": value}).header("name")
    assert got == (value if not isinstance(value, bytes) or value.isascii() else value.decode(errors="surrogateescape"))
    assert type(got) is (str if value == b"\xff\0" else type(value))


def test_a_moment_without_a_zone_is_in_utc() -> None:
    naive = MOMENT.replace(tzinfo=None)
    assert backhop.Delivery(headers={"name": naive}).header("name") == 1_700_000_000
    assert backhop.Delivery(properties={"timestamp": naive}).properties == {"timestamp": 1_700_000_000}


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j])
def test_what_has_no_type_in_amqp_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match="header 'name' holds a"):
        backhop.Delivery(headers={"name": value})


def test_headers_of_any_depth_are_pushed() -> None:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    delivery = backhop.Delivery(headers={"deep": inner, "after": 1})
    assert delivery.is_truncated
    assert delivery.header("after") == 1
    while inner:  # Python 3.10 would free it by recursion
        inner = inner[0]


def test_a_text_that_is_no_utf8_goes_out_as_its_bytes() -> None:
    assert wire_text("grün") == "grün"
    assert wire_text("\udcff") == b"\xff"


class Int64(int):
    """An integer of a client's own class, as pika's long."""


def copied_table(headers: Any, hidden: int = 0, plan: backhop.Plan | None = None) -> bytes:
    """The headers of a copy on the wire; without a plan, those alone that a copy keeps."""
    read = Decider(backhop.Topology("orders")).read("", "orders", None, headers)
    made = plan or backhop.Plan(read, backhop.Topology("orders"), now=0, random=bytes(32))
    properties = c.Plan_copy_properties(made._handle, read.delivery._handle, hidden)
    assert properties[:2] == b"\x30\x00"  # headers and delivery mode
    assert properties[-1:] == b"\2"
    if plan:
        return properties[2:-1]
    nothing = Decider(backhop.Topology("orders")).read("", "orders", None, None)
    own = len(c.Plan_copy_properties(made._handle, nothing.delivery._handle, hidden)) - 7
    kept = properties[6 : len(properties) - 1 - own]
    return len(kept).to_bytes(4, "big") + kept


@pytest.mark.parametrize("hidden", [0, c.BH_HIDDEN_BYTES])
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("grün", b"S\0\0\0\5gr\xc3\xbcn"),
        (bytearray(b"\0"), b"x\0\0\0\1\0"),
        (True, b"t\1"),
        (False, b"t\0"),
        (None, b"V"),
        (-1, b"I\xff\xff\xff\xff"),
        (2**31 - 1, b"I\x7f\xff\xff\xff"),
        (2**31, b"l\0\0\0\0\x80\0\0\0"),
        (-(2**63), b"l\x80\0\0\0\0\0\0\0"),
        (Int64(1), b"l\0\0\0\0\0\0\0\1"),
        (0.5, b"d\x3f\xe0\0\0\0\0\0\0"),
        (2**63, b"d\x43\xe0\0\0\0\0\0\0"),
        (2**64, b"d\x43\xf0\0\0\0\0\0\0"),
        (Decimal("-1.25"), b"D\2\xff\xff\xff\x83"),
        (Decimal(2**32 - 125).scaleb(-2), b"D\2\xff\xff\xff\x83"),
        (MOMENT, b"T\0\0\0\0\x65\x53\xf1\0"),
        ([1, None], b"A\0\0\0\6I\0\0\0\1V"),
        ({"a": {}}, b"F\0\0\0\7\1aF\0\0\0\0"),
    ],
)
def test_a_copys_value_has_the_tag_of_its_type(value: object, encoded: bytes, hidden: int) -> None:
    assert copied_table({"n": value}, hidden) == (len(encoded) + 2).to_bytes(4, "big") + b"\1n" + encoded


@pytest.mark.parametrize(("hidden", "tag"), [(0, b"S"), (c.BH_HIDDEN_BYTES, b"x")])
def test_bytes_that_are_not_utf8_are_what_the_client_has_them_for(hidden: int, tag: bytes) -> None:
    assert copied_table({b"\xff": b"\xfe"}, hidden) == b"\0\0\0\x08\1\xff" + tag + b"\0\0\0\1\xfe"


def test_names_that_are_alike_and_no_utf8_stay_apart() -> None:
    once = copied_table({"a": 1, b"a": 2, "\udcff": 3, b"\xff": 4})
    assert once == b"\0\0\0\x1c" + b"".join(
        b"\1" + name + b"I\0\0\0" + bytes([value]) for name, value in [(b"a", 1), (b"a", 2), (b"\xff", 3), (b"\xff", 4)]
    )


@pytest.mark.parametrize("value", [object(), {1}, 1j])
def test_what_has_no_type_in_amqp_is_not_copied(value: object) -> None:
    with pytest.raises(backhop.ArgumentTypeError):
        copied_table({"name": [{"deep": value}]})


@pytest.mark.parametrize(
    "headers", [{"n" * 256: 1}, {"name": 10**400}, {"name": Decimal(2**32)}, {"n": Decimal("1E-256")}]
)
def test_what_is_beyond_its_type_is_not_copied(headers: dict[str, Any]) -> None:
    with pytest.raises(backhop.Error):
        copied_table(headers)


# --- Clients --------------------------------------------------------------------------------------


Decode = Callable[[bytes], Any]
Client = tuple[Decode, int, Callable[[int], Any], Callable[[dict[str, Any]], bytes]]
"""Decodes a table; the types that it hides; its 64-bit integer; its own encoder of properties."""


def _pika() -> Client:
    data = pytest.importorskip("pika.data")
    long = pytest.importorskip("pika.compat").long
    own = pytest.importorskip("backhop.adapters.pika.publisher")._encoded
    return lambda encoded: data.decode_table(encoded, 0)[0], c.BH_HIDDEN_BYTES, long, own


def _pamqp() -> Client:
    decode = pytest.importorskip("pamqp.decode")
    own = pytest.importorskip("backhop.adapters.aio_pika.publisher")._encoded
    return lambda encoded: decode.field_table(encoded)[1], 0, Int64, own


CLIENTS = pytest.mark.parametrize("client", [_pika, _pamqp])


@CLIENTS
def test_a_copys_headers_go_through_a_client_unchanged(client: Callable[[], Client]) -> None:
    decode, hidden, _, _ = client()
    received = decode(copied_table(HEADERS, hidden))
    assert received == HEADERS
    decider = Decider(backhop.Topology("orders"))
    plan = decider.plan(decider.read("events", "order.created", None, received), Result("failed", "507"))
    copy = decode(copied_table(received, hidden, plan))
    assert {name: copy[name] for name in HEADERS} == received
    again = decider.read("backhop.return", "order.created", None, copy)
    assert again.attempts == 1
    assert again.last_error == "507"
    assert (again.exchange, again.routing_key) == ("events", "order.created")
    assert not again.problems


@CLIENTS
def test_a_clients_copy_is_never_larger_than_the_core_reckons(client: Callable[[], Client]) -> None:
    decode, hidden, integer, _ = client()
    received = decode(copied_table(HEADERS | {"double": 1e300, "list": [1e300] * 100}, hidden))
    plan = backhop.Plan(backhop.History(backhop.Delivery(headers=received)), backhop.Topology("orders"))
    copy = plan.copy_headers(received, integer=integer)
    assert len(copied_table(received, hidden, plan)) <= backhop.Delivery(headers=copy).header_bytes - 2


@CLIENTS
def test_a_header_that_cannot_be_copied_is_saved_as_it_was(client: Callable[[], Client]) -> None:
    decode, hidden, _, _ = client()
    received = {"CC": ["audit", "log"], "x-death": [{"count": 1}]}
    plan = backhop.Plan(backhop.History(backhop.Delivery(headers=received)), backhop.Topology("orders"))
    copy = decode(copied_table(received, hidden, plan))
    assert copy["backhop-cc"] == ["audit", "log"]
    assert copy["BCC"] == ["backhop:orders"]
    assert not {"CC", "x-death"} & copy.keys()


@CLIENTS
def test_headers_that_the_core_does_not_hold_are_copied_by_the_clients_encoder(client: Callable[[], Client]) -> None:
    decode, hidden, _, own = client()
    deep: Any = "end"
    for _ in range(40):
        deep = [deep, {"inside": deep}] if deep == "end" else [deep]
    received = {"deep": deep, "small": 5}
    decider = Decider(backhop.Topology("orders"))
    kept = SimpleNamespace(**dict.fromkeys(NUMBERS), headers=received)
    kept.message_id, kept.priority = "m1", 3
    history = decider.read("", "orders", kept, received)
    plan = decider.plan(history, Result("failed", "507"))
    assert history.delivery.is_truncated
    assert plan.action == "retry"
    message: Any = SimpleNamespace(history=history, body=b"body", _kept=kept, _error_class="", _traceparent="")
    header = Copy(plan, message, None, hidden, own).header
    assert header[:14] == b"\0\x3c\0\0\0\0\0\0\0\0\0\4\x38\x80"  # headers, delivery mode, priority, message id
    assert header.endswith(b"\2\3\2m1")
    copy = decode(header[14:])
    assert (copy["deep"], copy["small"]) == (deep, 5)
    again = decider.read("backhop.return", "orders", None, copy)
    assert (again.attempts, again.last_error) == (1, "507")


def test_a_routing_key_that_is_no_utf8_comes_back_through_pika() -> None:
    decode, hidden, _, _ = _pika()
    decider = Decider(backhop.Topology("orders"))
    plan = decider.plan(decider.read("events", b"key \xff", None, None), Result("failed"))
    assert wire_text(plan.routing_key) == b"key \xff"
    again = decider.read("backhop.return", b"key \xff", None, decode(copied_table(None, hidden, plan)))
    assert again.routing_key == "key \udcff"
    assert not again.problems


def test_the_properties_of_pika_are_read_and_kept() -> None:
    pika = pytest.importorskip("pika")
    properties = pika.BasicProperties(
        content_type="text/plain", delivery_mode=1, expiration="60000", timestamp=1_700_000_000, user_id="shop"
    )
    decider = Decider(backhop.Topology("orders"))
    history = decider.read("events", "order.created", properties, properties.headers)
    assert history.delivery.properties == {
        "content_type": "text/plain",
        "delivery_mode": 1,
        "expiration": "60000",
        "timestamp": 1_700_000_000,
        "user_id": "shop",
    }
    plan = decider.plan(history, Result("failed"))
    kept = {name for name in plan.kept_properties if getattr(properties, name) is not None}
    assert kept == {"content_type", "timestamp"}
    headers = dict(plan.headers)
    assert headers["backhop-expiration"].value == "60000"
    assert headers["backhop-user-id"].value == "shop"


def test_the_properties_of_aio_pika_are_read() -> None:
    aio_pika = pytest.importorskip("aio_pika")
    message = aio_pika.Message(b"", expiration=60, timestamp=MOMENT, delivery_mode=2, priority=5)
    assert backhop.Delivery(properties=message).properties == {
        "delivery_mode": 2,
        "priority": 5,
        "expiration": "60000",
        "timestamp": 1_700_000_000,
    }


PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "grün",
    "priority": 255,
    "correlation_id": "é" * 127,
    "reply_to": "r",
    "expiration": "0",
    "message_id": "i" * 255,
    "timestamp": MOMENT,
    "type": "t",
    "user_id": "u",
    "app_id": "a",
    "cluster_id": "c",
}
_BLANK = ("", 0)


def header_of(properties: dict[str, Any], size: int = 0) -> bytes:
    """The frame of a copy's content header on channel 65535, from an original with these properties and no headers."""
    decider = Decider(backhop.Topology("orders"))
    original = SimpleNamespace(**(dict.fromkeys(NUMBERS) | properties))
    history = decider.read("", "orders", original, None, _BLANK)
    plan = decider.plan(history, Result("permanent"))
    header = frames.content_header(c.Plan_copy_properties(plan._handle, history.delivery._handle, 0), size)
    return frames.content_frames(65535, header, b"", 4096)[0]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        PROPERTIES,
        *({name: value} for name, value in PROPERTIES.items()),
        *({name: value for name, value in PROPERTIES.items() if name != absent} for absent in PROPERTIES),
        dict.fromkeys(PROPERTIES),
        dict.fromkeys(PROPERTIES, ""),
        {"timestamp": datetime(2023, 11, 14, 22, 13, 20, 999_999)},
        {"timestamp": datetime(9999, 12, 31, tzinfo=timezone.utc)},
    ],
)
@pytest.mark.parametrize("size", [0, 2**40])
def test_a_content_header_is_the_one_that_pamqp_makes(properties: dict[str, Any], size: int) -> None:
    frame, header = pytest.importorskip("pamqp.frame"), pytest.importorskip("pamqp.header")
    ours = header_of(properties, size)
    theirs = header.ContentHeader(body_size=size)
    absent = ("expiration", "user_id", "delivery_mode")  # a parked copy has none
    given = {name: value for name, value in properties.items() if name not in absent}
    own = frame.unmarshal(ours)[2].properties.headers
    for name, value in (given | {"delivery_mode": 2, "headers": own}).items():
        setattr(theirs.properties, "message_type" if name == "type" else name, value)
    assert len(ours) > 100
    wire = frame.marshal(theirs, 65535)
    table = len(copied_like(ours))
    assert without_table(ours, table) == without_table(wire, len(copied_like(wire)))


def copied_like(header: bytes) -> bytes:
    """The header table of a content header's frame."""
    at = _table_at(header)
    return header[at : at + 4 + int.from_bytes(header[at : at + 4], "big")]


def without_table(header: bytes, size: int) -> bytes:
    """A content header's frame without its length and its header table."""
    at = _table_at(header)
    return header[:3] + header[7:at] + header[at + size :]


def _table_at(header: bytes) -> int:
    flags, at = int.from_bytes(header[19:21], "big"), 21
    for bit in (15, 14):  # content type, content encoding
        if flags >> bit & 1:
            at += 1 + header[at]
    return at


@pytest.mark.parametrize(
    "properties", [{"message_id": "i" * 256}, {"message_id": 1}, {"priority": "1"}, {"timestamp": "now"}]
)
def test_a_value_that_its_property_cannot_have_is_not_copied(properties: dict[str, Any]) -> None:
    with pytest.raises(backhop.Error):
        header_of(properties)


def test_a_property_that_is_not_utf_8_goes_out_as_the_bytes_that_it_was() -> None:
    assert b"\2\xff\xfe" in header_of({"message_id": b"\xff\xfe"})
    assert b"\2\xff\xfe" in header_of({"message_id": "\udcff\udcfe"})


@pytest.mark.parametrize("tag", [0, 1, 2**63 - 1])
def test_a_settlement_is_the_one_that_pamqp_makes(tag: int) -> None:
    frame, commands = pytest.importorskip("pamqp.frame"), pytest.importorskip("pamqp.commands")
    settlements: dict[frames.How, Any] = {
        "ack": commands.Basic.Ack(tag),
        "reject": commands.Basic.Nack(tag, requeue=False),
        "requeue": commands.Basic.Nack(tag, requeue=True),
        "return": commands.Basic.Reject(tag, requeue=True),
    }
    for how, theirs in settlements.items():
        assert frames.settlement(7, tag, how) == frame.marshal(theirs, 7)


@pytest.mark.parametrize("is_mandatory", [False, True])
def test_a_publish_is_the_one_that_pamqp_makes(is_mandatory: bool) -> None:
    frame, commands = pytest.importorskip("pamqp.frame"), pytest.importorskip("pamqp.commands")
    theirs = commands.Basic.Publish(exchange="wait.1000", routing_key="grün", mandatory=is_mandatory)
    assert frames.publish_frame(7, "wait.1000", "grün", is_mandatory) == frame.marshal(theirs, 7)


def test_a_body_is_cut_into_frames_of_the_connection() -> None:
    whole = bytes(range(200))
    _, first, last = frames.content_frames(7, b"", whole, 128)
    assert (len(first), first[7:-1] + last[7:-1], last[-1:]) == (128, whole, b"\xce")


@pytest.mark.parametrize("value", [10**20, -(10**20), 2**64])
def test_a_float_that_pika_reads_as_an_integer_is_a_double(value: int) -> None:
    assert backhop.Delivery(headers={"value": value}).header_type("value") == "double"


def test_a_timestamp_beyond_every_calendar_is_the_last_one() -> None:
    assert backhop.Delivery(properties={"timestamp": 2**64 - 1}).properties["timestamp"] == 2**63 - 1


def test_random_bytes_are_drawn_where_a_copy_is_published_alone() -> None:
    drawn: list[int] = []

    def draw(count: int) -> bytes:
        drawn.append(count)
        return bytes(count)

    decider = Decider(backhop.Topology("orders"), random=draw)
    history = decider.read("events", "order.created", None, None)
    assert decider.guard(history) is None
    assert decider.plan(history, Result("ok")).action == "ack"
    assert decider.plan(history, Result("dropped")).action == "drop"
    assert drawn == [16]  # the id of a message without message-id
    assert decider.plan(history, Result("failed")).action == "retry"
    poison = decider.read("events", "order.created", None, {"x-delivery-count": 1, "backhop-crashes": 20})
    plan = decider.guard(poison)
    assert plan is not None
    assert plan.action == "park"
    assert drawn == [16, 32, 16, 32]


def test_a_message_after_one_that_crashed_its_consumers_is_let_through() -> None:
    decider = Decider(backhop.Topology("orders"))
    poison = decider.read("events", "order.created", None, {"x-delivery-count": 1, "backhop-crashes": 20})
    plan = decider.guard(poison)
    assert plan is not None
    assert decider.guard(decider.read("events", "order.created", None, None)) is None
    assert (plan.action, plan.reason) == ("park", "poison")
    again = decider.guard(poison)
    assert again is not None
    assert again is not plan
    decider.frame_max = 1
    with pytest.raises(backhop.FrameError):
        decider.guard(poison)


def test_an_aiormq_without_the_names_that_are_used_is_refused_by_name() -> None:
    pytest.importorskip("aio_pika")
    code = """if True:
        import aiormq.abc
        del aiormq.abc.AbstractConnection.__annotations__["write_queue"]
        try:
            import backhop.aio_pika
        except ImportError as error:
            assert "AbstractConnection has no write_queue: install aio-pika" in str(error), error
        else:
            raise AssertionError
        """
    subprocess.run([sys.executable, "-c", code], check=True)
