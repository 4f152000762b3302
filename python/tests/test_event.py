"""Events, their log, and the bridges, without a broker."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from vectors import Case, cases, compare, is_, only, text

import backhop
from backhop import _backhop as c
from backhop._errors import CLASSES
from backhop.event import KINDS, NAMES, Events, Fields, event_of
from backhop.plan import OUTCOMES


@cases("event")
def test_vector(case: Case) -> None:
    only(case, "name outcome event fields cause expect")
    if "outcome" in case:
        compare(case["expect"], {"event": is_(lambda: NAMES[c.bh_event_of(OUTCOMES[case["outcome"]])])})
        return
    kind, fields = KINDS[case["event"]], dict(case.get("fields", {}))
    only(fields, "text reason error connection status")
    if "status" in fields:
        fields["status"] = CLASSES[fields["status"]].status
    if "cause" in case:
        fields["cause"] = text(case["cause"])
    event = Events("", None).make(kind, fields)
    of_each = is_(lambda: bool(c.bh_event_is_of_each(kind)))
    compare(case["expect"], {"of_each": of_each, "text": is_(lambda: event_of(event).text, text)})


def parked(events: Events, **more: str | int) -> c.Event:
    fields: Fields = {"id": "m1", "attempts": 3, "reason": "exhausted", **more}
    return events.make(c.BH_EVENT_PARKED, fields, exception=TimeoutError("late"))


def test_an_event_has_what_the_core_has_of_it_in_seconds_and_the_exception(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[backhop.Event] = []
    events, late = Events("orders", heard.append), TimeoutError("late")
    events.tell(parked(events, error="TimeoutError: timeout_ms is 1500", duration_us=2500), late)
    (event,) = heard
    assert (event.name, event.queue, event.id, event.attempts) == ("parked", "orders", "m1", 3)
    assert (event.reason, event.text, event.error_class) == ("exhausted", "exhausted", "TimeoutError")
    assert (event.duration, event.lateness, event.exception) == (0.0025, None, late)
    (record,) = caplog.records
    assert record.levelno == event.level == logging.WARNING
    assert record.getMessage() == str(event)
    assert "TimeoutError: timeout_ms is 1500" in str(event), "what a handler raises is in its own units"
    assert record.exc_info
    assert record.exc_info[1] is late
    assert record.__dict__["backhop_error_class"] == "TimeoutError"


def test_three_hundred_parked_messages_are_not_three_hundred_lines(caplog: pytest.LogCaptureFixture) -> None:
    events = Events("a flood", None)
    for _ in range(300):
        events.tell(parked(events))
    assert 10 <= len(caplog.records) <= 50


def test_one_listener_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: backhop.Event) -> None:
        raise LookupError(event.name)

    events = Events("orders", [fail])
    events.tell(events.make(c.BH_EVENT_RETRIED, {}))
    assert "on_event failed at retried" in caplog.text


@pytest.mark.parametrize(("error", "name"), [
    (ValueError("no"), "ValueError"),
    (backhop.Park("no"), "Park"),
    (backhop.Park(OSError("507")), "OSError"),
    (backhop.RetryAfter(3, KeyError("k")), "KeyError"),
])  # fmt: skip
def test_the_class_of_an_error_is_that_of_what_was_met(error: Exception, name: str) -> None:
    event = Events("orders", None).make(c.BH_EVENT_FAILED, {}, exception=error)
    assert c.Event_string(event, c.BH_FIELD_ERROR_CLASS) == name


def test_labels_are_bounded_whatever_ids_and_errors_there_are() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    registry = prometheus_client.CollectorRegistry()
    events = Events("orders", Metrics(registry))
    for i in range(10_000):
        error: Any = type(f"Error{i}", (Exception,), {})(f"text {i}")
        events.tell(events.make(c.BH_EVENT_RETRIED, {"id": f"m{i}", "error": str(error)}, exception=error))
    (retries,) = [each for each in registry.collect() if each.name == "backhop_retries"]
    counts = {sample.labels["error_type"]: sample.value for sample in retries.samples if sample.value}
    assert len(counts) == 33
    assert (counts["Error0"], counts["_OTHER"], sum(counts.values())) == (1, 10_000 - 32, 10_000)


def test_the_classes_to_tell_apart_are_named() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    metrics = Metrics(prometheus_client.CollectorRegistry(), error_types=["TimeoutError"])
    events = Events("orders", metrics)
    for error in (TimeoutError(), ValueError()):
        events.tell(events.make(c.BH_EVENT_RETRIED, {}, exception=error))
    assert 'backhop_retries_total{queue="orders",error_type="TimeoutError"} 1' in metrics.text
    assert 'error_type="_OTHER"} 1' in metrics.text
    with pytest.raises(backhop.ArgumentError):
        Metrics(None, error_types=[f"Error{i}" for i in range(33)])
