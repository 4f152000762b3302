"""Clients' own shapes, as the clients themselves decode and encode them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

import backhop
from backhop._amqp import wire_text, wire_value
from backhop.decider import Decider
from backhop.outcomes import Result

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
        (1, "int64"),
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
    assert wire_text("\udcff", bytearray) == bytearray(b"\xff")


def test_kept_values_go_out_as_they_came() -> None:
    assert wire_value(HEADERS) is HEADERS
    assert wire_value(HEADERS["nested"], bytearray)["list"][1][1] == {"deep": bytearray(b"\xfe")}


# --- Clients ---------------------------------------------------------------------------------------------------------


def _pika() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any], dict[str, Any]]:
    data = pytest.importorskip("pika.data")
    compat = pytest.importorskip("pika.compat")

    def encode(table: Any) -> bytes:
        pieces: list[bytes] = []
        data.encode_table(pieces, table)
        return b"".join(pieces)

    return encode, lambda encoded: data.decode_table(encoded, 0)[0], {"integer": compat.long, "binary": bytes}


def _pamqp() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any], dict[str, Any]]:
    encode = pytest.importorskip("pamqp.encode")
    decode = pytest.importorskip("pamqp.decode")
    return encode.field_table, lambda encoded: decode.field_table(encoded)[1], {"binary": bytearray}


CLIENTS = pytest.mark.parametrize("client", [_pika, _pamqp])


@CLIENTS
def test_a_copys_headers_go_through_a_client_unchanged(client: Callable[[], Any]) -> None:
    encode, decode, shapes = client()
    received = decode(encode(wire_value(HEADERS, shapes["binary"])))
    decider = Decider(backhop.Topology("orders"))
    plan = decider.plan(decider.read("events", "order.created", None, received), Result("failed", "507"))
    copy = decode(encode(plan.copy_headers(received, **shapes)))
    assert {name: copy[name] for name in HEADERS} == received == wire_value(HEADERS, shapes["binary"])
    again = decider.read("backhop.return", "order.created", None, copy)
    assert again.attempts == 1
    assert again.last_error == "507"
    assert (again.exchange, again.routing_key) == ("events", "order.created")
    assert not again.problems


@CLIENTS
def test_a_clients_copy_is_never_larger_than_the_core_reckons(client: Callable[[], Any]) -> None:
    encode, decode, shapes = client()
    received = decode(encode(wire_value(HEADERS, shapes["binary"])))
    plan = backhop.Plan(backhop.History(backhop.Delivery(headers=received)), backhop.Topology("orders"))
    copy = plan.copy_headers(received, **shapes)
    assert len(encode(copy)) <= backhop.Delivery(headers=copy).header_bytes - 2


@CLIENTS
def test_a_header_that_cannot_be_copied_is_saved_as_it_was(client: Callable[[], Any]) -> None:
    encode, decode, shapes = client()
    received = decode(encode({"CC": ["audit", "log"], "x-death": [{"count": 1}]}))
    plan = backhop.Plan(backhop.History(backhop.Delivery(headers=received)), backhop.Topology("orders"))
    copy = decode(encode(plan.copy_headers(received, **shapes)))
    assert copy["backhop-cc"] == ["audit", "log"]
    assert copy["BCC"] == ["backhop:orders"]
    assert not {"CC", "x-death"} & copy.keys()


def test_a_routing_key_that_is_no_utf8_comes_back_through_pika() -> None:
    encode, decode, shapes = _pika()
    decider = Decider(backhop.Topology("orders"))
    plan = decider.plan(decider.read("events", b"key \xff", None, None), Result("failed"))
    assert wire_text(plan.routing_key) == b"key \xff"
    again = decider.read("backhop.return", b"key \xff", None, decode(encode(plan.copy_headers(None, **shapes))))
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


@pytest.mark.parametrize("value", [10**20, -(10**20), 2**64])
def test_a_float_that_pika_reads_as_an_integer_is_a_double(value: int) -> None:
    assert backhop.Delivery(headers={"value": value}).header_type("value") == "double"


def test_a_timestamp_beyond_every_calendar_is_the_last_one() -> None:
    assert backhop.Delivery(properties={"timestamp": 2**64 - 1}).properties["timestamp"] == 2**63 - 1
