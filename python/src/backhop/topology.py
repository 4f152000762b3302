"""Topology: the exchanges, queues and bindings that a strategy needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._amqp import Text
from ._checks import instance, queue_name, short_text, text, whole
from ._core import made, names, number, numbers
from ._errors import ArgumentError, ArgumentTypeError, check, error, in_seconds
from ._times import seconds
from .policy import Policy
from .preview import Preview, PreviewRow, topology_row

Strategy: TypeAlias = Literal["ladder", "message-ttl", "reject", "delayed-exchange", "native"]
QueueType: TypeAlias = Literal["quorum", "classic"]
Mode: TypeAlias = Literal["create", "verify", "none"]
"""Declares missing things, checks that all exist, or does nothing."""

MODES: dict[Mode, int] = numbers("BH_MODE_")

_STRATEGIES: dict[Strategy, int] = numbers("BH_STRATEGY_")
_SERIES = (5, 10, 20, 40)
_LONGEST_QUEUE = 247  # bytes: "backhop:" and the name are one routing key
_LONGEST_NAMESPACE = 200
_STRATEGY_NAMES: dict[int, Strategy] = names("BH_STRATEGY_")
_QUEUE_TYPES: dict[QueueType, int] = numbers("BH_QUEUE_")
WHATS: dict[int, Literal["exchange", "queue", "binding"]] = names("BH_DECLARE_", "NONE")


@dataclass(frozen=True, slots=True)
class Declaration:
    """An exchange, queue or binding to declare: durable, not exclusive or auto-deleted."""

    what: Literal["exchange", "queue", "binding"]
    name: str
    """The name; of a binding: its destination."""
    type: str
    """Exchange: fanout, direct, x-delayed-message.

    Queue: quorum, classic. Binding: queue or exchange.
    """
    source: str = ""
    """Binding: its source exchange."""
    routing_key: str = ""
    arguments: dict[str, str | int] = field(default_factory=dict)
    wait: float = 0
    """The rung that it belongs to, in seconds; 0 for none."""
    on_demand: bool = False
    """True if only a handler's RetryAfter can need its rung.

    Declaring leaves it out until a plan needs it.
    """


def declaration(fields: tuple[Any, ...]) -> Declaration:
    """Converts a declaration of the core."""
    kind, name, type_, source, routing_key, rung_ms, on_demand, _, _, arguments = fields
    return Declaration(
        what=WHATS[kind],
        name=name,
        type=type_,
        source=source,
        routing_key=routing_key,
        arguments={
            key: number if tag == c.BH_TYPE_INT64 else text for key, tag, text, number in arguments
        },
        wait=seconds(rung_ms),
        on_demand=bool(on_demand),
    )


class _View(NamedTuple):
    """The core's view of a built topology."""

    queue: str
    parked_queue: str
    unroutable_queue: str
    worst_lateness_ms: int
    rungs_ms: Sequence[int]
    declaration_count: int
    defers: int
    strategy: int


