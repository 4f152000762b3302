"""The state machine that both clients publish with, and what a broker cannot be made to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import backhop
from backhop._publisher import Copy, Publisher
from backhop._retrier import BaseRetrier
from backhop.decider import Decider
from backhop.outcomes import Result

TOPOLOGY = backhop.Topology("orders")


class Original:
    """Notes how it was settled."""

    is_here = True

    def __init__(self) -> None:
        self.actions: list[str] = []

    def settle(self, action: str) -> None:
        self.actions.append(action)


class NotingPublisher(Publisher):
    """Its connection is open, and what it writes is noted."""

    _is_open = True
    _is_blocked = False

    def __init__(self) -> None:
        super().__init__(BaseRetrier(None, "orders"), 30)
        self.written: list[Copy] = []
        self.pending_at_write: list[int] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def _later(self, delay: float, callback: Callable[[], None]) -> object:
        self.timers.append((delay, callback))
        return None

    def _begin_channel(self) -> Any:
        self._is_ready = True
        return self

    def _end_channel(self, channel: Any) -> None: ...

    def _write(self, copy: Copy) -> None:
        self.written.append(copy)
        self.pending_at_write.append(self.pending)

    def _declare(self, declarations: Any, done: Any) -> None:
        raise AssertionError("nothing is to be declared")


def published(publisher: Publisher, *ids: str) -> list[Original]:
    decider = Decider(TOPOLOGY)
    originals = [Original() for _ in ids]
    for one, original in zip(ids, originals, strict=True):
        history = decider.read("", "orders", {"message_id": one}, None)
        plan = decider.plan(history, Result("failed", "507"))
        publisher.publish(Copy(plan, history, (plan.exchange, plan.routing_key, one), None, b"", original))
    publisher._pump()
    return originals


def look_too_late(publisher: NotingPublisher) -> None:
    for copy in publisher._sent.values():
        copy.sent_at -= 31
    publisher._look()


def test_a_copy_is_pending_while_it_is_written_and_until_its_original_is_settled() -> None:
    publisher = NotingPublisher()
    publisher._open()
    published(publisher, "1", "2", "3")
    assert publisher.pending_at_write == [1, 2, 3]
    publisher._answered(2, True, True)
    assert publisher.pending == 1
    publisher._lost("the broker went away")
    assert publisher.pending == 0


def test_a_copy_that_came_back_is_not_acknowledged_with_the_others() -> None:
    publisher = NotingPublisher()
    first, second = published(publisher, "1", "2")
    publisher._returned(publisher.written[0].key)
    publisher._answered(2, True, True)
    assert (first.actions, second.actions) == ([], ["ack"])
    assert publisher.pending == 1


def test_of_a_return_that_is_like_no_copy_each_may_be_meant() -> None:
    publisher = NotingPublisher()
    originals = published(publisher, "1", "2")
    publisher._returned(("", "", None))
    publisher._answered(2, True, True)
    assert [original.actions for original in originals] == [[], []]
    assert publisher.pending == 2


def test_a_confirm_that_came_while_the_event_loop_stood_still_is_heard() -> None:
    publisher = NotingPublisher()
    (original,) = published(publisher, "1")
    look_too_late(publisher)
    delay, look = publisher.timers.pop()
    publisher._answered(1, False, True)
    look()
    assert (delay, original.actions, publisher.pending) == (0, ["ack"], 0)


def test_a_confirm_that_does_not_come_gives_the_channel_up(caplog: pytest.LogCaptureFixture) -> None:
    publisher = NotingPublisher()
    published(publisher, "1")
    look_too_late(publisher)
    assert not caplog.text
    publisher.timers.pop()[1]()
    assert "message '1' was not confirmed within 30 s" in caplog.text
    publisher.timers.pop()[1]()
    publisher._pump()
    assert len(publisher.written) == 2


def test_a_broker_that_reads_again_has_all_the_time_to_confirm() -> None:
    publisher = NotingPublisher()
    published(publisher, "1")
    publisher._is_blocked = True
    look_too_late(publisher)
    publisher._is_blocked = False
    look_too_late(publisher)
    assert [delay for delay, _ in publisher.timers] == [15] * 3
    look_too_late(publisher)
    assert publisher.timers[-1][0] == 0


def test_pending_may_be_asked_while_a_connection_is_added() -> None:
    adapter = pytest.importorskip("backhop.aio_pika")
    retrier = adapter.Retrier.__new__(adapter.Retrier)
    retrier._publishers = {}

    class Growing:
        @property
        def pending(self) -> int:
            retrier._publishers[len(retrier._publishers)] = self
            return 1

    retrier._publishers[0] = Growing()
    assert retrier.pending == 1
