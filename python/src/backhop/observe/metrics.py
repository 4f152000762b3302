"""Counter: counts events in the core, for a bridge."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _backhop as c
from .._amqp import Text
from .._checks import short_text, shortened
from .._core import made
from .._errors import ArgumentError, ArgumentTypeError, ForkedError, check
from .observer import Observer


def checked_error_types(given: Any) -> tuple[Text, ...]:
    """Returns the names of error classes to count apart, as a user gave them.

    :raises ArgumentTypeError: if it is no list of names
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ArgumentTypeError(
            f"error_types is {shortened(given)}: give a list of names, as ['TimeoutError']"
        )
    return tuple(short_text("one of error_types", each, "the name of a class") for each in given)


def blank(error_types: tuple[Text, ...]) -> c.Metrics:
    """Returns counts of zero.

    :raises ArgumentError: if there are more classes than the core counts apart, or a name is not
        UTF-8
    """
    counts = made(c.bh_metrics_new())
    for i, each in enumerate(error_types):
        if c.Metrics_add_error_type(counts, each):
            why = "is one too many" if i >= c.BH_METRICS_MOST_ERROR_TYPES else "is no name"
            advice = f"give at most {c.BH_METRICS_MOST_ERROR_TYPES} names of classes, in UTF-8"
            raise ArgumentError(f"error_types: {shortened(each)} {why}: {advice}")
    return counts


def add_consumers(counts: c.Metrics, source: Any) -> None:
    """Adds the consumers of a retrier or a worker to the gauge of ready consumers."""
    for is_ready in source._readiness_of_consumers:
        check(c.Metrics_add_consumer(counts, source.topology.queue, is_ready))


class Counter(Observer):
    """A bridge that only counts: in the core, and for a worker in the core's own thread.

    :param error_types: names of error classes to count apart; empty: the first classes that occur
    :raises ArgumentError: if there are more classes than the core counts apart
    """

    counts: c.Metrics
    """The counts of retriers. They need no lock, because a call into the core keeps the GIL."""

    def __init__(self, error_types: Iterable[str] = ()) -> None:
        self.error_types = checked_error_types(error_types)
        self.counts = self.blank()
        self._workers: list[c.Worker] = []
        self._lock = threading.Lock()

    def blank(self) -> c.Metrics:
        """Returns counts of zero with the same error classes."""
        return blank(self.error_types)

    def join(self, worker: c.Worker) -> None:
        """Adds a worker, whose core counts until ``part``."""
        with self._lock:
            self._workers.append(worker)

    def part(self, worker: c.Worker) -> None:
        """Removes a worker and keeps its counts."""
        with self._lock:
            self._workers.remove(worker)
            _read(worker, self.counts)

    def total(self) -> c.Metrics:
        """Returns the sum of all counts."""
        with self._lock:
            total = self.blank()
            check(c.Metrics_add(total, self.counts))
            for worker in self._workers:
                _read(worker, total)
            return total


def _read(worker: c.Worker, counts: c.Metrics) -> None:
    """Adds the counts of a worker's core; a worker of the parent process counts nothing here."""
    status = c.Worker_read_metrics(worker, counts)
    if status != ForkedError.status:
        check(status)
