"""History: what the headers tell of a message's past."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._checks import instance, legacy_header, queues
from ._core import made
from ._errors import check
from ._time import moment, seconds
from .delivery import Delivery
from .topology import Topology

Source: TypeAlias = Literal["none", "backhop", "legacy", "x-death", "delivery-count"]

_SOURCES: dict[int, Source] = {
    c.BH_SOURCE_NONE: "none",
    c.BH_SOURCE_BACKHOP: "backhop",
    c.BH_SOURCE_LEGACY: "legacy",
    c.BH_SOURCE_X_DEATH: "x-death",
    c.BH_SOURCE_DELIVERY_COUNT: "delivery-count",
}


class Death(NamedTuple):
    """A record of x-death: the broker keeps one for each queue and reason."""

    queue: str
    reason: str
    """rejected, expired, maxlen or delivery_limit."""
    times: int
    time: datetime | None
    """The first time, to the second."""
    exchange: str
    routing_keys: tuple[str, ...]
    original_expiration: str
    """The expiration that the message had, as its digits."""


class DeathPlace(NamedTuple):
    """Where and why a message was dead-lettered; "" for what the headers do not tell."""

    queue: str
    reason: str
    exchange: str


class History:
    """What the headers tell of a message's past. A header that cannot be trusted is ignored, and named in ``problems``.

    :param delivery: what arrived
    :param topology: tells the strategy and the work queue; without one, no strategy counts
    :param legacy_counter: a header in which an earlier retry code of the application counted failures
    :param wait_queues: wait queues of an earlier, hand-made set-up: each expiry there was a failure
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
        handle = self._handle = made(c.bh_history_new())
        if legacy_counter is not None:
            check(c.History_set_legacy_counter(handle, legacy_header(legacy_counter)))
        for queue in queues("wait_queues", wait_queues) if wait_queues else ():
            check(c.History_add_wait_queue(handle, queue))
        check(c.History_read(handle, delivery._handle, topology._handle if topology else None))

    @property
    def attempts(self) -> int:
        """Failed attempts so far."""
        return c.History_attempts(self._handle)

    @property
    def source(self) -> Source:
        """Where the count of attempts comes from."""
        return _SOURCES[c.History_attempts_source(self._handle)]

    @property
    def first_failure(self) -> datetime | None:
        """The first failure, in UTC; None where it is unknown. From a broker's x-death it is whole seconds."""
        return moment(c.History_first_failure_ms(self._handle))

    @property
    def last_delay(self) -> float | None:
        """The last delay, in seconds; None where it is unknown."""
        ms = c.History_last_delay_ms(self._handle)
        return None if ms < 0 else seconds(ms)

    @property
    def traceparent(self) -> str:
        """The span of the last attempt that failed, in W3C's form; "" where there is none."""
        return c.History_traceparent(self._handle)

    @property
    def last_error(self) -> str:
        """The last error's text; "" where there is none."""
        return c.History_last_error(self._handle)

    @property
    def id(self) -> str:
        """The id that all further attempts share: backhop-id, else the message-id property.

        "" where there is neither: a first attempt of a message without message-id. Its first copy gets an id.
        """
        return c.History_id(self._handle)

    @property
    def has_id(self) -> bool:
        """Whether it has an id of its own yet."""
        return bool(c.History_has_id(self._handle))

    @property
    def exchange(self) -> str:
        """Where the message was first published. Show it; do not route by it."""
        return c.History_exchange(self._handle)

    @property
    def routing_key(self) -> str:
        """The routing key with which it was first published."""
        return c.History_routing_key(self._handle)

    @property
    def parked(self) -> str:
        """Why the message was parked: exhausted, permanent, too-old, oversized, poison; "" where it was not."""
        return c.History_parked(self._handle)

    @property
    def replays(self) -> int:
        """How often it was sent back from the parked queue, by ``replay`` or by other hands."""
        return c.History_replays(self._handle)

    @property
    def delivery_count(self) -> int:
        """What a quorum queue counted in x-delivery-count; 0 where absent."""
        return c.History_delivery_count(self._handle)

    @property
    def acquired_count(self) -> int:
        """What a quorum queue of RabbitMQ 4.3 counted in x-acquired-count; 0 where absent."""
        return c.History_acquired_count(self._handle)

    @property
    def crashes(self) -> int:
        """Deliveries that ended without being settled, as far as quorum queues count: consumers that were lost, or gave
        it back, while it, or a message beside it, was in hand."""
        return c.History_crashes(self._handle)

    @property
    def deaths(self) -> tuple[Death, ...]:
        """The records of x-death, most recent first."""
        handle = self._handle
        return tuple(
            Death(
                queue=c.History_death_queue(handle, i),
                reason=c.History_death_reason(handle, i),
                times=c.History_death_times(handle, i),
                time=moment(c.History_death_first_time_s(handle, i) * 1000),
                exchange=c.History_death_exchange(handle, i),
                routing_keys=tuple(
                    c.History_death_routing_key(handle, i, key)
                    for key in range(c.History_death_routing_key_count(handle, i))
                ),
                original_expiration=c.History_death_original_expiration(handle, i),
            )
            for i in range(c.History_death_count(handle))
        )

    @property
    def first_death(self) -> DeathPlace:
        """x-first-death-*: the first time that the broker dead-lettered the message."""
        handle = self._handle
        return DeathPlace(
            c.History_first_death_queue(handle),
            c.History_first_death_reason(handle),
            c.History_first_death_exchange(handle),
        )

    @property
    def last_death(self) -> DeathPlace:
        """x-last-death-*: the last time (RabbitMQ 3.13 and newer)."""
        handle = self._handle
        return DeathPlace(
            c.History_last_death_queue(handle),
            c.History_last_death_reason(handle),
            c.History_last_death_exchange(handle),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Headers that were ignored: each a sentence that begins with the header's name."""
        handle = self._handle
        return tuple(c.History_problem(handle, i) for i in range(c.History_problem_count(handle)))

    def __repr__(self) -> str:
        return f"<History of {self.attempts} failed attempts>"
