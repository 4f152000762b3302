"""BaseRetrier: options, decisions and events of the retriers over each client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, TypeVar

from .. import _backhop as c
from .._amqp import Text
from .._checks import HOUR_MS, instance, span_ms
from .._core import made
from .._errors import (
    ArgumentTypeError,
)
from .._times import Seconds, seconds
from ..breaker import Breaker, checked_breaker
from ..decider import Decider
from ..message import Message
from ..observe.events import Events, Listeners
from ..outcomes import Conditions, Policies, checked_policies
from ..policy import Policy
from ..topology import Mode, QueueType, Strategy, Topology, chosen
from .session import Session

Channel = TypeVar("Channel")
SessionT = TypeVar("SessionT", bound=Session)


class BaseRetrier(Generic[Channel, SessionT]):
    """The base of the retriers, with their options and common methods."""

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
        """Makes a retrier of a channel.

        :param channel: your channel. The retrier declares and consumes on its connection.
        :param queue: the work queue, at most 247 bytes.
        :param policy: the delays of retries and their limits; default: Policy().
        :param topology: replaces queue, policy, and the options from strategy to
            work_queue_arguments.
        :param strategy: as Topology's: ``"ladder"``, ``"message-ttl"``, ``"reject"``,
            ``"delayed-exchange"`` or ``"native"``.
        :param queue_type: as Topology's; likewise namespace, series, stripes, work_queue and
            work_queue_arguments.
        :param mode: what ``declare`` does: ``"create"`` declares missing things, ``"verify"``
            checks that all exist, ``"none"`` does nothing. A rung that only a handler's RetryAfter
            can need is made on demand under ``"create"`` alone.
        :param never: exceptions that park a message at once: a class, a predicate, or a list of
            these. A predicate gets the exception and returns True, False, or seconds: the shortest
            delay of a retry.
        :param only: the exceptions that are retried, likewise; all others park at once. Default:
            all are retried.
        :param policies: other policies for the retries of some exceptions, for example
            ``{RateLimited: slow}``. The first matching class or predicate counts. All policies
            share the count of attempts. A topology that you give needs them in its ``policies``.
        :param legacy_counter: as History's; likewise wait_queues.
        :param confirm_timeout: seconds for the broker's confirm, 1 ms to an hour. Then one copy is
            published again, and the others after the broker confirms one.
        :param back_off: delays before a copy is published again, without limits; default: 100 ms,
            doubled up to 10 s, jitter equal.
        :param breaker: stops ``consume`` and ``wrap`` while a downstream is down. Under ``wrap``
            the consumer is yours: it stays subscribed, and its messages wait in this process.
        :param on_event: called with each Event, in the connection's thread or in the event loop. Or
            a bridge of backhop.prometheus or backhop.opentelemetry. Or a list of these.
        :param clock: returns seconds since the epoch.
        :param random: returns a given number of random bytes.
        :raises ArgumentError: if an option is wrong.
        :raises InvalidNameError: if a name of a queue cannot be used.
        :raises StrategyError: if the strategy cannot serve the policies, or the breaker has a key
            and the strategy cannot defer a message.
        """
        topology = chosen(
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
        decider = Decider(
            topology,
            never=never,
            only=only,
            policies=policies,
            legacy_counter=legacy_counter,
            wait_queues=wait_queues,
            clock=clock,
            random=random,
        )
        timeout = seconds(span_ms("confirm_timeout", confirm_timeout, 1, HOUR_MS))
        if back_off is None:
            delays = made(c.bh_back_off_new())
        else:
            delays = instance("back_off", back_off, Policy, "give a backhop.Policy")._handle
        breaker = checked_breaker(breaker, topology)
        events = Events(topology.queue, on_event, clock)
        self._session = self._begin(
            channel, topology, mode, decider, events, breaker, delays, timeout
        )
        events.attach(self)

    def _begin(self, channel: Channel, *parts: Any) -> SessionT:
        """Returns the client's session."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """The number of copies that are not confirmed yet. Their originals are unacknowledged."""
        raise NotImplementedError

    @property
    def topology(self) -> Topology:
        """The exchanges, queues and bindings that the strategy needs.

        ``topology.definitions()`` has them as JSON.
        """
        return self._session.topology

    @property
    def policy(self) -> Policy:
        """The policy of its topology."""
        return self._session.topology.policy

    def handling(self, message: Message) -> AbstractContextManager[object]:
        """Returns a context for the handler of a message of ``read``. Use it in any thread.

            with retrier.handling(message):
                purge(message.body)

        The context enters the bridges' contexts, for example the span of backhop.opentelemetry's
        Tracing. It measures the handler's duration for events. An exception passes through it: give
        it to ``settle``.

        :raises ArgumentTypeError: if it is no message of ``read``.
        """
        return self._session.events.handling(
            instance("message", message, Message, "give a message of read"), is_timed=True
        )

    @property
    def _readiness_of_consumers(self) -> list[bool]:
        """One value for each of its own consumers: True if it is ready. For any thread."""
        return [each.state == "ready" for each in list(self._session.consumers)]


def check_error(error: object) -> None:
    """Raises if the error given to settle is no exception."""
    if error is not None and not isinstance(error, BaseException):
        raise ArgumentTypeError(
            f"error is {error!r}: give the exception that the handler raised, or None"
        )
