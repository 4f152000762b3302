from __future__ import annotations

from datetime import datetime, timezone

import backhop


def test_a_message_without_headers_never_failed() -> None:
    assert backhop.explain(None) == backhop.explain({}) == "It never failed."


def test_a_parked_message_tells_its_whole_story() -> None:
    headers = {
        "backhop-attempts": 8,
        "backhop-first-failure": 1_700_000_000_000,
        "backhop-delay": 90_000,
        "backhop-id": "5f0c",
        "backhop-exchange": "cdn",
        "backhop-routing-key": "purge.image",
        "backhop-error": "HTTPError: 507 queue is full",
        "backhop-parked": "exhausted",
    }
    assert backhop.explain(headers).splitlines() == [
        "It failed 8 times, first at 2023-11-14 22:13:20 UTC.",
        "The last error was: HTTPError: 507 queue is full",
        "Its last wait was 1 min 30 s.",
        "It was parked because its attempts were used up.",
        'It was first published to exchange "cdn" with routing key "purge.image".',
        "All its attempts have the id 5f0c.",
    ]


def test_what_the_broker_did_is_told() -> None:
    death = {
        "queue": "orders",
        "reason": "rejected",
        "count": 1,
        "exchange": "",
        "routing-keys": ["orders"],
        "time": datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc),
    }
    assert backhop.explain({"x-death": [death], "x-delivery-count": 2}).splitlines() == [
        "No failure of it was reported.",
        "The broker dead-lettered it from queue orders once (rejected), first at 2023-11-14 22:13:20 UTC.",
        "Its consumer was lost, or gave it back, 2 times while it, or a message beside it, was in hand.",
    ]


def test_a_replay_is_told() -> None:
    story = backhop.explain({"backhop-attempts": 0, "backhop-replays": 2}).splitlines()
    assert story == ["It never failed.", "It was sent back from the parked queue 2 times."]


def test_a_strategy_that_leaves_counting_to_the_broker_is_understood() -> None:
    topology = backhop.Topology("orders", backhop.Policy(kind="fixed", jitter="none"), strategy="reject")
    death = {"queue": "orders", "reason": "rejected", "count": 1}
    story = backhop.explain({"x-death": [death]}, topology=topology)
    assert story.startswith("It failed once (by the broker's x-death records).")


def test_a_header_that_cannot_be_trusted_is_named() -> None:
    assert "Ignored: backhop-attempts" in backhop.explain({"backhop-attempts": "many"})


def test_every_reason_for_parking_has_its_words() -> None:
    reasons = ("exhausted", "permanent", "too-old", "oversized", "poison")
    stories = [backhop.explain({"backhop-parked": reason}).splitlines()[1] for reason in reasons]
    assert len(set(stories)) == len(reasons)
    assert not any(reason in story for reason, story in zip(reasons, stories, strict=True))
