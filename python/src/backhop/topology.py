"""Topology: the exchanges, queues and bindings that a strategy needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._checks import instance, queue_name, short_text, whole
from ._core import made, number
from ._errors import ArgumentError, ArgumentTypeError, check, error, in_seconds
from ._time import seconds
from .policy import Policy, Preview, PreviewRow

Strategy: TypeAlias = Literal["ladder", "message-ttl", "reject", "delayed-exchange", "native"]
QueueType: TypeAlias = Literal["quorum", "classic"]

_STRATEGIES: dict[Strategy, int] = {
    "ladder": c.BH_STRATEGY_LADDER,
    "message-ttl": c.BH_STRATEGY_MESSAGE_TTL,
    "reject": c.BH_STRATEGY_REJECT,
    "delayed-exchange": c.BH_STRATEGY_DELAYED_EXCHANGE,
    "native": c.BH_STRATEGY_NATIVE,
}
_SERIES = (5, 10, 20, 40)
_LONGEST_QUEUE = 247  # bytes: "backhop:" and the name are one routing key
_LONGEST_NAMESPACE = 200
_STRATEGY_NAMES = {number: name for name, number in _STRATEGIES.items()}
_QUEUE_TYPES: dict[QueueType, int] = {"quorum": c.BH_QUEUE_QUORUM, "classic": c.BH_QUEUE_CLASSIC}
WHATS: dict[int, Literal["exchange", "queue", "binding"]] = {
    c.BH_DECLARE_EXCHANGE: "exchange",
    c.BH_DECLARE_QUEUE: "queue",
    c.BH_DECLARE_BINDING: "binding",
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """An exchange, a queue or a binding to declare: durable, neither auto-deleted nor exclusive nor internal."""

    what: Literal["exchange", "queue", "binding"]
    name: str
    """Of a binding: its destination."""
    type: str
    """Exchange: fanout, direct, x-delayed-message. Queue: quorum, classic. Binding: queue or exchange."""
    source: str = ""
    """Binding: the exchange that it begins at."""
    routing_key: str = ""
    arguments: dict[str, str | int] = field(default_factory=dict)
    wait: float = 0
    """The rung that this belongs to, in seconds; 0 for none."""
    on_demand: bool = False
    """For a rung that only a handler's RetryAfter can need: declaring leaves it out until a plan asks for it."""


