from __future__ import annotations

from datetime import datetime, timezone
from functools import partial
from typing import Any

import vectors
from vectors import Case, is_, text

import backhop

YEAR_9999_MS = 253_402_300_800_000


def _ms(moment: datetime | None) -> int:
    """Milliseconds since the epoch, -1 for None; the last moment of Python stands for all that are later."""
    if moment is None:
        return -1
    if moment == datetime.max.replace(tzinfo=timezone.utc):
        return YEAR_9999_MS
    return round(moment.timestamp() * 1000)


def _expected_ms(value: int | str) -> int:
    return min(vectors.integer(value), YEAR_9999_MS)


def _compare_deaths(history: backhop.History, expected: list[dict[str, Any]]) -> None:
    assert len(history.deaths) == len(expected)
    for death, record in zip(history.deaths, expected, strict=True):
        _compare_death(death, record)


def _compare_death(death: backhop.Death, record: dict[str, Any]) -> None:
    vectors.compare(
        record,
        {
            "queue": is_(lambda: death.queue, text),
            "reason": is_(lambda: death.reason, text),
            "exchange": is_(lambda: death.exchange, text),
            "original_expiration": is_(lambda: death.original_expiration, text),
            "times": is_(lambda: death.times, vectors.integer),
            "first_time_s": is_(lambda: _ms(death.time), lambda s: s if s == -1 else _expected_ms(int(s) * 1000)),
            "routing_keys": is_(lambda: [*death.routing_keys], lambda keys: [*map(text, keys)]),
        },
    )


def _compare_place(place: backhop.DeathPlace, expected: dict[str, Any]) -> None:
    vectors.compare(expected, {name: is_(partial(getattr, place, name), text) for name in place._fields})


def _compare_problems(history: backhop.History, expected: list[Any] | str) -> None:
    if expected == "any":
        return
    names = [text(name) for name in expected]
    assert all(problem.startswith(tuple(names)) for problem in history.problems), history.problems
    assert all(any(problem.startswith(name) for problem in history.problems) for name in names), history.problems


@vectors.cases("history")
def test_a_vector(case: Case) -> None:
    vectors.only(case, "name delivery policy topology legacy_counter wait_queues expect")
    assert "topology" in case or "policy" not in case
    delivery = vectors.delivery(case)
    topology = vectors.topology(case, vectors.policy(case)) if "topology" in case else None
    vectors.history(case, delivery, topology)
    history = vectors.history(case, delivery, topology)
    vectors.compare(
        {"problems": [], **case["expect"]},
        {
            "attempts": is_(lambda: history.attempts, vectors.integer),
            "source": is_(lambda: history.source),
            "first_failure_ms": is_(lambda: _ms(history.first_failure), _expected_ms),
            "last_delay_ms": is_(lambda: history.last_delay, lambda ms: None if ms == -1 else ms / 1000),
            "last_error": is_(lambda: history.last_error, text),
            "id": is_(lambda: history.id, text),
            "exchange": is_(lambda: history.exchange, text),
            "routing_key": is_(lambda: history.routing_key, text),
            "parked": is_(lambda: history.parked, text),
            "delivery_count": is_(lambda: history.delivery_count, vectors.integer),
            "acquired_count": is_(lambda: history.acquired_count, vectors.integer),
            "crashes": is_(lambda: history.crashes, vectors.integer),
            "deferrals": is_(lambda: history.deferrals, vectors.integer),
            "replays": is_(lambda: history.replays, vectors.integer),
            "deaths": lambda expected: _compare_deaths(history, expected),
            "death_count": is_(lambda: len(history.deaths)),
            "first_death": lambda expected: _compare_place(history.first_death, expected),
            "last_death": lambda expected: _compare_place(history.last_death, expected),
            "problems": lambda expected: _compare_problems(history, expected),
        },
    )


def test_a_first_attempt_without_message_id_has_no_id() -> None:
    assert not backhop.History(backhop.Delivery()).has_id
    assert backhop.History(backhop.Delivery(properties={"message_id": "m1"})).has_id


def test_a_history_outlives_what_it_was_read_from() -> None:
    history = backhop.History(backhop.Delivery(headers={"backhop-attempts": 3}), backhop.Topology("orders"))
    assert history.attempts == 3
