"""Events, their log, and the bridges, without a broker."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from vectors import Case, cases, compare, is_, only, text

import backhop
from backhop import _backhop as c
from backhop._errors import CLASSES
from backhop.delivery import Delivery
from backhop.event import KINDS, NAMES, Events, Fields, Observer, class_of, event_of
from backhop.history import History
from backhop.message import Message
from backhop.outcomes import Result
from backhop.plan import OUTCOMES
from backhop.topology import Topology


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
    fields: Fields = {"id": "m1", "attempts": 3, "reason": "exhausted", "error_class": "TimeoutError", **more}
    return events.make(c.BH_EVENT_PARKED, fields)


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


def test_who_is_given_twice_is_told_once() -> None:
    pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    heard: list[str] = []

    def listener(event: backhop.Event) -> None:
        heard.append(event.name)

    metrics = Metrics(None)
    events = Events("orders", [listener, metrics, listener, metrics])
    events.tell(parked(events))
    assert heard == ["parked"]
    assert len(events.counters) == 1


def test_three_hundred_parked_messages_are_not_three_hundred_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)  # all of it is in one second, however long it takes
    events = Events("a flood", None)
    for _ in range(300):
        events.tell(parked(events))
    assert len(caplog.records) == 10


def test_a_listener_that_fails_is_logged_and_the_next_ones_hear(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def fail(event: backhop.Event) -> None:
        raise LookupError(event.name)

    class Failing(Observer):
        def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
            raise LookupError

    events = Events("orders", [Failing(), fail, lambda event: heard.append(event.name)])
    events.tell(events.make(c.BH_EVENT_PARKED, {}))
    assert caplog.text.count("on_event failed at parked") == 2
    assert heard == ["parked"]
    assert [each.levelname for each in caplog.records].count("WARNING") == 1


@pytest.mark.parametrize(("error", "name"), [
    (ValueError("no"), "ValueError"),
    (backhop.Park("no"), "Park"),
    (backhop.Park(OSError("507")), "OSError"),
    (backhop.RetryAfter(3, KeyError("k")), "KeyError"),
])  # fmt: skip
def test_the_class_of_an_error_is_that_of_what_was_met(error: Exception, name: str) -> None:
    assert class_of(error) == name


class Kept(Message):
    """A message that a client has read."""

    def __init__(self, headers: dict[str, Any]) -> None:
        self._began, self._traceparent, self.redelivered = 0.0, "", False
        self._history = History(Delivery("events", "order.created", headers=headers), Topology("orders"))


@pytest.mark.parametrize("others", [[], [lambda event: None]], ids=["alone", "beside a listener"])
def test_an_attempt_is_counted_once_with_how_late_it_came(others: list[Any]) -> None:
    pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    metrics = Metrics(None)
    events = Events("orders", [metrics, *others], clock=lambda: 1_000.0)
    past = {"backhop-attempts": 1, "backhop-first-failure": 990_000, "backhop-due": 999_000}
    for result, error in ((Result("failed", "late"), TimeoutError()), (None, None)):
        message = Kept(past)
        events.delivered(message)
        if result and error:
            events.failed(message, result, error)
        else:
            events.succeeded(message)
    assert 'backhop_retry_lateness_seconds_count{queue="orders"} 2' in metrics.text
    assert 'messaging_process_duration_seconds_count{queue="orders",error_type="TimeoutError"} 1' in metrics.text
    assert 'messaging_process_duration_seconds_count{queue="orders",error_type=""} 1' in metrics.text
    assert 'backhop_recovery_time_seconds_sum{queue="orders"} 10' in metrics.text


def test_labels_are_bounded_whatever_ids_and_errors_there_are() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    registry = prometheus_client.CollectorRegistry()
    events = Events("orders", Metrics(registry))
    for i in range(10_000):
        error: Any = type(f"Error{i}", (Exception,), {})(f"text {i}")
        events.tell(events.make(c.BH_EVENT_RETRIED, {"id": f"m{i}", "error_class": class_of(error)}))
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
        events.tell(events.make(c.BH_EVENT_RETRIED, {"error_class": class_of(error)}))
    assert 'backhop_retries_total{queue="orders",error_type="TimeoutError"} 1' in metrics.text
    assert 'error_type="_OTHER"} 1' in metrics.text
    with pytest.raises(backhop.ArgumentError):
        Metrics(None, error_types=[f"Error{i}" for i in range(33)])
