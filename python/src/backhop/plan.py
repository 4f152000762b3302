"""Plan: the decision as data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import _backhop as c
from ._amqp import TYPE_NAMES, Text, Typed, wire_text
from ._checks import instance, shortened, whole
from ._core import made, number
from ._errors import ArgumentError, ArgumentTypeError, check
from ._time import Seconds, milliseconds, seconds, since_epoch
from .delivery import PROPERTIES
from .history import History
from .policy import Policy
from .topology import Topology

if TYPE_CHECKING:
    from .outcomes import Result

Outcome: TypeAlias = Literal["ok", "failed", "permanent", "dropped"]
Action: TypeAlias = Literal["none", "ack", "retry", "reject", "return", "park", "drop", "replay"]

RANDOM_BYTES = 32
FRAME_MAX = 131072

OUTCOMES: dict[Outcome, int] = {
    "ok": c.BH_OUTCOME_OK,
    "failed": c.BH_OUTCOME_FAILED,
    "permanent": c.BH_OUTCOME_PERMANENT,
    "dropped": c.BH_OUTCOME_DROPPED,
}
_INT64 = c.BH_TYPE_INT64
_ARRAY = c.BH_TYPE_ARRAY
_VOID = c.BH_TYPE_VOID
_ACTIONS: dict[int, Action] = {
    c.BH_ACTION_NONE: "none",
    c.BH_ACTION_ACK: "ack",
    c.BH_ACTION_RETRY: "retry",
    c.BH_ACTION_REJECT: "reject",
    c.BH_ACTION_RETURN: "return",
    c.BH_ACTION_PARK: "park",
    c.BH_ACTION_DROP: "drop",
    c.BH_ACTION_REPLAY: "replay",
}


class Plan:
    """What to do with a delivery. Whoever carries it out never acknowledges what was not confirmed.

    ===================  ============================================================================================
    action               to do, in this order
    ===================  ============================================================================================
    ack, drop            basic.ack
    none                 nothing was decided: hand it to the handler (guard)
    reject               basic.nack(requeue=False)
    return               basic.reject(requeue=True)
    retry, park, replay  basic.publish of a copy, wait for its confirm, then basic.ack of the original
    ===================  ============================================================================================

    :param history: read with this topology
    :param topology: and its policy
    :param outcome: what the handler did: ``"ok"``, ``"failed"``, ``"permanent"`` (park now), ``"dropped"``
    :param error: why it failed; at most 1 KiB is kept
    :param retry_after: the delay that the handler asks for at least
    :param policy: by which it is tried again: the topology's, which is the default, or one of its ``policies``
    :param traceparent: the attempt's span in W3C's form, which the copy carries as backhop-traceparent; "" for none
    :param frame_max: what the publishing connection negotiated, in bytes; 0: no limit
    :param now: seconds since the epoch, or a datetime; default: the clock
    :param random: 32 random bytes; default: the system's
    :raises ForeignPolicyError: where the topology lacks a wait of the policy
    :raises FrameError: where not even the message's own headers fit frame_max
    """

    __slots__ = ("_handle",)

    def __init__(
        self,
        history: History,
        topology: Topology,
        outcome: Outcome = "failed",
        *,
        error: Text = "",
        retry_after: Seconds = 0,
        policy: Policy | None = None,
        traceparent: Text = "",
        frame_max: int = FRAME_MAX,
        now: float | datetime | None = None,
        random: bytes | None = None,
    ) -> None:
        _check_read(history, topology)
        if policy is not None:
            instance("policy", policy, Policy, "give a backhop.Policy")
        if not isinstance(error, str | bytes):
            raise ArgumentTypeError(f"error is {shortened(error)}: give a text")
        handle = self._handle = made(c.bh_plan_new())
        self._set_frame_max(frame_max)
        if traceparent:
            check(c.Plan_set_traceparent(handle, traceparent))
        check(
            c.Plan_make(
                handle,
                history.delivery._handle,
                history._handle,
                (policy or topology.policy)._handle,
                topology._handle,
                number(OUTCOMES, outcome, "outcome"),
                error,
                milliseconds(retry_after, "retry_after"),
                since_epoch(time.time() if now is None else now),
                os.urandom(RANDOM_BYTES) if random is None else _random_bytes(random),
            )
        )

    @classmethod
    def _decided(
        cls,
        history: History,
        topology: Topology,
        result: Result,
        traceparent: str,
        frame_max: int,
        now_ms: int,
        random: bytes,
    ) -> Plan:
        """The same of a handler's result, from what was checked before."""
        self = cls.__new__(cls)
        handle = self._handle = made(c.bh_plan_new())
        policy, retry_after = result.policy or topology.policy, result.retry_after
        check(c.Plan_set_frame_max(handle, frame_max))
        if traceparent:
            check(c.Plan_set_traceparent(handle, traceparent))
        if status := c.Plan_make(
            handle,
            history.delivery._handle,
            history._handle,
            policy._handle,
            topology._handle,
            OUTCOMES[result.outcome],
            result.error,
            milliseconds(retry_after, "retry_after") if retry_after else 0,
            now_ms,
            _random_bytes(random),
        ):
            check(status)
        return self

    @classmethod
    def guard(
        cls,
        history: History,
        topology: Topology,
        *,
        frame_max: int = FRAME_MAX,
        now: float | datetime | None = None,
        random: bytes | None = None,
    ) -> Plan:
        """The plan before a handler sees a message: ``"none"``, or ``"park"`` for one that crashed its consumers as
        often as the policy's max_crashes allows."""
        _check_read(history, topology)
        self = cls._empty(frame_max)
        self._guard(
            history,
            topology,
            time.time() if now is None else now,
            os.urandom(RANDOM_BYTES) if random is None else _random_bytes(random),
        )
        return self

    def _guard(self, history: History, topology: Topology, now: float | datetime, random: bytes) -> None:
        """Becomes the plan of guard."""
        check(
            c.Plan_guard(
                self._handle,
                history.delivery._handle,
                history._handle,
                topology.policy._handle,
                topology._handle,
                since_epoch(now),
                random,
            )
        )

    @classmethod
    def replay(
        cls, history: History, topology: Topology, *, frame_max: int = FRAME_MAX, random: bytes | None = None
    ) -> Plan:
        """The plan to send a parked message back to its work queue, and to no other, as if it had never failed."""
        _check_read(history, topology)
        self = cls._empty(frame_max)
        check(
            c.Plan_replay(
                self._handle,
                history.delivery._handle,
                history._handle,
                topology._handle,
                os.urandom(RANDOM_BYTES) if random is None else _random_bytes(random),
            )
        )
        return self

    @classmethod
    def _empty(cls, frame_max: int) -> Plan:
        self = cls.__new__(cls)
        self._handle = made(c.bh_plan_new())
        self._set_frame_max(frame_max)
        return self

    def _set_frame_max(self, frame_max: int) -> None:
        check(c.Plan_set_frame_max(self._handle, whole("frame_max", frame_max)))

    @property
    def action(self) -> Action:
        """What to do."""
        return _ACTIONS[c.Plan_action(self._handle)]

    @property
    def publishes(self) -> bool:
        """Whether a copy is published: retry, park, replay."""
        return bool(c.Plan_publishes(self._handle))

    @property
    def attempts(self) -> int:
        """Failed attempts, this one included where it failed."""
        return c.Plan_attempts(self._handle)

    @property
    def delay(self) -> float:
        """How long the message will wait, in seconds; 0 where it does not."""
        return seconds(c.Plan_delay_ms(self._handle))

    @property
    def retry_after_met(self) -> bool:
        """False where the delay is shorter than the handler asked for."""
        return bool(c.Plan_retry_after_met(self._handle))

    @property
    def reason(self) -> str:
        """Park: exhausted, permanent, too-old, oversized or poison; else ""."""
        return c.Plan_reason(self._handle)

    @property
    def id(self) -> str:
        """The id that the copy carries; "" where none is published."""
        return c.Plan_id(self._handle)

    @property
    def exchange(self) -> str:
        """Where the copy goes."""
        return c.Plan_exchange(self._handle)

    @property
    def routing_key(self) -> str:
        """The copy's routing key."""
        return c.Plan_routing_key(self._handle)

    @property
    def mandatory(self) -> bool:
        """Whether the publish is mandatory: always, but for the delayed exchange, which returns what it keeps."""
        return bool(c.Plan_mandatory(self._handle))

    @property
    def on_demand(self) -> bool:
        """Whether the topology's declarations with ``wait == plan.delay`` must be made before the publish."""
        return bool(c.Plan_on_demand(self._handle))

    @property
    def kept_properties(self) -> tuple[str, ...]:
        """Properties that the copy keeps as the original has them, if it has. Its delivery_mode is 2."""
        handle = self._handle
        return tuple(name for name, number in PROPERTIES.items() if c.Plan_keeps_property(handle, number))

    @property
    def expiration(self) -> str | None:
        """The copy's expiration, as the digits of its milliseconds."""
        return c.Plan_expiration(self._handle) or None

    def keeps_header(self, name: Text) -> bool:
        """Whether the copy keeps the original's header of this name."""
        return bool(c.Plan_keeps_header(self._handle, name))

    @property
    def headers(self) -> tuple[tuple[str, Typed], ...]:
        """Headers that the copy gets besides. A void stands for the value of the original's header that it names."""
        handle = self._handle
        return tuple(
            (c.Plan_header_name(handle, i), self._typed(c.Plan_header_type(handle, i), i))
            for i in range(c.Plan_header_count(handle))
        )

    def _typed(self, kind: int, index: int) -> Typed:
        handle = self._handle
        if kind == _INT64:
            return Typed("int64", c.Plan_header_int(handle, index))
        if kind == _ARRAY:
            return Typed("array", [c.Plan_header_string(handle, index)])
        if kind == _VOID:
            return Typed("void", c.Plan_header_source(handle, index))
        return Typed(TYPE_NAMES[kind], c.Plan_header_string(handle, index))

    def copy_headers(
        self,
        headers: Mapping[Any, Any] | None,
        *,
        integer: Callable[[int], Any] = int,
    ) -> dict[Any, Any]:
        """All headers of the copy, for a client to publish.

        :param headers: the original's, as the client gave them; those that are kept go out as they are
        :param integer: what the client encodes as a 64-bit integer
        """
        headers = headers or {}
        copy = {name: value for name, value in headers.items() if self.keeps_header(name)}
        for name, typed in self.headers:
            if typed.type == "string":
                copy[name] = wire_text(typed.value)
            elif typed.type == "int64":
                copy[name] = integer(typed.value)
            elif typed.type == "array":
                copy[name] = [wire_text(each) for each in typed.value]
            else:
                copy[name] = headers[typed.value]
        return copy

    def _described(self) -> tuple[Any, ...]:
        """All but the headers: the action's number, failed attempts, delay and rung in ms, reason, id; of a copy
        exchange, routing key, whether it is mandatory, expiration ("" for none), the properties that it keeps, as bits
        by their numbers."""
        return c.Plan_described(self._handle)

    def __repr__(self) -> str:
        where = f" to {self.exchange!r}" if self.publishes else ""
        return f"<Plan {self.action}{where}, delay {self.delay:g} s>"


def _check_read(history: object, topology: object) -> None:
    instance("history", history, History, "give a backhop.History")
    instance("topology", topology, Topology, "give a backhop.Topology")


def _random_bytes(random: object) -> bytes:
    if not isinstance(random, bytes) or len(random) != RANDOM_BYTES:
        raise ArgumentError(f"random is {shortened(random)}: give {RANDOM_BYTES} bytes")
    return random
