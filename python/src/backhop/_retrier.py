"""What the retriers over each client share: what they decide, what they tell, how they wait."""

from __future__ import annotations

import logging
import os
import random as _random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, TypeVar

from . import _backhop as c
from ._amqp import Text
from ._checks import HOUR_MS, instance, span_ms
from ._core import made, number
from ._declaring import MODES, Mode, Steps, declaring, diagnosis
from ._errors import (
    ArgumentTypeError,
    ChannelClosedError,
    ConsumerCancelledError,
    ContentError,
    Error,
    FrameError,
    PoisonError,
    WaitTimeoutError,
    check,
)
from ._time import Seconds, milliseconds, seconds
from .decider import Decider
from .event import Events, Fields, Listeners, replay_error
from .message import Message
from .outcomes import Conditions, Policies, checked_policies, story
from .plan import Plan
from .policy import Policy
from .topology import QueueType, Strategy, Topology, chosen

LOGGER = logging.getLogger("backhop")

BACK_OFF = Policy(initial=0.1, factor=2, max=10, jitter="equal", max_attempts=0)

MAY_BE_POISON = "x-delivery-count"
"""Without this header nothing tells of lost consumers, and the guard has nothing to say."""

SETTLED_ALREADY = (
    "delivery %d is acknowledged or rejected already: let the handler return, raise or raise Park instead, as Backhop "
    "settles its messages"
)

Channel = TypeVar("Channel")