class Topology:
    """The exchanges, queues and bindings that a strategy needs, as data. A topology never changes.

    :param queue: the work queue, at most 247 bytes.
    :param policy: the policy to serve; default: Policy().
    :param strategy: how a message waits: ``"ladder"``, ``"message-ttl"``, ``"reject"``,
        ``"delayed-exchange"`` or ``"native"``.
    :param queue_type: type of the wait, parked and unroutable queues: ``"quorum"`` or
        ``"classic"``.
    :param namespace: first part of the shared names, at most 200 bytes; default ``backhop``, with
        classic queues ``backhop.classic``.
    :param series: rungs per decade of the ladder: 5, 10, 20 or 40.
    :param stripes: wait queues for each rung of the ladder, 1 to 64, which share its load. If you
        raise it later, nothing is declared again.
    :param work_queue: ``"quorum"`` or ``"classic"``: declares the work queue too; default: it
        exists already. The strategies reject and native always declare it, because they need its
        arguments.
    :param work_queue_arguments: further arguments of the work queue, besides the strategy's.
    :param policies: further policies to serve.
    :raises StrategyError: if the strategy cannot serve a policy; the text names a strategy that
        can.
    :raises InvalidNameError: if a name is empty, too long, not UTF-8, or begins with ``amq.``.
    :raises ArgumentError: if another option is out of its range.
    """

    __slots__ = ("_handle", "_view", "declarations", "policy")

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
        prefix = "" if namespace is None else queue_name("namespace", namespace, _LONGEST_NAMESPACE)
        if whole("series", series) not in _SERIES:
            raise ArgumentError(f"series is {series!r}: give one of {', '.join(map(str, _SERIES))}")
        self._check(
            c.Topology_set(
                handle,
                number(_STRATEGIES, strategy, "strategy"),
                number(_QUEUE_TYPES, queue_type, "queue_type"),
                int(namespace is not None),
                prefix,
                series,
                whole("stripes", stripes, 1, 64),
                int(work_queue is not None),
                number(_QUEUE_TYPES, "quorum" if work_queue is None else work_queue, "work_queue"),
            )
        )
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
                raise ArgumentTypeError(
                    f"work_queue_arguments[{name!r}] is {value!r}: give a str or an int"
                )
        if isinstance(policies, Policy | str | bytes | Mapping) or not isinstance(
            policies, Iterable
        ):
            raise ArgumentTypeError(f"policies is {policies!r}: give a list of backhop.Policy")
        for further in policies:
            instance("one of policies", further, Policy, "give a backhop.Policy")
            self._check(c.Topology_add_policy(handle, further._handle))
        self._check(c.Topology_build(handle, self.policy._handle))
        self._view = _View(*c.Topology_read(handle))
        self.declarations = tuple(
            declaration(c.Topology_declaration(handle, i))
            for i in range(self._view.declaration_count)
        )

    def _check(self, status: int) -> None:
        if status:
            raise error(status, in_seconds(c.Topology_error(self._handle)))

    @property
    def queue(self) -> str:
        """The work queue."""
        return self._view.queue

    @property
    def strategy(self) -> Strategy:
        """The strategy: how a message waits."""
        return _STRATEGY_NAMES[self._view.strategy]

    @property
    def parked_queue(self) -> str:
        """``<queue>.parked``: the queue of messages that are out of attempts."""
        return self._view.parked_queue

    @property
    def unroutable_queue(self) -> str | None:
        """``<namespace>.unroutable``: the queue of messages whose work queue was missing at their
        return.

        All work queues of the namespace share it. None for strategy native, which has none.
        """
        return self._view.unroutable_queue or None

    @property
    def worst_lateness(self) -> float:
        """The largest lateness of a message, in seconds, for strategy message-ttl; 0 for other
        strategies.

        A message with a longer delay may block those behind it.
        """
        return seconds(self._view.worst_lateness_ms)

    @property
    def rungs(self) -> tuple[float, ...]:
        """The ladder's rungs that the policy uses, in seconds, ascending."""
        return tuple(map(seconds, self._view.rungs_ms))

    def row(self, attempt: int) -> PreviewRow:
        """Returns the delay after a failure as the wait queues make it.

        :param attempt: number of the failed attempt: 1, 2 and so on.
        :raises ArgumentError: if ``attempt`` is no whole number, or below 1.
        """
        return topology_row(self._handle, self.policy._handle, whole("attempt", attempt, 1))

    def preview(self, failures: int | None = None) -> Preview:
        """Returns the delays after each failure, in seconds, as the wait queues make them.

        :param failures: number of rows, 10,000 at most; default: all failures that are retried, 20
            at most.
        """
        return Preview(map(self.row, self.policy._failures(failures)))

    def shares(self, attempt: int) -> dict[float, float]:
        """Returns the share of messages on each of the ladder's rungs (in seconds) after a failure.

        :param attempt: number of the failed attempt: 1, 2 and so on.
        :raises ArgumentError: if ``attempt`` is no whole number, or below 1.
        """
        attempt = whole("attempt", attempt, 1)
        handle, policy = self._handle, self.policy._handle
        shares = {
            rung: c.Topology_share(handle, policy, attempt, i) for i, rung in enumerate(self.rungs)
        }
        return {rung: share for rung, share in shares.items() if share}

    def check_broker(self, product: Text, version: Text) -> None:
        """Checks that a broker can serve the strategy.

        :param product: ``product`` of its server properties.
        :param version: ``version`` of its server properties.
        :raises BrokerError: if it cannot; the text names a strategy that it can serve.
        :raises ArgumentTypeError: if an argument is neither str nor bytes.
        """
        text("product", product, "the broker's product")
        text("version", version, "the broker's version")
        self._check(c.Topology_check_broker(self._handle, product, version))

    def definitions(self, vhost: Text = "/") -> str:
        """Returns RabbitMQ definitions (JSON) for ``rabbitmqctl import_definitions``.

        :raises ArgumentTypeError: if ``vhost`` is neither str nor bytes.
        """
        text("vhost", vhost, "a vhost's name")
        self._check(c.bh_topology_export(self._handle, vhost))
        return c.Topology_definitions(self._handle)

    def __repr__(self) -> str:
        return (
            f"<Topology {self.strategy} for {self.queue!r}: {len(self.declarations)} declarations>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Topology cannot be pickled: pickle its queue and its policy, and make it again"
        )


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
    queue: Text | None,
    policy: Policy | None,
    topology: Topology | None,
    policies: Iterable[Policy],
    **options: Any,
) -> Topology:
    """Returns the given topology, or a new one by the options in TOPOLOGY_DEFAULTS."""
    if topology is None:
        if queue is None:
            raise ArgumentTypeError(
                "queue is missing: give the work queue and its policy, or a topology"
            )
        return Topology(queue, policy, policies=policies, **options)
    instance("topology", topology, Topology, "give a backhop.Topology")
    more = [name for name, value in options.items() if value != TOPOLOGY_DEFAULTS[name]]
    more += [name for name, value in (("queue", queue), ("policy", policy)) if value is not None]
    if more:
        raise ArgumentTypeError(
            f"{more[0]} is given, and a topology, which has its own: give one of the two"
        )
    return topology
