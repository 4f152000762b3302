"""Policy: how long, how often, how random, when to give up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._checks import LONGEST_MS, real, span_ms, whole
from ._core import made, number
from ._errors import ArgumentTypeError, PolicyError, StrategyError, error, in_seconds
from ._time import Seconds, duration, milliseconds, seconds

Kind: TypeAlias = Literal["exponential", "linear", "fixed", "steps"]
Jitter: TypeAlias = Literal["none", "spread", "equal", "full", "decorrelated"]

_KINDS: dict[Kind, int] = {
    "exponential": c.BH_KIND_EXPONENTIAL,
    "linear": c.BH_KIND_LINEAR,
    "fixed": c.BH_KIND_FIXED,
    "steps": c.BH_KIND_STEPS,
}
_JITTERS: dict[Jitter, int] = {
    "none": c.BH_JITTER_NONE,
    "spread": c.BH_JITTER_SPREAD,
    "equal": c.BH_JITTER_EQUAL,
    "full": c.BH_JITTER_FULL,
    "decorrelated": c.BH_JITTER_DECORRELATED,
}
_KIND_NAMES = {number: name for name, number in _KINDS.items()}
_JITTER_NAMES = {number: name for name, number in _JITTERS.items()}
_SPREAD = 0.2
_INITIAL = 1
_FACTOR = 2
_ROWS = 20
_MOST_ROWS = 10_000
_MOST_ATTEMPTS = 1_000_000_000


class PreviewRow(NamedTuple):
    """The delay after one failure, in seconds."""

    attempt: int
    lowest: float
    mean: float
    highest: float
    total: float
    """Sum of the means up to this attempt."""
    rungs: int = 0
    """Over how many of the ladder's wait queues messages that fail together are spread; 0 where there is no ladder."""