class BaseRetrier(Generic[Channel]):
    """What the retriers over each client share."""

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
        on_event: Listeners = None,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._channel = channel
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
        # Whether a rung on demand is made as a message needs it.
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
        advice = "give a backhop.Policy"
        self._back_off = BACK_OFF if back_off is None else instance("back_off", back_off, Policy, advice)
        self._events = Events(self._topology.queue, on_event, clock)
        self._restores = False  # whether declare() made the topology, and may make it again
        self._is_declared = True
        self._was_asked = False  # whether declare() or verify() was ever called
        self._consumers: set[Any] = set()  # its own, until they are cancelled
        self._told: set[object] = set()  # consumers of which it was said what they lose
        self._begin()
        self._events.attach(self)

    def _begin(self) -> None:
        """What a client needs besides."""

    @property
    def pending(self) -> int:
        """How many copies are not confirmed yet; their originals are unacknowledged."""
        raise NotImplementedError

    @property
    def topology(self) -> Topology:
        """The exchanges, queues and bindings that the strategy needs; ``topology.definitions()`` is their JSON."""
        return self._topology

    @property
    def policy(self) -> Policy:
        """How long, how often, how random, when to give up."""
        return self._topology.policy

    def _plan(self, message: Message, error: BaseException) -> Plan:
        """What becomes of a message whose handler raised."""
        result = self._decider.result(error)
        now_ms = self._decider.now_ms
        self._events.failed(message, result, error, now_ms)
        return self._decider.plan(message.history, result, message._traceparent, now_ms)

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """A context to run the handler of a message of ``read`` in, in whichever thread: in it is what listeners have
        around a handler, as the span of backhop.opentelemetry's Tracing, and how long it takes is what is told as the
        handler's duration. An exception goes through it: hand that to ``settle``.

            with retrier.handling(message):
                purge(message.body)

        :raises ArgumentTypeError: for what is no message
        """
        return self._events.handling(instance("message", message, Message, "give a message of read"), is_timed=True)

    def _consumes(self, connection: object) -> bool:
        """Whether it consumes on a connection, by a consumer of its own."""
        return any(each._is_on(connection) for each in self._consumers)

    def _declaring(self, connection: object) -> Steps:
        """What declare() does on a connection, by the mode."""
        return declaring(self._topology, self._mode, connection=connection, makes_rungs=self._makes_rungs)

    def _verifying(self) -> Steps:
        return declaring(self._topology, "verify", makes_rungs=self._makes_rungs)

    def _wait(self, failures: int) -> float:
        """How long to wait before it is consumed again, in seconds."""
        return self._back_off.delay(failures, random=_random.random())

    @property
    def _forgotten(self) -> str:
        """What may have been forgotten where something is not there that a copy needs."""
        return "" if self._was_asked or self._mode == "none" else "declare() of the retrier"

    def _owns(self, message: Message) -> bool:
        """Whether a message of the unroutable queue is this work queue's. One that cannot be read is nobody's."""
        try:
            return bool(c.Topology_owns(self._topology._handle, message.delivery._handle))
        except Exception:
            return False

    def _announce_replay(self, count: int, error: Error | None) -> None:
        why: Fields = {"status": error.status, "text": str(error)} if error else {}
        self._events.tell(self._events.make(c.BH_EVENT_REPLAYED, {"count": count, **why}))

    def _announce_end(self, failures: int, wait: float, cause: object) -> None:
        """The queue is not consumed: at the first failure the consumer has ended, then it cannot be made again.

        :param wait: until it is tried again, in seconds
        :param cause: an error, or the client's words; "" where the broker cancelled the consumer
        """
        kind = c.BH_EVENT_UNAVAILABLE if failures > 1 else c.BH_EVENT_CANCELLED
        error = ChannelClosedError.status if cause or failures > 1 else ConsumerCancelledError.status
        why: Fields = {
            "status": cause.status if isinstance(cause, Error) else error,
            "connection": "consume",
            "delay_ms": milliseconds(wait),
            "cause": str(cause),
        }
        self._events.tell(self._events.make(kind, why))

    def _say_no_ack(self, consumer: object, with_acks: str) -> None:
        """Says once what a consumer without acknowledgements loses.

        :param with_acks: how one with acknowledgements is made, as a user writes it
        """
        if consumer not in self._told:
            self._told.add(consumer)
            LOGGER.error("%s", diagnosis(self._topology, c.Declaring_refuse_no_ack, with_acks))

    def _undrained(self) -> WaitTimeoutError:
        """Copies are not confirmed in time."""
        event = self._events.make(c.BH_EVENT_DRAINED, {"status": WaitTimeoutError.status, "count": self.pending})
        return WaitTimeoutError(c.Event_line(event))

    def _announce_stale(self, message: Message) -> None:
        """Its channel is gone, and the broker delivers it again."""
        try:
            id_ = message.id
        except Error:  # it cannot be read
            id_ = ""
        self._events.tell(self._events.make(c.BH_EVENT_STALE, {"id": id_, "count": 1}))

    def _guard(self, message: Message) -> Plan | None:
        return self._decider.guard(message.history)

    def _poison(self, plan: Plan) -> PoisonError:
        """What became of a message by the guard's plan, in the core's words."""
        event = made(c.bh_event_new(c.bh_event_of_copy(c.Plan_action(plan._handle))))
        check(c.Event_set_string(event, c.BH_FIELD_QUEUE, self._topology.queue))
        check(c.Event_set_plan(event, plan._handle))
        return PoisonError(c.Event_line(event))

    def _doubt(self) -> None:
        """Something of the topology may be gone."""
        self._is_declared = not self._restores


REFUSALS = (FrameError, ContentError, ChannelClosedError)
"""Of a replayed message, for what it is: those behind it go."""

_MOST_LOOKED = 10_000  # of a queue that others share: each message of theirs is held until the end


def replayed_queues(topology: Topology) -> list[tuple[str, bool]]:
    """What a replay reads, in this order, and whether others share it."""
    unroutable = topology.unroutable_queue
    return [(topology.parked_queue, False), *([(unroutable, True)] if unroutable else [])]


def replayed_messages(count: int, is_shared: bool) -> int:
    """How many messages a replay gets from a queue that has so many."""
    return min(count, _MOST_LOOKED) if is_shared else count


def unreadable(problem: Exception) -> Error:
    """Of a message that is to be replayed, and cannot be read."""
    if isinstance(problem, Error):
        return problem
    return replay_error(ContentError, story(problem))


def check_error(error: object) -> None:
    """Refuses what is no exception, which settle would otherwise take for one."""
    if error is not None and not isinstance(error, BaseException):
        raise ArgumentTypeError(f"error is {error!r}: give the exception that the handler raised, or None")
