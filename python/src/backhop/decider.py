"""Decider: reads deliveries and makes plans, for the adapters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable

from . import _backhop as c
from ._amqp import Headers, Text
from ._checks import function, legacy_header, queues, shortened
from ._errors import ForeignPolicyError
from ._times import since_epoch
from .delivery import Delivery
from .history import History
from .outcomes import Choice, Conditions, Policies
from .plan import FRAME_MAX, RANDOM_BYTES, Plan, Result
from .topology import Topology

_NO_COPY = bytes(RANDOM_BYTES)
"""Random bytes for a plan without a copy, which does not use them."""


class Decider:
    """Reads deliveries and makes plans for one work queue.

    :param topology: the topology, with its policy.
    :param never: exceptions that park a message at once: a class, a predicate, or a list of these.
    :param only: the exceptions that are retried, likewise; all others park; default: all are
        retried.
    :param policies: other policies of the topology for the retries of some exceptions.
    :param legacy_counter: as History's.
    :param wait_queues: as History's.
    :param frame_max: the publishing connection's frame_max, in bytes; 0: no limit.
    :param clock: returns seconds since the epoch.
    :param random: returns a given number of random bytes.
    :raises ForeignPolicyError: if the topology lacks a rung of one of ``policies``.
    :raises ArgumentError: if another option is wrong.
    """

    __slots__ = (
        "_choice",
        "_guarding",
        "clock",
        "frame_max",
        "legacy_counter",
        "random",
        "topology",
        "wait_queues",
    )

    def __init__(
        self,
        topology: Topology,
        *,
        never: Conditions = (),
        only: Conditions | None = None,
        policies: Policies | None = None,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
        frame_max: int = FRAME_MAX,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.topology = topology
        self._choice = Choice(never, only, policies)
        check_served(topology, policies)
        self.legacy_counter = None if legacy_counter is None else legacy_header(legacy_counter)
        self.wait_queues = queues("wait_queues", wait_queues)
        self.frame_max = frame_max
        function("clock", clock)
        self.clock = clock
        function("random", random)
        self.random = random
        self._guarding = Plan._empty(
            frame_max
        )  # one for all messages, as few of them crashed anything

    def read(
        self,
        exchange: Text,
        routing_key: Text,
        properties: object,
        headers: Headers | None,
        blank: Container[object] = (),
    ) -> History:
        """Returns the history of a client's message. Parameters as Delivery's.

        :param blank: stands for an absent property besides None.
        """
        history = History(
            Delivery._of_client(exchange, routing_key, properties, headers, blank),
            self.topology,
            legacy_counter=self.legacy_counter,
            wait_queues=self.wait_queues,
        )
        history._assign_id(self.random)
        return history

    def guard(self, history: History) -> Plan | None:
        """Returns the plan for a message whose consumers were lost too often.

        None for any other message.
        """
        self._guarding._set_frame_max(self.frame_max)
        self._guarding._guard(history, self.topology, self.clock(), _NO_COPY)
        if self._guarding.action == "none":
            return None
        random = self.random(RANDOM_BYTES)
        return Plan.guard(
            history, self.topology, frame_max=self.frame_max, now=self.clock(), random=random
        )

    def result(self, exception: BaseException) -> Result:
        """Returns the result for an exception of the handler."""
        return self._choice.result(exception)

    @property
    def now_ms(self) -> int:
        """The clock's time, in ms since the epoch."""
        return since_epoch(self.clock())

    def plan(
        self, history: History, result: Result, traceparent: str = "", now_ms: int | None = None
    ) -> Plan:
        """Returns the plan for a message.

        :param now_ms: the time in ms since the epoch; None: read the clock.
        """
        random = _NO_COPY if result.outcome in ("ok", "dropped") else self.random(RANDOM_BYTES)
        now_ms = self.now_ms if now_ms is None else now_ms
        return Plan._decided(
            history, self.topology, result, traceparent, self.frame_max, now_ms, random
        )

    def replay(self, history: History) -> Plan:
        """Returns the plan that moves a parked message back to its work queue."""
        return Plan.replay(
            history, self.topology, frame_max=self.frame_max, random=self.random(RANDOM_BYTES)
        )


def check_served(topology: Topology, policies: Policies | None) -> None:
    """Checks that the topology has the rungs of all policies.

    :raises ForeignPolicyError: if it lacks one; the text names the policy.
    """
    for condition, policy in (policies or {}).items():
        if c.Topology_check_policy(topology._handle, policy._handle):
            name = shortened(condition)
            raise ForeignPolicyError(
                f"policies[{name}] is {policy!r}, and the topology lacks one of its wait queues: "
                "make it with Topology(..., policies=[...])"
            )
