"""Breaker: spares a downstream that is down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from . import _backhop as c
from ._amqp import Text, encoded
from ._checks import LONGEST_MS, function, instance, shortened, span_ms, truth, whole
from ._core import made, names
from ._errors import (
    ArgumentError,
    ArgumentTypeError,
    StateError,
    StrategyError,
    check,
    in_seconds,
)
from ._handlers import is_async
from ._times import Seconds, milliseconds
from .message import Message
from .outcomes import Conditions, class_of, conditions, matches
from .plan import OUTCOMES, Result
from .policy import Policy
from .topology import Topology

BreakerState: TypeAlias = Literal["closed", "open", "half-open", "disabled"]
"""The state of a Breaker."""

_STATES: dict[int, BreakerState] = names("BH_BREAKER_")
_NEVER = -1
_DAY_MS = 86_400_000
_RANDOM_BYTES = 8
_MOST = 1_000_000_000


class Breaker:
    """A circuit breaker: it stops calls of handlers while their downstream is down.

    Give it to retriers and workers as ``breaker``. All that call the same downstream can share one.

        breaker = backhop.Breaker("cdn-api", errors=[ConnectionError, TimeoutError])
        worker = backhop.Worker("amqp://localhost", "cdn-purge", breaker=breaker)

    It opens if enough calls failed. Then messages wait without an attempt, and no handler gets one.
    After a pause it is half-open: one message at a time probes. Enough successes close it.

    With ``key`` there is one breaker for each key, for at most 10,000 keys. A message whose key is
    open waits without an attempt, and the messages of other keys flow.

    Times are seconds, as a Policy's. All methods are for any thread.

    :param name: for events, metrics and logs, 1 to 64 bytes.
    :param errors: exceptions that are the downstream's fault: a class, a predicate, or a list of
        these. If RetryAfter or Throttled carries an exception, that one counts. Default: all
        failures that can be retried.
    :param key: a function that gets the Message and returns its key, a str or bytes.
    :param window: a call counts for this time, up to a day.
    :param least_calls: number of calls in the window before a share counts.
    :param failure_percent: share of failures that opens it, 1 to 100.
    :param row_failures: number of failures in a row that opens it; 0: off.
    :param slow: calls that take longer are slow; None: off.
    :param slow_percent: share of slow calls that opens it, 1 to 100.
    :param probe_successes: number of successes in a row that closes it, 1 to 1,000.
    :param probe_timeout: a call that takes longer is lost, and counts as a failed probe.
    :param ramp_calls: number of calls at once that ends the ramp after the probes, 1 to 65,536.
    :param throttled_opens: whether each Throttled opens it, as with ``whole_queue``.
    :param pauses: the lengths of the pauses. Only its delays and max_retry_after count. Default: 10
        s, doubled up to 5 min, jitter 0.2.
    :raises ArgumentError: if an option is out of its range.
    :raises ArgumentTypeError: if an option has another type.
    """

    __slots__ = ("_errors", "_handle", "_key", "_name")

    def __init__(
        self,
        name: Text,
        *,
        errors: Conditions | None = None,
        key: Callable[[Message], Text] | None = None,
        window: Seconds = 60,
        least_calls: int = 20,
        failure_percent: int = 50,
        row_failures: int = 10,
        slow: Seconds | None = None,
        slow_percent: int = 100,
        probe_successes: int = 3,
        probe_timeout: Seconds = 60,
        ramp_calls: int = 1024,
        throttled_opens: bool = False,
        pauses: Policy | None = None,
    ) -> None:
        if not isinstance(name, str | bytes):
            raise ArgumentTypeError(f"name is {shortened(name)}: give a name, as str or bytes")
        if not name:
            raise ArgumentError(
                f"the name of a Breaker is {name!r}: give a name of 1 to 64 bytes, as the "
                "downstream's"
            )
        self._name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        self._errors = None if errors is None else conditions("errors", errors)
        self._key = _checked_key(key)
        settings = (
            name if isinstance(name, bytes) else encoded(name),
            span_ms("window", window, 6, _DAY_MS),
            whole("least_calls", least_calls, 1, _MOST),
            whole("failure_percent", failure_percent, 1, 100),
            whole("row_failures", row_failures, 0, _MOST),
            0 if slow is None else span_ms("slow", slow, 1, _DAY_MS),
            whole("slow_percent", slow_percent, 1, 100),
            whole("probe_successes", probe_successes, 1, 1000),
            span_ms("probe_timeout", probe_timeout, 1, _DAY_MS),
            whole("ramp_calls", ramp_calls, 1, 65536),
            int(truth("throttled_opens", throttled_opens)),
        )
        if text := c.bh_breaker_settings_error(*settings):
            raise ArgumentError(in_seconds(text))
        if pauses is not None:
            instance("pauses", pauses, Policy, "give a backhop.Policy")
        more = (None if pauses is None else pauses._handle, os.urandom(_RANDOM_BYTES))
        self._handle = made(c.bh_breaker_new(*settings, int(self._has_keys), *more))

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def state(self) -> BreakerState:
        """Its state: closed, open, half-open or disabled. A new permit can change it.

        :raises StateError: if it has keys: use ``state_of``.
        """
        return _STATES[self._read(None)[0]]

    @property
    def reason(self) -> str:
        """Why it is in its state, for example ``"10 in a row failed: TimeoutError"``.

        :raises StateError: if it has keys: use ``reason_of``.
        """
        return in_seconds(self._read(None)[-1])

    def state_of(self, key: Text) -> BreakerState:
        """Returns the state of a key.

        :raises StateError: if it has no keys: use ``state``.
        """
        return _STATES[self._read(_checked("key", key))[0]]

    def reason_of(self, key: Text) -> str:
        """Returns why a key is in its state.

        :raises StateError: if it has no keys: use ``reason``.
        """
        return in_seconds(self._read(_checked("key", key))[-1])

    def open(self, duration: Seconds | None = None, key: Text | None = None) -> None:
        """Opens it by hand. Later calls of handlers do not shorten this.

        :param duration: seconds; then probes follow. Default: until ``close``.
        :param key: the key to open, of a breaker with keys.
        :raises ArgumentError: if ``duration`` is out of its range.
        :raises StateError: if the key is missing, or the breaker has no keys.
        """
        now = now_ms()
        until = _NEVER
        if duration is not None:
            until = now + span_ms("duration", duration, 1, LONGEST_MS)
        check(c.Breaker_open(self._handle, self._named(key), until, now))

    def close(self, key: Text | None = None) -> None:
        """Closes it by hand.

        :param key: the key to close, of a breaker with keys.
        :raises StateError: if the key is missing, or the breaker has no keys.
        """
        c.Breaker_close(self._handle, self._named(key), now_ms())

    def disable(self) -> None:
        """Lets all messages through until ``open`` or ``close``, and counts nothing.

        :raises StateError: if it has keys: a key cannot be disabled.
        """
        check(c.Breaker_disable(self._handle, self._named(None), now_ms()))

    # For retriers and workers

    @property
    def _has_keys(self) -> bool:
        """Returns whether each key has a state."""
        return self._key is not None

    def _named(self, key: Text | None) -> Text:
        """Returns a key as the core takes it: "" for a breaker without keys."""
        if key is None:
            if self._has_keys:
                raise StateError(
                    f"breaker {self._name} has keys: give a key to open, close, state_of or "
                    "reason_of"
                )
            return ""
        checked = _checked("key", key)
        if not self._has_keys:
            raise StateError(f"breaker {self._name} has no keys: leave out the key")
        return checked

    def _read(self, key: Text | None) -> c.BreakerView:
        return c.Breaker_read(self._handle, self._named(key), now_ms())

    def _check_topology(self, topology: Topology) -> None:
        """Checks that messages of a topology can use this breaker.

        :raises StrategyError: if it has keys, and the strategy cannot defer a message.
        """
        if self._has_keys and not topology._view.defers:
            raise StrategyError(
                f"breaker {self._name} has a key, and with strategy {topology.strategy} no message "
                "can wait without an attempt: use another strategy, or a breaker without a key"
            )

    def _permit(self, message: Message, now: int | None = None) -> tuple[Call | None, int]:
        """Requests the permit to call the handler of a message.

        :param now: the time in ms; None: the clock of breakers.
        :returns: the permit, or None and the ms until it may be granted, -1 if unknown.
        :raises Exception: what the user's key function raised, or the error of its result.
        """
        at = now_ms() if now is None else now
        key: Text = ""
        if self._key is not None:
            key = _checked(f"the key of breaker {self._name}", self._key(message))
        generation, number, until = c.Breaker_permit(self._handle, key, at)
        if generation:
            return Call(self, key, generation, number), 0
        return None, _NEVER if until == _NEVER else max(0, until - at)

    def _state_at(self, message: Message, now: int) -> BreakerState | None:
        """Returns the state of a message's breaker; None if its key function fails."""
        try:
            key = "" if self._key is None else _checked("the key", self._key(message))
        except Exception:
            return None
        return _STATES[c.Breaker_read(self._handle, key, now)[0]]

    def _is_own_fault(self, exception: BaseException | None) -> bool:
        """Returns whether an exception of a handler is the message's own fault."""
        if self._errors is None or exception is None:
            return False
        return not matches("errors", self._errors, exception)

    def _record(self, call: Call, kind: int, duration_ms: int, result: Result, about: str) -> None:
        c.Breaker_record(
            self._handle,
            call.key,
            call.generation,
            call.number,
            kind,
            duration_ms,
            milliseconds(result.retry_after) if result.retry_after else 0,
            int(result.whole_queue),
            about,
            now_ms() if call.now_ms is None else call.now_ms,
        )

    def __repr__(self) -> str:
        state = " by key" if self._has_keys else f", {self.state}"
        return f"<Breaker {self._name!r}{state}>"


