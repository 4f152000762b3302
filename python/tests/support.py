"""Policies, a handler and ways to look at queues, for the live tests."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import pytest
from live import Broker, needs_worker, until

import backhop
from backhop import Message
from backhop.adapters.watch import Watch

QUICK = backhop.Policy(initial=0.1, jitter="none", max=0.2, max_attempts=3, max_retry_after=0)

TIMES_OUT = {"x-queue-type": "quorum", "x-consumer-timeout": 1000}
"""Arguments of a queue that takes a message back from a handler after 1 s, since RabbitMQ 4.3."""

FIRST = {"blocking", "blocking consume", "aio-pika", "aio-pika consume", "pika", "worker", "worker run"}
"""The first carrier of each code path. The fast profile has only these."""


def carriers(*names: str) -> list[Any]:
    """Returns the parameters of a test over carriers. The further ones are ``long``."""
    found = []
    for name in names:
        marks = [needs_worker] if name.startswith("worker") else []
        marks += [pytest.mark.long] if name not in FIRST else []
        found.append(pytest.param(name, marks=marks))
    return found


class Handler:
    """Raises these errors in turn, and keeps its messages."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.errors_raised: list[BaseException] = []
        self.messages: list[Message] = []
        self.times: list[float] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self.times.append(time.monotonic())
        error = self.errors.pop(0) if self.errors else None
        if error:
            self.errors_raised.append(error)
            raise error

    def saw(self, count: int) -> None:
        until(lambda: len(self.messages) >= count)


class Looks:
    """Makes a look due 0.2 s after the one before, in place of a minute, until ``end``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._goes_on = True
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()
        look = Watch._look

        def looking(watch: Watch) -> None:
            with self._lock:
                self._watches.add(watch)
                if self._goes_on:
                    look(watch)

        monkeypatch.setattr(Watch, "pause", 0.2)
        monkeypatch.setattr(Watch, "_look", looking)

    def end(self) -> None:
        """Waits for the last look: pika cannot close a connection while it opens a channel."""
        with self._lock:
            self._goes_on = False
        until(lambda: not any(watch.is_looking for watch in self._watches))


def is_missing(broker: Broker, queue: str) -> bool:
    """Returns whether a queue does not exist."""
    from pika.exceptions import ChannelClosedByBroker

    try:
        broker.count(queue)
    except ChannelClosedByBroker:
        broker.reconnect()
        return True
    return False


def there(broker: Broker, queue: str) -> int:
    """Returns the number of ready messages; 0 if the queue is missing."""
    return 0 if is_missing(broker, queue) else broker.count(queue)


@cache
def _topology(policy: backhop.Policy) -> backhop.Topology:
    return backhop.Topology("any", policy, namespace="{}")


def names_of(topology: backhop.Topology, prefix: str = "") -> tuple[list[str], list[str]]:
    """Returns the queues and the exchanges of a topology whose names begin with a prefix."""
    found: dict[str, list[str]] = {"queue": [], "exchange": []}
    for each in topology.declarations:
        if each.what in found and each.name.startswith(prefix):
            found[each.what].append(each.name)
    return found["queue"], found["exchange"]


def delete_namespace(broker: Broker, namespace: str, *policies: backhop.Policy) -> None:
    """Deletes what topologies of these policies declare in a namespace."""
    for policy in policies:
        queues, exchanges = names_of(_topology(policy), "{}")
        broker.delete(*([name.replace("{}", namespace) for name in names] for names in (queues, exchanges)))
