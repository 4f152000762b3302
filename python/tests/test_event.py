"""Events, their log, and the bridges, without a broker."""

from __future__ import annotations

import copy
import dataclasses
import logging
import pickle
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from live import PATIENCE
from vectors import Case, cases, compare, is_, only, text

import backhop
from backhop import _backhop as c
from backhop._errors import CLASSES
from backhop._exceptions import text_of
from backhop.delivery import Delivery
from backhop.history import History
from backhop.message import Message
from backhop.observe.event import KINDS, NAMES, Fields, event_of
from backhop.observe.events import Events
from backhop.observe.observer import Observer
from backhop.outcomes import class_of
from backhop.plan import OUTCOMES, Result
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
    event = Events("", None).new(kind, fields)
    of_each = is_(lambda: bool(c.bh_event_is_of_each(kind)))
    compare(case["expect"], {"of_each": of_each, "text": is_(lambda: event_of(event).text, text)})


def parked(events: Events, **more: str | int) -> c.Event:
    fields: Fields = {"id": "m1", "attempts": 3, "reason": "exhausted", "error_class": "TimeoutError", **more}
    return events.new(c.BH_EVENT_PARKED, fields)


def test_an_event_has_what_the_core_has_of_it_in_seconds_and_the_exception(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[backhop.Event] = []
    events, late = Events("orders", heard.append), TimeoutError("late")
    events.emit(parked(events, error="TimeoutError: timeout_ms is 1500", duration_us=2500), late)
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


CONTROLS = "\x1b]0;PWN\x07\x9b31m\u202eevil\u2028\r\u0085\u2066"


def test_s4_8_a_log_has_no_control_characters_of_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    class FailsError(Exception):
        pass

    FailsError.__name__ = FailsError.__qualname__ = f"FailsError{CONTROLS}"

    def fail(event: object) -> None:
        try:
            raise KeyError(CONTROLS)
        except KeyError as cause:
            raise FailsError(f"a text\n\tof lines{CONTROLS}") from cause

    with pytest.raises(FailsError) as caught:
        fail(None)
    noted, group = ValueError("no controls"), type("Group", (Exception,), {"exceptions": [ValueError(CONTROLS)]})
    vars(noted)["__notes__"] = [CONTROLS]
    for failure in (caught.value, group(CONTROLS), noted):
        Events("orders", None).emit(parked(events=Events("", None), error=text_of(failure)), failure)
    events = Events("orders", fail)
    events.emit(events.new(c.BH_EVENT_PARKED, {}))
    lines = [logging.Formatter().format(record) for record in caplog.records]
    of_handler, of_group, of_note, _, of_listener = lines
    assert [each for each in "".join(lines) if each in CONTROLS and not each.isprintable()] == []
    for line in (of_handler, of_listener):
        assert "The above exception was the direct cause" in line
        assert "in fail\n" in line
        assert "a text\n\tof lines?]0;PWN??31m?evil????" in line
    assert "[ValueError: ?]0;PWN" in of_group
    assert "ValueError: no controls\n?]0;PWN" in of_note


def test_who_is_given_twice_is_told_once() -> None:
    pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    heard: list[str] = []

    def listener(event: backhop.Event) -> None:
        heard.append(event.name)

    metrics = Metrics(None)
    events = Events("orders", [listener, metrics, listener, metrics])
    events.emit(parked(events))
    assert heard == ["parked"]
    assert len(events.counters) == 1


def test_three_hundred_parked_messages_are_not_three_hundred_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)  # all of it is in one second, however long it takes
    events = Events("a flood", None)
    for _ in range(300):
        events.emit(parked(events))
    assert len(caplog.records) == 10


