"""The class Breaker: its options, its use by a rehearsal, and the errors of wrong use."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

import backhop
from backhop import _backhop as c
from backhop.testing import rehearse

PAUSES = backhop.Policy(initial=10, kind="fixed", jitter="none")


class Banned(Exception):  # noqa: N818
    """The message's own fault."""


def quick(**options: Any) -> backhop.Breaker:
    """A breaker that opens after two failures in a row, and closes after one success."""
    given: dict[str, Any] = {"row_failures": 2, "probe_successes": 1, "pauses": PAUSES}
    return backhop.Breaker("api", **{**given, **options})


# --- Options --------------------------------------------------------------------------------------


def test_a_new_breaker_is_closed() -> None:
    breaker = backhop.Breaker("api")
    assert (breaker.name, breaker.state, breaker.reason) == ("api", "closed", "")
    assert repr(breaker) == "<Breaker 'api', closed>"


def test_durations_are_seconds_timedeltas_or_texts() -> None:
    backhop.Breaker("api", window=timedelta(minutes=2), probe_timeout="30s", slow=1.5)


def test_the_defaults_are_the_cores() -> None:
    assert c.bh_breaker_defaults() == (60000, 20, 50, 10, 0, 100, 3, 60000, 1024, 0)


@pytest.mark.parametrize(("options", "text"), [
    ({"window": 0.001}, r"window is 0.001: give seconds, from 0.006 to 86400"),
    ({"least_calls": 0}, "least_calls is 0: give a whole number, from 1 to 1000000000"),
    ({"failure_percent": 101}, "failure_percent is 101: give a whole number, from 1 to 100"),
    ({"row_failures": -1}, "row_failures is -1: give"),
    ({"slow": 0}, "slow is 0: give seconds, from 0.001"),
    ({"slow_percent": 0}, "slow_percent is 0: give"),
    ({"probe_successes": 1001}, "probe_successes is 1001: give"),
    ({"probe_timeout": "2 d"}, "probe_timeout is '2 d': give seconds"),
    ({"ramp_calls": 0}, "ramp_calls is 0: give"),
    ({"throttled_opens": 1}, "throttled_opens is 1: give True or False"),
    ({"pauses": 3}, "pauses is 3: give a backhop.Policy"),
    ({"errors": "TimeoutError"}, "errors is 'TimeoutError': give classes of exceptions"),
    ({"errors": [3]}, "errors holds 3: give classes of exceptions"),
    ({"key": "host"}, "key is 'host': give a function"),
    ({"name": 3}, "name is 3: give a name"),
    ({"name": "x" * 65}, "name is longer than 64 bytes"),
])  # fmt: skip
def test_a_wrong_option_is_refused_in_the_users_words(options: dict[str, Any], text: str) -> None:
    with pytest.raises(backhop.ArgumentError, match=text):
        backhop.Breaker(options.pop("name", "api"), **options)


def test_a_coroutine_function_is_no_key() -> None:
    async def key(_: backhop.Message) -> str:
        return ""

    with pytest.raises(backhop.ArgumentTypeError, match="key is a coroutine function"):
        backhop.Breaker("api", key=key)  # type: ignore[arg-type]


# --- By hand --------------------------------------------------------------------------------------


def test_it_is_opened_closed_and_disabled_by_hand() -> None:
    breaker = backhop.Breaker("api")
    states = []
    for change in (breaker.open, breaker.close, breaker.disable, lambda: breaker.open("30s")):
        change()
        states.append((breaker.state, breaker.reason))
    assert [state for state, _ in states] == ["open", "closed", "disabled", "open"]
    assert "by hand" in states[0][1]
    with pytest.raises(backhop.ArgumentError, match="duration is 0: give seconds"):
        breaker.open(0)


def test_a_breaker_by_key_has_a_state_for_each_key() -> None:
    breaker = backhop.Breaker("hooks", key=lambda message: message.headers["host"])
    breaker.open(key="bad.example")
    assert (breaker.state_of("bad.example"), breaker.state_of(b"good.example")) == ("open", "closed")
    assert breaker.reason_of("bad.example") == "opened by hand"
    breaker.close(key="bad.example")
    assert breaker.state_of("bad.example") == "closed"
    assert repr(breaker) == "<Breaker 'hooks' by key>"


