"""What the retriers over each client share: what they decide, what they tell, how they wait."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Literal, TypeVar

from ._amqp import Text
from ._errors import ArgumentError, Error
from ._time import Seconds, duration, milliseconds, seconds
from .decider import Decider
from .history import History
from .message import Message
from .outcomes import OK
from .plan import Plan
from .policy import Policy
from .topology import Declaration, QueueType, Strategy, Topology

LOGGER = logging.getLogger("backhop")

_FIRST_BACK_OFF = 0.25
_LAST_BACK_OFF = 30.0

Channel = TypeVar("Channel")


class PoisonError(Error):
    """The message was parked, as its consumers were lost too often while they held it; see Policy's max_crashes."""


def back_off(failures: int) -> float:
    """How long to wait before a copy is published again, in seconds."""
    return min(_LAST_BACK_OFF, _FIRST_BACK_OFF * 2.0 ** min(failures - 1, 16))


class BaseRetrier(Generic[Channel]):
    """What the retriers over each client share."""

    def __init__(
        self,
        channel: Channel,
        queue: Text,
        policy: Policy | None = None,
        *,
        strategy: Strategy = "ladder",
        never: Iterable[type[BaseException]] = (),
        queue_type: QueueType = "quorum",
        namespace: Text | None = None,
        series: Literal[5, 10, 20, 40] = 10,
        work_queue: QueueType | None = None,
        work_queue_arguments: Mapping[str, str | int] | None = None,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
        confirm_timeout: Seconds = 30,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._channel = channel
        self._topology = Topology(
            queue,
            policy,
            strategy=strategy,
            queue_type=queue_type,
            namespace=namespace,
            series=series,
            work_queue=work_queue,
            work_queue_arguments=work_queue_arguments,
        )
        self._decider = Decider(
            self._topology,
            never=never,
            legacy_counter=legacy_counter,
            wait_queues=wait_queues,
            clock=clock,
            random=random,
        )
        self._confirm_timeout = seconds(milliseconds(confirm_timeout))
        if self._confirm_timeout <= 0:
            raise ArgumentError(f"confirm_timeout is {confirm_timeout!r}: give seconds, more than 0")
        self._restores = False  # whether declare() made the topology, and may make it again
        self._is_declared = True
        self._rungs: set[float] = set()
        self._begin()

    def _begin(self) -> None:
        """What a client needs besides."""

    @property
    def topology(self) -> Topology:
        """The exchanges, queues and bindings that the strategy needs; ``topology.definitions()`` is their JSON."""
        return self._topology

    @property
    def policy(self) -> Policy:
        """How long, how often, how random, when to give up."""
        return self._topology.policy

    def _plan(self, message: Message, error: BaseException | None) -> Plan:
        plan = self._decider.plan(message.history, OK if error is None else self._decider.result(error))
        if error is not None:
            tell(plan, message, error)
        return plan

    def _guard(self, message: Message) -> Plan | None:
        plan = self._decider.guard(message.history)
        if plan:
            LOGGER.warning("%r: its consumers were lost %d times: parking it", message, message.history.crashes)
        return plan

    def _needed(self, plan: Plan) -> list[Declaration]:
        """What has to be declared before the plan's copy is published."""
        declarations = self._topology.declarations
        needed = [] if self._is_declared else [each for each in declarations if not each.on_demand]
        if plan.on_demand and plan.delay not in self._rungs:
            needed += [each for each in declarations if each.wait == plan.delay]
        return needed

    def _made(self, plan: Plan) -> None:
        """What _needed told is declared."""
        self._is_declared = True
        if plan.on_demand:
            self._rungs.add(plan.delay)

    def _doubt(self) -> None:
        """Something of the topology may be gone."""
        self._is_declared = not self._restores
        self._rungs.clear()


def tell(plan: Plan, message: Message, error: BaseException) -> None:
    """Logs what becomes of a message that failed."""
    if plan.action == "park":
        LOGGER.warning("%r failed, and is parked (%s)", message, plan.reason, exc_info=error)
    elif LOGGER.isEnabledFor(logging.INFO):
        after = f", again in {duration(plan.delay)}" if plan.delay else ""
        trace = error if LOGGER.isEnabledFor(logging.DEBUG) else None
        LOGGER.info("%r failed%s: %r", message, after, error, exc_info=trace)


def tell_unpublished(history: History, why: str, wait: float) -> None:
    """Logs that a copy did not get to a queue."""
    LOGGER.warning(
        "the copy of message %r %s: its original stays unacknowledged, and it is published again in %s",
        history.id,
        why,
        duration(wait),
    )


def tell_refused(history: History | None, error: BaseException) -> None:
    """Logs that no copy can be made, so that the original stays with the broker."""
    LOGGER.error(
        "message %r can be neither read nor copied: it stays unacknowledged, and the broker delivers it again once the "
        "channel is closed",
        history.id if history else "",
        exc_info=error,
    )
