from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import backhop
import backhop.topology
from backhop.testing import Clock, Options, Rehearsal, SeededRandom, rehearse, rehearse_async

Rehearse = Callable[..., Rehearsal]
POLICY = backhop.Policy(initial=1, factor=2, max=60, jitter="none", max_attempts=4)


def fail(_: backhop.Message) -> None:
    raise OSError("507 queue is full")


def test_a_handler_that_always_fails_sees_its_message_until_it_is_parked() -> None:
    rehearsal = rehearse(fail, policy=POLICY)
    assert [attempt.number for attempt in rehearsal] == [1, 2, 3, 4]
    assert rehearsal.delays == [1, 2, 4]
    assert [attempt.at for attempt in rehearsal] == [0, 1, 3, 7]
    assert (rehearsal.outcome, rehearsal.reason) == ("parked", "exhausted")
    assert "attempt  3 after          3 s: OSError('507 queue is full'), again in 4 s" in str(rehearsal)
    assert str(rehearsal).endswith("parked (exhausted)")


def test_a_rehearsal_of_an_exception_that_cannot_be_printed_is_a_table() -> None:
    class UnprintableError(Exception):
        def __repr__(self) -> str:
            raise ValueError("repr")

        __str__ = __repr__

    class HalfPrintableError(UnprintableError):
        def __str__(self) -> str:
            return "507 queue is full"

    def handle(message: backhop.Message) -> None:
        raise (HalfPrintableError if message.attempt == 1 else UnprintableError)

    lines = str(rehearse(handle, policy=POLICY)).splitlines()
    assert lines[0].endswith(": HalfPrintableError: 507 queue is full, again in 1 s")
    assert lines[1].endswith(": UnprintableError, again in 2 s")


def test_a_handler_sees_what_became_of_its_message_before() -> None:
    seen = []

    def handle(message: backhop.Message) -> None:
        seen.append((message.attempt, message.last_error, message.exchange, message.routing_key, message.last_delay))
        if message.attempt == 1:
            raise backhop.RetryAfter(30, "busy")

    rehearsal = rehearse(handle, policy=POLICY, queue="orders", exchange="events", routing_key="order.created")
    assert rehearsal.outcome == "acked"
    assert seen == [(1, "", "events", "order.created", None), (2, "busy", "events", "order.created", 31.5)]


def test_a_throttled_message_waits_without_an_attempt() -> None:
    seen: list[tuple[int, int, str]] = []
    events: list[backhop.Event] = []

    def handle(message: backhop.Message) -> None:
        seen.append((message.attempt, message.deferrals, message.last_error))
        if len(seen) <= 3:
            raise backhop.Throttled(30, "429")

    policy = backhop.Policy(max_attempts=2, max_deferrals=2)
    rehearsal = rehearse(handle, policy=policy, on_event=events.append)
    assert rehearsal.outcome == "acked"
    assert seen == [(1, 0, ""), (1, 1, "429"), (1, 2, "429"), (2, 2, "429")]
    assert [attempt.plan.action for attempt in rehearsal] == ["defer", "defer", "retry", "ack"]
    assert rehearsal.delays == [31.5, 31.5, 31.5]
    told = [each for each in events if each.name not in ("delivered", "succeeded")]
    assert [(each.name, each.attempts, each.deferrals) for each in told] == [
        ("throttled", 0, 0),
        ("deferred", 0, 1),
        ("throttled", 0, 0),
        ("deferred", 0, 2),
        ("failed", 1, 0),
        ("retried", 1, 2),
    ]


def test_park_drop_and_never_end_it_at_once() -> None:
    def park(_: backhop.Message) -> None:
        raise backhop.Park("no such page")

    def drop(_: backhop.Message) -> None:
        raise backhop.Drop

    assert (rehearse(park).outcome, rehearse(park).reason) == ("parked", "permanent")
    assert rehearse(drop).outcome == "dropped"
    assert rehearse(fail, never=(OSError,)).reason == "permanent"
    assert len(rehearse(fail, never=(OSError,))) == 1


