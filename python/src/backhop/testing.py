"""Rehearses a message with your handler and policy, without a broker and without waiting.

    from backhop.testing import rehearse

    def test_a_full_queue_is_tried_again_and_then_parked():
        rehearsal = rehearse(handle, b"/index.html", policy=policy)
        assert rehearsal.outcome == "parked"
        assert rehearsal.delays == pytest.approx([10, 30, 90], rel=0.4)  # jitter, then a rung
        print(rehearsal)                    # as a table

The core decides as in production. In place of the broker, the rehearsal advances a clock by each
delay and adds the headers that retries count.

``Broker`` is a model of RabbitMQ, for tests of a whole consumer with its client.

pytest finds these fixtures by itself: ``backhop_clock`` (a Clock), ``backhop_random`` (a
SeededRandom), ``backhop_rehearse`` (rehearse with these two) and ``backhop_broker`` (a Broker).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from . import _backhop as c
from ._amqp import Text, copied
from ._broker import Broker
from ._checks import whole
from ._errors import ArgumentError, ArgumentTypeError
from ._exceptions import is_kind, repr_of
from ._handlers import ENDS_PROGRAM, awaited, called, check_handler, is_async
from ._times import Seconds, duration, milliseconds, seconds
from .breaker import Breaker, BreakerState, checked_breaker
from .decider import Decider
from .delivery import PROPERTIES
from .history import History
from .message import Message
from .observe.events import Events, Listeners
from .outcomes import Conditions, Policies, checked_policies
from .plan import OK, Plan, Result
from .policy import Policy
from .topology import QueueType, Strategy, Topology, chosen

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Attempt",
    "Broker",
    "Clock",
    "Options",
    "Rehearsal",
    "SeededRandom",
    "rehearse",
    "rehearse_async",
]

End: TypeAlias = Literal["acked", "parked", "dropped", "waiting"]

_START = 1_767_225_600.0  # 2026-01-01


class Clock:
    """A clock that only ``advance`` moves. A call returns seconds since the epoch.

    :param start: seconds since the epoch.
    """

    def __init__(self, start: float = _START) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, by: Seconds) -> None:
        """Advances the clock by seconds: int, float or timedelta."""
        self.now += seconds(milliseconds(by))


class SeededRandom:
    """Random bytes that are the same in every run. A call returns a given number of bytes.

    :param seed: each seed gives other bytes.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def __call__(self, count: int) -> bytes:
        return self._random.randbytes(count)


@dataclass(frozen=True)
class Attempt:
    """One call of the handler.

    There was no call if the poison guard parked the message before, or its breaker was open.
    """

    number: int
    at: float
    """Seconds since the first attempt began."""
    error: BaseException | None
    """The exception of the handler; None if it returned."""
    plan: Plan
    """The plan that followed."""
    breaker: BreakerState | None = None
    """The breaker's state after it; None without a breaker."""

    @property
    def delay(self) -> float:
        """The delay after this attempt, in seconds; 0 for none."""
        return self.plan.delay


_WAITING = frozenset({"retry", "defer", "reject", "return"})
"""The actions after which a message comes back."""


class Rehearsal(tuple[Attempt, ...]):
    """The attempts of a message: a tuple of Attempt that prints as a table."""

    __slots__ = ()

    @property
    def outcome(self) -> End:
        """``"acked"``, ``"parked"``, ``"dropped"``, or ``"waiting"`` after ``most_attempts``."""
        ends: dict[str, End] = {"ack": "acked", "park": "parked", "drop": "dropped"}
        return ends.get(self[-1].plan.action, "waiting")

    @property
    def reason(self) -> str:
        """The reason of the park: exhausted, permanent, too-old, oversized or poison; else ""."""
        return self[-1].plan.reason

    @property
    def delays(self) -> list[float]:
        """The delay after each attempt that another attempt followed, in seconds."""
        return [attempt.delay for attempt in self if attempt.plan.action in _WAITING]

    @property
    def errors(self) -> list[BaseException]:
        """The exceptions of the handler, in order."""
        return [attempt.error for attempt in self if attempt.error]

    def __str__(self) -> str:
        rows = [
            f"attempt {attempt.number:2} after {duration(attempt.at):>12}: "
            + (
                repr_of(attempt.error)
                if attempt.error
                else "ok"
                if attempt.plan.action == "ack"
                else ""
            )
            + (f", again in {duration(attempt.delay)}" if attempt.delay else "")
            + (f", breaker {attempt.breaker}" if attempt.breaker else "")
            for attempt in self
        ]
        return "\n".join([*rows, f"{self.outcome}{f' ({self.reason})' if self.reason else ''}"])

    __repr__ = __str__


