"""Policy: the delays of retries and their limits."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from . import _backhop as c
from ._checks import LONGEST_MS, fraction, real, span_ms, whole
from ._core import made, names, number, numbers
from ._errors import ArgumentError, ArgumentTypeError, PolicyError, error, in_seconds
from ._times import Seconds, milliseconds, seconds
from .preview import Preview, PreviewRow, failures_shown, ladder_preview, policy_row

Kind: TypeAlias = Literal["exponential", "linear", "fixed", "steps"]
Jitter: TypeAlias = Literal["none", "spread", "equal", "full", "decorrelated"]

_KINDS: dict[Kind, int] = numbers("BH_KIND_")
_JITTERS: dict[Jitter, int] = numbers("BH_JITTER_")
_KIND_NAMES: dict[int, Kind] = names("BH_KIND_")
_JITTER_NAMES: dict[int, Jitter] = names("BH_JITTER_")
_DEFAULTS = c.bh_policy_defaults()
_SPREAD = 0.2  # the core's default too
_MOST_ATTEMPTS = 1_000_000_000


class Policy:
    """The rules for delays and limits of retries. A policy never changes.

    Times are seconds: int, float or timedelta, from 1 ms to three years.

    :param initial: delay after the first failure; default 1 s. Not allowed with ``steps``.
    :param factor: kind exponential only: multiplies each delay, 1 or more; default 2.
    :param max: upper limit of a delay, jitter included; default 5 min, with ``steps`` none.
    :param jitter: a ratio from 0 to 1, or a kind. 0.2 (the default) spreads each delay by 20 % to
        either side. The kinds are ``"none"``, ``"equal"`` (the upper half), ``"full"`` (from 0 to
        the delay) and ``"decorrelated"``.
    :param max_attempts: number of attempts in all, including the first; 0: no limit; default 10,
        with ``steps`` one more than steps.
    :param kind: ``"exponential"`` (the default): initial * factor^(n-1); ``"linear"``: initial * n;
        ``"fixed"``: initial; ``"steps"``: the steps.
    :param steps: the delays, in order, one at least; they imply the kind ``"steps"``.
    :param max_age: time since the first failure. A retry that would start later is parked. 0 (the
        default): no limit.
    :param max_retry_after: upper limit of the delay in a handler's RetryAfter; 0: ignores that
        delay; default 24 h.
    :param max_crashes: number of lost consumers, as quorum queues count them, from which on a
        message waits before its next attempt. Each further loss makes it wait longer. After 16 such
        waits it is parked. 0: no limit; default 5.
    :param max_deferrals: number of times that a message can be deferred by Throttled. Each later
        Throttled is a failed attempt. 0: no limit; default 100.
    :raises ArgumentError: if ``steps`` is empty, or an option has another type.
    :raises PolicyError: if a field is out of its range, or two fields contradict each other.

    >>> Policy(initial=10, factor=3, max=3600, jitter=0.2, max_attempts=8).preview()
    failure       lowest         mean      highest        total  rungs
          1          8 s         10 s       12.5 s         10 s      3
          2         20 s         30 s         40 s         40 s      4
          3    1 min 3 s   1 min 30 s    2 min 5 s   2 min 10 s      4
          4   3 min 20 s   4 min 30 s   6 min 40 s   6 min 40 s      4
          5  10 min 30 s  13 min 30 s  16 min 40 s  20 min 10 s      3
          6  26 min 40 s  40 min 30 s  52 min 30 s     1 h 40 s      4
          7  33 min 20 s  48 min 36 s  52 min 30 s   1 h 49 min      3
    """

    __slots__ = ("_factor", "_handle", "_initial", "_spread", "_steps")

    def __init__(
        self,
        initial: Seconds | None = None,
        factor: float | None = None,
        max: Seconds | None = None,  # noqa: A002
        jitter: float | Jitter = _SPREAD,
        max_attempts: int | None = None,
        *,
        kind: Kind | None = None,
        steps: Iterable[Seconds] | None = None,
        max_age: Seconds = 0,
        max_retry_after: Seconds = 86400,
        max_crashes: int = 5,
        max_deferrals: int = 100,
    ) -> None:
        steps = _delays(steps)
        kind = ("steps" if steps else "exponential") if kind is None else kind
        handle = self._handle = made(c.bh_policy_new())
        _, initial_ms, self._factor, max_ms, jitter_kind, self._spread, attempts = _DEFAULTS
        if initial is not None:
            initial_ms = _delay_ms("initial", initial)
        if factor is not None:
            self._factor = real("factor", factor, "give a number, 1 or more")
        if max is not None:
            max_ms = _delay_ms("max", max)
        self._initial = seconds(initial_ms)
        self._steps = tuple(_delay_ms(f"step {i}", step) for i, step in enumerate(steps, 1))
        if isinstance(jitter, str):
            jitter_kind = number(_JITTERS, jitter, "jitter")
        else:
            advice = f"give a ratio from 0 to 1, or one of {', '.join(_JITTERS)}"
            self._spread = real("jitter", jitter, advice)
        if max_attempts is not None:
            attempts = _count("max_attempts", max_attempts)
        self._check(
            c.Policy_set(
                handle,
                number(_KINDS, kind, "kind"),
                initial is not None,
                initial_ms,
                factor is not None,
                self._factor,
                max_ms,
                array("q", self._steps).tobytes(),
                jitter_kind,
                self._spread,
                attempts,
                _limit_ms("max_age", max_age),
                _limit_ms("max_retry_after", max_retry_after),
                _count("max_crashes", max_crashes),
                _count("max_deferrals", max_deferrals),
            )
        )
        self._check(c.Policy_check(handle))
        if kind != "exponential":
            self._factor = 1.0

    def _check(self, status: int) -> None:
        if status:
            raise error(status, in_seconds(c.Policy_error(self._handle)))

    @property
    def kind(self) -> Kind:
        """The kind: exponential, linear, fixed or steps."""
        return _KIND_NAMES[c.Policy_read(self._handle)[0]]

    @property
    def initial(self) -> float:
        """The delay after the first failure before jitter, in seconds."""
        return seconds(self._steps[0]) if self._steps else self._initial

    @property
    def factor(self) -> float:
        """The factor of each delay; 1 for all kinds except exponential."""
        return self._factor

    @property
    def steps(self) -> tuple[float, ...]:
        """The delays of the kind steps, in seconds; empty for other kinds."""
        return tuple(map(seconds, self._steps))

    @property
    def jitter(self) -> Jitter:
        """The kind of jitter: none, spread, equal, full or decorrelated."""
        return _JITTER_NAMES[c.Policy_read(self._handle)[4]]

    @property
    def spread(self) -> float:
        """The ratio of the jitter spread, for example 0.2 for 20 % to either side.

        0 for other kinds.
        """
        return self._spread if self.jitter == "spread" else 0.0

    @property
    def max_attempts(self) -> int:
        """The number of attempts in all, including the first; 0: no limit."""
        return c.Policy_limits(self._handle)[0]

    @property
    def max(self) -> float:
        """The upper limit of a delay, in seconds."""
        return seconds(c.Policy_limits(self._handle)[1])

    @property
    def max_age(self) -> float:
        """The longest time from the first failure to a retry, in seconds; 0: no limit."""
        return seconds(c.Policy_limits(self._handle)[2])

    @property
    def max_retry_after(self) -> float:
        """The upper limit of the delay in a handler's RetryAfter, in seconds."""
        return seconds(c.Policy_limits(self._handle)[3])

    @property
    def max_crashes(self) -> int:
        """The number of lost consumers from which on a message waits before its next attempt.

        0: no limit.
        """
        return c.Policy_limits(self._handle)[4]

    @property
    def max_deferrals(self) -> int:
        """The number of times that a message can be deferred by Throttled; 0: no limit."""
        return c.Policy_limits(self._handle)[5]

    def delay(self, attempt: int, *, previous: Seconds = 0, random: float = 0.5) -> float:
        """Returns the delay after a failure, in seconds.

        :param attempt: number of the failed attempt: 1, 2 and so on.
        :param previous: the previous delay, for jitter decorrelated.
        :param random: a random number, from 0 to below 1.
        :raises ArgumentError: if ``attempt`` is below 1, ``random`` is out of its range, or an
            argument has another type.
        """
        count = whole("attempt", attempt, 1)
        u = fraction("random", random)
        return seconds(
            c.Policy_delay_ms(self._handle, count, milliseconds(previous, "previous"), u)
        )

    def row(self, attempt: int) -> PreviewRow:
        """Returns the delay after a failure by the formula alone, without rungs.

        :param attempt: number of the failed attempt: 1, 2 and so on.
        :raises ArgumentError: if ``attempt`` is no whole number, or below 1.
        """
        return policy_row(self._handle, whole("attempt", attempt, 1))

    def preview(self, failures: int | None = None) -> Preview:
        """Returns the delays after each failure, in seconds, as the ladder's rungs make them.

        If the ladder cannot serve the policy, the formula alone counts. For another strategy or
        series use Topology.preview.

        :param failures: number of rows, 10,000 at most; default: all failures that are retried, 20
            at most.
        """
        return ladder_preview(self._handle, self._failures(failures))

    def _failures(self, count: int | None) -> Iterable[int]:
        """Returns the numbers of the failures that a preview shows."""
        return failures_shown(count, self.max_attempts)

    def _given(self) -> dict[str, Any]:
        """Returns the arguments that make an equal policy."""
        kind: dict[Kind, dict[str, Any]] = {
            "exponential": {"initial": self.initial, "factor": self.factor},
            "steps": {"steps": self.steps},
        }
        return {
            "kind": self.kind,
            **kind.get(self.kind, {"initial": self.initial}),
            "max": self.max,
            "jitter": self.spread or self.jitter,
            "max_attempts": self.max_attempts,
            "max_age": self.max_age,
            "max_retry_after": self.max_retry_after,
            "max_crashes": self.max_crashes,
            "max_deferrals": self.max_deferrals,
        }

    def __eq__(self, other: object) -> bool:
        return self._given() == other._given() if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._given().values()))

    def __repr__(self) -> str:
        values = (f"{name}={_shown(value)}" for name, value in self._given().items())
        return f"Policy({', '.join(values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self._given(),)


def _shown(value: object) -> str:
    """Returns a value for repr: a float without ``.0``, if no digit is lost."""
    if type(value) is float and float(f"{value:g}") == value:
        return f"{value:g}"
    return repr(value)


def _remake(fields: dict[str, Any]) -> Policy:
    return Policy(**fields)


def _delays(steps: Iterable[Seconds] | None) -> tuple[Seconds, ...]:
    if steps is None:
        return ()
    if isinstance(steps, str | bytes | Mapping) or not isinstance(steps, Iterable):
        raise ArgumentTypeError(f"steps is {steps!r}: give a list of delays in seconds")
    delays = tuple(steps)
    if not delays:
        raise ArgumentError("steps is []: give one delay at least, or another kind")
    return delays


def _delay_ms(name: str, value: Seconds) -> int:
    return span_ms(name, value, 1, LONGEST_MS, refused=PolicyError)


def _limit_ms(name: str, value: Seconds) -> int:
    return span_ms(name, value, 0, LONGEST_MS, refused=PolicyError)


def _count(name: str, value: object) -> int:
    return whole(name, value, 0, _MOST_ATTEMPTS, refused=PolicyError)