def test_a_listener_that_fails_is_logged_and_the_next_ones_hear(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def fail(event: backhop.Event) -> None:
        raise LookupError(event.name)

    class Failing(Observer):
        def observe(self, event: c.Event, exception: BaseException | None, traceparent: str) -> None:
            raise LookupError

    events = Events("orders", [Failing(), fail, lambda event: heard.append(event.name)])
    events.emit(events.new(c.BH_EVENT_PARKED, {}))
    assert caplog.text.count('a listener failed at parked of "orders": LookupError') == 2
    assert heard == ["parked"]
    assert [each.levelname for each in caplog.records].count("WARNING") == 1


def test_P4_10_a_listener_may_raise_anything_but_what_ends_the_program(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: backhop.Event) -> None:
        raise BaseException("no")

    def leave(event: backhop.Event) -> None:
        raise SystemExit(3)

    events = Events("a listener's BaseException", fail)
    events.emit(events.new(c.BH_EVENT_RETRIED, {}))
    assert "a listener failed at retried" in caplog.text
    with pytest.raises(SystemExit):
        Events("orders", leave).emit(events.new(c.BH_EVENT_RETRIED, {}))


def test_P4_10_the_log_cuts_a_text_of_megabytes(caplog: pytest.LogCaptureFixture) -> None:
    events = Events("a long text", None)
    try:
        raise LookupError("x" * 10_000_000)
    except LookupError as error:
        events.emit(events.new(c.BH_EVENT_PARKED, {}), error)
    assert "LookupError: xxx" in caplog.text
    assert "test_event.py" in caplog.text  # the traceback stays
    assert len(caplog.text) < 20_000


def test_a_listener_that_always_fails_is_ten_lines_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def fail(event: backhop.Event) -> None:
        raise LookupError("no")

    events = Events("a failing listener", fail)
    for _ in range(300):
        events.emit(events.new(c.BH_EVENT_RETRIED, {}))
    assert caplog.text.count("a listener failed at retried") == 10


def test_T10_the_last_lines_of_a_burst_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    events = Events("a burst", None)
    for _ in range(30):
        events.emit(events.new(c.BH_EVENT_PARKED, {}))
    end = time.monotonic() + PATIENCE
    while 'parked: 20 more lines of "a burst" were left out' not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("given", [[], ()])
def test_an_empty_list_of_listeners_is_none(given: Any) -> None:
    events = Events("orders", given)
    assert not events.has_listeners
    assert not events.listeners


def test_an_event_can_be_copied_pickled_and_made_a_dict() -> None:
    heard: list[backhop.Event] = []
    events = Events("orders", [heard.append])
    events.emit(parked(events, error="TimeoutError: timeout_ms is 1500"), TimeoutError("late"))
    events.emit(events.new(c.BH_EVENT_DISCONNECTED, {"status": backhop.ConnectionFailedError.status}))
    for event in heard:
        for other in (copy.deepcopy(event), pickle.loads(pickle.dumps(event)), dataclasses.replace(event)):
            assert str(other) == str(event)
            assert other.fields == event.fields
        assert dataclasses.asdict(event)["name"] == event.name


class Surrounding(Observer):
    """An observer that fails, or would swallow the exception of a handler."""

    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.entered = 0

    def handling(self, message: Message) -> AbstractContextManager[object]:
        if self.fails_at == "begin":
            raise LookupError("begin")
        return self.surrounding()

    @contextmanager
    def surrounding(self) -> Iterator[None]:
        if self.fails_at == "enter":
            raise LookupError("enter")
        self.entered += 1
        try:
            yield
        except ValueError:
            if self.fails_at == "instead":
                raise LookupError("instead") from None
            if self.fails_at == "leave":
                return
            raise
        finally:
            self.entered -= 1
        if self.fails_at == "leave":
            raise LookupError("leave")


@pytest.mark.parametrize("fails_at", ["begin", "enter", "instead", "leave", "never"])
@pytest.mark.parametrize("raised", [None, ValueError("its own"), backhop.Park("why")], ids=repr)
def test_a_handler_runs_and_raises_whatever_a_bridge_does_around_it(
    fails_at: str, raised: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    bridges = [Surrounding("never"), Surrounding(fails_at), Surrounding("never")]
    events, handled = Events(f"{fails_at}, {raised!r}", bridges), list[int]()  # for each its own lines of the log

    def handle(_: Message) -> None:
        handled.append(sum(each.entered for each in bridges))
        if raised:
            raise raised

    with pytest.raises(type(raised)) if raised else nullcontext() as met:
        events.surrounded(handle)(Kept({}))
    assert handled == [2 if fails_at in ("begin", "enter") else 3]
    assert not sum(each.entered for each in bridges)
    assert met is None or met.value is raised
    is_logged = fails_at in ("begin", "enter")
    is_logged = is_logged or (fails_at == "instead" and isinstance(raised, ValueError))
    is_logged = is_logged or (fails_at == "leave" and raised is None)
    assert ("LookupError" in caplog.text) is is_logged


def test_a_handler_that_runs_later_than_it_was_read_is_timed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    heard: list[backhop.Event] = []
    events, message = Events("orders", heard.append), Kept({})
    events.delivered(message)
    now += 10  # it waits for a thread
    with events.handling(message, is_timed=True):
        now += 0.0625
    now += 5  # it waits to be settled
    events.succeeded(message)
    assert [(event.name, event.duration) for event in heard] == [("delivered", None), ("succeeded", 0.0625)]


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
        Message.__init__(self, Topology("orders"))
        self.redelivered = False
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
        events.emit(events.new(c.BH_EVENT_RETRIED, {"id": f"m{i}", "error_class": class_of(error)}))
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
        events.emit(events.new(c.BH_EVENT_RETRIED, {"error_class": class_of(error)}))
    assert 'backhop_retries_total{queue="orders",error_type="TimeoutError"} 1' in metrics.text
    assert 'error_type="_OTHER"} 1' in metrics.text


def test_more_classes_than_are_told_apart_are_refused_by_the_options_name() -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    import backhop.opentelemetry
    import backhop.prometheus

    prometheus: Any = partial(backhop.prometheus.Metrics, None)
    for make in (prometheus, backhop.opentelemetry.Metrics):
        make(error_types=[f"Error{i}" for i in range(32)])
        with pytest.raises(backhop.ArgumentError, match="error_types: 'Error32' is one too many: give at most 32"):
            make(error_types=(f"Error{i}" for i in range(33)))
        wrong: Any
        for wrong in ("TimeoutError", [TimeoutError], [""], 7):
            with pytest.raises(backhop.ArgumentError, match="error_types"):
                make(error_types=wrong)


def test_what_is_dropped_is_no_failure() -> None:
    pytest.importorskip("prometheus_client")
    from backhop.prometheus import Metrics

    metrics, heard = Metrics(None), list[backhop.Event]()
    events = Events("orders", [metrics, heard.append])
    message = Kept({})
    events.delivered(message)
    events.failed(message, Result("dropped"), backhop.Drop("done"))
    assert 'messaging_process_duration_seconds_count{queue="orders",error_type=""} 1' in metrics.text
    assert [(event.name, event.error_class, event.exception) for event in heard[1:]] == [("dropped", "", None)]
