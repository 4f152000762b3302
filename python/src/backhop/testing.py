"""For your tests: what becomes of a message, with your handler and your policy, without a broker and without waiting.

    from backhop.testing import rehearse

    def test_a_full_queue_is_tried_again_and_then_parked():
        rehearsal = rehearse(handle, b"/index.html", policy=policy)
        assert rehearsal.outcome == "parked"
        assert rehearsal.delays == pytest.approx([10, 30, 90], rel=0.4)  # jitter, then one of the two rungs around it
        print(rehearsal)                    # as a table

The decisions are those of the core, as in production; of the broker, what waits comes back when its delay is over, with
the headers that retries count by.

pytest finds these fixtures by itself: ``backhop_clock`` (a Clock), ``backhop_random`` (SeededRandom) and
``backhop_rehearse``: rehearse with these two.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ._time import Seconds, duration, milliseconds, seconds
from .decider import Decider
from .message import Message
from .outcomes import OK, called
from .plan import Plan
from .policy import Policy
from .topology import Strategy, Topology

__all__ = ["Attempt", "Clock", "Rehearsal", "SeededRandom", "rehearse", "rehearse_async"]

End: TypeAlias = Literal["acked", "parked", "dropped", "waiting"]

_START = 1_767_225_600.0  # 2026-01-01


class Clock:
    """A clock that goes on only when it is told to. Calling it gives seconds since the epoch.

    :param start: seconds since the epoch
    """

    def __init__(self, start: float = _START) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, by: Seconds) -> None:
        """Lets time pass: seconds, as int, float or timedelta."""
        self.now += seconds(milliseconds(by))


class SeededRandom:
    """Random bytes, the same in every run. Calling it with a number gives so many.

    :param seed: another one gives others
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def __call__(self, count: int) -> bytes:
        return self._random.randbytes(count)


@dataclass(frozen=True)
class Attempt:
    """One call of the handler, or of none where the poison guard parked the message before."""

    number: int
    at: float
    """Seconds since the first one began."""
    error: BaseException | None
    """What the handler raised."""
    plan: Plan
    """What was decided then."""

    @property
    def delay(self) -> float:
        """How long the message waits after it, in seconds; 0 where it does not."""
        return self.plan.delay


class Rehearsal(tuple[Attempt, ...]):
    """What became of a message: a tuple of Attempt that prints as a table."""

    __slots__ = ()

    @property
    def outcome(self) -> End:
        """``"acked"``, ``"parked"``, ``"dropped"``, or ``"waiting"`` where it would go on."""
        ends: dict[str, End] = {"ack": "acked", "park": "parked", "drop": "dropped"}
        return ends.get(self[-1].plan.action, "waiting")

    @property
    def reason(self) -> str:
        """Why it was parked: exhausted, permanent, too-old, oversized or poison; else ""."""
        return self[-1].plan.reason

    @property
    def delays(self) -> list[float]:
        """How long it waited after each attempt that was followed by another, in seconds."""
        return [attempt.delay for attempt in self if attempt.plan.action in ("retry", "reject", "return")]

    @property
    def errors(self) -> list[BaseException]:
        """What the handler raised, in order."""
        return [attempt.error for attempt in self if attempt.error]

    def __str__(self) -> str:
        rows = [
            f"attempt {attempt.number:2} after {duration(attempt.at):>12}: "
            + (repr(attempt.error) if attempt.error else "ok" if attempt.plan.action == "ack" else "")
            + (f", again in {duration(attempt.delay)}" if attempt.delay else "")
            for attempt in self
        ]
        return "\n".join([*rows, f"{self.outcome}{f' ({self.reason})' if self.reason else ''}"])

    __repr__ = __str__


