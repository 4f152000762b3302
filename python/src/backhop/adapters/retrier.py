"""BaseRetrier: options, decisions and events of the retriers over each client."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakSet

from .. import _backhop as c
from .._amqp import Text
from .._checks import HOUR_MS, instance, span_ms
from .._core import made, number
from .._errors import (
    ArgumentTypeError,
    Error,
    ForkedError,
    PoisonError,
    WaitTimeoutError,
    check,
)
from .._times import Seconds, seconds
from ..breaker import Breaker, checked_breaker
from ..decider import Decider
from ..message import Message
from ..observe.event import Fields
from ..observe.events import Events, Listeners
from ..observe.health import Health
from ..outcomes import Conditions, Policies, checked_policies
from ..plan import OK, Plan, Result
from ..policy import Policy
from ..topology import MODES, Mode, QueueType, Strategy, Topology, chosen
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

Channel = TypeVar("Channel")


class HasHealth(Protocol):
    """A consumer."""

    _health: Health


class BaseRetrier(Generic[Channel]):
    """The base of the retriers. Options and errors are documented in each client's Retrier."""

    def __init__(
        self,
        channel: Channel,
        queue: Text | None = None,
        policy: Policy | None = None,
        *,
        topology: Topology | None = None,
        strategy: Strategy = "ladder",
        queue_type: QueueType = "quorum",
        namespace: Text | None = None,
        series: Literal[5, 10, 20, 40] = 10,
        stripes: int = 1,
        work_queue: QueueType | None = None,
        work_queue_arguments: Mapping[str, str | int] | None = None,
        mode: Mode = "create",
        never: Conditions = (),
        only: Conditions | None = None,
        policies: Policies | None = None,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
        confirm_timeout: Seconds = 30,
        back_off: Policy | None = None,
        breaker: Breaker | None = None,
        on_event: Listeners = None,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._topology = chosen(
            queue,
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
        self._mode = mode
        # True: a rung on demand is made when a message needs it.
        self._makes_rungs = bool(c.bh_mode_makes_rungs(number(MODES, mode, "mode")))
        self._decider = Decider(
            self._topology,
            never=never,
            only=only,
            policies=policies,
            legacy_counter=legacy_counter,
            wait_queues=wait_queues,
            clock=clock,
            random=random,
        )
        self._confirm_timeout = seconds(span_ms("confirm_timeout", confirm_timeout, 1, HOUR_MS))
        if back_off is None:
            self._back_off = made(c.bh_back_off_new())
        else:
            advice = "give a backhop.Policy"
            self._back_off = instance("back_off", back_off, Policy, advice)._handle
        self._breaker = checked_breaker(breaker, self._topology)
        self._events = Events(self._topology.queue, on_event, clock)
        self._restores = False  # whether declare() made the topology, and may make it again
        self._is_declared = True
        self._was_declared = False  # whether declare() or verify() was called
        self._consumers: set[Any] = set()  # its own, until they are cancelled
        self._delivering: dict[Any, Deliveries] = {}  # by the client's open channels
        self._gates: WeakSet[Any] = WeakSet()
        self._no_ack: set[object] = set()  # consumers without acknowledgements that were logged
        self._begin()
        self._events.attach(self)

    def _begin(self) -> None:
        """Sets up what the client needs."""

    @property
    def pending(self) -> int:
        """The number of copies that are not confirmed yet. Their originals are unacknowledged."""
        raise NotImplementedError

    @property
    def topology(self) -> Topology:
        """The exchanges, queues and bindings that the strategy needs.

        ``topology.definitions()`` has them as JSON.
        """
        return self._topology

    @property
    def policy(self) -> Policy:
        """The policy of its topology."""
        return self._topology.policy

    def _plan(self, message: Message, error: BaseException) -> Plan:
        """Returns the plan for a message whose handler raised."""
        result = self._decider.result(error)
        self._record(message, result, error)
        now_ms = self._decider.now_ms
        self._events.failed(message, result, error, now_ms)
        return self._decider.plan(message.history, result, message._traceparent, now_ms)

    def _defer(self, message: Any, delay_ms: int) -> None:
        """Lets a message wait without an attempt that no handler gets, as its breaker is open."""
        try:
            result = Result("deferred", retry_after=seconds(delay_ms))
            plan = self._decider.plan(message.history, result)
        except Error as problem:
            self._refuse(message, problem)
        else:
            self._publish(message, plan)

    def _give_back(self, message: Any) -> None:
        """Gives a message that no handler got back to the queue."""
        message._original.settle("requeue")
        self._forget_call(message)
        self._flush()

    def _refuse(self, message: Any, problem: Exception) -> None:
        """Abandons a message that cannot be copied."""
        raise NotImplementedError

    def _publish(self, message: Any, plan: Plan) -> None:
        """Publishes a copy, and acknowledges the original after the confirm."""
        raise NotImplementedError

    def _flush(self) -> None:
        """Writes pending output now, if the client would write it later."""

    def _record(self, message: Message, result: Result, error: BaseException | None = None) -> None:
        """Records the end of a handler for the breaker."""
        call, message._call = message._call, None
        if call is not None:
            call.end(result, error)

    def _ignore_call(self, message: Message) -> None:
        """Records that a handler's call counts as nothing, unless its end was recorded."""
        call, message._call = message._call, None
        if call is not None:
            call.ignore()

    def _record_end(self, message: Message, error: BaseException | None) -> None:
        """Records the end of a handler whose message cannot be settled."""
        if message._call is not None:
            result = OK if error is None else self._decider.result(error)
            self._record(message, result, error)

    def _has_permit(self, message: Message) -> tuple[bool, int]:
        """Requests the permit of a message's key.

        :returns: whether it is granted, and else the ms until it may be.
        :raises Exception: the error of the user's key function.
        """
        if self._breaker is None:
            return True, 0
        message._call, wait_ms = self._breaker._permit(message)
        return message._call is not None, wait_ms

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Returns a context for the handler of a message of ``read``. Use it in any thread.

            with retrier.handling(message):
                purge(message.body)

        The context enters the bridges' contexts, for example the span of backhop.opentelemetry's
        Tracing. It measures the handler's duration for events. An exception passes through it: give
        it to ``settle``.

        :raises ArgumentTypeError: if it is no message of ``read``.
        """
        return self._events.handling(
            instance("message", message, Message, "give a message of read"), is_timed=True
        )

    def _consumes(self, connection: object) -> bool:
        """Returns whether a consumer of this retrier consumes on a connection."""
        return any(each._is_on(connection) for each in self._consumers)

    @property
    def _readiness_of_consumers(self) -> list[bool]:
        """One value for each of its own consumers: True if it is ready. For any thread."""
        return [each.state == "ready" for each in list(self._consumers)]

    def _declaring(self, connection: object) -> Steps:
        """Returns the steps of declare() on a connection."""
        return declaring(
            self._topology, self._mode, connection=connection, makes_rungs=self._makes_rungs
        )

    def _verifying(self) -> Steps:
        return declaring(self._topology, "verify", makes_rungs=self._makes_rungs)

    @property
    def _undeclared(self) -> str:
        """The call that you may have left out, if something that a copy needs is missing.

        Else "".
        """
        return "" if self._was_declared or self._mode == "none" else "declare() of the retrier"

    def _owns(self, message: Message) -> bool:
        """Returns whether a message of the unroutable queue belongs to this work queue.

        False if it is unreadable.
        """
        try:
            return bool(c.Topology_owns(self._topology._handle, message.delivery._handle))
        except Exception:
            return False

    def _follow(self) -> None:
        """Watches the next connection after a lost one, if the client has one by itself."""

    def _replay_unroutable(self, connection: object, done: Callable[[int, int], None]) -> None:
        """Replays this work queue's messages in the unroutable queue.

        :param done: called with the number of replayed messages, and of messages of other work
            queues, which stay
        """
        raise NotImplementedError

    @property
    def _unroutable(self) -> list[tuple[str, bool]]:
        """The queue of a replay that reads the unroutable queue alone."""
        return [(self._topology.unroutable_queue or "", True)]

    def _emit_replayed(self, count: int, error: Error | None) -> None:
        why: Fields = {"status": error.status, "text": str(error)} if error else {}
        self._events.emit(self._events.new(c.BH_EVENT_REPLAYED, {"count": count, **why}))

    def _observe(self, event: c.Event) -> None:
        """Passes an event of the connection to its consumers."""
        for consumer in list(self._consumers):
            consumer._health.observe(event)

    def _held(self, connection: Any) -> Fields:
        """Returns the fields of a handler that held the connection's loop; none if unknown."""
        return {}

    def _emit_of(self, consumer: HasHealth, kind: int, fields: Fields) -> None:
        """Emits an event of one consumer."""
        event = self._events.new(kind, {"connection": "consume", **fields})
        consumer._health.observe(event)
        self._events.emit(event)

    def _emit_subscription(self, consumer: Any, step: c.SubscriptionStep) -> None:
        """Emits that a consumer consumes, or why it does not.

        :param step: of its subscription
        """
        _, kind, status, delay_ms, _ = step
        if kind == c.BH_EVENT_CONNECTED:
            self._emit_of(consumer, kind, {})
            return
        cause = consumer._subscription.cause()
        self._emit_of(consumer, kind, {"status": status, "delay_ms": delay_ms, "cause": cause})

    def _log_no_ack(self, consumer: object, with_acks: str) -> None:
        """Logs once that a consumer without acknowledgements loses messages.

        :param with_acks: the argument of the client that turns acknowledgements on
        """
        if consumer not in self._no_ack:
            self._no_ack.add(consumer)
            LOGGER.error("%s", diagnosis(self._topology, c.Declaring_refuse_no_ack, with_acks))

    def _undrained(self, count: int) -> WaitTimeoutError:
        """Returns the error of a drain that met its limit.

        :param count: messages whose handlers still run, or whose copies are not confirmed
        """
        event = self._events.new(
            c.BH_EVENT_DRAINED, {"status": WaitTimeoutError.status, "count": count}
        )
        return WaitTimeoutError(c.Event_line(event))

    def _emit_busy(self, duration_us: int) -> None:
        """Emits that the only handler ran for longer than its limit."""
        about: Fields = {"count": 1, "duration_us": duration_us}
        self._events.emit(self._events.new(c.BH_EVENT_BUSY, about))

    def _deliver_on(self, channel: Any, subscription: Any = None, prefetch: int = 0) -> Deliveries:
        """Notes a channel that delivers.

        :param channel: the client's
        :param subscription: of its consumer; None: the consumer is the user's
        :param prefetch: 0: unknown
        """
        handle = None if subscription is None else subscription.handle
        deliveries = self._delivering[channel] = Deliveries(handle, prefetch)
        self._watch_deliveries(channel)
        return deliveries

    def _watch_deliveries(self, channel: Any) -> None:
        """Calls ``_stop_deliveries`` when a channel is closed."""
        raise NotImplementedError

    def _stop_deliveries(self, channel: Any, *, is_orderly: bool = False) -> None:
        """Notes that a channel is closed: the broker redelivers the messages in hand.

        :param is_orderly: whether the broker has all frames before
        """
        if deliveries := self._delivering.pop(channel, None):
            deliveries.close(is_orderly=is_orderly)
            for gate in list(self._gates):
                gate.forget_lost()

    def _lose_acks(self, channel: Any) -> None:
        """Notes that the broker may not take acknowledgements of a channel.

        Its consumer is cancelled, or the channel closes.
        """
        if deliveries := self._delivering.get(channel):
            deliveries.lose()

    def _settled(self, channel: Any) -> None:
        """Notes that a message was settled: the back-off of its consumer starts again."""
        deliveries = self._delivering.get(channel)
        if deliveries is None:
            return
        if deliveries.subscription is not None:
            c.Subscription_settled(deliveries.subscription)
        if deliveries.is_doubtful:
            deliveries.lose()

    def _earlier(self, message: Any, has_id: bool, go_on: Callable[[], None]) -> tuple[int, int]:
        """Returns the kind of the arrival of a message, and the action of its earlier call.

        :param has_id: whether the message may have an id. Without one it is always called
        :param go_on: called in any thread, when a message that waits may arrive again
        """
        original = message._original
        if not (has_id and original.tag):
            return c.BH_ARRIVAL_CALL, c.BH_ACTION_NONE
        deliveries = self._delivering.get(original.channel) or self._deliver_on(original.channel)
        if message.redelivered:
            return CALLS.arrive(message, deliveries, go_on)
        deliveries.in_hand.add(message)
        return c.BH_ARRIVAL_CALL, c.BH_ACTION_NONE

    def _end_call(self, message: Any, action: int) -> None:
        """Records how a message was settled."""
        CALLS.finish(message, self._delivering.get(message._original.channel), action)

    def _keep_call(self, message: Any, original: Original) -> int:
        """Returns the call of a message, which its copy will end; 0 for none."""
        return CALLS.keep(message, self._delivering.get(original.channel))

    def _forget_call(self, message: Any) -> None:
        """Records that a message was not settled: its next delivery is handled."""
        self._end_call(message, c.BH_ACTION_NONE)

    def _acknowledged(self, message: Any, action: int = c.BH_ACTION_ACK) -> None:
        """Notes a message that was acknowledged."""
        self._end_call(message, action)
        self._settled(message._original.channel)

    def _lost_ack(self, message: Any, action: int = c.BH_ACTION_ACK) -> None:
        """Notes a message whose channel is closed, so that its acknowledgement cannot be sent."""
        self._lose_acks(message._original.channel)
        self._end_call(message, action)
        self._emit_stale(message)

    def _emit_stale(self, message: Message, status: int = 0) -> None:
        """Emits that the message was not settled: the broker delivers it again.

        :param status: 0: its channel is closed
        """
        why: Fields = {
            "id": message._event_id,
            "count": 1,
            **({"status": status} if status else {}),
        }
        self._events.emit(self._events.new(c.BH_EVENT_STALE, why))

    def _ends_program(self, message: Message, error: BaseException) -> None:
        """Reports that a handler ends the program: its message comes again."""
        self._ignore_call(message)
        self._forget_call(message)
        self._events.log(c.BH_EVENT_STALE, message, error)
        self._emit_stale(message)

    def _check_fork(self) -> None:
        """Raises in a child process, which would use the connection of its parent."""
        if os.getpid() != self._pid:
            raise ForkedError("the process forked: connect and make a new retrier in the child")

    def _guard(self, message: Message) -> Plan | None:
        return self._decider.guard(message.history)

    def _poison(self, plan: Plan) -> PoisonError:
        """Returns the error of a message that the guard parked or delayed."""
        event = made(c.bh_event_new(c.bh_event_of_copy(c.Plan_action(plan._handle))))
        check(c.Event_set_string(event, c.BH_FIELD_QUEUE, self._topology.queue))
        check(c.Event_set_plan(event, plan._handle))
        return PoisonError(c.Event_line(event))

    def _doubt(self) -> None:
        """Forgets that the topology is declared, because some of it may be deleted."""
        self._is_declared = not self._restores


def check_error(error: object) -> None:
    """Raises if the error given to settle is no exception."""
    if error is not None and not isinstance(error, BaseException):
        raise ArgumentTypeError(
            f"error is {error!r}: give the exception that the handler raised, or None"
        )