class Options(TypedDict, total=False):
    """The options of rehearse."""

    queue: Text
    policy: Policy
    topology: Topology
    strategy: Strategy
    queue_type: QueueType
    namespace: Text
    series: Literal[5, 10, 20, 40]
    stripes: int
    work_queue: QueueType
    work_queue_arguments: Mapping[str, str | int]
    never: Conditions
    only: Conditions
    policies: Policies
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    legacy_counter: Text
    wait_queues: Iterable[Text]
    clock: Clock
    random: Callable[[int], bytes]
    breaker: Breaker
    most_attempts: int
    on_event: Listeners


def rehearse(
    handle: Callable[[Any], Awaitable[None] | None], body: bytes = b"", **options: Unpack[Options]
) -> Rehearsal:
    """Passes a message to a handler until the message is settled for good.

    The message is the same as a retrier's or the worker's. It also has pika's ``method`` and
    ``properties`` and aio-pika's ``incoming``. These have the attributes of the delivery on the
    wire, and no methods.

    :param handle: the handler; a coroutine function runs in an event loop of its own.
    :param body: the message's body.
    :param queue: the work queue; default: ``"work"``.
    :param policy: the delays of retries and their limits; default: Policy().
    :param topology: replaces queue, policy, and the options from strategy to work_queue_arguments.
    :param strategy: as Topology's; likewise queue_type, namespace, series, stripes, work_queue and
        work_queue_arguments.
    :param never: exceptions that park at once: a class, a predicate, or a list of these.
    :param only: the exceptions that are retried, likewise; all others park.
    :param policies: other policies for the retries of some exceptions, for example ``{RateLimited:
        slow}``.
    :param exchange: the exchange that the message was published to; default: the default exchange.
    :param routing_key: the routing key; default: the queue's name.
    :param headers: the message's headers.
    :param properties: its properties by name, for example ``{"message_id": "42"}``.
    :param legacy_counter: as History's; likewise wait_queues.
    :param clock: default: a Clock.
    :param random: default: SeededRandom(0).
    :param breaker: permits the handler, by the rehearsal's clock. Without a permit the message is
        deferred. Give each rehearsal a new Breaker.
    :param most_attempts: ends a rehearsal after so many attempts; default: 100.
    :param on_event: called with each Event, as a retrier's; likewise a bridge, or a list of these.
    :raises AssertionError: if the handler raises it, so that a handler of a test can assert.
    :raises ArgumentTypeError: if ``handle`` is not callable, or is a generator function; or is a
        coroutine function while an event loop runs: await rehearse_async there.
    :raises ArgumentError: if an option is unknown or wrong.
    """
    check_handler(handle)
    if is_async(handle):
        import asyncio

        if asyncio._get_running_loop() is not None:  # before a coroutine is made, which none awaits
            raise ArgumentTypeError(
                "the handler is a coroutine function, and an event loop runs here: "
                "await rehearse_async"
            )
        return asyncio.run(rehearse_async(handle, body, **options))
    steps = _Steps(body, **_known(options))
    for message in steps:
        try:
            called(handle, message)
        except BaseException as error:
            steps.fail(error)
    return Rehearsal(steps.attempts)