def rehearse(handle: Callable[[Message], object], body: bytes = b"", **options: Any) -> Rehearsal:
    """Hands a message to a handler until it is settled for good.

    :param handle: the handler; a coroutine function runs in an event loop of its own
    :param body: the message's body
    :param queue: the work queue
    :param policy: how long, how often, how random, when to give up
    :param strategy: where the message waits
    :param never: classes of exceptions that park at once
    :param exchange: where the message was published; default: the default exchange
    :param routing_key: default: the queue's name
    :param headers: the message's headers
    :param properties: its properties by name, as ``{"message_id": "42"}``
    :param legacy_counter: as History's, as are wait_queues
    :param clock: default: a Clock
    :param random: default: SeededRandom(0)
    :param most_attempts: ends a rehearsal that would go on
    """
    if inspect.iscoroutinefunction(handle):
        return asyncio.run(rehearse_async(handle, body, **options))
    steps = _Steps(body, **options)
    for message in steps:
        try:
            called(handle, message)
        except Exception as error:
            steps.error = error
    return Rehearsal(steps.attempts)


async def rehearse_async(handle: Callable[[Message], Any], body: bytes = b"", **options: Any) -> Rehearsal:
    """The same for a coroutine function, in the running event loop."""
    steps = _Steps(body, **options)
    for message in steps:
        try:
            await handle(message)
        except Exception as error:
            steps.error = error
    return Rehearsal(steps.attempts)


class _Steps:
    """Iterates over the message as it comes, attempt by attempt; ``error`` is what became of it."""

    def __init__(
        self,
        body: bytes,
        *,
        queue: str = "work",
        policy: Policy | None = None,
        strategy: Strategy = "ladder",
        never: Iterable[type[BaseException]] = (),
        exchange: str = "",
        routing_key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        legacy_counter: str | None = None,
        wait_queues: Iterable[str] = (),
        clock: Clock | None = None,
        random: Callable[[int], bytes] | None = None,
        most_attempts: int = 100,
    ) -> None:
        self.error: BaseException | None = None
        self.attempts: list[Attempt] = []
        self._body = body
        self._clock = clock or Clock()
        self._most_attempts = most_attempts
        self._queue = queue
        self._exchange = exchange
        self._routing_key = queue if routing_key is None else routing_key
        self._headers = dict(headers or {})
        self._returns = 0  # by the broker alone, for strategies reject and native
        self._properties = dict(properties or {})
        self._decider = Decider(
            Topology(queue, policy, strategy=strategy),
            never=never,
            legacy_counter=legacy_counter,
            wait_queues=wait_queues,
            clock=self._clock,
            random=random or SeededRandom(),
        )

    def __iter__(self) -> Generator[Message, None, None]:
        start = self._clock.now
        for _ in range(self._most_attempts):
            at = self._clock.now - start
            history = self._decider.read(self._exchange, self._routing_key, self._properties, self._headers)
            message = Message(self._body, history)
            self.error = None
            plan = self._decider.guard(history)
            if plan is None:
                yield message
                result = OK if self.error is None else self._decider.result(self.error)
                plan = self._decider.plan(history, result)
            self.attempts.append(Attempt(message.attempt, at, self.error, plan))
            if plan.action not in ("retry", "reject", "return"):
                return
            self._wait(plan)

    def _wait(self, plan: Plan) -> None:
        """What the broker does with it."""
        self._clock.advance(plan.delay)
        self._returns += 1
        if plan.action == "return":
            self._headers["x-delivery-count"] = self._returns
            return
        if plan.action == "reject":
            death = {"queue": self._queue, "reason": "rejected", "count": self._returns, "exchange": self._exchange}
            self._headers["x-death"] = [death | {"routing-keys": [self._routing_key]}]
            return
        self._headers = plan.copy_headers(self._headers)
        self._headers.pop("BCC", None)
        self._headers.pop("x-delay", None)
        self._properties = {name: self._properties[name] for name in plan.kept_properties if name in self._properties}
        self._properties["delivery_mode"] = 2
        self._exchange, self._routing_key = plan.exchange, plan.routing_key
