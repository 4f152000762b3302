#!/usr/bin/env python3
"""Tests that the accountant finds each fault: python3 tests/chaos/test_accountant.py; it needs no broker."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accountant import Account, Journal, Message, account, seen_by_others

TWICE = Message("1-1", 2, "1-1 2 ab", "purge.1", "mark")  # fails twice
ALWAYS = Message("1-2", 99, "1-2 99 cd", "purge.2", "mark")


def line(message: Message, attempt: int, at_ms: int, delay_ms: int = 0, **changes: str) -> str:
    """Returns a consumer's line."""
    content = {"key": message.routing_key, "mark": message.mark, "id": message.id, "body": message.body, **changes}
    outcome = "failed" if attempt <= message.fails else "done"
    return "\t".join(map(str, (at_ms, outcome, attempt, delay_ms, *content.values())))


RIGHT = [line(TWICE, 1, 1000), line(TWICE, 2, 1310, 300), line(TWICE, 3, 1950, 600)]


def parked(message: Message, attempts: int = 5) -> tuple[Any, bytes]:
    return SimpleNamespace(headers={"backhop-attempts": attempts}), message.body.encode()


def of(lines: list[str], *messages: Message, **more: Any) -> Account:
    """Returns the account of a journal with these lines, for these published messages."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "journal")
        path.write_text("".join(f"{each}\n" for each in ["900\tconnected\tnode1", *lines]))
        journal = Journal.read(path)
    given = {"unsure": {}, "parked": [], "unroutable": [], "waiting": [], **more}
    return account({each.id: each for each in messages}, journal=journal, **given)


class Accountant(unittest.TestCase):
    def test_what_went_well_has_no_faults(self) -> None:
        always = [line(ALWAYS, attempt, 1000 * attempt) for attempt in range(1, 6)]
        result = of([*RIGHT, *always], TWICE, ALWAYS, parked=[parked(ALWAYS)])
        self.assertEqual((result.done, result.parked, result.calls, result.duplicates), (1, 1, 8, 0))
        self.assertEqual(result.faults, {}, result.notes)

    def test_messages_that_came_back_from_unroutable_are_counted(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "journal")
            path.write_text("".join(f"{each}\n" for each in [*RIGHT, "1960\treturned\t2", "1970\treturned\t1"]))
            journal = Journal.read(path)
        self.assertEqual((journal.returned, journal.connections, len(journal.handlings)), (3, 0, 1))

    def test_a_message_that_is_nowhere_is_lost(self) -> None:
        self.assertEqual(of([], TWICE).faults, {"lost": 1})
        self.assertEqual(of(RIGHT[:2], TWICE).faults, {"lost": 1})

    def test_a_message_that_was_never_confirmed_may_be_nowhere_but_not_half_handled(self) -> None:
        self.assertEqual(of([], unsure={TWICE.id: TWICE}).faults, {})
        self.assertEqual(of(RIGHT[:2], unsure={TWICE.id: TWICE}).faults, {"lost": 1})

    def test_a_message_that_is_found_in_a_queue_is_not_lost(self) -> None:
        self.assertEqual(of(RIGHT[:2], TWICE, waiting=[TWICE.id]).faults, {"waiting": 1})
        result = of(RIGHT[:2], TWICE, unroutable=[TWICE.id])
        self.assertEqual((result.unroutable, result.faults), (1, {}))

    def test_what_differs_from_what_was_published_is_changed(self) -> None:
        for change in ({"key": "purge.9"}, {"mark": ""}, {"id": "None"}, {"body": TWICE.body + "!"}):
            self.assertEqual(of([*RIGHT[:2], line(TWICE, 3, 1950, 600, **change)], TWICE).faults, {"changed": 1})
        self.assertEqual(of(RIGHT).faults, {"changed": 1})  # a message that was not published

    def test_an_attempt_before_its_delay_is_early(self) -> None:
        lines = [RIGHT[0], line(TWICE, 2, 1299, 300), RIGHT[2]]
        self.assertEqual(of(lines, TWICE).faults, {"early": 1})

    def test_a_missed_attempt_one_too_many_and_another_end_are_wrong(self) -> None:
        self.assertEqual(of([RIGHT[0], RIGHT[2]], TWICE).faults, {"wrong": 1})
        self.assertEqual(of([*RIGHT, line(TWICE, 4, 3000)], TWICE).faults, {"wrong": 1})
        self.assertEqual(of(RIGHT, TWICE, parked=[parked(TWICE)]).faults, {"wrong": 1})
        always = [line(ALWAYS, attempt, 1000 * attempt) for attempt in range(1, 6)]
        self.assertEqual(of(always, ALWAYS, parked=[parked(ALWAYS, attempts=4)]).faults, {"wrong": 1})

    def test_what_comes_again_is_a_duplicate_and_no_fault(self) -> None:
        result = of([*RIGHT, line(TWICE, 2, 2000, 300), line(TWICE, 3, 2700, 600)], TWICE)
        self.assertEqual((result.duplicates, result.faults), (2, {}))

    def test_a_retry_in_the_audit_queue_is_seen_by_others(self) -> None:
        def found(**headers: object) -> tuple[Any, bytes]:
            return SimpleNamespace(headers=headers), TWICE.body.encode()

        published = {TWICE.id: TWICE}
        self.assertEqual(seen_by_others(published, published, [found()])[0], 0)
        for audit in ([found(**{"backhop-attempts": 1})], [found(), found()], []):
            self.assertEqual(seen_by_others(published, published, audit)[0], 1, audit)


if __name__ == "__main__":
    unittest.main(verbosity=2)
