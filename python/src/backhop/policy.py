"""Policy: how long, how often, how random, when to give up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from . import _backhop as c
from ._core import made, number
from ._errors import error
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
_ROWS = 20


class PreviewRow(NamedTuple):
    """The delay after one failure, in seconds."""

    attempt: int
    lowest: float
    mean: float
    highest: float
    total: float
    """Sum of the means up to this attempt."""


class Preview(tuple[PreviewRow, ...]):
    """What a policy will do: a tuple of PreviewRow that prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        cells: list[tuple[str, ...]] = [("failure", "lowest", "mean", "highest", "total")]
        cells += [(str(row.attempt), *map(duration, row[1:])) for row in self]
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
    :param max_crashes: a message whose consumers were lost this often while they held it is parked before a handler
        sees it again, as far as quorum queues count; 0: no limit; default 5
    :raises PolicyError: for a field out of its range, or fields that contradict each other

    >>> Policy(initial=10, factor=3, max=3600, jitter=0.2, max_attempts=8).preview()
    failure       lowest         mean      highest        total
          1          8 s         10 s         12 s         10 s
          2         24 s         30 s         36 s         40 s
          3   1 min 12 s   1 min 30 s   1 min 48 s   2 min 10 s
          4   3 min 36 s   4 min 30 s   5 min 24 s   6 min 40 s
          5  10 min 48 s  13 min 30 s  16 min 12 s  20 min 10 s
          6  32 min 24 s  40 min 30 s  48 min 36 s     1 h 40 s
          7       40 min       50 min          1 h   1 h 50 min
    """

    __slots__ = ("_fields", "_handle")

    def __init__(
        self,
        initial: Seconds = 1,
        factor: float = 2,
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
        steps = tuple(steps)
        self._fields: dict[str, Any] = {
            "initial": initial,
            "factor": factor,
            "max": max,
            "jitter": jitter,
            "max_attempts": max_attempts,
            "kind": kind or ("steps" if steps else "exponential"),
            "steps": steps,
            "max_age": max_age,
            "max_retry_after": max_retry_after,
            "max_crashes": max_crashes,
        }
        handle = self._handle = made(c.bh_policy_new())
        self._check(c.Policy_set_kind(handle, number(_KINDS, self._fields["kind"], "kind")))
        self._check(c.Policy_set_initial_ms(handle, milliseconds(initial)))
        self._check(c.Policy_set_factor(handle, factor))
        if max is not None:
            self._check(c.Policy_set_max_ms(handle, milliseconds(max)))
        for step in steps:
            self._check(c.Policy_add_step_ms(handle, milliseconds(step)))
        if isinstance(jitter, str):
            self._check(c.Policy_set_jitter(handle, number(_JITTERS, jitter, "jitter"), _SPREAD))
        else:
            self._check(c.Policy_set_jitter(handle, c.BH_JITTER_SPREAD, jitter))
        if max_attempts is not None:
            self._check(c.Policy_set_max_attempts(handle, max_attempts))
        self._check(c.Policy_set_max_age_ms(handle, milliseconds(max_age)))
        self._check(c.Policy_set_max_retry_after_ms(handle, milliseconds(max_retry_after)))
        self._check(c.Policy_set_max_crashes(handle, max_crashes))
        self._check(c.Policy_check(handle))

    def _check(self, status: int) -> None:
        if status:
            raise error(status, c.Policy_error(self._handle))

    @property
    def kind(self) -> Kind:
        """exponential, linear, fixed or steps."""
        return _KIND_NAMES[c.Policy_kind(self._handle)]

    @property
    def jitter(self) -> Jitter:
        """none, spread, equal, full or decorrelated."""
        return _JITTER_NAMES[c.Policy_jitter(self._handle)]

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
        """Crashes at which a message is parked before a handler sees it again; 0: no limit."""
        return c.Policy_max_crashes(self._handle)

    def delay(self, attempt: int, *, previous: Seconds = 0, random: float = 0.5) -> float:
        """The delay after the attempt-th failure, in seconds.

        :param attempt: 1, 2, ...
        :param previous: the delay before this one, for jitter decorrelated
        :param random: the random number, from 0 to below 1
        """
        return seconds(c.Policy_delay_ms(self._handle, attempt, milliseconds(previous), random))

    def row(self, attempt: int) -> PreviewRow:
        """The preview of the attempt-th failure."""
        handle = self._handle
        return PreviewRow(
            attempt,
            seconds(c.Policy_lowest_ms(handle, attempt)),
            seconds(c.Policy_mean_ms(handle, attempt)),
            seconds(c.Policy_highest_ms(handle, attempt)),
            seconds(c.Policy_total_ms(handle, attempt)),
        )

    def preview(self, failures: int | None = None) -> Preview:
        """The lowest, mean and highest delay after each failure, and their running total, in seconds.

        :param failures: how many; default: all that are retried, at most 20
        """
        if failures is None:
            failures = min(_ROWS, self.max_attempts - 1) if self.max_attempts else _ROWS
        return Preview(self.row(attempt) for attempt in range(1, failures + 1))

    def __eq__(self, other: object) -> bool:
        return self._fields == other._fields if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._fields.values()))

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self._fields,)


def _remake(fields: dict[str, Any]) -> Policy:
    return Policy(**fields)
