"""A message's story, in words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ._amqp import Headers, Text
from ._time import duration
from .delivery import Delivery
from .history import History
from .topology import Topology

_SOURCES = {
    "none": "",
    "backhop": "",
    "legacy": " (by the counter of an earlier set-up)",
    "x-death": " (by the broker's x-death records)",
    "delivery-count": " (by the queue's delivery count)",
}
_REASONS = {
    "exhausted": "its attempts were used up",
    "permanent": "its handler said that no attempt can succeed",
    "too-old": "it was too old for another attempt",
    "oversized": "its headers left no room for a retry's",
    "poison": "its consumer was lost too often while it, or a message beside it, was in hand",
}


def explain(
    headers: Headers | None,
    *,
    topology: Topology | None = None,
    legacy_counter: Text | None = None,
    wait_queues: Iterable[Text] = (),
) -> str:
    """A message's story, in words, from its headers alone.

    :param headers: as a client gives them
    :param topology: where the broker alone moves messages (strategies reject and native), it tells what to count
    :param legacy_counter: as History's
    :param wait_queues: as History's

    >>> print(explain({"backhop-attempts": 2, "backhop-delay": 30000, "backhop-error": "507 queue is full"}))
    It failed 2 times.
    The last error was: 507 queue is full
    Its last wait was 30 s.
    """
    history = History(Delivery(headers=headers or {}), topology, legacy_counter=legacy_counter, wait_queues=wait_queues)
    return "\n".join(_lines(history))


def _lines(history: History) -> Iterable[str]:
    if history.attempts:
        since = f", first at {_at(history.first_failure)}" if history.first_failure else ""
        yield f"It failed {_times(history.attempts)}{_SOURCES[history.source]}{since}."
    else:
        yield "No failure of it was reported." if history.crashes else "It never failed."
    if history.last_error:
        yield f"The last error was: {history.last_error}"
    if history.last_delay is not None:
        yield f"Its last wait was {duration(history.last_delay)}."
    if history.parked:
        yield f"It was parked because {_REASONS.get(history.parked, history.parked)}."
    if history.exchange or history.routing_key:
        yield f"It was first published {_place(history.exchange, history.routing_key)}."
    if history.id:
        yield f"All its attempts have the id {history.id}."
    for death in history.deaths:
        first = f", first at {_at(death.time)}" if death.time else ""
        yield f"The broker dead-lettered it from queue {death.queue} {_times(death.times)} ({death.reason}){first}."
    if history.crashes:
        yield (
            f"Its consumer was lost, or gave it back, {_times(history.crashes)} while it, or a message beside it, "
            "was in hand."
        )
    if history.replays:
        yield f"It was sent back from the parked queue {_times(history.replays)}."
    for problem in history.problems:
        yield f"Ignored: {problem}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _at(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _place(exchange: str, routing_key: str) -> str:
    return f"to exchange {exchange!r} with routing key {routing_key!r}" if exchange else f"to queue {routing_key!r}"
