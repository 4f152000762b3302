"""Plan: the decision for one delivery, as data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._amqp import TYPE_NAMES, Text, Typed, wire_text
from ._checks import instance, shortened, whole
from ._core import made, names, number, numbers
from ._errors import ArgumentError, ArgumentTypeError, check
from ._times import Seconds, milliseconds, seconds, since_epoch
from .delivery import PROPERTIES
from .history import History
from .policy import Policy
from .topology import Topology

Outcome: TypeAlias = Literal["ok", "failed", "permanent", "dropped", "throttled", "deferred"]
Action: TypeAlias = Literal[
    "none", "ack", "retry", "reject", "return", "park", "drop", "replay", "defer"
]

RANDOM_BYTES = 32
FRAME_MAX = 131072

OUTCOMES: dict[Outcome, int] = numbers("BH_OUTCOME_", "RELEASED")
_INT64 = c.BH_TYPE_INT64
_ARRAY = c.BH_TYPE_ARRAY
_VOID = c.BH_TYPE_VOID
_ACTIONS: dict[int, Action] = names("BH_ACTION_")
_PUBLISHING = frozenset({"retry", "defer", "park", "replay"})


class Result(NamedTuple):
    """The decision of a handler about a message."""

    outcome: Outcome = "ok"
    error: str = ""
    """Why it failed; "" if it did not."""
    retry_after: Seconds = 0
    """The shortest delay that the handler accepts, in seconds; 0: no such limit."""
    policy: Policy | None = None
    """The policy of the retry; None: the topology's own."""
    whole_queue: bool = False
    """Throttled: whether the breaker opens for the whole queue."""


OK = Result()


