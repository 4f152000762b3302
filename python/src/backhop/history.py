"""History: the past of a message, read from its headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import count, takewhile
from typing import Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._checks import instance, legacy_header, queues
from ._core import made, names
from ._errors import check
from ._times import moment, seconds
from .delivery import Delivery
from .topology import Topology

Source: TypeAlias = Literal["none", "backhop", "legacy", "x-death", "delivery-count"]

_SOURCES: dict[int, Source] = names("BH_SOURCE_")

_ID_RANDOM_BYTES = 16


class Death(NamedTuple):
    """A record of x-death: the broker keeps one for each queue and reason."""

    queue: str
    reason: str
    """rejected, expired, maxlen or delivery_limit."""
    times: int
    time: datetime | None
    """The time of the first death, to the second."""
    exchange: str
    routing_keys: tuple[str, ...]
    original_expiration: str
    """The message's expiration before its death, as digits."""


class DeathPlace(NamedTuple):
    """The queue, reason and exchange of a dead-lettering; "" for a missing header."""

    queue: str
    reason: str
    exchange: str


class _Past(NamedTuple):
    """The core's struct bh_past."""

    attempts: int
    source: int
    first_failure_ms: int
    last_delay_ms: int
    deferrals: int
    replays: int
    crashes: int
    delivery_count: int
    acquired_count: int
    death_count: int
    last_error: str
    parked: str
    traceparent: str


def new_history(legacy_counter: Text | None, wait_queues: Iterable[Text]) -> c.History:
    """Returns a history of the core that reads these earlier counters too."""
    handle = made(c.bh_history_new())
    if legacy_counter is not None:
        check(c.History_set_legacy_counter(handle, legacy_header(legacy_counter)))
    for queue in queues("wait_queues", wait_queues) if wait_queues else ():
        check(c.History_add_wait_queue(handle, queue))
    return handle


class History:
    """The past of a message. A header that is malformed is ignored, and named in ``problems``.

    :param delivery: the message's delivery.
    :param topology: has the strategy and the work queue; None: deaths by a strategy are not
        counted.
    :param legacy_counter: a header with the count of failures of an earlier retry code, at most 255
        bytes.
    :param wait_queues: wait queues of an earlier set-up: each expiry there was a failure.
    :raises ArgumentError: if an argument has another type, or a name has more than 255 bytes.
    """

    __slots__ = ("_handle", "delivery")

    def __init__(
        self,
        delivery: Delivery,
        topology: Topology | None = None,
        *,
        legacy_counter: Text | None = None,
        wait_queues: Iterable[Text] = (),
    ) -> None:
        self.delivery = instance("delivery", delivery, Delivery, "give a backhop.Delivery")
        if topology is not None:
            instance("topology", topology, Topology, "give a backhop.Topology")
        handle = self._handle = new_history(legacy_counter, wait_queues)
        check(c.History_read(handle, delivery._handle, topology._handle if topology else None))

    def _past(self) -> _Past:
        return _Past(*c.History_past(self._handle))

    @property
    def attempts(self) -> int:
        """The number of failed attempts so far."""
        return c.History_attempts(self._handle)

    @property
    def source(self) -> Source:
        """The source of the count of attempts."""
        return _SOURCES[self._past().source]

    @property
    def first_failure(self) -> datetime | None:
        """The time of the first failure, in UTC; None if unknown.

        If the broker's x-death has it, it is whole seconds.
        """
        return moment(self._past().first_failure_ms)

    @property
    def last_delay(self) -> float | None:
        """The last delay, in seconds; None if unknown."""
        ms = self._past().last_delay_ms
        return None if ms < 0 else seconds(ms)

    @property
    def traceparent(self) -> str:
        """The span of the last failed attempt, in W3C's form; "" for none."""
        return self._past().traceparent

    @property
    def last_error(self) -> str:
        """The last error's text; "" for none."""
        return self._past().last_error

    @property
    def id(self) -> str:
        """The id that all attempts share: backhop-id, else the message-id property.

        It is "" at the first attempt of a message without message-id. The first copy gets an id.
        """
        return c.History_id(self._handle)

    @property
    def _event_id(self) -> str:
        """The id for events and logs: ``id``, else the one that the first copy will have."""
        return c.History_event_id(self._handle)

    def _assign_id(self, random: Callable[[int], bytes]) -> None:
        """Assigns an id for events and the first copy, if the message has none."""
        if not c.History_id(self._handle):
            check(c.History_assign_id(self._handle, random(_ID_RANDOM_BYTES)))

    @property
    def has_id(self) -> bool:
        """True if the message has an id."""
        return bool(c.History_id(self._handle))

    @property
    def exchange(self) -> str:
        """The exchange that the message was first published to. Show it, but do not route by it."""
        return c.History_exchange(self._handle)

    @property
    def routing_key(self) -> str:
        """The routing key of the first publish."""
        return c.History_routing_key(self._handle)

    @property
    def parked(self) -> str:
        """The reason why it is parked: exhausted, permanent, too-old, oversized or poison.

        "" if it is not.
        """
        return self._past().parked

    @property
    def deferrals(self) -> int:
        """The number of times that Throttled or a breaker deferred it; no attempts."""
        return self._past().deferrals

    @property
    def replays(self) -> int:
        """The number of moves from the parked queue back to the work queue."""
        return self._past().replays

    @property
    def delivery_count(self) -> int:
        """The quorum queue's x-delivery-count; 0 if absent."""
        return self._past().delivery_count

    @property
    def acquired_count(self) -> int:
        """The x-acquired-count of a quorum queue (RabbitMQ 4.3 and newer); 0 if absent."""
        return self._past().acquired_count

    @property
    def crashes(self) -> int:
        """The number of deliveries that ended without a settlement, as quorum queues count them.

        Their consumer was lost or gave the message back, with this message or one beside it in
        hand.
        """
        return self._past().crashes

    @property
    def deaths(self) -> tuple[Death, ...]:
        """The records of x-death, most recent first."""
        return tuple(self._death(index) for index in range(self._past().death_count))

    def _death(self, index: int) -> Death:
        queue, reason, exchange, expiration, times, first_time_s, keys = c.History_death(
            self._handle, index
        )
        return Death(queue, reason, times, moment(first_time_s * 1000), exchange, keys, expiration)

    @property
    def first_death(self) -> DeathPlace:
        """The first death, from the headers x-first-death-*."""
        return DeathPlace(*c.History_first_death(self._handle)[:3])

    @property
    def last_death(self) -> DeathPlace:
        """The last death, from the headers x-last-death-* (RabbitMQ 3.13 and newer)."""
        return DeathPlace(*c.History_last_death(self._handle)[:3])

    @property
    def problems(self) -> tuple[str, ...]:
        """Ignored headers: a sentence for each, which begins with the header's name."""
        return tuple(takewhile(bool, (c.History_problem(self._handle, i) for i in count())))

    def __repr__(self) -> str:
        return f"<History of {self.attempts} failed attempts>"