@pytest.mark.parametrize("strategy", ["reject", "native"])
def test_strategies_of_the_broker_alone_count_too(strategy: backhop.topology.Strategy) -> None:
    policy = backhop.Policy(initial=5, kind="fixed", jitter="none", max_attempts=3)
    rehearsal = rehearse(fail, policy=policy, strategy=strategy)
    assert rehearsal.delays == [5, 5]
    assert rehearsal.reason == "exhausted"


@pytest.mark.parametrize("strategy", ["reject", "native"])
def test_an_earlier_count_is_counted_once(strategy: backhop.topology.Strategy) -> None:
    policy = backhop.Policy(initial=5, kind="fixed", jitter="none", max_attempts=6)
    rehearsal = rehearse(fail, policy=policy, strategy=strategy, headers={"backhop-attempts": 3})
    assert [attempt.number for attempt in rehearsal] == [4, 5, 6]


def test_what_would_go_on_for_ever_ends() -> None:
    rehearsal = rehearse(fail, policy=backhop.Policy(max_attempts=0), most_attempts=7)
    assert (len(rehearsal), rehearsal.outcome) == (7, "waiting")


def test_a_message_that_crashes_its_consumers_is_not_handed_to_the_handler() -> None:
    rehearsal = rehearse(fail, headers={"x-delivery-count": 1, "backhop-crashes": 20})
    assert (rehearsal.reason, rehearsal.errors) == ("poison", [])


def test_a_message_that_was_lost_with_its_consumers_waits_and_is_handed_over() -> None:
    rehearsal = rehearse(fail, headers={"x-delivery-count": 5}, policy=backhop.Policy(max_attempts=1))
    assert [(attempt.number, attempt.plan.action) for attempt in rehearsal] == [(1, "retry"), (1, "park")]
    assert (rehearsal.reason, len(rehearsal.errors)) == ("exhausted", 1)


def test_jitter_is_the_same_in_every_run(backhop_rehearse: Rehearse) -> None:
    policy = backhop.Policy(initial=10, max_attempts=6)
    rehearsal = backhop_rehearse(fail, policy=policy)
    assert rehearsal.delays == rehearse(fail, policy=policy).delays
    assert rehearsal.delays != rehearse(fail, policy=policy, random=SeededRandom(1)).delays
    for delay, row in zip(rehearsal.delays, policy.preview(), strict=False):
        assert row.lowest * 0.79 <= delay <= row.highest * 1.26  # a rung below or above


def test_time_passes_as_the_clock_says(backhop_rehearse: Rehearse, backhop_clock: Clock) -> None:
    def handle(_: backhop.Message) -> None:
        backhop_clock.advance(timedelta(minutes=1))
        raise OSError

    rehearsal = backhop_rehearse(handle, policy=backhop.Policy(initial=1, jitter="none", max_age=150))
    assert [attempt.at for attempt in rehearsal] == [0, 61, 123, 187]
    assert rehearsal.reason == "too-old"


async def fail_async(_: backhop.Message) -> None:
    raise OSError


def test_coroutines_are_awaited() -> None:
    assert rehearse(fail_async, policy=POLICY).delays == [1, 2, 4]


def test_coroutines_are_awaited_in_the_loop_that_runs() -> None:
    assert asyncio.run(rehearse_async(fail_async, policy=POLICY)).delays == [1, 2, 4]