def test_a_breaker_by_key_needs_a_key() -> None:
    breaker = backhop.Breaker("hooks", key=lambda _: "host")
    for use in (lambda: breaker.state, lambda: breaker.reason, breaker.open, breaker.close, breaker.disable):
        with pytest.raises(backhop.StateError, match="breaker hooks has keys: give a key"):
            use()
    with pytest.raises(backhop.ArgumentTypeError, match="key is 3: give a str or bytes"):
        breaker.open(key=3)  # type: ignore[arg-type]


def test_a_breaker_without_keys_takes_none() -> None:
    breaker = backhop.Breaker("api")
    for use in (lambda: breaker.open(key="host"), lambda: breaker.close("host"), lambda: breaker.state_of("host")):
        with pytest.raises(backhop.StateError, match="breaker api has no keys: leave out the key"):
            use()


# --- In a rehearsal -------------------------------------------------------------------------------


def test_an_open_breaker_defers_a_message_without_an_attempt() -> None:
    breaker, calls, events = quick(), list[int](), list[backhop.Event]()

    def handle(message: backhop.Message) -> None:
        calls.append(message.attempt)
        if len(calls) <= 2:
            raise ConnectionError("down")

    policy = backhop.Policy(initial=1, jitter="none", max_attempts=5)
    rehearsal = rehearse(handle, policy=policy, breaker=breaker, on_event=events.append)
    assert calls == [1, 2, 3]
    assert [attempt.plan.action for attempt in rehearsal] == ["retry", "retry", "defer", "ack"]
    assert [attempt.breaker for attempt in rehearsal] == ["closed", "open", "open", "closed"]
    assert rehearsal.outcome == "acked"
    assert rehearsal[3].plan.attempts == 2
    deferred = [event for event in events if event.name == "deferred"]
    assert [event.deferrals for event in deferred] == [1]
    assert [event.name for event in events].count("delivered") == 3
    assert ", breaker open" in str(rehearsal)


def test_the_messages_own_failures_do_not_open_it() -> None:
    def handle(message: backhop.Message) -> None:
        raise Banned if message.attempt < 5 else OSError

    breaker = quick(errors=OSError)
    rehearsal = rehearse(handle, policy=backhop.Policy(max_attempts=5), breaker=breaker)
    assert [attempt.breaker for attempt in rehearsal] == ["closed"] * 5
    assert rehearsal.outcome == "parked"


@pytest.mark.parametrize("errors", [OSError, [ValueError, OSError], lambda error: isinstance(error, OSError)])
def test_errors_are_classes_and_predicates(errors: Any) -> None:
    def handle(_: backhop.Message) -> None:
        raise backhop.RetryAfter(1, OSError("down"))

    rehearsal = rehearse(handle, policy=backhop.Policy(max_attempts=3), breaker=quick(errors=errors))
    assert [attempt.breaker for attempt in rehearsal][1] == "open"


def test_a_predicate_that_fails_matches(caplog: pytest.LogCaptureFixture) -> None:
    def predicate(_: BaseException) -> bool:
        raise RuntimeError("oops")

    def handle(_: backhop.Message) -> None:
        raise OSError("down")

    with caplog.at_level(logging.ERROR):
        rehearsal = rehearse(handle, policy=backhop.Policy(max_attempts=3), breaker=quick(errors=predicate))
    assert [attempt.breaker for attempt in rehearsal][1] == "open"
    assert "a predicate of errors failed" in caplog.text


def test_a_permanent_failure_is_no_failure_of_the_downstream() -> None:
    breaker = quick(row_failures=1)
    rehearsal = rehearse(_park, breaker=breaker)
    assert (rehearsal.outcome, rehearsal[0].breaker) == ("parked", "closed")


def _park(_: backhop.Message) -> None:
    raise backhop.Park("never")


def test_throttled_for_the_whole_queue_opens_it() -> None:
    raised: list[BaseException] = [backhop.Throttled(5, "429"), backhop.Throttled(30, "503", whole_queue=True)]

    def handle(_: backhop.Message) -> None:
        if raised:
            raise raised.pop(0)

    rehearsal = rehearse(handle, policy=backhop.Policy(initial=1), breaker=quick())
    assert [attempt.breaker for attempt in rehearsal][:2] == ["closed", "open"]
    assert rehearsal.outcome == "acked"
    assert {attempt.plan.attempts for attempt in rehearsal} == {0}


