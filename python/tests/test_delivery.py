from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any

import pytest
import vectors
from vectors import Case, is_, raw, text

import backhop


def _compare_properties(delivery: backhop.Delivery, expected: dict[str, Any]) -> None:
    expected = dict(expected)
    assert delivery.has_headers == expected.pop("headers", False)
    assert delivery.properties == {
        name.replace("-", "_"): content if isinstance(content, int) else text(content)
        for name, content in expected.items()
    }


def _compare_headers(delivery: backhop.Delivery, expected: list[Any]) -> None:
    for name, given in expected:
        kind, content = vectors.typed(given)
        assert delivery.header_type(raw(name)) == kind
        if kind == "string":
            content = text(content)
        elif kind == "bytes":
            content = raw(content)
        elif kind in vectors.INTEGERS:
            content = vectors.integer(content)
        elif kind != "boolean":
            content = None
        assert delivery.header(raw(name)) == content


def _native(given: Any) -> Any:
    """A typed value as the package gives it."""
    kind, content = vectors.typed(given)
    if kind == "table":
        return {text(name): _native(inner) for name, inner in reversed(content)}  # of one name, the first
    if kind == "array":
        return [_native(inner) for inner in content]
    if kind == "string":
        return text(content)
    if kind == "timestamp":
        return datetime.fromtimestamp(vectors.integer(content), timezone.utc)
    return _values(vectors.value(given).value)


def _values(found: Any) -> Any:
    """Replaces each NaN by a word, as NaN does not equal itself."""
    if isinstance(found, dict):
        return {name: _values(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_values(value) for value in found]
    return "nan" if isinstance(found, float) and math.isnan(found) else found


def _compare_absent(delivery: backhop.Delivery, names: list[Any]) -> None:
    for name in names:
        assert delivery.header_type(raw(name)) is None
        assert delivery.header(raw(name)) is None


@vectors.cases("delivery")
def test_a_vector(case: Case) -> None:
    vectors.only(case, "name delivery expect")
    if vectors.status(case) != "BH_OK":
        vectors.refused(case, lambda: vectors.delivery(case))
        return
    vectors.delivery(case)
    delivery = vectors.delivery(case)
    vectors.compare(
        case["expect"],
        {
            "exchange": is_(lambda: delivery.exchange, text),
            "routing_key": is_(lambda: delivery.routing_key, text),
            "properties": lambda expected: _compare_properties(delivery, expected),
            "headers": lambda expected: _compare_headers(delivery, expected),
            "values": is_(lambda: _values(delivery.headers), lambda given: _native({"table": given})),
            "absent": lambda expected: _compare_absent(delivery, expected),
            "truncated": is_(lambda: delivery.is_truncated),
            "header_bytes": is_(lambda: delivery.header_bytes, vectors.integer),
        },
    )


def test_a_property_that_amqp_lacks_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no property colour"):
        backhop.Delivery(properties={"colour": "red"})


def test_a_name_above_255_bytes_is_refused() -> None:
    with pytest.raises(backhop.ArgumentError):
        backhop.Delivery(headers={"n" * 256: 1})


def test_a_timestamp_beyond_the_calendar_is_a_number() -> None:
    assert backhop.Delivery(headers={"t": backhop.Typed("timestamp", 2**62)}).headers == {"t": 2**62}


def test_headers_are_read_with_the_types_that_python_tells_apart() -> None:
    headers = {"flag": True, "count": 1, "share": 0.5, "raw": bytearray(b"\xff"), "big": 2**64 - 1}
    read = backhop.Delivery(headers=headers).headers
    assert [type(value) for value in read.values()] == [bool, int, float, bytes, int]
    assert read == headers
