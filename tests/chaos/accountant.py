"""Finds every message at the end, and counts what went wrong on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_ATTEMPTS = 5  # of the consumers' policy
BACKHOP = "backhop-"  # what headers of a retry begin with


@dataclass(frozen=True)
class Message:
    """A message as it was published."""

    id: str
    fails: int
    """How many attempts fail; MAX_ATTEMPTS or more: it is parked."""
    body: str
    routing_key: str
    mark: str

    @property
    def attempts(self) -> int:
        return min(self.fails + 1, MAX_ATTEMPTS)

    @property
    def ends_parked(self) -> bool:
        return self.fails >= MAX_ATTEMPTS


@dataclass(frozen=True)
class Handling:
    """One call of a handler, as its consumer wrote it down."""

    at_ms: int
    outcome: str
    attempt: int
    delay_ms: int
    """The delay that the message itself has."""
    content: tuple[str, str, str, str]
    """Routing key, mark, message-id, body."""


@dataclass
class Journal:
    """The journal of one client's consumers."""

    handlings: dict[str, list[Handling]] = field(default_factory=lambda: defaultdict(list))
    connections: int = 0
    returned: int = 0
    """How many messages the consumers took from the unroutable queue: their attempts begin at 1 again."""
    last_ms: int = 0

    @classmethod
    def read(cls, path: Path) -> Journal:
        journal = cls()
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            at, what, *rest = line.split("\t")
            if what == "connected":
                journal.connections += 1
            elif what == "returned":
                journal.returned += int(rest[0])
            else:
                attempt, delay, *content = rest
                handling = Handling(int(at), what, int(attempt), int(delay), tuple(content))  # type: ignore[arg-type]
                journal.handlings[content[3].split()[0]].append(handling)
                journal.last_ms = max(journal.last_ms, int(at))
        return journal

    def is_done(self, id: str) -> bool:
        return any(each.outcome == "done" for each in self.handlings.get(id, ()))


@dataclass
class Account:
    """The account of one client's messages. All but the first group and the duplicates have to be 0."""

    done: int = 0
    parked: int = 0
    waiting: int = 0
    unroutable: int = 0

    lost: int = 0
    changed: int = 0
    early: int = 0
    wrong: int = 0
    """Messages with an attempt missed, with one too many, or with another end than theirs."""
    seen_by_others: int = 0

    duplicates: int = 0
    in_hand: int = 0
    """How many duplicates there may be: messages in hand when something happened, and attempts of returned ones."""
    calls: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, int]:
        counts = {
            "lost": self.lost,
            "changed": self.changed,
            "early": self.early,
            "wrong": self.wrong,
            "seen by others": self.seen_by_others,
            "waiting": self.waiting,
        }
        return {name: count for name, count in counts.items() if count}


def early(handlings: Collection[Handling]) -> int:
    """Counts attempts that began before the failed one's delay was over."""
    failed: dict[int, int] = {}
    for each in handlings:
        if each.outcome == "failed":
            failed[each.attempt] = min(each.at_ms, failed.get(each.attempt, each.at_ms))
    return sum(
        each.attempt - 1 in failed and each.at_ms < failed[each.attempt - 1] + each.delay_ms
        for each in handlings
        if each.attempt > 1
    )


def account(
    sure: Mapping[str, Message],
    unsure: Mapping[str, Message],
    journal: Journal,
    parked: Collection[tuple[Any, bytes]],
    unroutable: Collection[str],
    waiting: Collection[str],
) -> Account:
    """Accounts for one client.

    `sure` are messages whose publishing was confirmed; `unsure` may be there or not. `unroutable` and `waiting` have
    the ids of the queue's messages in `backhop.unroutable` and in the wait queues."""
    result = Account()
    published = {**sure, **unsure}
    parked_attempts: dict[str, list[int]] = defaultdict(list)
    for properties, body in parked:
        id = body.decode().split()[0]
        parked_attempts[id].append(int(properties.headers.get("backhop-attempts", 0)))
        if id not in published or published[id].body != body.decode():
            result.changed += 1
            result.notes.append(f"{id} is parked as {body!r}")
    for id in journal.handlings.keys() - published.keys():
        result.changed += 1
        result.notes.append(f"{id} was never published")

    for id, message in published.items():
        handlings = journal.handlings.get(id, [])
        is_done, is_parked = journal.is_done(id), id in parked_attempts
        result.calls += len(handlings)
        if not handlings and not is_parked and id not in waiting and id not in unroutable:
            if id in sure:
                result.lost += 1
                result.notes.append(f"{id} was never seen")
            continue
        if is_done:
            result.done += 1
        elif is_parked:
            result.parked += 1
        elif id in unroutable:
            result.unroutable += 1
        elif id in waiting:
            result.waiting += 1
        else:
            result.lost += 1
            result.notes.append(f"{id} is nowhere after {[(each.attempt, each.outcome) for each in handlings]}")
            continue
        content = (message.routing_key, message.mark, message.id, message.body)
        if any(each.content != content for each in handlings):
            result.changed += 1
            result.notes.append(f"{id}: {content} became {next(e.content for e in handlings if e.content != content)}")
        if number := early(handlings):
            result.early += number
            result.notes.append(f"{id} came early: {[(e.at_ms, e.attempt, e.delay_ms) for e in handlings]}")
        seen = Counter(each.attempt for each in handlings)
        if is_done or is_parked:
            as_it_should = set(seen) == set(range(1, message.attempts + 1)) and is_parked == message.ends_parked
            if not as_it_should or any(each != MAX_ATTEMPTS for each in parked_attempts.get(id, ())):
                result.wrong += 1
                result.notes.append(f"{id} fails {message.fails} times: {dict(seen)}, parked {parked_attempts.get(id)}")
        result.duplicates += sum(count - 1 for count in seen.values())
        result.duplicates += max(0, len(parked_attempts.get(id, ())) - 1)
    return result


def seen_by_others(
    published: Mapping[str, Message], sure: Collection[str], audit: Collection[tuple[Any, bytes]]
) -> tuple[int, list[str]]:
    """Counts messages of the audit queue that a retry wrote, or that are not there exactly once."""
    seen: Counter[str] = Counter()
    notes = []
    for properties, body in audit:
        id = body.decode().split()[0]
        seen[id] += 1
        if id not in published or any(name.startswith(BACKHOP) for name in properties.headers or {}):
            notes.append(f"the audit queue has {id} with {properties.headers}")
    notes += [f"the audit queue has {id} {count} times" for id, count in seen.items() if count > 1]
    notes += [f"the audit queue has no {id}" for id in sure if id not in seen]
    return len(notes), notes