async def rehearse_async(
    handle: Callable[[Any], Awaitable[None] | None], body: bytes = b"", **options: Unpack[Options]
) -> Rehearsal:
    """Passes a message to a handler in the running event loop.

    Parameters and errors as rehearse's.
    """
    check_handler(handle)
    steps = _Steps(body, **_known(options))
    for message in steps:
        try:
            await awaited(handle, message)
        except BaseException as error:
            steps.fail(error)
    return Rehearsal(steps.attempts)


def _known(options: Any) -> Any:
    for name in options:
        if name not in Options.__annotations__:
            raise ArgumentTypeError(
                f"rehearse has no option {name!r}: give any of {', '.join(Options.__annotations__)}"
            )
    return options


class _RehearsedMessage(Message):
    """A message that no broker delivered."""

    __slots__ = ("_arrived", "_decider", "incoming", "method", "properties")

    def __init__(
        self,
        decider: Decider,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: Mapping[str, Any],
        headers: Mapping[str, Any],
        redelivered: bool,
    ) -> None:
        Message.__init__(self, decider.topology)
        self._decider = decider
        self._arrived = (exchange, routing_key, properties, headers)
        self.body = body
        self.redelivered = redelivered
        delivered: dict[str, Any] = {
            "exchange": exchange,
            "routing_key": routing_key,
            "redelivered": redelivered,
            "delivery_tag": 1,
            "consumer_tag": "rehearsal",
        }
        told = {name: properties.get(name) for name in PROPERTIES}
        self.method = SimpleNamespace(**delivered)
        self.properties = SimpleNamespace(headers=copied(dict(headers)), **told)
        self.incoming = SimpleNamespace(
            body=body, headers=copied(dict(headers)), **told, **delivered
        )

    def _read(self) -> History:
        return self._decider.read(*self._arrived)