def test_a_predicate_can_throttle_the_whole_queue() -> None:
    calls = list[int]()

    def handle(message: backhop.Message) -> None:
        calls.append(message.attempt)
        if len(calls) == 1:
            raise ConnectionError("503")

    only = lambda _: backhop.Throttled(30, whole_queue=True)  # noqa: E731
    rehearsal = rehearse(handle, breaker=quick(), only=only)
    assert rehearsal[0].breaker == "open"
    policies = {lambda _: backhop.Throttled(30, whole_queue=True): backhop.Policy(initial=1)}
    calls.clear()
    assert rehearse(handle, breaker=quick(), policies=policies)[0].breaker == "open"


def test_throttled_keeps_what_it_was_given() -> None:
    throttled = backhop.Throttled("1 min", "429", whole_queue=True)
    assert (throttled.delay, throttled.whole_queue, backhop.Throttled(1).whole_queue) == ("1 min", True, False)
    with pytest.raises(backhop.ArgumentTypeError, match="whole_queue is 1: give True or False"):
        backhop.Throttled(1, whole_queue=1)  # type: ignore[arg-type]


def test_a_key_that_is_open_defers_its_messages_alone() -> None:
    breaker = backhop.Breaker("hooks", key=lambda message: message.headers["host"], row_failures=1, pauses=PAUSES)

    def fail(_: backhop.Message) -> None:
        raise OSError("down")

    policy = backhop.Policy(initial=1, max_attempts=2)
    bad = rehearse(fail, headers={"host": "bad"}, policy=policy, breaker=breaker)
    assert [attempt.plan.action for attempt in bad][:2] == ["retry", "defer"]
    good = rehearse(lambda _: None, headers={"host": "good"}, policy=policy, breaker=breaker)
    assert [attempt.plan.action for attempt in good] == ["ack"]


@pytest.mark.parametrize("key", [lambda message: message.headers["host"], lambda _: 3])
def test_an_error_of_the_key_function_is_a_failed_attempt(key: Any) -> None:
    calls = list[backhop.Message]()
    policy = backhop.Policy(max_attempts=2)
    rehearsal = rehearse(calls.append, policy=policy, breaker=backhop.Breaker("hooks", key=key))
    assert (rehearsal.outcome, rehearsal.reason, len(rehearsal.errors)) == ("parked", "exhausted", 2)
    assert calls == []


def test_with_strategy_reject_a_message_is_held() -> None:
    calls = list[int]()

    def handle(message: backhop.Message) -> None:
        calls.append(message.attempt)
        if len(calls) <= 2:
            raise ConnectionError("down")

    policy = backhop.Policy(initial=1, kind="fixed", jitter="none")
    rehearsal = rehearse(handle, policy=policy, strategy="reject", breaker=quick())
    assert (rehearsal.outcome, [attempt.at for attempt in rehearsal]) == ("acked", [0, 1, 2])


# --- What cannot work -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["reject", "native"])
def test_a_key_needs_a_strategy_that_can_defer(strategy: Any) -> None:
    breaker = backhop.Breaker("hooks", key=lambda _: "host")
    policy = backhop.Policy(initial=1, kind="fixed", jitter="none")
    with pytest.raises(backhop.StrategyError, match="breaker hooks has a key, and with strategy"):
        rehearse(_park, policy=policy, strategy=strategy, breaker=breaker)


def test_a_breaker_is_a_breaker() -> None:
    with pytest.raises(backhop.ArgumentTypeError, match=r"breaker is 'api': give a backhop\.Breaker"):
        rehearse(_park, breaker="api")  # type: ignore[arg-type]


# --- Events ---------------------------------------------------------------------------------------


def test_the_event_of_a_breaker_has_its_name() -> None:
    from backhop.observe.event import event_of, new_event

    event = event_of(new_event(c.BH_EVENT_BREAKER_OPENED, {"queue": "orders", "breaker": "api", "delay_ms": 10000}))
    assert (event.name, event.breaker, event.delay) == ("breaker_opened", "api", 10)
    assert event.fields["backhop_breaker"] == "api"