class Topology:
    """The exchanges, queues and bindings that a strategy needs, as data. It never changes.

    :param queue: the work queue; at most 247 bytes
    :param policy: the delays to serve
    :param strategy: where a message waits: ``"ladder"``, ``"message-ttl"``, ``"reject"``, ``"delayed-exchange"`` or
        ``"native"``
    :param queue_type: of the wait, parked and unroutable queues: ``"quorum"`` or ``"classic"``
    :param namespace: first part of the shared names; default ``backhop``, with classic queues ``backhop.classic``
    :param series: rungs per decade of the ladder: 5, 10, 20 or 40
    :param stripes: wait queues of each of the ladder's rungs, 1 to 64, each a share of the load; raising it later
        redeclares nothing
    :param work_queue: ``"quorum"`` or ``"classic"``: declare the work queue too; default: it is there already (reject
        and native, which live in its arguments, declare it always)
    :param work_queue_arguments: its arguments beside those that the strategy sets
    :param policies: further policies that it shall serve
    :raises StrategyError: where the strategy cannot serve the policy; the text names one that does
    :raises InvalidNameError: for a name that cannot be used
    """

    __slots__ = ("_handle", "declarations", "policy")

    def __init__(
        self,
        queue: Text,
        policy: Policy | None = None,
        *,
        strategy: Strategy = "ladder",
        queue_type: QueueType = "quorum",
        namespace: Text | None = None,
        series: Literal[5, 10, 20, 40] = 10,
        stripes: int = 1,
        work_queue: QueueType | None = None,
        work_queue_arguments: Mapping[str, str | int] | None = None,
        policies: Iterable[Policy] = (),
    ) -> None:
        advice = "give a backhop.Policy"
        self.policy = Policy() if policy is None else instance("policy", policy, Policy, advice)
        handle = self._handle = made(c.bh_topology_new(queue_name("queue", queue, _LONGEST_QUEUE)))
        check(c.Topology_set_strategy(handle, number(_STRATEGIES, strategy, "strategy")))
        check(c.Topology_set_queue_type(handle, number(_QUEUE_TYPES, queue_type, "queue_type")))
        if namespace is not None:
            check(c.Topology_set_namespace(handle, queue_name("namespace", namespace, _LONGEST_NAMESPACE)))
        if whole("series", series) not in _SERIES:
            raise ArgumentError(f"series is {series!r}: give one of {', '.join(map(str, _SERIES))}")
        check(c.Topology_set_series(handle, series))
        check(c.Topology_set_stripes(handle, whole("stripes", stripes, 1, 64)))
        if work_queue is not None:
            check(c.Topology_set_work_queue_type(handle, number(_QUEUE_TYPES, work_queue, "work_queue")))
        advice = "give a dict of arguments, as {'x-max-length': 1000}"
        if work_queue_arguments is not None:
            instance("work_queue_arguments", work_queue_arguments, Mapping, advice)  # type: ignore[type-abstract]
        for name, value in (work_queue_arguments or {}).items():
            short_text("a name in work_queue_arguments", name, "an argument's name")
            if isinstance(value, int) and not isinstance(value, bool):
                whole(f"work_queue_arguments[{name!r}]", value, -(2**63))
                check(c.Topology_add_work_queue_int(handle, name, value))
            elif isinstance(value, str | bytes):
                check(c.Topology_add_work_queue_string(handle, name, value))
            else:
                raise ArgumentTypeError(f"work_queue_arguments[{name!r}] is {value!r}: give a str or an int")
        if isinstance(policies, Policy | str | bytes | Mapping) or not isinstance(policies, Iterable):
            raise ArgumentTypeError(f"policies is {policies!r}: give a list of backhop.Policy")
        for further in policies:
            instance("one of policies", further, Policy, "give a backhop.Policy")
            self._check(c.Topology_add_policy(handle, further._handle))
        self._check(c.Topology_build(handle, self.policy._handle))
        self.declarations = tuple(self._declaration(i) for i in range(c.Topology_count(handle)))

    def _check(self, status: int) -> None:
        if status:
            raise error(status, in_seconds(c.Topology_error(self._handle)))

    def _declaration(self, index: int) -> Declaration:
        handle = self._handle
        return Declaration(
            what=WHATS[c.Topology_declaration(handle, index)],
            name=c.Topology_name(handle, index),
            type=c.Topology_type(handle, index),
            source=c.Topology_source(handle, index),
            routing_key=c.Topology_routing_key(handle, index),
            arguments={
                c.Topology_argument_name(handle, index, i): (
                    c.Topology_argument_int(handle, index, i)
                    if c.Topology_argument_type(handle, index, i) == c.BH_TYPE_INT64
                    else c.Topology_argument_string(handle, index, i)
                )
                for i in range(c.Topology_argument_count(handle, index))
            },
            wait=seconds(c.Topology_wait_ms(handle, index)),
            on_demand=bool(c.Topology_on_demand(handle, index)),
        )

    @property
    def queue(self) -> str:
        """The work queue."""
        return c.Topology_queue(self._handle)

    @property
    def strategy(self) -> Strategy:
        """Where a message waits."""
        return _STRATEGY_NAMES[c.Topology_strategy(self._handle)]

    @property
    def parked_queue(self) -> str:
        """``<queue>.parked``, where messages go after their last attempt."""
        return c.Topology_parked_queue(self._handle)

    @property
    def unroutable_queue(self) -> str | None:
        """``<namespace>.unroutable``, where messages go whose work queue was gone when they were to come back, of all
        that share the namespace; None for strategy native, which has none."""
        return c.Topology_unroutable_queue(self._handle) or None

    @property
    def worst_lateness(self) -> float:
        """Strategy message-ttl: how late a message can come back at worst, in seconds, because one with a longer delay
        is before it. Other strategies: 0."""
        return seconds(c.Topology_worst_lateness_ms(self._handle))

    @property
    def rungs(self) -> tuple[float, ...]:
        """The ladder's rungs that the policy uses, in seconds, ascending."""
        handle = self._handle
        return tuple(seconds(c.Topology_rung_ms(handle, i)) for i in range(c.Topology_rung_count(handle)))

    def row(self, attempt: int) -> PreviewRow:
        """The preview of the attempt-th failure."""
        handle, policy = self._handle, self.policy._handle
        return PreviewRow(
            attempt,
            seconds(c.Topology_lowest_ms(handle, policy, attempt)),
            seconds(c.Topology_mean_ms(handle, policy, attempt)),
            seconds(c.Topology_highest_ms(handle, policy, attempt)),
            seconds(c.Topology_total_ms(handle, policy, attempt)),
            c.Topology_spread(handle, policy, attempt),
        )

    def preview(self, failures: int | None = None) -> Preview:
        """The lowest, mean and highest delay after each failure, and their running total, in seconds, as its wait
        queues make them of its policy.

        :param failures: how many; default: all that are retried, at most 20
        """
        return Preview(map(self.row, self.policy._failures(failures)))

    def shares(self, attempt: int) -> dict[float, float]:
        """What share of the messages waits on which of the ladder's rungs (in seconds) after the attempt-th failure."""
        handle, policy = self._handle, self.policy._handle
        shares = {rung: c.Topology_share(handle, policy, attempt, i) for i, rung in enumerate(self.rungs)}
        return {rung: share for rung, share in shares.items() if share}

    def check_broker(self, product: Text, version: Text) -> None:
        """Refuses a broker that cannot serve the strategy, by ``product`` and ``version`` of its server properties.

        :raises BrokerError: the text names a strategy that it can serve
        """
        self._check(c.Topology_check_broker(self._handle, product, version))

    def definitions(self, vhost: Text = "/") -> str:
        """All of it as RabbitMQ definitions (JSON), for an administrator: ``rabbitmqctl import_definitions``."""
        self._check(c.bh_topology_export(self._handle, vhost))
        return c.Topology_definitions(self._handle)

    def __repr__(self) -> str:
        return f"<Topology {self.strategy} for {self.queue!r}: {len(self.declarations)} declarations>"

    def __reduce__(self) -> Any:
        raise TypeError("a Topology cannot be pickled: pickle its queue and its policy, and make it again")


TOPOLOGY_DEFAULTS: Mapping[str, Any] = {
    "strategy": "ladder",
    "queue_type": "quorum",
    "namespace": None,
    "series": 10,
    "stripes": 1,
    "work_queue": None,
    "work_queue_arguments": None,
}


def chosen(
    queue: Text | None, policy: Policy | None, topology: Topology | None, policies: Iterable[Policy], **options: Any
) -> Topology:
    """The topology that was given, or the one of a queue, its policies and the options of TOPOLOGY_DEFAULTS."""
    if topology is None:
        if queue is None:
            raise ArgumentTypeError("queue is missing: give the work queue and its policy, or a topology")
        return Topology(queue, policy, policies=policies, **options)
    instance("topology", topology, Topology, "give a backhop.Topology")
    more = [name for name, value in options.items() if value != TOPOLOGY_DEFAULTS[name]]
    more += [name for name, value in (("queue", queue), ("policy", policy)) if value is not None]
    if more:
        raise ArgumentTypeError(f"{more[0]} is given, and a topology, which has its own: give one of the two")
    return topology