class Plan:
    """The decision for one delivery. Never acknowledge an original before its copy is confirmed.

    ============  ================================================================================
    action        to do, in this order
    ============  ================================================================================
    ack, drop     basic.ack
    none          nothing was decided: call the handler (guard)
    reject        basic.nack(requeue=False)
    return        basic.reject(requeue=True)
    retry, defer  publish the copy, wait for its confirm, then basic.ack of the original
    park, replay  the same
    ============  ================================================================================

    :param history: the message's history, read with this topology.
    :param topology: the topology, with its policy.
    :param outcome: what the handler decided: ``"ok"``, ``"failed"``, ``"permanent"`` (park now),
        ``"dropped"``, ``"throttled"`` (it waits, and this is no attempt) or ``"deferred"`` (no
        handler got it, because its breaker is open).
    :param error: why it failed; the copy carries at most 1 KiB.
    :param retry_after: the shortest delay that the handler accepts, in seconds.
    :param policy: the policy of the retry: one of the topology's ``policies``; default: its own.
    :param traceparent: the attempt's span in W3C's form, for the copy's header backhop-traceparent;
        "" for none.
    :param frame_max: the publishing connection's frame_max, in bytes; 0: no limit.
    :param now: seconds since the epoch, or a datetime; default: the clock.
    :param random: 32 random bytes; default: the system's.
    :raises ForeignPolicyError: if the topology lacks a rung of the policy.
    :raises FrameError: if the message's own headers alone exceed frame_max.
    :raises ArgumentError: if an argument has another type or is out of its range.
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
        """Returns the plan for a handler's result. Its arguments are checked already."""
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
        """Returns the plan before an attempt: ``"none"``, or ``"park"`` for a message that crashed
        its consumers.

        The policy's max_crashes limits the number of lost consumers. Parameters and errors as
        Plan's.
        """
        _check_read(history, topology)
        self = cls._empty(frame_max)
        self._guard(
            history,
            topology,
            time.time() if now is None else now,
            os.urandom(RANDOM_BYTES) if random is None else _random_bytes(random),
        )
        return self

    def _guard(
        self, history: History, topology: Topology, now: float | datetime, random: bytes
    ) -> None:
        """Makes this plan the one of guard."""
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
        cls,
        history: History,
        topology: Topology,
        *,
        frame_max: int = FRAME_MAX,
        random: bytes | None = None,
    ) -> Plan:
        """Returns the plan that moves a parked message back to its work queue, as if it had never
        failed.

        Parameters and errors as Plan's.
        """
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
        """The action, as in the table above."""
        return _ACTIONS[c.Plan_action(self._handle)]

    @property
    def publishes(self) -> bool:
        """True if the plan has a copy: retry, defer, park and replay have."""
        return self.action in _PUBLISHING

    @property
    def attempts(self) -> int:
        """The number of failed attempts, including this one if it failed."""
        return c.Plan_read(self._handle)[1]

    @property
    def deferrals(self) -> int:
        """The number of times that the message was deferred, including this one."""
        return c.Plan_read(self._handle)[2]

    @property
    def delay(self) -> float:
        """The delay of the message, in seconds; 0 for none."""
        return seconds(c.Plan_read(self._handle)[3])

    @property
    def retry_after_met(self) -> bool:
        """True if the delay is at least as long as the handler's ``retry_after``."""
        return bool(c.Plan_read(self._handle)[4])

    @property
    def reason(self) -> str:
        """The reason of a park: exhausted, permanent, too-old, oversized or poison; else ""."""
        return c.Plan_read(self._handle)[5]

    @property
    def id(self) -> str:
        """The id that the copy carries; "" without a copy."""
        return c.Plan_copy(self._handle)[0]

    @property
    def exchange(self) -> str:
        """The exchange to publish the copy to."""
        return c.Plan_copy(self._handle)[1]

    @property
    def routing_key(self) -> str:
        """The copy's routing key."""
        return c.Plan_copy(self._handle)[2]

    @property
    def mandatory(self) -> bool:
        """True to publish as mandatory.

        False for the delayed exchange, which returns messages that it delays.
        """
        return bool(c.Plan_copy(self._handle)[5])

    @property
    def on_demand(self) -> bool:
        """True if declarations with ``wait == plan.delay`` must be made before the publish."""
        return bool(c.Plan_copy(self._handle)[6])

    @property
    def kept_properties(self) -> tuple[str, ...]:
        """The names of the original's properties that the copy keeps.

        Its delivery_mode is always 2.
        """
        handle = self._handle
        return tuple(
            name for name, number in PROPERTIES.items() if c.Plan_keeps_property(handle, number)
        )

    @property
    def expiration(self) -> str | None:
        """The copy's expiration: the digits of its ms; None for none."""
        return c.Plan_copy(self._handle)[3] or None

    def keeps_header(self, name: Text) -> bool:
        """Returns whether the copy keeps the original's header of this name."""
        return bool(c.Plan_keeps_header(self._handle, name))

    @property
    def headers(self) -> tuple[tuple[str, Typed], ...]:
        """The headers that the plan adds to the copy.

        A void stands for the original's header that it names.
        """
        return tuple(self._header(index) for index in range(c.Plan_read(self._handle)[6]))

    def _header(self, index: int) -> tuple[str, Typed]:
        name, kind, string, integer, source = c.Plan_header(self._handle, index)
        if kind == _INT64:
            return name, Typed("int64", integer)
        if kind == _ARRAY:
            return name, Typed("array", [string])
        if kind == _VOID:
            return name, Typed("void", source)
        return name, Typed(TYPE_NAMES[kind], string)

    def copy_headers(
        self,
        headers: Mapping[Any, Any] | None,
        *,
        integer: Callable[[int], Any] = int,
    ) -> dict[Any, Any]:
        """Returns all headers of the copy, for a client to publish.

        :param headers: the original's headers, as the client decoded them. Kept headers are
            returned unchanged.
        :param integer: converts an int to the client's 64-bit integer.
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
        """Returns the plan as a tuple, without the copy's content.

        Items: action, failed attempts, delay in ms, rung in ms, reason, id, exchange, routing key,
        mandatory.
        """
        described: tuple[Any, ...] = c.Plan_described(self._handle)
        return described

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