class Preview(tuple[PreviewRow, ...]):
    """What a topology will do by its policy: a tuple of PreviewRow that prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        cells: list[tuple[str, ...]] = [("failure", "lowest", "mean", "highest", "total", "rungs")]
        cells += [(str(row.attempt), *map(duration, row[1:5]), str(row.rungs or "-")) for row in self]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)

    __repr__ = __str__


class Policy:
    """How long to wait, how often to try, how random, when to give up. It never changes.

    Times are seconds: int, float or timedelta, from 1 ms to three years.

    :param initial: delay after the first failure; default 1 s
    :param factor: kind exponential only: what each delay is multiplied by, 1 or more; default 2
    :param max: no delay is above it, jitter included; default 5 min, with ``steps`` none
    :param jitter: 0.2 (the default) spreads each delay by 20 % to either side; or ``"none"``, ``"equal"`` (the upper
        half), ``"full"`` (anything below), ``"decorrelated"``
    :param max_attempts: how often a handler sees a message in all, the first time included; 0: no limit; default 10,
        with ``steps`` one more than steps
    :param kind: ``"exponential"`` (the default): initial * factor^(n-1); ``"linear"``: initial * n; ``"fixed"``:
        initial; ``"steps"``
    :param steps: the delays, in order; the kind is ``"steps"`` then
    :param max_age: from the first failure; a retry that would start later parks instead; 0 (the default): no limit
    :param max_retry_after: cap on what a handler may ask for with RetryAfter; 0: requests are ignored; default 24 h
    :param max_crashes: a message whose consumers were lost this often, as far as quorum queues count, waits before a
        handler sees it again, longer with each further loss, and is parked after 16 such waits; 0: no limit; default 5
    :raises PolicyError: for a field out of its range, or fields that contradict each other

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
        initial: Seconds = _INITIAL,
        factor: float = _FACTOR,
        max: Seconds | None = None,  # noqa: A002
        jitter: float | Jitter = _SPREAD,
        max_attempts: int | None = None,
        *,
        kind: Kind | None = None,
        steps: Iterable[Seconds] = (),
        max_age: Seconds = 0,
        max_retry_after: Seconds = 86400,
        max_crashes: int = 5,
    ) -> None:
        if isinstance(steps, str | bytes | Mapping) or not isinstance(steps, Iterable):
            raise ArgumentTypeError(f"steps is {steps!r}: give a list of delays in seconds")
        steps = tuple(steps)
        kind = ("steps" if steps else "exponential") if kind is None else kind
        handle = self._handle = made(c.bh_policy_new())
        self._check(c.Policy_set_kind(handle, number(_KINDS, kind, "kind")))
        self._check(c.Policy_set_initial_ms(handle, _delay_ms("initial", initial)))
        self._check(c.Policy_set_factor(handle, real("factor", factor, "give a number, 1 or more")))
        if max is not None:
            self._check(c.Policy_set_max_ms(handle, _delay_ms("max", max)))
        self._steps = tuple(_delay_ms(f"step {i}", step) for i, step in enumerate(steps, 1))
        for step_ms in self._steps:
            self._check(c.Policy_add_step_ms(handle, step_ms))
        if isinstance(jitter, str):
            self._spread = _SPREAD
            self._check(c.Policy_set_jitter(handle, number(_JITTERS, jitter, "jitter"), self._spread))
        else:
            advice = f"give a ratio from 0 to 1, or one of {', '.join(_JITTERS)}"
            self._spread = real("jitter", jitter, advice)
            self._check(c.Policy_set_jitter(handle, c.BH_JITTER_SPREAD, self._spread))
        if max_attempts is not None:
            self._check(c.Policy_set_max_attempts(handle, _count("max_attempts", max_attempts)))
        self._check(c.Policy_set_max_age_ms(handle, _limit_ms("max_age", max_age)))
        self._check(c.Policy_set_max_retry_after_ms(handle, _limit_ms("max_retry_after", max_retry_after)))
        self._check(c.Policy_set_max_crashes(handle, _count("max_crashes", max_crashes)))
        self._check(c.Policy_check(handle))
        self._initial = seconds(milliseconds(initial))
        self._factor = factor if kind == "exponential" else 1.0
        if kind == "steps" and milliseconds(initial) != 1000 * _INITIAL:
            raise PolicyError(f"initial is {initial!r}, and steps have none: give initial, or steps")
        if kind != "exponential" and factor != _FACTOR:
            raise PolicyError(f"factor is {factor!r}, and kind {kind} has none: leave it out, or take kind exponential")

    def _check(self, status: int) -> None:
        if status:
            raise error(status, in_seconds(c.Policy_error(self._handle)))

    @property
    def kind(self) -> Kind:
        """exponential, linear, fixed or steps."""
        return _KIND_NAMES[c.Policy_kind(self._handle)]

    @property
    def initial(self) -> float:
        """The delay after the first failure before jitter, in seconds."""
        return seconds(self._steps[0]) if self._steps else self._initial

    @property
    def factor(self) -> float:
        """What each delay is multiplied by; 1 for any kind but exponential."""
        return self._factor

    @property
    def steps(self) -> tuple[float, ...]:
        """Kind steps: the delays, in seconds; else none."""
        return tuple(map(seconds, self._steps))

    @property
    def jitter(self) -> Jitter:
        """none, spread, equal, full or decorrelated."""
        return _JITTER_NAMES[c.Policy_jitter(self._handle)]

    @property
    def spread(self) -> float:
        """Jitter spread: its ratio, as 0.2 for 20 % to either side; else 0."""
        return self._spread if self.jitter == "spread" else 0.0

    @property
    def max_attempts(self) -> int:
        """How often a handler sees a message in all; 0: no limit."""
        return c.Policy_max_attempts(self._handle)

    @property
    def max(self) -> float:
        """The cap in force, in seconds."""
        return seconds(c.Policy_max_ms(self._handle))

    @property
    def max_age(self) -> float:
        """From the first failure, in seconds; 0: no limit."""
        return seconds(c.Policy_max_age_ms(self._handle))

    @property
    def max_retry_after(self) -> float:
        """Cap on what a handler may ask for, in seconds."""
        return seconds(c.Policy_max_retry_after_ms(self._handle))

    @property
    def max_crashes(self) -> int:
        """Crashes at which a message waits, before a handler sees it again; 0: no limit."""
        return c.Policy_max_crashes(self._handle)

    def delay(self, attempt: int, *, previous: Seconds = 0, random: float = 0.5) -> float:
        """The delay after the attempt-th failure, in seconds.

        :param attempt: 1, 2, ...
        :param previous: the delay before this one, for jitter decorrelated
        :param random: the random number, from 0 to below 1
        """
        count = whole("attempt", attempt, 1)
        u = real("random", random, "give a number from 0 to below 1")
        return seconds(c.Policy_delay_ms(self._handle, count, milliseconds(previous, "previous"), u))

    def row(self, attempt: int) -> PreviewRow:
        """The delay after the attempt-th failure by the formula alone, before it waits on a rung."""
        handle, attempt = self._handle, whole("attempt", attempt, 1)
        return PreviewRow(
            attempt,
            seconds(c.Policy_lowest_ms(handle, attempt)),
            seconds(c.Policy_mean_ms(handle, attempt)),
            seconds(c.Policy_highest_ms(handle, attempt)),
            seconds(c.Policy_total_ms(handle, attempt)),
        )

    def preview(self, failures: int | None = None) -> Preview:
        """The lowest, mean and highest delay after each failure, as the ladder's rungs make them, and their running
        total, in seconds. Of another strategy or series, Topology.preview tells. A policy that the ladder cannot serve
        is shown by its formula.

        :param failures: how many, 10,000 at most; default: all that are retried, at most 20
        """
        from .topology import Topology

        try:
            return Topology("preview", self).preview(failures)
        except StrategyError:
            return Preview(map(self.row, self._failures(failures)))

    def _failures(self, count: int | None) -> Iterable[int]:
        """Those that a preview shows."""
        if count is None:
            count = min(_ROWS, self.max_attempts - 1) if self.max_attempts else _ROWS
        return range(1, whole("failures", count, 0, _MOST_ROWS) + 1)

    def _given(self) -> dict[str, Any]:
        """What makes an equal policy."""
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
        }

    def __eq__(self, other: object) -> bool:
        return self._given() == other._given() if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._given().values()))

    def __repr__(self) -> str:
        values = (
            f"{name}={f'{value:g}' if type(value) is float and float(f'{value:g}') == value else repr(value)}"
            for name, value in self._given().items()
        )
        return f"Policy({', '.join(values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self._given(),)


def _remake(fields: dict[str, Any]) -> Policy:
    return Policy(**fields)


def _delay_ms(name: str, value: Seconds) -> int:
    return span_ms(name, value, 1, LONGEST_MS, refused=PolicyError)


def _limit_ms(name: str, value: Seconds) -> int:
    return span_ms(name, value, 0, LONGEST_MS, refused=PolicyError)


def _count(name: str, value: object) -> int:
    return whole(name, value, 0, _MOST_ATTEMPTS, refused=PolicyError)
