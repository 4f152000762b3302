"""Session: what the parts of one retrier share.

It has the topology, the decider, events and the breaker, and the messages in hand. Consumers,
gates, publishers and replays get it. A client's subclass reads messages and settles them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from .. import _backhop as c
from .._core import made, number
from .._errors import Error, ForkedError, PoisonError, WaitTimeoutError, check
from .._times import seconds
from ..breaker import Breaker
from ..decider import Decider
from ..message import Message
from ..observe.event import Fields
from ..observe.events import Events
from ..observe.health import Health
from ..plan import OK, Plan, Result
from ..topology import MODES, Mode, Topology
from .calls import CALLS, Deliveries
from .copies import Original
from .declaring import Steps, declaring, diagnosis

LOGGER = logging.getLogger("backhop")

MAY_BE_POISON = "x-delivery-count"
"""Without this header no consumer was lost, and the guard decides nothing."""

SETTLED_ALREADY = (
    "delivery %d is acknowledged or rejected already: let the handler return, raise or raise Park "
    "instead, as Backhop "
    "settles its messages"
)

Replayed = Callable[[int, int], None]
"""Called with the number of replayed messages, and of messages of other work queues, which stay."""


class OwnConsumer(Protocol):
    """A consumer that Backhop subscribes."""

    _health: Health

    def _pause(self) -> None: ...

    def _resume(self) -> None: ...


class Session:
    """The state of one retrier, and the decisions about its messages.

    :param channel: the client's, given by the user
    :param back_off: of consumers that subscribe again, and of copies that are published again
    :param confirm_timeout: seconds
    """

    replay_unroutable: Callable[[Any, Replayed], None]
    """Replays this work queue's messages in the unroutable queue. Gets a client's connection."""

    def __init__(
        self,
        channel: Any,
        topology: Topology,
        mode: Mode,
        decider: Decider,
        events: Events,
        breaker: Breaker | None,
        back_off: c.Policy,
        confirm_timeout: float,
    ) -> None:
        self.channel = channel
        self.topology = topology
        self.mode = mode
        self.makes_rungs = bool(c.bh_mode_makes_rungs(number(MODES, mode, "mode")))
        """True: a rung on demand is made when a message needs it."""
        self.decider = decider
        self.events = events
        self.breaker = breaker
        self.back_off = back_off
        self.confirm_timeout = confirm_timeout
        self.restores = False
        """True if declare() made the topology, and may make it again."""
        self.was_declared = False
        """True after declare() or verify() was called."""
        self.consumers: set[Any] = set()
        """Its own, until they are cancelled."""
        self.gates: WeakSet[Any] = WeakSet()
        self._pid = os.getpid()
        self._delivering: dict[Any, Deliveries] = {}  # by the client's open channels
        self._no_ack: set[object] = set()  # consumers without acknowledgements that were logged

    def plan(self, message: Message, error: BaseException) -> Plan:
        """Returns the plan for a message whose handler raised."""
        result = self.decider.result(error)
        self.record(message, result, error)
        now_ms = self.decider.now_ms
        self.events.failed(message, result, error, now_ms)
        return self.decider.plan(message.history, result, message._traceparent, now_ms)

    def defer(self, message: Any, delay_ms: int) -> None:
        """Lets a message wait without an attempt that no handler gets, as its breaker is open."""
        try:
            result = Result("deferred", retry_after=seconds(delay_ms))
            plan = self.decider.plan(message.history, result)
        except Error as problem:
            self.refuse(message, problem)
        else:
            self.publish(message, plan)

    def give_back(self, message: Any) -> None:
        """Gives a message that no handler got back to the queue."""
        message._original.settle("requeue")
        self.forget_call(message)
        self.flush()

    def later(self, delay: float, callback: Callable[[], None]) -> None:
        """Calls back after ``delay`` seconds, while the connection is open. May run handlers."""
        raise NotImplementedError

    def can_settle(self, message: Any) -> bool:
        """Returns False if the channel of a message is closed: the broker delivers it again."""
        raise NotImplementedError

    def refuse(self, message: Any, problem: Exception) -> None:
        """Abandons a message that cannot be copied."""
        raise NotImplementedError

    def publish(self, message: Any, plan: Plan) -> None:
        """Publishes a copy, and acknowledges the original after the confirm."""
        raise NotImplementedError

    def flush(self) -> None:
        """Writes pending output now, if the client would write it later."""

    def record(self, message: Message, result: Result, error: BaseException | None = None) -> None:
        """Records the end of a handler for the breaker."""
        call, message._call = message._call, None
        if call is not None:
            call.end(result, error)

    def ignore_call(self, message: Message) -> None:
        """Records that a handler's call counts as nothing, unless its end was recorded."""
        call, message._call = message._call, None
        if call is not None:
            call.ignore()

    def record_end(self, message: Message, error: BaseException | None) -> None:
        """Records the end of a handler whose message cannot be settled."""
        if message._call is not None:
            result = OK if error is None else self.decider.result(error)
            self.record(message, result, error)

    def has_permit(self, message: Message) -> tuple[bool, int]:
        """Requests the permit of a message's key.

        :returns: whether it is granted, and else the ms until it may be.
        :raises Exception: the error of the user's key function.
        """
        if self.breaker is None:
            return True, 0
        message._call, wait_ms = self.breaker._permit(message)
        return message._call is not None, wait_ms

    def consumes(self, connection: object) -> bool:
        """Returns whether a consumer of this retrier consumes on a connection."""
        return any(each._is_on(connection) for each in self.consumers)

    def declaring(self, connection: object) -> Steps:
        """Returns the steps of declare() on a connection."""
        return declaring(
            self.topology, self.mode, connection=connection, makes_rungs=self.makes_rungs
        )

    def verifying(self) -> Steps:
        return declaring(self.topology, "verify", makes_rungs=self.makes_rungs)

    @property
    def undeclared(self) -> str:
        """The call that you may have left out, if something that a copy needs is missing.

        Else "".
        """
        return "" if self.was_declared or self.mode == "none" else "declare() of the retrier"

    def owns(self, message: Message) -> bool:
        """Returns whether a message of the unroutable queue belongs to this work queue.

        False if it is unreadable.
        """
        try:
            return bool(c.Topology_owns(self.topology._handle, message.delivery._handle))
        except Exception:
            return False

    def follow(self) -> None:
        """Watches the next connection after a lost one, if the client has one by itself."""

    @property
    def unroutable(self) -> list[tuple[str, bool]]:
        """The queue of a replay that reads the unroutable queue alone."""
        return [(self.topology.unroutable_queue or "", True)]

    def emit_replayed(self, count: int, error: Error | None) -> None:
        why: Fields = {"status": error.status, "text": str(error)} if error else {}
        self.events.emit(self.events.new(c.BH_EVENT_REPLAYED, {"count": count, **why}))

    def observe(self, event: c.Event, *, are_consuming: bool = False) -> None:
        """Passes an event of the connection to its consumers.

        :param are_consuming: only to consumers that were not lost
        """
        for consumer in list(self.consumers):
            if not are_consuming or consumer._subscription.is_consuming:
                consumer._health.observe(event)

    def held(self, connection: Any) -> Fields:
        """Returns the fields of a handler that held the connection's loop; none if unknown."""
        return {}

    def emit_of(self, consumer: OwnConsumer, kind: int, fields: Fields) -> None:
        """Emits an event of one consumer."""
        event = self.events.new(kind, {"connection": "consume", **fields})
        consumer._health.observe(event)
        self.events.emit(event)

    def emit_subscription(self, consumer: Any, step: c.SubscriptionStep) -> None:
        """Emits that a consumer consumes, or why it does not.

        :param step: of its subscription
        """
        _, kind, status, delay_ms, _ = step
        if kind == c.BH_EVENT_CONNECTED:
            self.emit_of(consumer, kind, {})
            return
        cause = consumer._subscription.cause()
        self.emit_of(consumer, kind, {"status": status, "delay_ms": delay_ms, "cause": cause})

    def log_no_ack(self, consumer: object, with_acks: str) -> None:
        """Logs once that a consumer without acknowledgements loses messages.

        :param with_acks: the argument of the client that turns acknowledgements on
        """
        if consumer not in self._no_ack:
            self._no_ack.add(consumer)
            LOGGER.error("%s", diagnosis(self.topology, c.BH_REFUSAL_NO_ACK, of=with_acks))

    def undrained(self, count: int) -> WaitTimeoutError:
        """Returns the error of a drain that met its limit.

        :param count: messages whose handlers still run, or whose copies are not confirmed
        """
        event = self.events.new(
            c.BH_EVENT_DRAINED, {"status": WaitTimeoutError.status, "count": count}
        )
        return WaitTimeoutError(c.Event_line(event))

    def emit_busy(self, duration_us: int) -> None:
        """Emits that the only handler ran for longer than its limit."""
        about: Fields = {"count": 1, "duration_us": duration_us}
        self.events.emit(self.events.new(c.BH_EVENT_BUSY, about))

    def deliver_on(self, channel: Any, subscription: Any = None, prefetch: int = 0) -> Deliveries:
        """Notes a channel that delivers.

        :param channel: the client's
        :param subscription: of its consumer; None: the consumer is the user's
        :param prefetch: 0: unknown
        """
        handle = None if subscription is None else subscription.handle
        deliveries = self._delivering[channel] = Deliveries(handle, prefetch)
        self.watch_deliveries(channel)
        return deliveries

    def watch_deliveries(self, channel: Any) -> None:
        """Calls ``stop_deliveries`` when a channel is closed."""
        raise NotImplementedError

    def stop_deliveries(self, channel: Any, *, is_orderly: bool = False) -> None:
        """Notes that a channel is closed: the broker redelivers the messages in hand.

        :param is_orderly: whether the broker has all frames before
        """
        if deliveries := self._delivering.pop(channel, None):
            deliveries.close(is_orderly=is_orderly)
            for gate in list(self.gates):
                gate.forget_lost()

    def lose_acks(self, channel: Any) -> None:
        """Notes that the broker may not take acknowledgements of a channel.

        Its consumer is cancelled, or the channel closes.
        """
        if deliveries := self._delivering.get(channel):
            deliveries.lose()

    def settled(self, channel: Any) -> None:
        """Notes that a message was settled: the back-off of its consumer starts again."""
        deliveries = self._delivering.get(channel)
        if deliveries is None:
            return
        if deliveries.subscription is not None:
            c.Subscription_settled(deliveries.subscription)
        if deliveries.is_doubtful:
            deliveries.lose()

    def earlier(self, message: Any, has_id: bool, go_on: Callable[[], None]) -> tuple[int, int]:
        """Returns the kind of the arrival of a message, and the action of its earlier call.

        :param has_id: whether the message may have an id. Without one it is always called
        :param go_on: called in any thread, when a message that waits may arrive again
        """
        original = message._original
        if not (has_id and original.tag):
            return c.BH_ARRIVAL_CALL, c.BH_ACTION_NONE
        deliveries = self._delivering.get(original.channel) or self.deliver_on(original.channel)
        if message.redelivered:
            return CALLS.arrive(message, deliveries, go_on)
        deliveries.in_hand.add(message)
        return c.BH_ARRIVAL_CALL, c.BH_ACTION_NONE

    def end_call(self, message: Any, action: int) -> None:
        """Records how a message was settled."""
        CALLS.finish(message, self._delivering.get(message._original.channel), action)

    def keep_call(self, message: Any, original: Original) -> int:
        """Returns the call of a message, which its copy will end; 0 for none."""
        return CALLS.keep(message, self._delivering.get(original.channel))

    def forget_call(self, message: Any) -> None:
        """Records that a message was not settled: its next delivery is handled."""
        self.end_call(message, c.BH_ACTION_NONE)

    def acknowledged(self, message: Any, action: int = c.BH_ACTION_ACK) -> None:
        """Notes a message that was acknowledged."""
        self.end_call(message, action)
        self.settled(message._original.channel)

    def lost_ack(self, message: Any, action: int = c.BH_ACTION_ACK) -> None:
        """Notes a message whose channel is closed, so that its acknowledgement cannot be sent."""
        self.lose_acks(message._original.channel)
        self.end_call(message, action)
        self.emit_stale(message)

    def emit_stale(self, message: Message, status: int = 0) -> None:
        """Emits that the message was not settled: the broker delivers it again.

        :param status: 0: its channel is closed
        """
        why: Fields = {
            "id": message._event_id,
            "count": 1,
            **({"status": status} if status else {}),
        }
        self.events.emit(self.events.new(c.BH_EVENT_STALE, why))

    def ends_program(self, message: Message, error: BaseException) -> None:
        """Reports that a handler ends the program: its message comes again."""
        self.ignore_call(message)
        self.forget_call(message)
        self.events.log(c.BH_EVENT_STALE, message, error)
        self.emit_stale(message)

    def check_fork(self) -> None:
        """Raises in a child process, which would use the connection of its parent."""
        if os.getpid() != self._pid:
            raise ForkedError("the process forked: connect and make a new retrier in the child")

    def guard(self, message: Message) -> Plan | None:
        return self.decider.guard(message.history)

    def poison(self, plan: Plan) -> PoisonError:
        """Returns the error of a message that the guard parked or delayed."""
        event = made(c.bh_event_new(c.bh_event_of_copy(c.Plan_action(plan._handle))))
        check(c.Event_set_string(event, c.BH_FIELD_QUEUE, self.topology.queue))
        check(c.Event_set_plan(event, plan._handle))
        return PoisonError(c.Event_line(event))