class Call:
    """The permit of one call of a handler."""

    __slots__ = ("_began", "_breaker", "_over", "generation", "key", "now_ms", "number")

    def __init__(self, breaker: Breaker, key: Text, generation: int, number: int) -> None:
        self._breaker = breaker
        self._began = time.monotonic()
        self._over = 0.0
        self.key = key
        self.generation = generation
        self.number = number
        self.now_ms: int | None = None
        """The time of the end, in ms; None: the clock of breakers."""

    def stop(self) -> None:
        """Notes that the handler ended, if its end is recorded later."""
        self._over = time.monotonic()

    def end(self, result: Result, exception: BaseException | None) -> None:
        """Records the end of the call."""
        is_downstreams = not self._breaker._is_own_fault(exception)
        kind = c.bh_call_kind_of(OUTCOMES[result.outcome], is_downstreams)
        took = (self._over or time.monotonic()) - self._began
        error_class = "" if exception is None else class_of(exception)
        self._breaker._record(self, kind, int(took * 1000), result, error_class)

    def ignore(self) -> None:
        """Records that the call counts as nothing."""
        self._breaker._record(self, c.BH_CALL_IGNORED, 0, Result(), "")


def now_ms() -> int:
    """Returns the time of the clock that all breakers and consumers of the process share, in ms."""
    return time.monotonic_ns() // 1_000_000


def checked_breaker(given: object, topology: Topology) -> Breaker | None:
    """Returns the option ``breaker`` of a user.

    :raises ArgumentTypeError: if it is no Breaker.
    :raises StrategyError: if messages of the topology cannot use it.
    """
    if given is None:
        return None
    breaker = instance("breaker", given, Breaker, "give a backhop.Breaker")
    breaker._check_topology(topology)
    return breaker


def _checked_key(key: object) -> Callable[[Message], Text] | None:
    if key is None:
        return None
    function("key", key)
    if is_async(key):
        raise ArgumentTypeError(
            "key is a coroutine function, and Backhop awaits none: give a plain one"
        )
    return key  # type: ignore[return-value]


def _checked(name: str, key: object) -> Text:
    if not isinstance(key, str | bytes):
        raise ArgumentTypeError(f"{name} is {shortened(key)}: give a str or bytes")
    return key if isinstance(key, bytes) else encoded(key)
