from __future__ import annotations

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