class _Steps:
    """Iterates over the message's attempts. ``error`` is the exception of the current one."""

    def __init__(
        self,
        body: bytes,
        *,
        queue: Text | None = None,
        policy: Policy | None = None,
        topology: Topology | None = None,
        strategy: Strategy = "ladder",
        queue_type: QueueType = "quorum",
        namespace: Text | None = None,
        series: Literal[5, 10, 20, 40] = 10,
        stripes: int = 1,
        work_queue: QueueType | None = None,
        work_queue_arguments: Mapping[str, str | int] | None = None,
        never: Conditions = (),
        only: Conditions | None = None,
        policies: Policies | None = None,
        exchange: str = "",
        routing_key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
        clock: Clock | None = None,
        random: Callable[[int], bytes] | None = None,
        breaker: Breaker | None = None,
        most_attempts: int = 100,
        on_event: Listeners = None,
    ) -> None:
        if not isinstance(body, bytes):
            raise ArgumentTypeError(f"body is {body!r}: give bytes")
        self.error: BaseException | None = None
        self.attempts: list[Attempt] = []
        self._body = body
        self._clock = clock or Clock()
        self._most_attempts = whole("most_attempts", most_attempts, 1)
        topology = chosen(
            "work" if queue is None and topology is None else queue,
            policy,
            topology,
            checked_policies(policies).values(),
            strategy=strategy,
            queue_type=queue_type,
            namespace=namespace,
            series=series,
            stripes=stripes,
            work_queue=work_queue,
            work_queue_arguments=work_queue_arguments,
        )
        self._breaker = checked_breaker(breaker, topology)
        self._defers = bool(topology._view.defers)
        self._queue = topology.queue
        self._exchange = exchange
        self._routing_key = self._queue if routing_key is None else routing_key
        self._headers = dict(headers or {})
        self._returns = 0  # by the broker alone, for strategies reject and native
        self._is_redelivered = False
        self._properties = dict(properties or {})
        self._decider = Decider(
            topology,
            never=never,
            only=only,
            policies=policies,
            legacy_counter=legacy_counter,
            wait_queues=wait_queues,
            clock=self._clock,
            random=random or SeededRandom(),
        )

        self._events = None if on_event is None else Events(self._queue, on_event, self._clock)

    def fail(self, error: BaseException) -> None:
        """Takes the exception of the handler, or raises it if it ends the test."""
        ends_test = getattr(sys.modules.get("_pytest.outcomes"), "OutcomeException", AssertionError)
        if is_kind(error, (AssertionError, ends_test, *ENDS_PROGRAM)):
            raise error
        self.error = error

    def __iter__(self) -> Generator[Message, None, None]:
        start = self._clock.now
        for _ in range(self._most_attempts):
            at = self._clock.now - start
            message = _RehearsedMessage(
                self._decider,
                self._body,
                self._exchange,
                self._routing_key,
                self._properties,
                self._headers,
                self._is_redelivered,
            )
            history = message.history
            self.error = None
            plan = self._decider.guard(history)
            if plan is None:
                plan = self._deferral(message)
            if plan is None:
                if self._events:
                    self._events.delivered(message)
                if self.error is None:  # else the breaker's key function raised it
                    yield message
                result = OK if self.error is None else self._decider.result(self.error)
                plan = self._decider.plan(history, result)
                self._record(message, result)
                self._emit(message, result, plan)
            state = None if self._breaker is None else self._breaker._state_at(message, self._now)
            self.attempts.append(Attempt(message.attempt, at, self.error, plan, state))
            if plan.action not in _WAITING:
                return
            self._wait(plan)

    @property
    def _now(self) -> int:
        """The breaker's time, in ms."""
        return milliseconds(self._clock.now)

    def _deferral(self, message: Message) -> Plan | None:
        """Returns the plan for a message without a permit; None if the handler may be called."""
        wait_ms = self._wait_for_permit(message)
        while wait_ms and not self._defers:  # the message is held
            self._clock.advance(seconds(wait_ms))
            wait_ms = self._wait_for_permit(message)
        if not wait_ms:
            return None
        result = Result("deferred", retry_after=seconds(wait_ms))
        plan = self._decider.plan(message.history, result)
        self._emit_copy(plan, None)
        return plan

    def _wait_for_permit(self, message: Message) -> int:
        """Requests a permit. Returns how long it is refused, in ms; 0 if it is granted."""
        if self._breaker is None:
            return 0
        try:
            message._call, wait_ms = self._breaker._permit(message, self._now)
        except Exception as error:  # of the user's key function
            self.error = error
            return 0
        if wait_ms < 0:
            raise ArgumentError("the breaker is open until close(): give open() a duration")
        return 0 if message._call is not None else max(1, wait_ms)

    def _record(self, message: Message, result: Result) -> None:
        """Records the end of the handler for the breaker."""
        if message._call is not None:
            message._call.now_ms = self._now
            message._call.end(result, self.error)

    def _emit(self, message: Message, result: Result, plan: Plan) -> None:
        """Emits the events of an attempt, and of its copy."""
        if self._events is None:
            return
        if self.error is None:
            self._events.succeeded(message)
            return
        self._events.failed(message, result, self.error)
        if plan.publishes:
            self._emit_copy(plan, self.error)

    def _emit_copy(self, plan: Plan, error: BaseException | None) -> None:
        if self._events is not None:
            kind = c.bh_event_of_copy(c.Plan_action(plan._handle))
            self._events.emit(self._events.of_copy(kind, plan, plan.id, error), error)

    def _wait(self, plan: Plan) -> None:
        """Changes the message as the broker does while it waits."""
        self._clock.advance(plan.delay)
        self._returns += 1
        if plan.action == "return":
            self._headers["x-delivery-count"] = self._returns
            self._is_redelivered = True
            return
        if plan.action == "reject":
            death = {
                "queue": self._queue,
                "reason": "rejected",
                "count": self._returns,
                "exchange": self._exchange,
            }
            self._headers["x-death"] = [death | {"routing-keys": [self._routing_key]}]
            return
        self._headers = plan.copy_headers(self._headers)
        self._headers.pop("BCC", None)
        self._headers.pop("x-delay", None)
        self._properties = {
            name: self._properties[name]
            for name in plan.kept_properties
            if name in self._properties
        }
        self._properties["delivery_mode"] = 2
        self._exchange, self._routing_key = plan.exchange, plan.routing_key
