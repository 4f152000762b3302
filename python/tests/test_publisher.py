"""The publisher of both clients, with answers that no broker gives on demand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import backhop
from backhop import _backhop as c
from backhop.adapters import clock
from backhop.adapters import publisher as publishing
from backhop.adapters.copies import ChannelClosingError, Copy
from backhop.adapters.frames import How
from backhop.adapters.publisher import Publisher
from backhop.adapters.retrier import BaseRetrier
from backhop.adapters.session import Session
from backhop.decider import Decider
from backhop.delivery import PROPERTIES as NUMBERS
from backhop.plan import Result
from backhop.topology import Mode

TOPOLOGY = backhop.Topology("orders")
TIMEOUT = 30.0


class Original(SimpleNamespace):
    """A delivery."""

    channel = "the channel"
    tag: int
    is_here = True


class Connection:
    """A client's."""


class BareRetrier(BaseRetrier[None, Session]):
    """A retrier without a client."""

    def _begin(self, channel: None, *parts: Any) -> Session:
        return Session(channel, *parts)


class NotingPublisher(Publisher):
    """Its connection is open, and its actions are noted."""

    _connection = Connection()
    _is_open = True
    _is_blocked = False

    def __init__(self, **options: Any) -> None:
        super().__init__(BareRetrier(None, "orders", **options)._session, TIMEOUT)
        self.written: list[Copy] = []
        self.pending_at_write: list[int] = []
        self.settled: list[tuple[int, How]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        self.timers.append((delay, callback))
        return None

    def _begin_channel(self) -> Any:
        return self

    def _watch_channel(self, channel: Any) -> None: ...

    def _copy(self, plan: backhop.Plan, message: Any, error: BaseException | None) -> Copy:
        if message._kept == "unwritable":
            raise TypeError("no properties")
        return Copy(plan, message, error, 0, lambda _: b"")

    def _write(self, copy: Copy) -> None:
        self.written.append(copy)
        self.pending_at_write.append(self.pending)

    def _hand_over(self) -> None: ...

    def _settle(self, channel: Any, tag: int, how: How) -> bool:
        assert channel == Original.channel
        self.settled.append((tag, how))
        return True

    def _declare(self, declarations: Any, done: Any) -> None:
        raise AssertionError("nothing is to be declared")


class Time(SimpleNamespace):
    """The clock that the publisher goes by."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    stands_still = Time()
    monkeypatch.setattr(clock, "time", stands_still)
    return stands_still


def test_a_clock_that_waited_until_a_time_has_reached_it(time: Time) -> None:
    ledger_clock = clock.LedgerClock(1000)
    for due_ms in range(1, 10000, 7):
        ledger_clock.now_ms()
        time.now += ledger_clock.until(due_ms)
        assert ledger_clock.now_ms() == due_ms


def message(history: backhop.History, properties: Any, call: int = 0) -> Any:
    kept = properties or SimpleNamespace(headers=None, **dict.fromkeys(NUMBERS))
    given = {"history": history, "_history": history, "_kept": kept, "_kept_call": call, "_original": Original()}
    return SimpleNamespace(**given, _traceparent="", _error_class="", body=b"")


def published(publisher: Publisher, *tags: int, properties: Any = None, call: int = 0) -> None:
    decider = Decider(TOPOLOGY)
    for tag in tags:
        history = decider.read("", "orders", {"message_id": str(tag)}, None)
        plan = decider.plan(history, Result("failed", "507"))
        publisher.settle(plan, message(history, properties, call), Original(tag=tag))
    if not publisher._publisher_id:
        publisher._confirming()


def go_on(publisher: NotingPublisher, time: Time, seconds: float) -> None:
    """The event loop turns, and calls the timers that are due."""
    end = time.now + seconds
    while time.now < end and publisher.timers:
        delay, callback = publisher.timers.pop(0)
        time.now += max(delay, 0.001)  # a clock never stands still
        callback()
    time.now = max(time.now, end)


def test_a_copy_is_pending_while_it_is_written_and_until_its_original_is_settled() -> None:
    publisher = NotingPublisher()
    published(publisher, 1, 2, 3)
    assert publisher.pending_at_write == [3, 3, 3]
    publisher._answered(2, True, True)
    assert (publisher.pending, publisher.settled) == (1, [(1, "ack"), (2, "ack")])
    publisher._lost("the broker went away", False)
    assert publisher.pending == 0


@pytest.mark.parametrize("is_wanted", [False, True])
def test_a_lost_connection_is_told_once_with_what_comes_again(is_wanted: bool) -> None:
    events: list[backhop.Event] = []
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, 2, 3)
    publisher._is_open = False
    publisher._ended(Original.channel, "the broker went away", False)
    publisher._closed(publisher, "the broker went away")
    publisher._lost("the broker went away", is_wanted)
    told = [(event.name, event.connection, event.count) for event in events]
    assert told == ([] if is_wanted else [("disconnected", "consume", 3)])


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_was_in_hand_from_a_channel_that_the_broker_closed_is_told_as_stale(is_refused: bool) -> None:
    events: list[backhop.Event] = []
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, 2)
    publisher._ended(Original.channel, "406 unknown delivery tag", is_refused)
    assert events == []  # the broker may still confirm the copies
    publisher._lost("the broker went away", False)
    told = sorted((event.name, event.id) for event in events)
    assert told == ([("stale", "1"), ("stale", "2")] if is_refused else [])


@pytest.mark.parametrize("answer", ["ack", "nack", "returned", "late", "closed", "lost"])
def test_R4_2_a_copy_in_flight_whose_channel_closed_ends_its_call_by_its_confirm(
    answer: str, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, events = list[tuple[int, int]](), list[backhop.Event]()
    monkeypatch.setattr(publishing, "CALLS", SimpleNamespace(end=lambda call, action: ends.append((call, action))))
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, 2, call=7)
    publisher._ended(Original.channel, "406 unknown delivery tag", True)
    assert ends == []
    if answer == "returned":
        publisher._returned(SimpleNamespace(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key=""), None)
        publisher._answered(0, True, True)
    elif answer == "late":
        go_on(publisher, time, 2 * TIMEOUT)
    elif answer == "closed":
        publisher._closed(publisher._channel, "closed")
    elif answer == "lost":
        publisher._lost("the broker went away", False)
    else:
        publisher._answered(2, True, answer == "ack")
    is_confirmed = answer == "ack"
    assert ends == [(call, c.BH_ACTION_RETRY if is_confirmed else c.BH_ACTION_NONE) for call in (7, 7)]
    assert [event.name for event in events].count("retried") == (2 if is_confirmed else 0)
    assert publisher.settled == []


def test_that_the_broker_takes_no_publishes_is_told_where_that_changes(time: Time) -> None:
    events: list[backhop.Event] = []
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, 2)
    for is_blocked in (True, True, False, False):
        publisher._is_blocked = is_blocked
        go_on(publisher, time, 3)
    told = [(event.name, event.connection, event.count) for event in events]
    assert told == [("blocked", "publish", 2), ("unblocked", "publish", 2)]


def test_a_confirm_that_came_while_the_event_loop_stood_still_is_heard(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = NotingPublisher()
    published(publisher, 1)
    time.now += 10 * TIMEOUT
    publisher.timers.pop(0)[1]()
    published(publisher, 2)
    publisher._answered(1, False, True)
    assert "unconfirmed" not in caplog.text
    assert publisher.settled == [(1, "ack")]


def test_of_copies_that_are_not_confirmed_one_goes_out_again_at_each_timeout(
    time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[backhop.Event] = []
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, 2, 3)
    go_on(publisher, time, TIMEOUT - 2)
    assert len(publisher.written) == 3
    go_on(publisher, time, 4)
    assert len(publisher.written) == 4
    assert [(event.name, event.count) for event in events] == [("unconfirmed", 3)]
    assert "3 copies were not confirmed within 30 s" in caplog.text
    go_on(publisher, time, TIMEOUT)
    assert len(publisher.written) == 5
    publisher._answered(3, True, True)
    assert (publisher.pending, publisher.settled) == (0, [(1, "ack"), (2, "ack"), (3, "ack")])
    assert [event.name for event in events[2:]] == ["retried"] * 3


def test_a_broker_that_reads_again_has_all_the_time_to_confirm(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    publisher = NotingPublisher()
    published(publisher, 1)
    go_on(publisher, time, TIMEOUT - 5)
    publisher._is_blocked = True
    go_on(publisher, time, TIMEOUT)
    publisher._is_blocked = False
    go_on(publisher, time, TIMEOUT - 5)
    assert "unconfirmed" not in caplog.text
    go_on(publisher, time, 10)
    assert "unconfirmed" in caplog.text


def test_what_cannot_be_written_is_left_and_told(caplog: pytest.LogCaptureFixture) -> None:
    events: list[backhop.Event] = []
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, properties="unwritable")
    published(publisher, 2)
    assert [copy.id for copy in publisher.written] == ["2"]
    assert [(event.name, event.id) for event in events] == [("refused", "1")]
    assert isinstance(events[0].error, backhop.ContentError)
    assert "stays unacknowledged" in caplog.text
    publisher._answered(1, False, True)
    assert (publisher.pending, publisher.settled) == (0, [(2, "ack")])


@pytest.mark.parametrize(("code", "is_told"), [(406, "refused"), (404, "returned"), (None, "")])
def test_a_copy_that_closes_the_channel_is_found_by_sending_each_alone(code: int | None, is_told: str) -> None:
    events: list[backhop.Event] = []
    publisher = NotingPublisher(on_event=events.append)
    published(publisher, 1, 2)
    for _ in range(2):
        publisher._closed(publisher, f"{code} unwelcome", code or 0)
        publisher._confirming()
    if code is None:
        assert [copy.id for copy in publisher.written] == ["1", "2"] * 3
        return
    assert [copy.id for copy in publisher.written] == ["1", "2", "1", "2"]
    *closed, told = events
    assert [(event.name, event.connection) for event in closed] == [("unavailable", "publish")] * 2
    assert (told.name, told.id) == (is_told, "1")
    assert all(f"{code} unwelcome" in event.text for event in events)


def test_a_copy_that_meets_a_closing_channel_is_written_on_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = NotingPublisher()
    published(publisher, 1)

    def refuse(copy: Copy) -> None:
        raise ChannelClosingError

    with monkeypatch.context() as closing:
        closing.setattr(publisher, "_write", refuse)
        published(publisher, 2)
    published(publisher, 3)
    assert [copy.id for copy in publisher.written] == ["1"]
    begun: list[object] = []

    def begin() -> object:
        begun.append(publisher)
        return publisher

    monkeypatch.setattr(publisher, "_begin_channel", begin)
    publisher._closed(publisher, "closed")
    assert len(begun) == 1
    publisher._confirming()
    assert [copy.id for copy in publisher.written] == ["1", "1", "2", "3"]


def test_D6_the_delays_of_a_channel_that_cannot_be_opened_grow_until_a_publish_is_answered(time: Time) -> None:
    events: list[backhop.Event] = []
    back_off = backhop.Policy(initial=0.1, max=1000, jitter="none")
    publisher = NotingPublisher(on_event=events.append, back_off=back_off)

    def fail(times: int) -> list[float]:
        events.clear()
        for _ in range(times):
            publisher._unopened("no more channels")
            go_on(publisher, time, events[-1].delay + 1)
        return [event.delay for event in events]

    history = Decider(TOPOLOGY).read("", "orders", {"message_id": "m1"}, None)
    plan = Decider(TOPOLOGY).plan(history, Result("failed", "507"))
    publisher.settle(plan, message(history, None), Original(tag=1))
    assert max(fail(10)) > 10
    assert [(event.name, event.connection, event.count) for event in events] == [("unavailable", "publish", 1)] * 10
    assert "no more channels" in events[0].text
    publisher._confirming()
    publisher._closed(publisher, "closed")
    assert fail(1)[0] > 1
    publisher._confirming()
    publisher._answered(1, False, False)
    publisher._closed(publisher, "closed")
    go_on(publisher, time, 1000)
    assert fail(1)[0] <= 0.3


@pytest.mark.parametrize("mode", ["create", "verify", "none"])
def test_a_rung_on_demand_is_made_in_mode_create_alone(mode: Mode) -> None:
    publisher = NotingPublisher(mode=mode)
    history = Decider(TOPOLOGY).read("", "orders", {"message_id": "m1"}, None)
    plan = Decider(TOPOLOGY).plan(history, Result("failed", "507", retry_after=7200))
    assert plan.on_demand
    with pytest.raises(AssertionError, match="nothing is to be declared") if mode == "create" else nullcontext():
        publisher.settle(plan, message(history, None), Original(tag=1))
        publisher._confirming()
    assert len(publisher.written) == (mode != "create")


@pytest.mark.parametrize("end", ["closed", "nacked", "returned", "unconfirmed", "unopened", "lost", "unwritable"])
def test_a_replay_that_is_not_taken_ends_at_once_with_an_error(end: str, time: Time) -> None:
    publisher = NotingPublisher()
    history = Decider(TOPOLOGY).read("", "orders.parked", {"message_id": "m1"}, None)
    plan = backhop.Plan.replay(history, TOPOLOGY)
    ends: list[backhop.Error | None] = []
    properties = end if end == "unwritable" else None
    publisher.settle(plan, message(history, properties), Original(tag=1), replayed=ends.append)
    if end == "unopened":
        publisher._unopened("OSError: no channel")
    else:
        publisher._confirming()
    if end == "closed":
        publisher._closed(publisher, "406 too big", 406)
    elif end == "returned":
        method = SimpleNamespace(exchange=plan.exchange, routing_key=plan.routing_key)
        method.reply_code, method.reply_text = 312, "NO_ROUTE"
        publisher._returned(method, {"backhop-id": "m1"})
        publisher._answered(1, False, True)
    elif end == "nacked":
        publisher._answered(1, False, False)
    elif end == "unconfirmed":
        go_on(publisher, time, TIMEOUT + 2)
    elif end == "lost":
        publisher._lost("the broker went away", False)
    kinds = {
        "lost": backhop.ConnectionFailedError,
        "closed": backhop.ChannelClosedError,
        "unwritable": backhop.ContentError,
    }
    assert [type(error) for error in ends] == [kinds.get(end, backhop.PublishError)]
    go_on(publisher, time, 100)
    assert len(publisher.written) == (end not in ("unopened", "unwritable"))
    assert (publisher.pending, publisher.settled) == (0, [])


def test_a_listener_that_fails_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def listen(event: backhop.Event) -> None:
        raise LookupError(event.name)

    publisher = NotingPublisher(on_event=listen)
    published(publisher, 1)
    publisher._answered(1, False, True)
    assert publisher.settled == [(1, "ack")]
    assert 'a listener failed at retried of "orders": LookupError: retried' in caplog.text


def test_pending_may_be_asked_while_a_connection_is_added() -> None:
    adapter = pytest.importorskip("backhop.aio_pika")
    retrier = adapter.Retrier.__new__(adapter.Retrier)
    publishers: dict[int, Any] = {}
    retrier._session = SimpleNamespace(publishers=publishers)

    class Growing:
        @property
        def pending(self) -> int:
            publishers[len(publishers)] = self
            return 1

    publishers[0] = Growing()
    assert retrier.pending == 1