def test_a_handler_of_an_adapter_is_rehearsed_with_the_objects_of_its_client() -> None:
    def over_pika(message: Any) -> None:
        assert message.method.routing_key == "order.created"
        assert (message.properties.correlation_id, message.properties.headers) == ("c", {"tenant": "acme"})
        message.properties.headers["tenant"] = "evil"
        raise OSError

    async def over_aio_pika(message: Any) -> None:
        assert (message.incoming.body, message.incoming.correlation_id) == (b"body", "c")
        assert message.incoming.headers == {"tenant": "acme"} or message.attempt > 1
        raise OSError

    options: Options = {
        "policy": POLICY,
        "routing_key": "order.created",
        "headers": {"tenant": "acme"},
        "properties": {"correlation_id": "c"},
        "exchange": "events",
    }
    options_of_first: Options = {**options, "most_attempts": 1}
    for handle in (over_pika, over_aio_pika):
        rehearsal = rehearse(handle, b"body", **options_of_first)
        assert [type(error) for error in rehearsal.errors] == [OSError]


def test_a_plain_handler_is_called_in_the_loop_that_runs() -> None:
    assert asyncio.run(rehearse_async(fail, policy=POLICY)).delays == [1, 2, 4]


def test_P4_11_a_rehearsal_in_a_running_loop_names_rehearse_async() -> None:
    async def handle(_: backhop.Message) -> None: ...

    async def main() -> None:
        with pytest.raises(backhop.ArgumentTypeError, match="await rehearse_async"):
            rehearse(handle)

    asyncio.run(main())


def test_a_rehearsed_message_says_whether_it_is_the_last_attempt() -> None:
    seen = []

    def handle(message: backhop.Message) -> None:
        seen.append((message.attempt, message.max_attempts, message.last_attempt))
        raise OSError

    rehearse(handle, policy=backhop.Policy(max_attempts=2))
    rehearse(handle, policy=backhop.Policy(max_attempts=0), most_attempts=1)
    assert seen == [(1, 2, False), (2, 2, True), (1, 0, False)]


def test_only_and_a_delay_of_a_predicate_are_rehearsed() -> None:
    def too_many(error: Exception) -> float | bool:
        return 30.0 if "507" in str(error) else False

    policy = backhop.Policy(initial=1, jitter="none", max_attempts=3)
    assert rehearse(fail, policy=policy, only=too_many).delays == [31.5, 31.5]
    assert rehearse(lambda _: [].pop(), policy=policy, only=too_many).reason == "permanent"


def test_each_class_of_errors_has_its_policy_and_all_have_one_count() -> None:
    quick = backhop.Policy(initial=1, jitter="none", max_attempts=5)
    slow = backhop.Policy(initial=600, max=600, jitter="none", max_attempts=3)
    errors: list[Exception] = [OSError(), TimeoutError(), OSError(), TimeoutError()]

    def handle(_: backhop.Message) -> None:
        raise errors.pop(0)

    rehearsal = rehearse(handle, policy=quick, policies={TimeoutError: slow})
    assert rehearsal.delays == [1, 600, 4]
    assert (rehearsal.outcome, rehearsal.reason) == ("parked", "exhausted")
    assert len(rehearsal) == 4


def test_T14_an_assertion_of_the_handler_fails_the_test() -> None:
    def handle(message: backhop.Message) -> None:
        assert message.body == b"other"

    with pytest.raises(AssertionError):
        rehearse(handle, b"x", policy=backhop.Policy(max_attempts=2))
    with pytest.raises(pytest.fail.Exception):
        rehearse(lambda _: pytest.fail("this test"), b"x", policy=backhop.Policy(max_attempts=2))


def test_T14_a_rehearsal_emits_the_events_of_a_retrier() -> None:
    events: list[backhop.Event] = []
    errors = [OSError("busy"), ValueError("bad")]

    def handle(_: backhop.Message) -> None:
        raise errors.pop(0)

    rehearse(handle, b"x", policy=backhop.Policy(max_attempts=2), never=ValueError, on_event=events.append)
    assert [event.name for event in events] == ["delivered", "failed", "retried", "delivered", "failed", "parked"]
    assert (events[-1].reason, type(events[-1].exception)) == ("permanent", ValueError)
